"""The composition root: from the settings to one ring, loop and server, and to the exit code."""

from __future__ import annotations

import logging
import os
import signal
from functools import partial

from topics import __version__
from topics.clock import SystemClock
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.loop.choose import open_ring
from topics.loop.loop import Loop
from topics.loop.signals import install_signal_handlers
from topics.server.access_log_file import check_access_log
from topics.server.app import Server
from topics.server.heap import HeapWatch, freeze_recovered, tend_heap
from topics.server.port_file import shown_address
from topics.server.process_numbers import read_process
from topics.server.service_manager import ServiceReports, service_manager_of
from topics.server.startup import check_config, connection_limit, forbid_core_dumps, wait_for_port
from topics.store.backup.free_places import check_places
from topics.store.disk.data_directory import lock_directory

_log = logging.getLogger("topics.server")

LAST_ORDER = 40
"""Position among the hooks at the end of a pass, after the sends."""


def serve(config: Config) -> int:
    """Run a server until SIGINT or SIGTERM. Return the exit code.

    Raises: UsageError, StorageError or OSError for an error before the port is bound (R-LIFE-1).
    """
    check_config(config)
    check_places(config)
    if not config.core_dumps:
        forbid_core_dumps()
    limit = connection_limit(config)
    ring, io_reason = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    codes: list[int] = []

    # The reports to the service manager that started the process, if there is one
    reports: list[ServiceReports] = []

    def report() -> None:
        for each in reports:
            each.look()

    def on_ready() -> None:
        freeze_recovered()
        report()

    def on_end(code: int) -> None:
        codes.append(code)
        loop.stop()

    try:
        loop.run_task(wait_for_port(loop, config))
        check_access_log(config)
        directory = lock_directory(ring, config)
        try:
            server = Server(
                config,
                loop,
                partial(StoredEngine.open, directory=directory),
                max_connections=limit,
                read_process=read_process,
                on_ready=on_ready,
                on_end=on_end,
            )
            config = server.config
            manager = service_manager_of(os.environ, os.getpid())
            if manager is not None:
                reports.append(ServiceReports(loop, manager, server))
            signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

            def on_signal(number: int) -> None:
                if number == signal.SIGHUP:
                    server.hang_up()
                else:
                    server.stop()
                    report()

            uninstall = install_signal_handlers(loop, on_signal, signals)
            leave_heap = tend_heap()
            loop.on_pass_end(HeapWatch(loop.clock.monotonic_ns).look, LAST_ORDER)
            try:
                server.start()
                for each in reports:
                    each.start()
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
                loop.run()
            finally:
                leave_heap()
                uninstall()
        finally:
            directory.release()
        return codes[0] if codes else 0
    finally:
        loop.close()
