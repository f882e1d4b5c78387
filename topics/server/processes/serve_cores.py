"""The process that starts a process for each core: the supervisor, its loop, and its signals.

It prepares the data directory and holds the port, without listening, between the lives of cores. To
them it is a service manager: each reports to a socket of its own, so that the sender is known.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from topics import __version__
from topics.config import Config
from topics.engine.moves.set_cores import set_cores
from topics.loop.loop import Loop
from topics.loop.signals import install_signal_handlers
from topics.server.cores.core_processes import ChildProcesses, CoreProgram
from topics.server.cores.settings_file import write_settings
from topics.server.cores.supervisor import Supervisor
from topics.server.gate import ServerState
from topics.server.heap import freeze_all, tend_heap
from topics.server.port_file import shown_address, write_port_file
from topics.server.processes.composition import STOP_SIGNALS, ServerProcess, prepared
from topics.server.processes.core_locks import wait_for_cores
from topics.server.service_manager import ServiceReports, service_manager_of
from topics.server.startup import check_offered
from topics.store.archive.joint_timeline import choose_joint, leave_joint
from topics.store.cores.core_directories import MAILBOX_NAME, REPORTS_NAME, CoreDirectories, core_directory
from topics.store.cores.slot_map import check_cores
from topics.store.disk.data_directory import LockedDirectory, sync_parents
from topics.store.disk.directory_format import CORES

_log = logging.getLogger("topics.server")

WATCHDOG_NS = 180_000_000_000
"""A core whose loop has made no pass for so long is killed, as by the unit of packaging/."""
_REPORT_BYTES = 4096
_NOT_INHERITED = ("TOPICS_API_KEYS", "WATCHDOG_PID")
"""Variables of this process that those of cores do not get."""
_RECEIVE_BUFFERS = 4
_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD)


def serve_cores(config: Config, cores: int, program: str) -> int:
    """Run a server of this many cores until SIGINT or SIGTERM. Return the exit code.

    program: the module that the process of a core runs. It gets the number of the core, and the
    descriptors of `serve_core` and of a file with the settings.
    Raises: UsageError, StorageError or OSError for an error before any core is started.
    """
    check_cores(cores)
    check_offered(config, cores)
    if cores == CORES:
        with prepared(config, config) as start:
            _return_to_one(start.loop, config, start.directory)
            return ServerProcess(start.loop, config, start.directory, start.max_connections).run(start.io_reason)
    of_ring = replace(config, receive_buffers=_RECEIVE_BUFFERS, spin_us="0")
    with prepared(config, of_ring) as start:
        return CoresProcess(start.loop, config, cores, program).run(start.directory)


def _return_to_one(loop: Loop, config: Config, directory: LockedDirectory) -> None:
    """Give the data directory one core. Raises: as `_with_cores`."""
    uninstall = install_signal_handlers(loop, _end_early, (*STOP_SIGNALS, signal.SIGHUP))
    try:
        loop.run_task(_with_cores(loop, config, directory, CORES))
    finally:
        uninstall()


def _end_early(number: int) -> None:
    """End this process at once for a signal to stop, before it has a server.

    Slots may be moving: it ends as by a kill, which they survive at any step.
    """
    if number in STOP_SIGNALS:
        _log.info("stopped before the cores; the next start completes what was begun, or takes it back")
        os._exit(0)


async def _with_cores(loop: Loop, config: Config, directory: LockedDirectory, cores: int) -> CoreDirectories | None:
    """Give the data directory this many cores. Return its layout; None: of one core.

    Raises: as `wait_for_cores` and `set_cores`.
    """
    await wait_for_cores(loop, config)
    await sync_parents(loop, directory.path, directory.made_in)
    layout = await set_cores(loop, config, cores)
    if layout is None:
        await leave_joint(loop.files, config.data_dir)
    elif config.archive_dir:
        await choose_joint(loop, layout)
    return layout


async def _remove_sockets(loop: Loop, directories: Iterable[str]) -> None:
    """Remove the sockets of cores that have ended. Those of a killed process stay until a stop."""
    for directory in directories:
        for name in (MAILBOX_NAME, REPORTS_NAME):
            try:
                await loop.files.unlink(f"{directory}/{name}")
            except OSError as error:
                if error.errno != errno.ENOENT:
                    _log.warning("the socket %s of a core stays: %s", error.filename, error.strerror)


class CoresProcess:
    """The supervisor of cores, with the reports and the signals of its process. It runs once.

    The constructor binds the port. Raises: OSError, it is not available.
    """

    def __init__(self, loop: Loop, config: Config, cores: int, program: str) -> None:
        self._loop = loop
        self._config = config
        self._program = program
        self._port_fd, self._address = loop.ring.bind_port(config.host, config.port)
        self._settings_fd = write_settings(replace(config, port=self._address[1], port_file=""))
        self._processes = ChildProcesses(self._program_of, self._on_exit)
        self._codes: list[int] = []
        self._supervisor = Supervisor(loop, self._processes, cores, watchdog_ns=WATCHDOG_NS, on_end=self._codes.append)
        self._is_prepared = False
        self._silent = set(range(cores))
        """Cores that have not reported yet. From its first report on a core listens."""
        self._has_failed = False
        """Whether all were stopped because of an error of this process."""
        self._began_ns = loop.clock.monotonic_ns()
        self._has_said = False
        """Whether the log has that all were ready."""
        manager = service_manager_of(os.environ, os.getpid())
        self._reports = None if manager is None else ServiceReports(loop, manager, self)

    # --- what is reported ---------------------------------------------------------------------------------------------
    @property
    def state(self) -> ServerState:
        if self._supervisor.is_stopping:
            return ServerState.DRAINING
        return ServerState.SERVING if self._supervisor.was_ready else ServerState.RECOVERING

    def status(self) -> str:
        return self._supervisor.status() if self._is_prepared else "preparing the directories of cores"

    # --- life ---------------------------------------------------------------------------------------------------------
    def run(self, directory: LockedDirectory) -> int:
        """Run until no core is left. Return the exit code.

        directory: the data directory, locked. Raises: the errors of `set_cores`; OSError.
        """
        loop, cores = self._loop, len(self._supervisor.states)
        leave_heap = tend_heap()
        freeze_all()
        uninstall = install_signal_handlers(self._loop, self._on_signal, _SIGNALS)
        try:
            if self._reports is not None:
                self._reports.start()
            layout = loop.run_task(_with_cores(loop, self._config, directory, cores))
            assert layout is not None, "several cores have core directories"
            for sentence in layout.damage:
                _log.warning("%s", sentence)
            for core in range(cores):
                path = f"{layout.path_of(core)}/{REPORTS_NAME}"
                loop.open_datagrams(path, _REPORT_BYTES, partial(self._on_report, core))
            _log.info(
                "topics %s on http://%s, data in %s; %d cores, each a process",
                __version__,
                shown_address(self._address),
                self._config.data_dir,
                cores,
            )
            self._is_prepared = True
            self._supervisor.start()
            loop.run_until(lambda: bool(self._codes))
            loop.run_task(_remove_sockets(loop, [layout.path_of(core) for core in range(cores)]))
        finally:
            uninstall()
            leave_heap()
            self._processes.close()
            for fd in (self._port_fd, self._settings_fd):
                loop.files.close_nowait(fd)
        return 1 if self._has_failed else self._codes[0]

    def _program_of(self, core: int, life: int) -> CoreProgram:
        """Return the program of a core. Neither its arguments nor its variables have keys."""
        arguments = [sys.executable, "-P", "-m", self._program, str(core), str(life), str(self._settings_fd)]
        own = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        reports = f"{core_directory(os.path.abspath(self._config.data_dir), core)}/{REPORTS_NAME}"
        own |= {"NOTIFY_SOCKET": reports, "WATCHDOG_USEC": str(WATCHDOG_NS // 1000)}
        return CoreProgram(sys.executable, arguments, own)

    # --- what comes ---------------------------------------------------------------------------------------------------
    def _on_signal(self, number: int) -> None:
        if not self._is_prepared:
            _end_early(number)
        elif number == signal.SIGCHLD:
            self._processes.look()
        else:
            self._supervisor.on_signal(number)
            self._look()

    def _on_exit(self, core: int, code: int) -> None:
        self._supervisor.on_exit(core, code)
        self._look()

    def _on_report(self, core: int, fd: int, message: bytes) -> None:
        if fd >= 0:
            self._loop.files.close_nowait(fd)
        if fd != -errno.EBADMSG:
            _log.warning("a report of core %d is none", core)
            return
        self._supervisor.on_report(core, message.decode(errors="replace"))
        if core in self._silent:
            self._silent.discard(core)
            if not self._silent and self._config.port_file:
                self._write_port_file()
        self._look()

    def _write_port_file(self) -> None:
        try:
            write_port_file(self._config.port_file, self._address)
        except OSError as error:
            _log.error("the port file cannot be written, and all cores are stopped: %s", error)
            self._has_failed = True
            self._supervisor.on_signal(signal.SIGTERM)

    def _look(self) -> None:
        """Note what has changed."""
        if self._supervisor.was_ready and not self._has_said:
            self._has_said = True
            took_ms = (self._loop.clock.monotonic_ns() - self._began_ns) // 1_000_000
            _log.info("all cores are ready, after %d ms", took_ms)
        if self._reports is not None:
            self._reports.look()
