"""A disk that fills up, on the real store: deletes give space back without a restart. R-DUR-16."""

import errno

import numpy as np
import pytest

from tests.engine.harness import Answer, records
from tests.engine.real_world import RealWorld
from topics.engine.verify import StateVerifier
from topics.errors import DiskFullError
from topics.store.wal import commit_callbacks

CAPACITY = 3 << 20


def filled(**config: int) -> tuple[RealWorld, int]:
    """A world whose disk is full, and the highest seq that was acknowledged."""
    world = RealWorld(
        checkpoint_wal_bytes=1 << 30,
        checkpoint_every_ms=1 << 40,
        **{"disk_low_water_bytes": 256 << 10, "disk_reserve_bytes": 128 << 10, **config},
    )
    world.put(durability="fsync")
    world.ring.disk.capacity_bytes = CAPACITY
    acknowledged = 0
    while True:
        answer: Answer = world.start_append(records(*["x" * 900] * 20, tag="x"))
        world.until(lambda answer=answer: answer.given)
        try:
            acknowledged = answer.get().last_seq
        except DiskFullError:
            return world, acknowledged


@pytest.mark.parametrize("by", ["seq", "tag"])
def test_deletes_on_a_full_disk_give_space_back_and_appends_resume(by: str) -> None:
    """R-DUR-16."""
    world, head = filled()
    if by == "seq":
        world.delete(before_seq=head)
    else:
        world.delete(match="x")
    world.advance_ms(6000)
    assert not world.real_store.log.disk_full
    assert world.append(1).first_seq > head
    live = world.seqs()
    world.restart()
    assert world.seqs() == live


def test_a_full_disk_still_stops_well_and_loses_nothing() -> None:
    """R-DUR-16."""
    world, head = filled(disk_low_water_bytes=0)
    world.restart(graceful=True)
    assert world.state().head_seq >= head
    assert world.state().count >= head


def test_when_half_of_the_records_die_the_rest_is_copied_as_far_as_there_is_space() -> None:
    """R-DUR-16."""
    world, head = filled()
    world.delete(before_seq=head // 2)
    world.advance_ms(10_000)
    assert not world.real_store.log.disk_full
    assert world.seqs()[0] == head // 2
    world.restart()
    assert world.seqs()[0] == head // 2


def test_a_server_killed_again_and_again_on_a_full_disk_starts_each_time() -> None:
    """R-DUR-16: a start writes the end of the log again, and what the start before wrote for that is given back."""
    world, head = filled()
    for _ in range(8):
        world.restart()
        assert world.state().count >= head
    world.delete(before_seq=head)
    world.advance_ms(6000)
    assert world.append(1).first_seq > head


def test_topics_whose_commit_fails_are_undone_some_a_pass_and_none_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of 10,000 creations was undone in one pass of 60 ms.

    Each is two callbacks of the commit, and after the first of them there is no topic any more.
    """
    monkeypatch.setattr(commit_callbacks, "CALLBACKS_A_PASS", 9)
    world = RealWorld(commit_in_place_max_us=0)
    world.append(1)
    world.ring.faults.fail("write", errno.ENOSPC, path_part="/wal/")
    answers = [world.start_append(records(1), f"new-{number}") for number in range(30)]
    more = [world.start_append(records(2, 3)) for _ in range(5)]
    registry, usage = world.engine._core.registry, world.engine._core.usage
    verifier = StateVerifier(registry, usage, world.store.files)
    undone = [0]
    while undone[-1] < 30:
        world.real_loop.run_pass(None)
        undone.append(31 - len(registry.by_name))
        assert sum(answer.given for answer in answers) == undone[-1], "who learns of it can ask again"
        verifier.check_all()
        assert registry.by_name["t"].head == 1
    assert 0 < max(np.diff(undone)) <= 9
    world.until(lambda: all(answer.given for answer in more))
    for answer in [*answers, *more]:
        with pytest.raises(DiskFullError):
            answer.get()
    world.advance_ms(6000)
    assert world.append(1, name="new-3").first_seq == 1
    assert world.append(1).first_seq > 1
    world.restart()
    assert world.engine.stats().topics == 2
