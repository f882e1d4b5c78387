"""A wall clock that is set moves no checkpoint, and at most forgets keys that it finds too old."""

from __future__ import annotations

import pytest

from tests.contract.world.sim_world import SimWorld

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_DAY_MS = 86_400_000


def test_a_wall_clock_that_is_set_back_puts_off_no_checkpoint() -> None:
    world = SimWorld(checkpoint_every_ms=2000, checkpoint_wal_bytes=1 << 30)
    world.start()
    world.write("a", 1)
    before = world.ring.list_directory("/srv/topics/snapshots")
    world.ring.clock.step_wall_ms(-3_600_000)
    world.advance_ms(5000)
    assert world.ring.list_directory("/srv/topics/snapshots") != before


def test_a_wall_clock_that_is_set_ahead_brings_no_checkpoint() -> None:
    world = SimWorld(checkpoint_every_ms=60_000, checkpoint_wal_bytes=1 << 30)
    world.start()
    world.write("a", 1)
    before = world.ring.list_directory("/srv/topics/snapshots")
    world.ring.clock.step_wall_ms(3_600_000)
    world.advance_ms(5000)
    assert world.ring.list_directory("/srv/topics/snapshots") == before


def test_a_key_that_a_checkpoint_found_too_old_by_a_clock_far_ahead_is_new_after_a_kill() -> None:
    """R-IDEM-3, R-IDEM-4: a limit (docs/reliability.md). Until the kill the key is known, once the clock is back."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1, idempotency_key="k")
    world.step_clock_ms(_DAY_MS)
    world.write("a", 2)
    world.advance_ms(_CHECKPOINT_MS)
    world.step_clock_ms(-_DAY_MS)
    assert world.write("a", 1, idempotency_key="k")["deduped"]
    world.crash_and_start()
    assert not world.write("a", 1, idempotency_key="k")["deduped"]
