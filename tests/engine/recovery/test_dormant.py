"""Topics that no request has used since the start: their costs, and that clients see no difference."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import msgspec
import pytest

from tests.engine.harness import records
from tests.engine.real_world import RealWorld
from topics.common.bounded_steps import result_of
from topics.common.values.begin import Begin
from topics.engine.index.chunk import Chunk
from topics.engine.shared.dormant import Dormant, DormantBlocks
from topics.engine.shared.read_turns import BYTES_TO_MAKE
from topics.engine.shared.topic_snapshot import PlainTopics
from topics.engine.state.topic import Topic
from topics.engine.values.results import EngineStats, KnownTopic, TopicState
from topics.engine.values.topic_config import TopicConfig

NAMES = [f"t{number:02d}" for number in range(40)]


@pytest.fixture
def world() -> RealWorld:
    """Forty topics of one to three records, in packs."""
    world = RealWorld()
    for number, name in enumerate(NAMES):
        world.append(*range(number % 3 + 1), name=name)
    world.checkpoint()
    return world


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the kinds of objects that are made from now on."""
    found: list[str] = []
    for kind in (Topic, Chunk):
        monkeypatch.setattr(kind, "__init__", _told(kind, found))
    return found


def _told(kind: type, found: list[str]) -> Callable[..., None]:
    make = kind.__init__  # type: ignore[misc]

    def told(self: Any, *args: Any) -> None:
        found.append(kind.__name__)
        make(self, *args)

    return told


def dormant(world: RealWorld) -> Dormant:
    return world.engine._core.registry.dormant


def states(world: RealWorld) -> list[TopicState]:
    """Return the list of topics, without what a restart forgets."""
    listed = map(world.engine.with_synced_seq, world.list().rows)
    return [state._replace(last_write_ts=None, last_read_ts=None) for state in listed]


def sums_of(world: RealWorld) -> EngineStats:
    """Return the engine's sums, without those since the start."""
    return world.engine.stats()._replace(appended_records=0, appended_bytes=0)


def live_rows(world: RealWorld) -> dict[str, int]:
    """Return the rows of all packs."""
    return {file.path: file.live_rows for file in world.real_store.files if "/packs/" in file.path}


# --- what they cost --------------------------------------------------------------------------------------------------
def test_a_start_a_list_a_scrape_a_checkpoint_and_a_stop_make_no_topic_and_no_chunk(
    world: RealWorld, made: list[str]
) -> None:
    before, sums, files = states(world), sums_of(world), live_rows(world)
    for _ in range(2):
        world.restart(graceful=True)
        assert states(world) == before
        assert sums_of(world) == sums
        assert live_rows(world) == files
        listed = world.list().rows
        assert world.engine.topic_states("", (), 100) == listed
        assert world.engine.topic_count() == len(NAMES)
        world.checkpoint()
    assert made == []


def test_a_list_that_touches_makes_no_topic_and_counts_as_consumption(world: RealWorld, made: list[str]) -> None:
    world.restart(graceful=True)
    world.list(touch=True)
    assert [state.effective_priority for state in world.list().rows] == [500] * len(NAMES)
    assert made == []
    assert world.state("t03").effective_priority == 500


def test_a_topic_that_is_asked_for_is_made_alone(world: RealWorld, made: list[str]) -> None:
    world.restart(graceful=True)
    assert world.seqs(0, "t02") == [1, 2, 3]
    world.append(7, name="t05")
    assert made == ["Topic", "Chunk"] * 2
    assert len(dormant(world)) == len(NAMES) - 2


def test_a_replay_makes_those_that_the_log_tells_of(world: RealWorld, made: list[str]) -> None:
    world.append(7, name="t05")
    made.clear()
    world.restart()
    assert made == ["Topic", "Chunk"]
    assert world.seqs(0, "t05") == [1, 2, 3, 4]


# --- no client sees it -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("power_lost", [False, True])
def test_a_topic_is_listed_as_it_is_when_made(world: RealWorld, power_lost: bool) -> None:
    world.restart(power_lost=power_lost)
    listed = states(world)
    assert len(dormant(world)) == len(NAMES)
    assert [world.state(name)._replace(last_read_ts=None) for name in NAMES] == listed
    assert len(dormant(world)) == 0
    assert states(world) == listed


def test_making_topics_changes_no_sum(world: RealWorld) -> None:
    world.restart()
    sums, files = sums_of(world), live_rows(world)
    for name in NAMES:
        world.state(name)
    assert sums_of(world) == sums
    assert live_rows(world) == files


def test_records_of_several_packs_come_in_order_with_their_tags(world: RealWorld) -> None:
    for tag in ("a", "b", None):
        for name in NAMES[:10]:
            world.append(tag, tag=tag, name=name)
        world.checkpoint()
    expected = [[(record["$seq"], record.get("$tag")) for record in world.read(0, name)] for name in NAMES]
    world.restart()
    assert len(dormant(world)) == len(NAMES)
    assert [[(record["$seq"], record.get("$tag")) for record in world.read(0, name)] for name in NAMES] == expected
    assert world.delete(match="b", name="t00").deleted == 1
    world.restart()
    assert world.seqs(0, "t00") == [1, 2, 4]


def test_deletes_one_by_one_stay_and_count_in_no_sum(world: RealWorld) -> None:
    for name in NAMES[:5]:
        world.append(1, 2, tag="x", name=name)
        world.append(3, name=name)
    world.checkpoint()
    for name in NAMES[:5]:
        world.delete(match="x", name=name)
    world.checkpoint()
    before, sums = states(world), sums_of(world)
    world.restart()
    assert len(dormant(world)) == len(NAMES)
    assert states(world) == before
    assert sums_of(world) == sums
    assert [world.seqs(0, name) for name in NAMES[:3]] == [[1, 4], [1, 2, 5], [1, 2, 3, 6]]


def test_what_was_touched_and_what_was_not_are_both_in_the_next_snapshot(world: RealWorld) -> None:
    world.restart()
    world.append(8, name="t00")
    world.put("t01", cap_records=1)
    world.delete_topic("t02")
    world.append(1, name="t02")
    world.delete(before_seq=2, name="t05")
    before = states(world)
    world.checkpoint()
    assert len(dormant(world)) == len(NAMES) - 4
    for power_lost in (False, True):
        world.restart(power_lost=power_lost)
        assert states(world) == before
        assert world.seqs(0, "t00") == [1, 2]
        assert world.seqs(0, "t01") == [2]
        assert world.seqs(0, "t02") == [1]
        assert world.seqs(0, "t05") == [2, 3]


def test_a_topic_made_while_a_snapshot_is_prepared_is_in_it_once(world: RealWorld) -> None:
    world.restart()
    catalog = world.catalog
    steps = catalog.checkpoints.prepare_snapshot(1)
    next(steps)
    world.append(8, name="t00")  # described already
    world.append(8, name="t39")  # not yet
    for _ in steps:
        pass
    text = b"".join(catalog.checkpoints.snapshot())
    assert [text.count(f'"{name}"'.encode()) for name in ("t00", "t39")] == [1, 1]
    assert not dormant(world).made_after_block, "nothing is kept once the snapshot is prepared"


@pytest.mark.usefixtures("no_old_garbage")
def test_a_step_of_a_snapshot_makes_no_column_of_all_topics(world: RealWorld) -> None:
    count = 50_000
    numbers = list(range(1, count + 1))
    names = [f"t{number}" for number in numbers]
    config = [msgspec.Raw(TopicConfig().as_json())]
    blocks = DormantBlocks()
    blocks.add(PlainTopics(names, numbers, numbers, numbers, numbers, numbers, config, [0] * count, "0" * 16 * count))
    catalog = world.catalog.checkpoints
    registry = catalog._stored.registry
    registry.dormant = Dormant(registry._usage, blocks, result_of(blocks.columns()))
    tracemalloc.start()
    try:
        for _ in islice(catalog.prepare_snapshot(1), 3):
            pass
        assert tracemalloc.get_traced_memory()[1] < count
    finally:
        tracemalloc.stop()


def test_topics_of_which_there_is_more_to_tell_are_made_at_the_start(world: RealWorld) -> None:
    world.put("t00", ttl_ms=60_000)
    world.put("t01", durability="memory")
    world.put("queue", type="queue")
    world.delete(before_seq=2, name="t05")
    world.checkpoint()
    before = {state.name: state for state in states(world)}
    world.restart()
    assert len(dormant(world)) == len(NAMES) - 3
    after = {state.name: state for state in states(world)}
    assert after.pop("t01").incarnation != before.pop("t01").incarnation
    assert after == before
    world.advance_ms(60_001)
    assert world.state("t00").count == 0


def test_a_topic_with_keys_is_made_at_the_start(world: RealWorld) -> None:
    answer = world.start_append(records(1), "t00", key=b"k")
    world.wait(answer)
    world.checkpoint()
    world.restart()
    assert len(dormant(world)) == len(NAMES) - 1
    again = world.start_append(records(1), "t00", key=b"k")
    assert world.wait(again).deduped


def test_a_name_is_taken_while_its_topic_is_dormant(world: RealWorld) -> None:
    world.restart()
    assert not world.put("t07").created
    assert world.delete_topic("t08").deleted
    assert world.put("t08").created
    assert [row.name for row in world.list("t0", "t06", 3).rows] == ["t07", "t08", "t09"]


def test_seqs_go_on_where_a_dormant_topic_ended(world: RealWorld) -> None:
    """R-SEQ-4, though its last records are gone."""
    world.append(1, tag="x", name="t00")
    world.checkpoint()
    world.delete(match="x", name="t00")
    world.checkpoint()
    world.restart(power_lost=True)
    assert world.append(5, name="t00").first_seq == 3


def test_topics_that_a_subscription_names_are_made_some_in_a_pass() -> None:
    """A watch session or a WebSocket may name 256, and making one takes a tenth of a millisecond."""
    world = RealWorld(pass_read_bytes=10 * BYTES_TO_MAKE)
    for name in NAMES:
        world.append(1, name=name)
    world.checkpoint()
    world.restart(graceful=True)
    found: list[Any] = []

    def ask() -> None:
        for name in NAMES:
            world.engine.begin(name, Begin(), found.append)

    world.real_loop.call_soon(ask)
    lefts = [len(dormant(world))]
    while lefts[-1]:
        world.real_loop.run_pass(0)
        lefts.append(len(dormant(world)))
    assert [before - after for before, after in pairwise(lefts)] == [10, 10, 10, 10]
    assert [beginning.head_seq for beginning in found] == [1] * len(NAMES)


def test_topics_at_which_a_wait_is_parked_are_made_some_in_a_pass() -> None:
    """A wait may name 256. One that is answered at once makes none."""
    world = RealWorld(pass_read_bytes=10 * BYTES_TO_MAKE, max_wait_topics=len(NAMES))
    for name in NAMES:
        world.append(1, name=name)
    world.checkpoint()
    world.restart(graceful=True)
    known = {name: KnownTopic(1, None) for name in NAMES}
    news: list[Any] = []
    world.engine.wait(known, 0, news.append)
    world.engine.wait({**known, NAMES[-1]: KnownTopic(0, None)}, 1000, news.append)
    world.real_loop.run_pass(0)
    assert len(dormant(world)) == len(NAMES)
    assert [len(told.heads) for told in news] == [len(NAMES)] * 2
    assert {head.head_seq for told in news for head in told.heads.values()} == {1}

    def wait() -> None:
        world.engine.wait(known, 60_000, news.append)

    world.real_loop.call_soon(wait)
    lefts = [len(dormant(world))]
    while lefts[-1]:
        world.real_loop.run_pass(0)
        lefts.append(len(dormant(world)))
    assert [before - after for before, after in pairwise(lefts)] == [10, 10, 10, 10]
    assert len(news) == 2
    world.append(2, name=NAMES[7])
    world.real_loop.run_pass(0)
    assert news[2].heads[NAMES[7]].head_seq == 2
