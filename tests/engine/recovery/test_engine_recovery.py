"""The memory of an engine over checkpoints, restarts and power cuts: the catalog, reservations, classes."""

from __future__ import annotations

import pytest

from tests.engine.harness import Harness, records
from topics.engine.values.results import Tombstone
from topics.store.format.file_table import FileKind


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_state_after_a_restart_equals_the_state_before(h: Harness) -> None:
    """R-DUR-13."""
    h.put("a", ttl_ms=100, cap_records=3)
    h.append(1, 2, 3, 4, name="a", tag="x")
    h.put("b", type="queue")
    h.append(5, name="b", key=b"k")
    h.delete(match="x", before_seq=3, name="a")
    before = [h.state(name) for name in ("a", "b")]
    h.restart()
    after = [h.state(name) for name in ("a", "b")]
    assert [state._replace(last_write_ts=None) for state in before] == after
    assert h.append(5, name="b", key=b"k").deduped  # R-DUR-12
    assert h.diff(0, "a").tombstone is not None


def test_after_a_process_kill_the_head_is_exact(h: Harness) -> None:
    """R-DUR-6."""
    h.append(1, 2, 3)
    h.restart()
    assert h.state().head_seq == 3
    assert h.append(4).first_seq == 4


def test_after_a_power_cut_no_seq_is_given_twice_and_readers_are_told(h: Harness) -> None:
    """R-DUR-6."""
    h.append(1)
    h.store.log.sync()
    h.append(2, 3)
    h.restart(power_lost=True)
    state = h.state()
    assert state.head_seq > 3
    assert (state.count, state.earliest_seq) == (1, 1)
    b = state.head_seq
    first = h.diff(0)
    assert (first.count, first.next_from_seq, first.caught_up, first.tombstone) == (1, 1, False, None)
    second = h.diff(1)
    assert second.tombstone == Tombstone(2, b, "crash", b - 1, b + 1, b)
    assert second.caught_up
    assert h.append(9).first_seq == b + 1
    assert h.diff(5).tombstone == Tombstone(6, b, "crash", b - 5, b + 1, b + 1)
    assert h.diff(b).tombstone is None


def test_a_crash_gap_stays_told_across_restarts_and_when_all_below_is_gone(h: Harness) -> None:
    """R-DUR-9."""
    h.append(1)
    h.append(2)
    h.restart(power_lost=True)
    b = h.state().head_seq
    h.append(9)
    h.restart()
    assert h.diff(1).tombstone is not None
    h.delete(before_seq=2)
    tombstone = h.diff(0).tombstone
    assert tombstone == Tombstone(1, b, "crash", b, b + 1, b + 1)
    h.restart()
    assert h.diff(0).tombstone == tombstone
    assert h.seqs(0) == [b + 1]


def test_an_append_beyond_the_reservation_waits_for_a_synced_one(h: Harness) -> None:
    """R-DUR-6: an append that would pass the reservation waits for it; others do not."""
    h.put()
    h.start_append(records(1))
    assert h.store.log.filling.synced
    h.settle()
    h.start_append(records(2))
    assert not h.store.log.filling.synced
    h.settle()
    h.start_append(records(*range(1000)))
    assert h.store.log.filling.synced


def test_a_reservation_grows_ahead_of_use_and_no_write_waits_for_it(h: Harness) -> None:
    """R-DUR-6: grown ahead of use; it counts from when it is on stable storage."""
    h.append(*range(1000))
    topic = h.engine._core.registry.by_name["t"]
    before = topic.reserved
    while not topic.growing:
        h.start_append(records(*range(1000)))
        assert not h.store.log.filling.synced
        h.settle()
    assert topic.reserved == before
    h.store.log.sync()
    assert not topic.growing
    assert topic.reserved > before
    h.start_append(records(*range(1000)))
    assert not h.store.log.filling.synced
    h.settle()
    head = h.state().head_seq
    h.restart(power_lost=True)
    assert h.append(1).first_seq > head


def test_a_reservation_on_its_way_is_void_after_a_snapshot(h: Harness) -> None:
    """R-DUR-6: the snapshot has released it, so nothing may be given out by it."""
    h.append(*range(1000))
    topic = h.engine._core.registry.by_name["t"]
    while not topic.growing:
        h.append(*range(1000))
    h.checkpoint()
    h.store.log.sync()
    assert topic.reserved == topic.next_seq - 1
    h.start_append(records(1))
    assert h.store.log.filling.synced


def test_no_power_cut_makes_a_disk_topic_reuse_an_acknowledged_seq(h: Harness) -> None:
    acknowledged = 0
    for size in (1, 5, 300, 1, 700, 2, 3000, 4):
        acknowledged = h.append(*range(size)).last_seq
    h.restart(power_lost=True)
    assert h.append(1).first_seq > acknowledged


def test_after_a_graceful_stop_the_head_is_exact_even_if_the_machine_goes_down_later(h: Harness) -> None:
    """R-DUR-6 [+]: also when the newest records had been deleted."""
    h.append(1, 2, 3)
    h.delete(before_seq=4)
    h.checkpoint()
    h.store.log.sync()
    h.restart(power_lost=True)
    state = h.state()
    assert (state.head_seq, state.count) == (3, 0)
    assert h.append(4).first_seq == 4


def test_fsync_topics_have_no_reservation_and_no_gap(h: Harness) -> None:
    h.put(durability="fsync")
    h.append(1, 2)
    h.restart(power_lost=True)
    assert h.state().head_seq == 2
    assert h.seqs() == [1, 2]


def test_changing_to_fsync_releases_the_reservation(h: Harness) -> None:
    """R-CFG-3."""
    h.append(1)
    h.put(durability="fsync")
    h.append(2)
    h.restart(power_lost=True)
    assert h.state().head_seq == 2
    assert h.diff(2).tombstone is None


def test_cap_evictions_are_still_told_after_restarts_and_changes(h: Harness) -> None:
    """R-DUR-8."""
    h.put(cap_records=2)
    h.append(1, 2, 3, 4)
    h.delete(before_seq=None, match="none")
    h.put(cap_records=50)
    h.append(5)
    h.restart()
    assert h.seqs() == [3, 4, 5]
    tombstone = h.diff(0).tombstone
    assert tombstone is not None
    assert (tombstone.gap_to, tombstone.reason) == (2, "cap")


def test_a_clock_that_steps_back_brings_nothing_back(h: Harness) -> None:
    """R-FLOOR-5."""
    h.put(ttl_ms=10)
    h.append(1)
    h.advance_ms(11)
    assert h.state().count == 0
    h.loop.clock.step_wall_ms(-1000)
    h.restart()
    assert h.state().count == 0
    assert h.diff(0).tombstone is not None


def test_a_deleted_and_recreated_topic_recovers_as_the_new_one(h: Harness) -> None:
    h.append("old")
    h.delete_topic()
    h.append("new")
    h.restart()
    assert [record["data"] for record in h.read()] == ["new"]
    h.checkpoint()
    h.restart()
    assert [record["data"] for record in h.read()] == ["new"]
    h.delete_topic()
    h.append("newest")
    h.restart()
    assert [record["data"] for record in h.read()] == ["newest"]


# --- ephemeral -------------------------------------------------------------------------------------------------------
def test_ephemeral_records_live_in_memory_and_only_the_head_survives(h: Harness) -> None:
    """R-DUR-5."""
    h.put(durability="ephemeral", cap_records=3, ttl_ms=100)
    size = h.store.log.file.size
    assert h.start_append(records(1, 2, 3, 4)).get().last_seq == 4
    assert h.start_append(records(5, tag="x"), key=b"k").given
    assert h.start_append(records(5), key=b"k").get().deduped
    assert h.start_delete(match="x").get().deleted == 1
    assert h.start_diff(0).get().count == 2
    h.advance_ms(101)
    assert h.start_diff(0).get().tombstone.reason == "mixed"
    assert h.store.log.file.size == size
    h.append(6)
    h.checkpoint()
    h.restart()
    assert (h.state().head_seq, h.state().count) == (6, 0)
    assert h.append(7).first_seq == 7


def test_a_topic_that_becomes_durable_keeps_its_head_and_readers_find_all(h: Harness) -> None:
    h.put(durability="ephemeral")
    h.append(1, 2)
    h.put(durability="fsync")
    h.append(3)
    assert h.seqs() == [1, 2, 3]
    h.restart(power_lost=True)
    assert h.state().head_seq == 3
    assert h.seqs() == [3]


def test_a_topic_that_becomes_ephemeral_is_empty_after_a_restart(h: Harness) -> None:
    h.append(1)
    h.put(durability="ephemeral")
    h.append(2)
    assert h.seqs() == [1, 2]
    h.restart()
    assert h.state().count == 0


def test_memory_chunks_go_when_their_records_are_gone(h: Harness) -> None:
    h.put(durability="ephemeral", cap_records=10)
    for _ in range(40):
        h.append("x" * 100_000)
    memory = [file for file in h.store.files if file.kind is FileKind.MEMORY]
    assert len(memory) <= 11
    assert sum(file.live_rows for file in memory) == 10
