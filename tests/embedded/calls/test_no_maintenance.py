"""A log without a maintenance thread, in a simulated process: what is due is done when its caller asks."""

from __future__ import annotations

from dataclasses import replace

from tests.sim import SimRing
from tests.sim.world.sim_file import SimFile
from topics.config import tiny_config
from topics.embedded.log import Log

_SYNC_MS = 20


def is_durable(ring: SimRing, text: bytes) -> bool:
    """A power cut would leave it for certain."""
    shard = "/srv/topics/wal/shard-00"
    files = [ring.disk.find(f"{shard}/{name}") for name in ring.list_directory(shard)]
    return any(text in file.durable for file in files if isinstance(file, SimFile))


def drive(log: Log, ring: SimRing, for_ms: int) -> None:
    """Drive as an idle caller does."""
    until_ns = ring.clock.monotonic_ns() + for_ms * 1_000_000
    while ring.clock.monotonic_ns() < until_ns:
        wait_ns = log._driver.drive_due()
        due_ns = [ring.clock.monotonic_ns() + max(wait_ns, 1000)] if wait_ns is not None else []
        ring.events.advance_to(min([*due_ns, until_ns]))


def test_what_was_written_is_synced_when_that_is_due_and_not_when_something_else_is() -> None:
    """R-DUR-1, class `disk`. A timer begins the sync, and only the pass after it sends it off; it was a second late."""
    ring = SimRing(1)
    ring.disk.make_directory("/srv")
    log = Log(replace(tiny_config("/srv/topics"), sync_every_ms=_SYNC_MS), ring, ring.clock)
    log.append("a", ["creates the topic, which is synced"])
    drive(log, ring, 2 * _SYNC_MS)
    log.append("a", ["the record"])
    assert not is_durable(ring, b"the record")
    drive(log, ring, 2 * _SYNC_MS)
    assert is_durable(ring, b"the record")
    log.close()
