"""Lone writes with nothing between: each is committed as the one before, and none once anything else happened."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import seeds
from tests.engine.harness import records
from tests.engine.real_world import RealWorld
from tests.engine.write.test_append_lone import Follower, append_lone, everything, world_with
from topics.engine.bodies.write_columns import WriteColumns
from topics.engine.json._records import ffi
from topics.engine.values.results import AppendResult
from topics.engine.write.write_streak import WriteStreak


class Client:
    """The only client: it writes bodies to topic "t" as `http/lane/single.py` does."""

    def __init__(self, world: RealWorld) -> None:
        self.world = world
        self.columns = WriteColumns(world.config, 100)
        self.request: Any = ffi.new("struct tp_request *")
        self.scan = self.columns.single(self.request)
        self.streak: WriteStreak = world.engine.write_streak(partial(self.columns.framing, self.request))
        self.answers: list[AppendResult] = []

    def _receive(self, body: bytes) -> Any:
        self.request.off, self.request.len, self.request.end = 3, len(body), 3 + len(body)
        return b"..." + body + b"."

    def tries(self, body: bytes) -> bool:
        """Write by the way that asks everything. Return False if it is no lone write."""
        received = self._receive(body)
        rows = self.scan(ffi.from_buffer(received), memoryview(received))
        topic = self.world.engine.plain_topic("t")
        assert rows is not None
        if topic is None or self.world.engine.append_rows_lone(topic, rows, self.answers.append) is None:
            return False
        if self.world.engine.settle_lone():
            self.streak.begin(topic)
        return True

    def begin(self, body: bytes = b'{"records":[{"data":1}]}') -> None:
        """Write by the way that asks everything, which commits it as a lone write."""
        assert self.tries(body)

    def go_on(self, body: bytes = b'{"records":[{"data":2}]}', name: str = "t") -> AppendResult | None:
        """Write as the last write was committed, if nothing has happened since."""
        received = self._receive(body)
        return self.streak.write(name, ffi.from_buffer(received), len(received), self.answers.append)


def client_of(**config: object) -> Client:
    """A client that has begun a streak in a topic with the records 0 and 1."""
    client = Client(world_with(**config))
    client.begin()
    assert client.go_on() is None, "the second of a topic begins it"
    client.begin()
    return client


@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
def test_what_a_streak_writes_is_answered_read_and_recovered_as_any_write(durability: str) -> None:
    client = client_of(durability=durability)
    world = client.world
    passes = world.real_loop.stats().passes
    for number in range(20):
        result = client.go_on(b'{"records":[{"data":%d},{"data":[ %d ],"meta":{"a":1}}]}' % (number, number))
        assert result is not None
        assert client.answers[-1] == result
        assert (result.first_seq, result.last_seq) == (5 + 2 * number, 6 + 2 * number)
    assert world.real_loop.stats().passes == passes
    expected = [0, 1, 1, 1]
    for number in range(20):
        expected += [number, [number]]  # type: ignore[list-item]
    assert everything(world) == expected
    world.append(7)
    assert world.state().head_seq == 45
    if durability != "memory":
        world.restart()
        assert everything(world) == [*expected, 7]


def test_a_streak_counts_bytes_and_records_as_other_writes() -> None:
    both = []
    for goes_on in (True, False):
        client = client_of()
        for body in (b'{"records":[{"data":"abc"}]}', b'{ "records" : [ {"data":[1, 2], "meta":{"k":null}} ]}'):
            if goes_on:
                assert client.go_on(body) is not None
            else:
                client.begin(body)
        usage = client.world.engine._core.usage
        both.append((usage.records, usage.bytes, usage.appended_records, usage.appended_bytes, client.world.state()))
    assert both[0][:4] == both[1][:4]


INTERRUPTIONS: dict[str, Callable[[RealWorld], object]] = {
    "a pass of the loop": lambda world: world.real_loop.run_pass(0),
    "hooks of a pass": lambda world: world.real_loop.turn(),
    "a write": lambda world: world.append(5),
    "a change of the configuration": lambda world: world.put(cap_records=9, discard="reject"),
    "another class": lambda world: world.put(durability="ephemeral"),
    "a delete of the topic": lambda world: world.delete_topic(),
}


@pytest.mark.parametrize("what", INTERRUPTIONS)
def test_whatever_the_loop_handles_ends_a_streak(what: str) -> None:
    client = client_of()
    INTERRUPTIONS[what](client.world)
    answers = len(client.answers)
    assert client.go_on() is None
    assert len(client.answers) == answers


def test_a_pass_alone_ends_a_streak_and_the_next_lone_write_begins_another() -> None:
    client = client_of()
    client.world.real_loop.run_pass(0)
    assert client.go_on() is None
    client.begin()
    assert client.go_on() is not None
    assert everything(client.world) == [0, 1, 1, 1, 1, 2]


UNUSUAL = {
    "a tag": b'{"records":[{"data":1,"tag":"a"}]}',
    "bytes": b'{"records":[{"data_base64":"AAAA"}]}',
    "a ttl": b'{"records":[{"data":1,"ttl_ms":50}]}',
    "no record": b'{"records":[]}',
    "another field": b'{"records":[{"data":1}],"node":"n"}',
    "no JSON": b'{"records":[{"data":1}',
    "many records": b'{"records":[' + b",".join([b'{"data":1}'] * 65) + b"]}",
    "a large record": b'{"records":[{"data":"' + b"x" * (300 << 10) + b'"}]}',
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_a_body_that_needs_more_is_left_and_ends_the_streak(what: str) -> None:
    client = client_of()
    assert client.go_on(UNUSUAL[what]) is None
    assert client.go_on() is None
    assert everything(client.world) == [0, 1, 1, 1]
    client.begin()
    assert client.go_on() is not None


def test_another_topic_is_none_of_the_streak() -> None:
    client = client_of()
    client.world.put("u")
    client.begin()
    client.begin()
    assert client.go_on(name="u") is None
    assert client.world.read(name="u") == []


@pytest.mark.parametrize("goes_on", [False, True])
def test_lone_writes_of_other_callers_end_a_streak(goes_on: bool) -> None:
    """A batch framed at a place that is taken would be read instead of the records there."""
    client = client_of()
    other = Client(client.world)
    for _ in range(2):
        other.begin(b'{"records":[{"data":3}]}')
    if goes_on:
        assert other.go_on(b'{"records":[{"data":4}]}') is not None
    assert client.go_on() is None
    expected = [0, 1, 1, 1, 3, 3, *([4] if goes_on else ())]
    assert everything(client.world) == expected
    client.begin()
    assert other.go_on() is None
    client.world.restart()
    assert everything(client.world) == [*expected, 1]


def test_a_lone_write_after_which_no_streak_begins_ends_one() -> None:
    client = client_of()
    assert append_lone(client.world, 7) is not None
    assert client.go_on() is None
    assert everything(client.world) == [0, 1, 1, 1, 7]


def test_a_topic_with_a_reader_that_waits_has_no_streak() -> None:
    client = client_of()
    world = client.world
    answer = world.start_diff(4, wait_ms=20_000)
    client.begin()
    assert client.go_on() is None
    world.settle()
    assert answer.given


def test_readers_that_stay_get_each_write_of_a_streak_once_and_in_order() -> None:
    """R-WATCH-9: a topic with them has streaks as any other."""
    client = client_of()
    world = client.world
    followers = [Follower(world), Follower(world), Follower(world, limit=1)]
    passes = world.real_loop.stats().passes
    for seq in range(5, 12):
        assert client.go_on() is not None
        assert world.engine.settle_lone()
        assert {follower.cursors[-1] for follower in followers} == {seq}
    assert world.real_loop.stats().passes == passes
    assert [follower.cursors[-8:] for follower in followers] == [list(range(4, 12))] * 3


def test_what_is_staged_without_a_pass_is_not_passed() -> None:
    """Only tests call the engine outside of passes."""
    client = client_of()
    world = client.world
    world.put("u")
    client.begin()
    client.begin()
    other = world.start_append(records(5), "u")
    assert client.go_on() is None
    world.settle()
    assert other.get().last_seq == 1


def test_seqs_that_are_not_reserved_amply_are_not_given_out() -> None:
    client = client_of()
    topic = client.world.engine.plain_topic("t")
    assert topic is not None
    assert topic.next_seq <= topic.ample < 1 << 60
    written = 0
    while client.go_on() is not None:
        written += 1
        assert topic.head <= topic.ample
    assert written
    assert topic.head == topic.ample


def test_a_streak_ends_where_half_of_the_bound_of_the_log_is_used() -> None:
    client = client_of()
    log: Any = client.world.real_store.log
    log.bound.max_bytes = 2 * (log.bound.bytes + 1000)
    log.bound.checkpoint_bytes = log.bound.bytes + 1000
    client.begin()
    written = 0
    while client.go_on() is not None:
        written += 1
        assert not log.bound.pressed
    assert 0 < written < 1000


def test_a_slow_write_ends_a_streak() -> None:
    client = client_of()
    (shard,) = client.world.real_store.log.shards
    shard.state.exclusive = False
    shard.state.limit.max_ns = 1 << 62
    client.begin()
    assert client.go_on() is not None
    shard.state.limit.max_ns = 0
    assert client.go_on() is not None, "it was begun before"
    assert client.go_on() is None


@pytest.mark.parametrize("res", [100, -errno.EINTR, -errno.ENOSPC])
def test_a_write_of_a_streak_that_is_not_whole_is_taken_back(res: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of()
    world = client.world
    monkeypatch.setattr(world.real_loop.ring, "write_now", lambda *_args, **_options: res)
    answers = len(client.answers)
    assert client.go_on() is None
    assert len(client.answers) == answers
    monkeypatch.undo()
    world.append(8)
    world.restart()
    assert everything(world) == [0, 1, 1, 1, 8]


def test_a_failed_write_of_a_streak_ends_all_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of()
    monkeypatch.setattr(client.world.real_loop.ring, "write_now", lambda *_args, **_options: -errno.EIO)
    assert client.go_on() is None
    assert client.world.real_store.log.read_only


def test_the_records_of_a_streak_are_published_whatever_becomes_of_the_answer() -> None:
    client = client_of()

    def fail(_result: AppendResult) -> None:
        raise ZeroDivisionError

    received = client._receive(b'{"records":[{"data":3}]}')
    with pytest.raises(ZeroDivisionError):
        client.streak.write("t", ffi.from_buffer(received), len(received), fail)
    assert everything(client.world) == [0, 1, 1, 1, 3]
    assert client.go_on() is None


def test_caps_evict_after_each_write_of_a_streak() -> None:
    client = client_of(cap_records=3)
    for number in range(5):
        assert client.go_on(b'{"records":[{"data":%d}]}' % number) is not None
        assert client.world.engine._core.usage.records == 3
    assert everything(client.world) == [2, 3, 4]


@given(st.lists(st.sampled_from(["go on", "begin", "pass", "append", "tag"]), max_size=25))
def test_any_mixture_of_lone_and_other_writes_leaves_a_log_that_recovers(steps: list[str]) -> None:
    client = client_of()
    world, expected = client.world, [0, 1, 1, 1]
    for number, step in enumerate(steps, 10):
        body = b'{"records":[{"data":%d}]}' % number
        if step == "pass":
            world.real_loop.run_pass(0)
        elif step == "append":
            world.append(number)
        elif step == "tag":
            client.begin(b'{"records":[{"data":%d,"tag":"a"}]}' % number)
        elif step == "begin" or client.go_on(body) is None:
            client.begin(body)
        expected += [number] if step != "pass" else []
    assert everything(world) == expected
    world.restart()
    assert everything(world) == expected


@pytest.mark.parametrize("seed", seeds(7))
@pytest.mark.parametrize(("durability", "power"), [("disk", False), ("disk", True), ("fsync", True)])
def test_no_crash_loses_what_a_kill_must_not_or_gives_a_seq_twice(seed: int, durability: str, power: bool) -> None:
    """R-DUR-3, R-DUR-6: streaks among other appends, syncs, checkpoints and new files."""
    rng = random.Random(seed)
    client = client_of(durability=durability)
    world, written, gone_on = client.world, [0, 1, 1, 1], 0
    for _ in range(3):
        for _ in range(rng.randrange(120)):
            values = [len(written) + index for index in range(rng.choice((1, 1, 7, 60)))]
            body = b'{"records":[%b]}' % b",".join([b'{"data":%d}' % value for value in values])
            result = client.go_on(body)
            gone_on += result is not None
            if result is None and not client.tries(body):
                world.append(*values)
            written += values
            if rng.random() < 0.05:
                world.advance_ms(rng.choice((1, 400)))
            if rng.random() < 0.02:
                world.checkpoint()
        last = world.state().head_seq
        assert last >= len(written)
        world.restart(power_lost=power)
        world.real_store.log.commit_in_place()
        client = Client(world)
        read = everything(world)
        assert read == written[: len(read)]
        if not power or durability == "fsync":
            assert len(read) == len(written)
        written = read  # type: ignore[assignment]
        assert world.append(-1).first_seq > last
        written.append(-1)
    assert gone_on
