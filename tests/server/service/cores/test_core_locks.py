"""Locks of core directories that an earlier process still holds: they are waited for, as long as a stop may take."""

from __future__ import annotations

import pytest

from tests.sim import SimRing
from topics.config import tiny_config
from topics.errors import LockedError
from topics.loop.loop import Loop
from topics.server.processes.core_locks import lock_when_free, wait_for_cores

SECOND = 1_000_000_000
CONFIG = tiny_config("/data")


class Held:
    """A data directory of which core 1 is in use."""

    def __init__(self) -> None:
        self.ring = ring = SimRing(1)
        self.loop = Loop(ring, ring.clock)
        for path in ("/data", "/data/core-00", "/data/core-01", "/data/core-02", "/data/wal"):
            ring.make_directory(path)
        ring.unlock(ring.lock("/data/core-00/lock"))
        self.held = ring.lock("/data/core-01/lock")

    def run_ns(self, ns: int) -> None:
        until = self.ring.clock.monotonic_ns() + ns
        self.loop.call_later(ns, lambda: None)
        while self.ring.clock.monotonic_ns() < until:
            self.loop.run_pass(None)


def test_all_cores_are_waited_for_and_none_gets_a_lock_that_it_had_not() -> None:
    held = Held()
    task = held.loop.spawn(wait_for_cores(held.loop, CONFIG))
    held.run_ns(5 * SECOND)
    assert not task.done
    held.ring.unlock(held.held)
    held.run_ns(SECOND)
    assert task.done
    task.result()
    assert held.ring.list_directory("/data/core-02") == []
    held.ring.unlock(held.ring.lock("/data/core-01/lock"))


def test_one_core_is_waited_for_and_has_the_lock_then() -> None:
    held = Held()
    config = tiny_config("/data/core-01")
    task = held.loop.spawn(lock_when_free(held.loop, config, core=1, number=7))
    held.run_ns(5 * SECOND)
    assert not task.done
    held.ring.unlock(held.held)
    held.run_ns(SECOND)
    directory = task.result()
    assert (directory.path, directory.core, directory.number) == ("/data/core-01", 1, 7)
    with pytest.raises(BlockingIOError):
        held.ring.lock("/data/core-01/lock")


def test_a_lock_that_is_held_for_longer_than_a_stop_may_take_is_refused() -> None:
    held = Held()
    task = held.loop.spawn(wait_for_cores(held.loop, CONFIG))
    task.when_done(lambda: None)
    held.run_ns(CONFIG.shutdown_grace_ms * 1_000_000 + 25 * SECOND)
    with pytest.raises(LockedError, match="/data/core-01 is in use by another process: stop that first"):
        task.result()
