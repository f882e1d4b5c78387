"""The time of all cores that a record ends: a millisecond, in which a log may have several commits (R-CORE-18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec
import numpy as np
import pytest

from tests.store.archive.archive_world import ARCHIVE, archived, filled, held, restored, wait
from tests.store.store_world import StoreWorld
from topics.engine.recovery.known_seqs import IdAndHead
from topics.engine.recovery.time_of_record import removing_frames, time_of_record
from topics.engine.state.control_frames import RemovalPayload
from topics.errors import UsageError
from topics.store.archive.joint_point import Joint
from topics.store.archive.timelines import find_timelines
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import MapState, StoredMap
from topics.store.format.log_format import FrameType
from topics.store.recovery.verified_batches import VerifiedBatches

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


def test_a_record_that_was_removed_in_its_millisecond_is_refused(world: StoreWorld) -> None:
    seqs = []
    for number in range(20):
        world.append(1, 1, fsync=False)
        seqs.append(world.catalog.topics[1].head)
        if number % 2:
            world.delete(1, seqs[-1:])
        wait(world, 1 + number % 3)
    archived(world)
    found = {seq: outcome(world, "t1", seq) for seq in seqs}
    removed = [said for _at_ms, said in found.values() if "may have been removed in the same millisecond" in said]
    assert len(removed) == 10
    for seq, (at_ms, refused) in found.items():
        if not refused:
            world = restored(world, at_ms)
            assert held(world)[1][-1] == seq


@pytest.mark.parametrize(
    ("kind", "payload", "is_removed"),
    [
        (FrameType.DELETE_RECORDS, RemovalPayload(12, before=11), False),
        (FrameType.DELETE_RECORDS, RemovalPayload(12, before=12, match=(True, "a")), True),
        (FrameType.DELETE_RECORDS, RemovalPayload(10), False),
        (FrameType.CONSUME, RemovalPayload(12, seqs=[1, 10, 12, 12]), False),
        (FrameType.CONSUME, RemovalPayload(12, seqs=[1, 2, 10, 12]), True),
        (FrameType.FLOORS, RemovalPayload(12, cap=(1, 0), ttl=10, evicted=10), False),
        (FrameType.FLOORS, RemovalPayload(12, ttl=11), True),
        (FrameType.FLOORS, RemovalPayload(12, evicted=11), True),
        (FrameType.FLOORS, RemovalPayload(12, seqs=[11, 11]), True),
    ],
)
def test_a_frame_that_removes_other_records_does_not_count(
    kind: FrameType, payload: RemovalPayload, is_removed: bool
) -> None:
    class Batches(NamedTuple):
        frames: np.ndarray = np.array([(kind, 1)], [("type", np.uint8), ("topic_id", np.uint64)])

        def payload(self, at: int) -> bytes:
            return msgspec.json.encode((payload,)[at])

    batches = cast("VerifiedBatches", Batches())
    assert removing_frames(batches, 1, 11) == [0] * is_removed
    assert removing_frames(batches, 2, 11) == []


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
