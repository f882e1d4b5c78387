"""Locks of core directories that processes of an earlier supervisor may still hold.

A supervisor that was killed is outlived by its cores for as long as they need to stop. Its own lock
is free meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from topics.config import Config
from topics.errors import LockedError
from topics.loop.loop import Loop
from topics.store.cores.core_directories import CORE_PREFIX
from topics.store.disk.data_directory import LockedDirectory, lock_directory

T = TypeVar("T")

_log = logging.getLogger("topics.server")

_CLOSE_NS = 20_000_000_000
"""Time that a stop may take after its connections have ended."""
_LOOK_EVERY_NS = 10_000_000


async def lock_when_free(loop: Loop, config: Config, *, core: int, number: int) -> LockedDirectory:
    """Lock the directory of a core as `lock_directory` does, once no other process holds it.

    Raises: LockedError, it is held for longer than a stop may take; StorageError.
    """

    def lock() -> LockedDirectory:
        return lock_directory(loop.ring, config, core=core, number=number)

    return await _when_free(loop, config, config.data_dir, lock)


async def wait_for_cores(loop: Loop, config: Config) -> None:
    """Return once no process holds the lock of a core directory.

    Raises: LockedError, one is held for longer than a stop may take; OSError.
    """
    for name in loop.files.list_directory(config.data_dir):
        path = f"{config.data_dir}/{name}"
        if name.startswith(CORE_PREFIX):
            with suppress(FileNotFoundError, NotADirectoryError):
                lock = partial(loop.ring.lock, f"{path}/lock", shared=True)
                loop.ring.unlock(await _when_free(loop, config, path, lock))


async def _when_free(loop: Loop, config: Config, path: str, lock: Callable[[], T]) -> T:
    """Return what `lock` returns, once it does not raise that another process holds it."""
    until_ns = loop.clock.monotonic_ns() + config.shutdown_grace_ms * 1_000_000 + _CLOSE_NS
    has_said = False
    while True:
        try:
            return lock()
        except (BlockingIOError, LockedError) as error:
            if loop.clock.monotonic_ns() >= until_ns:
                raise LockedError(f"{path} is in use by another process: stop that first") from error
        if not has_said:
            has_said = True
            _log.info("%s is in use, and waited for", path)
        await loop.sleep(_LOOK_EVERY_NS)
