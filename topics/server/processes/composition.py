"""The composition root: from the settings to one ring, loop and server, and to the exit code.

A process that serves by itself and that of a core differ only in what they do before (`serve`,
`serve_core`), and share the rest (`ServerProcess`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy.ma  # noqa: F401 - the first call of np.unique would, which takes 7 ms of some pass

from topics import __version__
from topics.clock import SystemClock
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.loop.choose import open_ring
from topics.loop.loop import Loop, PassEnd
from topics.loop.signals import install_signal_handlers
from topics.server.access_log_file import check_access_log
from topics.server.app import Server
from topics.server.cores.neighbours import Neighbours
from topics.server.gate import ServerState
from topics.server.heap import HeapWatch, freeze_all, tend_heap
from topics.server.port_file import shown_address
from topics.server.process_numbers import read_process
from topics.server.service_manager import ServiceReports, service_manager_of
from topics.server.startup import check_config, connection_limit, forbid_core_dumps, wait_for_port
from topics.store.backup.free_places import check_places
from topics.store.disk.data_directory import LockedDirectory, lock_directory

_log = logging.getLogger("topics.server")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(config: Config) -> int:
    """Run a server until SIGINT or SIGTERM. Return the exit code.

    Raises: UsageError, StorageError or OSError for an error before the port is bound (R-LIFE-1).
    """
    with prepared(config, config) as start:
        return ServerProcess(start.loop, config, start.directory, start.max_connections).run(start.io_reason)


class Start(NamedTuple):
    """The loop of a process whose settings were checked, and the directory, locked.

    io_reason: from `open_ring`.
    """

    loop: Loop
    io_reason: str
    directory: LockedDirectory
    max_connections: int


@contextlib.contextmanager
def prepared(config: Config, ring_config: Config) -> Iterator[Start]:
    """Check the settings, and have a loop and the data directory's lock until the end.

    ring_config: the settings of the ring.
    Raises: UsageError, StorageError or OSError for an error before the port is bound (R-LIFE-1).
    """
    check_config(config)
    check_places(config)
    if not config.core_dumps:
        forbid_core_dumps()
    limit = connection_limit(config)
    ring, io_reason = open_ring(ring_config, shared=False)
    loop = Loop(ring, SystemClock())
    try:
        loop.run_task(wait_for_port(loop, config))
        check_access_log(config)
        directory = lock_directory(ring, config)
        try:
            yield Start(loop, io_reason, directory, limit)
        finally:
            directory.release()
    finally:
        loop.close()


class ServerProcess:
    """A server on a loop, with the reports and the signals of its process. It runs once.

    directory: of the server's data, locked. max_connections, neighbours: as of `Server`.
    Raises: UsageError or OSError, as `serve`.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        directory: LockedDirectory,
        max_connections: int,
        neighbours: Neighbours | None = None,
    ) -> None:
        self._loop = loop
        self._codes: list[int] = []
        self._server = Server(
            config,
            loop,
            partial(StoredEngine.open, directory=directory),
            max_connections=max_connections,
            read_process=read_process,
            on_ready=self._on_ready,
            on_end=self._on_end,
            neighbours=neighbours,
        )
        manager = service_manager_of(os.environ, os.getpid())
        self._reports = None if manager is None else ServiceReports(loop, manager, self._server)

    def run(self, io_reason: str, life: int = -1) -> int:
        """Serve until a signal, or until the other end of `life` is closed. Return the exit code.

        io_reason: from `open_ring`. life: a socket; -1: there is none.
        Raises: OSError, the port file cannot be written.
        """
        loop = self._loop
        uninstall = install_signal_handlers(loop, self._on_signal, (*STOP_SIGNALS, signal.SIGHUP))
        leave_heap = tend_heap()
        loop.on_pass_end(HeapWatch(loop.clock.monotonic_ns).look, PassEnd.LAST)
        try:
            self._server.start()
            if life >= 0:
                loop.poll_socket(life, "the end of the supervisor", self._on_end_of_life)
            if self._reports is not None:
                self._reports.start()
            self._log_start(io_reason)
            loop.run()
        finally:
            leave_heap()
            uninstall()
        return self._codes[0] if self._codes else 0

    def _on_ready(self) -> None:
        freeze_all()
        self._report()

    def _on_end(self, code: int) -> None:
        self._codes.append(code)
        self._loop.stop()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._server.hang_up()
        else:
            self._server.stop()
            self._report()

    def _on_end_of_life(self) -> bool:
        if self._server.state is not ServerState.DRAINING:  # a second stop would hurry the first
            self._on_signal(signal.SIGTERM)
        return False

    def _report(self) -> None:
        if self._reports is not None:
            self._reports.look()

    def _log_start(self, io_reason: str) -> None:
        server, config, ring = self._server, self._server.config, self._loop.ring
        _log.info(
            "topics %s on http://%s, data in %s; io: %s (%s); commit: %s; auth: %s, %d keys",
            __version__,
            shown_address(server.address),
            config.data_dir,
            ring.name,
            io_reason,
            config.commit if ring.direct_block_bytes(config.data_dir) else "link, for lack of O_DIRECT",
            "on" if server.key_count else "off",
            server.key_count,
        )
