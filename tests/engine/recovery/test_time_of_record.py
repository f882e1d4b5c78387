"""The time of all cores that a record ends: a millisecond, in which a log may have several commits (R-CORE-18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.store.archive.archive_world import ARCHIVE, archived, filled, held, restored, wait
from tests.store.store_world import StoreWorld
from topics.engine.recovery.known_seqs import IdAndHead
from topics.engine.recovery.time_of_record import time_of_record
from topics.errors import UsageError
from topics.store.archive.joint_point import Joint
from topics.store.archive.timelines import find_timelines
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import MapState, StoredMap

ONE = StoredMap(bytes(16), 1, MapState.WHOLE, SlotMap.of_first(1), (1,), 2, 1)
BASE_HEAD = 10
"""The head of topic 1 in the first base of a `filled` world."""


def time_of(world: StoreWorld, topic: str, seq: int) -> int:
    timelines = world.run(find_timelines(world.loop, ARCHIVE))
    joint = Joint(ARCHIVE, ONE, "line", [timelines])
    heads = {"t1": IdAndHead(1, BASE_HEAD)}
    found, at_ms = world.run(time_of_record(world.loop, [joint], topic, seq, lambda _base: heads))
    assert found == joint
    return at_ms


def outcome(world: StoreWorld, topic: str, seq: int) -> tuple[int, str]:
    """Return the time of a record, or why it is refused."""
    try:
        return time_of(world, topic, seq), ""
    except UsageError as error:
        return 0, str(error)


@pytest.fixture
def world() -> StoreWorld:
    """A log to which was written so fast that a millisecond has several commits."""
    made = filled(archive_base_every_ms=0, checkpoint_every_ms=1 << 30)
    for number in range(40):
        made.append(1, 1 + number % 2, fsync=False)
        if not number % 5:
            wait(made, 1)
    return made


def test_a_record_is_the_last_of_its_topic_or_refused_with_the_one_that_is(world: StoreWorld) -> None:
    """R-CORE-18."""
    head = world.catalog.topics[1].head
    archived(world)
    exact = dict[int, int]()
    for seq in range(BASE_HEAD + 1, head + 1):
        at_ms, said = outcome(world, "t1", seq)
        if said:
            assert said.startswith(f"upto is seq {seq} of topic t1, and others were written later in the same milli")
            last = int(said.partition("name seq ")[2].partition(",")[0])
            assert last > seq
            exact[last] = time_of(world, "t1", last)
        else:
            exact[seq] = at_ms
    assert 5 < len(exact) < head - BASE_HEAD - 5
    for seq, at_ms in exact.items():
        world = restored(world, at_ms)
        assert seq <= held(world)[1][-1] <= seq + 1, "a commit has up to two records"


def test_a_topic_that_ends_in_the_millisecond_of_its_record_is_refused(world: StoreWorld) -> None:
    for topic in range(2, 12):
        world.create(topic)
        world.append(topic, 1)
        world.drop(topic)
        wait(world, topic % 3)
    archived(world)
    found = {topic: outcome(world, f"t{topic}", 1) for topic in range(2, 12)}
    said = [said for _at_ms, said in found.values() if said]
    assert len(said) > 2
    assert all("which was deleted later in the same millisecond" in each for each in said)
    for topic, (at_ms, refused) in found.items():
        if not refused:
            world = restored(world, at_ms)
            assert held(world)[topic] == [1]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.argument == "upto"
    return str(caught.value)


def test_a_record_that_is_not_there_is_refused_with_the_times_of_all(world: StoreWorld) -> None:
    archived(world)
    for topic, seq in (("t1", 1000), ("t1", BASE_HEAD), ("none", 1)):
        said = refusal(lambda topic=topic, seq=seq: time_of(world, topic, seq))
        assert f"is seq {seq} of topic {topic}, whose write is not in the archive" in said
        assert "name a time in its place: 2" in said


def test_a_record_whose_time_came_twice_is_refused(world: StoreWorld) -> None:
    """A restore to that time would have another end of the log."""
    head = world.catalog.topics[1].head
    archived(world)
    world.ring.clock.step_wall_ms(-5_000)
    world.append(1, 1)
    archived_ms = world.ring.clock.now_ms()
    wait(world, 6_000)
    world.append(1, 1)
    archived(world)
    at_ms = time_of(world, "t1", head + 2)
    assert at_ms > archived_ms
    assert held(restored(world, at_ms))[1][-1] == head + 2
