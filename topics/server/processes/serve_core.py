"""The process of one core: a server that has neighbours, and ends with its supervisor."""

from __future__ import annotations

import logging
import os

from topics.clock import SystemClock
from topics.config import Config
from topics.errors import StorageError
from topics.loop.choose import open_ring
from topics.loop.loop import Loop
from topics.server.cores.core_processes import has_ended
from topics.server.cores.core_shares import cpu_of, share_of
from topics.server.cores.neighbours import Neighbours
from topics.server.processes.composition import ServerProcess
from topics.server.processes.core_locks import lock_when_free
from topics.server.startup import connection_limit, forbid_core_dumps
from topics.store.archive.joint_timeline import named_joint
from topics.store.cores.core_directories import MAILBOX_NAME, core_config, read_cores

_log = logging.getLogger("topics.server")


def serve_core(config: Config, core: int, life: int) -> int:
    """Run a core until a signal, or until its supervisor has ended. Return the exit code.

    config: of the server, with the bound port. life: a socket, whose other end the supervisor has.
    Raises: UsageError, StorageError or OSError for an error before the port is bound.
    """
    if not config.core_dumps:
        forbid_core_dumps()
    limit = connection_limit(config)
    own = core_config(config, core)
    ring, io_reason = open_ring(own, shared=False)
    loop = Loop(ring, SystemClock())
    try:
        cores = loop.run_task(read_cores(loop.files, config.data_dir))
        if cores is None:
            raise StorageError(f"{config.data_dir} has no core directories, and core {core} was to be started")
        directory = loop.run_task(lock_when_free(loop, own, core=core, number=cores.number_of(core)))
        try:
            if has_ended(life):  # another supervisor may have the directory by now
                return 0
            joint = loop.run_task(named_joint(loop.files, cores))
            own = share_of(core_config(config, core, joint), cores.slots.cores)
            _pin(config, core, cores.slots.cores)
            mailboxes = [f"{cores.path_of(each)}/{MAILBOX_NAME}" for each in range(cores.slots.cores)]
            neighbours = Neighbours(loop, cores.slots, core, mailboxes)
            limit = own.max_connections or limit
            return ServerProcess(loop, own, directory, limit, neighbours).run(io_reason, life)
        finally:
            directory.release()
    finally:
        loop.close()


def _pin(config: Config, core: int, cores: int) -> None:
    """Bind the process to a CPU of its own, if there are enough and the settings allow it."""
    cpu = cpu_of(core, cores, tuple(os.sched_getaffinity(0))) if config.pin_cores else None
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        _log.warning("core %d is bound to no CPU: %s", core, error)
