"""`append_lone`: staged, committed and published in one call, or nothing was done; the same promises as `append`."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable

import msgspec
import pytest

from tests.amount import seeds
from tests.engine.harness import Answer, records
from tests.engine.real_world import RealWorld
from topics.common.values.written import NewRecord
from topics.engine.bodies.value_rows import rows_from_values
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.delivery.cohort import Cohort
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import Subscription
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.idempotency import Key
from topics.engine.values.results import AppendResult, DiffQuery
from topics.engine.values.topic_config import make_config
from topics.engine.write import append
from topics.errors import LogReadOnlyError, TopicsError


def world_with(**config: object) -> RealWorld:
    """A disk topic "t" whose next append finds nothing else in progress."""
    world = RealWorld()
    world.real_store.log.commit_in_place()
    world.put(**config)
    world.append(0)
    world.append(1)
    return world


def append_lone(world: RealWorld, *values: object, **request: object) -> AppendResult | None:
    return world.engine.append_lone(AppendRequest("t", records(*values), **request))  # type: ignore[arg-type]


def everything(world: RealWorld) -> list[object]:
    found: list[object] = []
    at = -1
    while at < (page := world.diff(max(at, 0), limit=1000)).next_from_seq:
        found += [row["data"] for row in msgspec.json.decode(b"[" + page.records + b"]")]
        at = page.next_from_seq
    return found


def test_it_is_there_for_readers_when_the_call_returns() -> None:
    world = world_with()
    passes = world.real_loop.stats().passes
    result = append_lone(world, 2, 3)
    assert result is not None
    assert (result.first_seq, result.last_seq, result.head_seq, result.count) == (3, 4, 4, 2)
    assert world.real_loop.stats().passes == passes
    assert [row["data"] for row in world.read()] == [0, 1, 2, 3]
    world.restart()
    assert [row["data"] for row in world.read()] == [0, 1, 2, 3]


def test_a_lone_write_of_class_ephemeral_is_in_memory_when_the_call_returns() -> None:
    world = world_with(durability="ephemeral")
    store, log = world.real_store, world.engine._core.in_log
    held = store.log.held_bytes, store.log.unsynced_bytes
    for value in range(2, 9):
        result = append_lone(world, value)
        assert result is not None
        assert (result.first_seq, result.head_seq, result.append_ns, result.sync_ns) == (value + 1, value + 1, 0, 0)
    assert [row["data"] for row in world.read()] == list(range(9))
    assert (store.log.held_bytes, store.log.unsynced_bytes) == held
    assert world.engine._core.registry.by_name["t"].id not in log
    assert world.delete(before_seq=9).deleted == 8
    world.restart()
    assert world.read() == []


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_lone_write_to_a_topic_with_a_ttl_is_committed_in_the_call_while_nothing_is_due(durability: str) -> None:
    world = world_with(durability=durability, ttl_ms=1000)
    world.advance_ms(500)
    assert append_lone(world, 2) is not None
    world.advance_ms(600)
    assert append_lone(world, 3) is None
    assert world.append(3).first_seq == 4
    assert [row["data"] for row in world.read()] == [2, 3]
    assert append_lone(world, 4) is not None


def test_tags_nodes_caps_and_counters_are_those_of_any_append() -> None:
    world = world_with(cap_records=3)
    rows = rows_from_values([NewRecord(2, tag="a", node="n"), NewRecord(3)], WriteScanner(world.config))
    assert world.engine.append_lone(AppendRequest("t", rows, b"other")) is not None
    assert [(row["data"], row.get("$tag"), row.get("$node")) for row in world.read(1, include_tags=True)] == [
        (1, None, None),
        (2, "a", "n"),
        (3, None, "other"),
    ]
    assert world.delete(match="a").deleted == 1
    state = world.state()
    assert (state.count, state.head_seq) == (2, 4)


REFUSALS: dict[str, Callable[[RealWorld], object]] = {
    "a poll that waits": lambda world: world.start_diff(2, wait_ms=20_000),
    "another write staged": lambda world: world.start_append(records(5)),
    "a change of the configuration on its way": lambda world: world.engine.put_topic(
        "t", make_config(durability="disk", cap_records=9), Answer()
    ),
    "a cap that refuses": lambda world: world.put(cap_records=9, discard="reject"),
    "a checkpoint that wants another file": lambda world: world.real_store.log.request_rotation(),
}


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("why", REFUSALS)
def test_a_write_that_is_not_lone_takes_the_usual_way(why: str, durability: str) -> None:
    world = world_with(durability=durability)
    REFUSALS[why](world)
    before = world.state() if why not in {"another write staged", "a change of the configuration on its way"} else None
    assert append_lone(world, 9) is None
    if before is not None:
        assert world.state() == before
    world.append(9)
    assert world.read()[-1]["data"] == 9


def test_a_write_staged_for_another_topic_of_the_shard_is_not_passed() -> None:
    world = world_with()
    world.put("u")
    other = world.start_append(records(5), "u")
    topics = world.engine._core.registry.by_name
    assert not topics["t"].pending
    assert append_lone(world, 2) is None
    world.settle()
    assert other.get().last_seq == 1
    assert append_lone(world, 2) is not None
    world.restart()
    assert (everything(world), [row["data"] for row in world.read(name="u")]) == ([0, 1, 2], [5])


def test_a_batch_of_another_topic_that_is_in_flight_is_not_passed() -> None:
    world = RealWorld()
    world.put(durability="disk")
    world.put("u", durability="fsync")
    for number in (0, 1):
        world.append(number)
    world.append(4, name="u")
    other = world.start_append(records(5), "u")
    world.real_loop.run_pass(0)
    world.real_store.log.commit_in_place()
    (shard,) = world.real_store.log.shards
    assert shard.staging.is_empty
    assert not other.given, "its commit is on its way"
    assert append_lone(world, 2) is None
    world.settle()
    assert other.get().last_seq == 2
    assert append_lone(world, 2) is not None
    world.restart()
    assert (everything(world), [row["data"] for row in world.read(name="u")]) == ([0, 1, 2], [4, 5])


def test_operations_of_the_same_batch_that_are_not_applied_yet_are_not_passed() -> None:
    """Their frames are in the log, and nothing is staged or in flight, when the first is answered."""
    world = world_with()
    within: list[AppendResult | None] = []
    world.engine.append(AppendRequest("t", records(2)), lambda _result: within.append(append_lone(world, 9)))
    deletion = world.start_delete(before_seq=2)
    last = world.start_append(records(3))
    world.settle()
    assert within == [None]
    assert (deletion.get().deleted, last.get().last_seq) == (1, 4)
    assert everything(world) == [1, 2, 3]


def test_a_reader_that_waits_gets_a_lone_write_at_the_end_of_the_pass_if_the_caller_makes_one() -> None:
    world = world_with()
    answer = world.start_diff(2, wait_ms=20_000)
    committed: list[AppendResult] = []
    result = world.engine.append_lone(AppendRequest("t", records(9)), committed.append)
    assert result is not None
    assert committed == [result]
    assert not world.engine.is_settled
    world.settle()
    assert world.engine.is_settled
    assert [row["data"] for row in msgspec.json.decode(b"[" + answer.get().records + b"]")] == [9]


class Follower:
    """A reader that stays, and notes the frames it gets."""

    audience = shared_connection = None

    def __init__(self, world: RealWorld, limit: int = 0) -> None:
        self.cursors: list[int] = []
        self.takes = True
        self.feed = world.engine.open_feed(self)
        self.feed.subscribe("t", DiffQuery(limit=limit), 2)
        self.feed.resume()

    def deliver(self, _subscription: Subscription, burst: Burst) -> bool:
        self.cursors.append(burst.cursor)
        return self.takes

    def fail(self, _subscription: Subscription, error: TopicsError) -> None:
        raise error


def test_readers_that_stay_get_a_lone_write_within_the_call_that_settles_it() -> None:
    world = world_with()
    readers = [Follower(world), Follower(world), Follower(world, limit=1)]
    world.engine.append_lone(AppendRequest("t", records(9)), lambda result: None)
    assert [reader.cursors for reader in readers] == [[2], [2], [2]]
    assert world.engine.settle_lone()
    assert [reader.cursors for reader in readers] == [[2, 3], [2, 3], [2, 3]]
    world.engine.append_lone(AppendRequest("t", records(10, 11)), lambda result: None)
    world.engine.settle_lone()
    assert [reader.cursors for reader in readers] == [[2, 3, 5], [2, 3, 5], [2, 3, 4, 5]]


class Hearer(Follower):
    """A reader that notes its frames, takes nothing more now and then, and may write as it gets them."""

    def __init__(self, world: RealWorld, query: DiffQuery, refused: set[int], more: set[int]) -> None:
        self.world, self.refused, self.more = world, refused, more
        self.frames: list[object] = []
        self.cursors, self.takes = [], True
        self.feed = world.engine.open_feed(self)
        self.feed.subscribe("t", query, 2)
        self.feed.resume()

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        super().deliver(subscription, burst)
        self.frames += [(type(frame), frame.cursor, getattr(frame, "records", b"")) for frame in burst.frames]
        if burst.cursor in self.more:
            self.world.engine.append(AppendRequest("t", records(0)), lambda result: None)
        return burst.cursor not in self.refused


@pytest.mark.parametrize("seed", seeds(40))
def test_a_pass_that_no_other_reader_shares_delivers_what_a_shared_one_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []
    for shares in (False, True):
        rng = random.Random(f"apart {seed}")
        if shares:
            monkeypatch.setattr(Cohort, "_deliver_apart", lambda cohort: False)
        world = world_with(**rng.choice(({}, {"cap_records": 3}, {"ttl_ms": 60_000})))
        query = DiffQuery(
            limit=rng.choice((0, 0, 1)), include_tags=rng.random() < 0.5, include_meta=rng.random() < 0.5,
            max_batch_bytes=rng.choice((0, 0, 1)),
        )  # fmt: skip
        numbers = range(3, 40)
        refused, more = set(rng.sample(numbers, 3)), set(rng.sample(numbers, 3))
        readers = [Hearer(world, query, refused, more) for _ in range(rng.choice((1, 1, 3)))]
        for number in range(20):
            written = records(*range(number, number + rng.choice((1, 1, 2))))
            world.engine.append_lone(AppendRequest("t", written), lambda result: None)
            world.engine.settle_lone()
            if rng.random() < 0.3:
                world.settle()
                for reader in readers:
                    reader.feed.resume()
        world.settle()
        heard.append([[(*frame[:2], re.sub(rb'"\$ts":\d+', b"", frame[2])) for frame in r.frames] for r in readers])
    assert heard[0] == heard[1]
    assert heard[0][0]


def test_a_reader_that_holds_enough_leaves_its_cohort_and_gets_a_lone_write_once_it_goes_on() -> None:
    world = world_with()
    slow, other = Follower(world), Follower(world)
    slow.takes = False
    for seq in (3, 4):
        world.engine.append_lone(AppendRequest("t", records(seq)), lambda result: None)
        world.engine.settle_lone()
    world.settle()
    assert (slow.cursors, other.cursors) == ([2, 3], [2, 3, 4])
    slow.takes = True
    slow.feed.resume()
    assert slow.cursors == [2, 3, 4]


def test_beside_a_poll_that_waits_nothing_is_settled_before_the_end_of_the_pass() -> None:
    world = world_with()
    follower, answer = Follower(world), world.start_diff(2, wait_ms=20_000)
    world.engine.append_lone(AppendRequest("t", records(9)), lambda result: None)
    assert not world.engine.settle_lone()
    world.settle()
    assert follower.cursors == [2, 3]
    assert answer.get().next_from_seq == 3


def test_the_records_are_in_the_index_although_the_answer_fails() -> None:
    world = world_with()

    def fails(result: AppendResult) -> None:
        raise OSError("the socket")

    with pytest.raises(OSError, match="the socket"):
        world.engine.append_lone(AppendRequest("t", records(9)), fails)
    assert append_lone(world, 10) is not None
    assert [row["data"] for row in world.read()] == [0, 1, 9, 10]


def test_a_write_that_cannot_be_published_ends_all_writes_and_is_there_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with()

    def fails(*_columns: object) -> None:
        raise MemoryError("no memory for the index")

    with monkeypatch.context() as patched:
        patched.setattr(append, "index_some", fails)
        with pytest.raises(MemoryError):
            world.engine.append_lone(AppendRequest("t", records("acknowledged")), lambda result: None)
    assert append_lone(world, "with the same seq") is None
    with pytest.raises(LogReadOnlyError, match="was not published"):
        world.append("with the same seq")
    world.restart()
    assert [row["data"] for row in world.read()] == [0, 1, "acknowledged"]


def test_a_key_a_missing_topic_and_an_empty_reservation_take_the_usual_way() -> None:
    world = world_with()
    assert append_lone(world, 2, identity=Key(b"k")) is None
    assert world.engine.append_lone(AppendRequest("missing", records(1))) is None
    assert append_lone(world, *range(300)) is None
    assert world.append(*range(300)).first_seq == 3


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("fault", ["short", "full"])
def test_a_write_that_goes_wrong_was_not_done_and_the_usual_way_goes_on(fault: str, durability: str) -> None:
    world = world_with(durability=durability)
    if fault == "short":
        world.ring.faults.shorten("write", 100)
    else:
        world.ring.faults.fail("write", errno.ENOSPC)
    answers: list[AppendResult] = []
    assert world.engine.append_lone(AppendRequest("t", records("lost")), answers.append) is None
    assert answers == [], "no answer before the verdict"
    assert [row["data"] for row in world.read()] == [0, 1]
    world.append("kept")
    assert append_lone(world, "kept, too") is not None
    assert [row["data"] for row in world.read()] == [0, 1, "kept", "kept, too"]
    world.restart()
    assert [row["data"] for row in world.read()] == [0, 1, "kept", "kept, too"]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_an_io_error_latches_the_log_as_ever(durability: str) -> None:
    world = world_with(durability=durability)
    world.ring.faults.fail("write", errno.EIO)
    assert append_lone(world, "lost") is None
    with pytest.raises(LogReadOnlyError):
        world.append(2)
    assert [row["data"] for row in world.read()] == [0, 1]


@pytest.mark.parametrize("seed", seeds(7))
@pytest.mark.parametrize(("durability", "power"), [("disk", False), ("disk", True), ("fsync", True)])
def test_no_crash_loses_what_a_kill_must_not_or_gives_a_seq_twice(seed: int, durability: str, power: bool) -> None:
    """R-DUR-3, R-DUR-6: among appends of both ways, syncs, checkpoints and new files."""
    rng = random.Random(seed)
    world = world_with(durability=durability)
    written = [0, 1]
    made_lone = 0
    for _ in range(3):
        for _ in range(rng.randrange(80)):
            values = [len(written) + index for index in range(rng.choice((1, 1, 7, 200)))]
            result = append_lone(world, *values)
            made_lone += result is not None
            if result is None:
                result = world.append(*values)
            assert result.last_seq == world.state().head_seq
            written += values
            if rng.random() < 0.1:
                world.advance_ms(rng.choice((1, 400)))
            if rng.random() < 0.02:
                world.checkpoint()
        last = world.state().head_seq
        world.restart(power_lost=power)
        world.real_store.log.commit_in_place()
        read = everything(world)
        assert read == written[: len(read)]
        if not power or durability == "fsync":
            assert len(read) == len(written)
        written = read
        assert world.append("next").first_seq > last
        written.append("next")  # type: ignore[arg-type]
    assert made_lone


def test_a_synced_append_says_how_long_its_sync_took_and_goes_behind_nothing_unsynced() -> None:
    world = world_with(durability="fsync")
    result = append_lone(world, 2)
    assert result is not None
    assert result.sync_ns == result.append_ns > 0
    world.put("unsynced", durability="disk")
    world.append(1, name="unsynced")
    world.append(2, name="unsynced")
    assert append_lone(world, 3) is None, "RWF_DSYNC would sync only its own bytes"
    world.append(3)
    assert append_lone(world, 4) is not None


def test_where_a_commit_needs_a_chain_a_synced_append_takes_the_usual_way() -> None:
    world = RealWorld(commit="link")
    world.real_store.log.commit_in_place()
    world.put(durability="fsync")
    world.append(0)
    assert append_lone(world, 1) is None


def test_an_answer_that_enters_the_engine_ends_all_writes_instead_of_giving_a_seq_twice() -> None:
    """A step of a router that the answer began would get the seqs that were just acknowledged."""
    world = world_with()
    with pytest.raises(AssertionError, match="the answer may only send"):
        world.engine.append_lone(AppendRequest("t", records(2)), lambda _result: world.start_append(records(3)))
    with pytest.raises(LogReadOnlyError, match="was not published"):
        world.append(4)
    world.restart()
    assert [row["data"] for row in world.read()] == [0, 1, 2]
