"""Writes whose rows were made frames in turns, before anything was known of their topic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.harness import Answer, Harness, records
from tests.engine.real_world import RealWorld
from topics.engine.state.append_request import AppendRequest, Identity
from topics.engine.state.idempotency import Key
from topics.engine.state.producer_part import Part
from topics.engine.values.results import AppendResult
from topics.engine.values.topic_config import make_config
from topics.errors import DiskFullError, RequestError
from topics.store.format.rows import BYTES, ROW, Rows
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames, gather
from topics.store.wal.staging import Staging

WORLDS = pytest.mark.parametrize("world", [Harness, RealWorld])
CLASSES = pytest.mark.parametrize("durability", ["fsync", "disk", "memory", "ephemeral"])


def framed(rows: Rows, node: bytes | None = None, identity: Identity | None = None) -> PrebuiltFrames:
    making = gather(rows, node, 0 if identity is None else identity.extension_bytes, 100)
    while True:
        try:
            next(making)
        except StopIteration as end:
            frames: PrebuiltFrames = end.value
            return frames


def start(h: Harness, *values: Any, identity: Identity | None = None, tag: str | None = None, **more: Any) -> Answer:
    rows = records(*values, tag=tag)
    return h.start_append(rows, identity=identity, node=b"n", frames=framed(rows, b"n", identity), **more)


def write(h: Harness, *values: Any, **more: Any) -> AppendResult:
    answer = start(h, *values, **more)
    settle(h)
    result: AppendResult = answer.get()
    return result


def settle(h: Harness) -> None:
    for _ in range(20):
        h.settle()
        h.advance_ms(0 if type(h) is Harness else 1)


def test_what_a_commit_s_answer_brings_about_in_another_shard_is_answered_by_its_own_commit() -> None:
    """A batch may be taken while the pass ends; what is written after that is in another one."""
    h = RealWorld(wal_shards=3)
    names = [f"t{number}" for number in range(12)]
    for name in names:
        h.put(name, durability="disk")
        h.append("before", name=name)
    log, topics = h.real_store.log, h.engine._core.registry.by_name
    first, between, last = (
        next(name for name in names if log.shard_of(topics[name].id) == shard) for shard in range(3)
    )
    h.put(between, durability="fsync")
    later: list[Answer] = []

    def write_on(*values: str) -> Any:
        return lambda _result: later.append(h.start_append(records(*values), between))

    h.engine.append(AppendRequest(first, records("a")), write_on("b"))
    h.engine.append(AppendRequest(last, records("c")), write_on("d", "e"))
    settle(h)
    assert [answer.get().last_seq for answer in later] == [2, 4]
    assert [record["data"] for record in h.read(0, between)] == ["before", "b", "d", "e"]


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_what_comes_after_one_in_another_topic_is_answered_by_its_own_commit(durability: str) -> None:
    """The log closes its batch before a large write, so rows that follow are in another one than those before."""
    h = RealWorld()
    for name in ("t", "u"):
        h.put(name, durability=durability)
    answers = [
        h.start_append(records("a")), start(h, *range(30), name="u"), h.start_append(records("b", "c"))
    ]  # fmt: skip
    settle(h)
    assert [answer.get().last_seq for answer in answers] == [1, 30, 3]
    assert [record["data"] for record in h.read()] == ["a", "b", "c"]


@WORLDS
@CLASSES
def test_they_lie_between_other_writes_as_any_write_does(world: type[Harness], durability: str) -> None:
    h = world()
    h.put(durability=durability)
    before, large, behind = (
        h.start_append(records("a", tag="x")), start(h, *range(30), tag="y"), h.start_append(records("b"))
    )  # fmt: skip
    settle(h)
    assert [(its.get().first_seq, its.get().last_seq) for its in (before, large, behind)] == [(1, 1), (2, 31), (32, 32)]
    values = ["a", *range(30), "b"]
    assert [record["data"] for record in h.read()] == values
    assert {record["$node"] for record in h.read(1, limit=30)} == {"n"}
    assert h.delete(match="y").deleted == 30
    if durability in ("fsync", "disk"):
        h.restart()
        assert [record["data"] for record in h.read()] == ["a", "b"]


@WORLDS
@CLASSES
@pytest.mark.parametrize("kind", ["key", "part"])
def test_they_are_known_by_their_identity_and_so_after_a_restart(
    world: type[Harness], durability: str, kind: str
) -> None:
    h = world()
    h.put(durability=durability)

    def identity() -> Identity:
        return Key(b"k") if kind == "key" else Part(b"p", 1, 2)

    first, again = start(h, *range(9), identity=identity()), start(h, *range(9), identity=identity())
    settle(h)
    assert (first.get().first_seq, first.get().deduped) == (1, False)
    assert (again.get().first_seq, again.get().deduped) == (1, True)
    if durability in ("fsync", "disk"):
        h.restart()
        assert write(h, *range(9), identity=identity()).deduped
    assert [record["data"] for record in h.read()] == list(range(9))


@WORLDS
def test_pieces_of_a_part_may_be_large(world: type[Harness]) -> None:
    h = world()
    h.put()
    for number in range(3):
        identity = Part(b"p", 0, 0, number, number == 2, b"a")
        rows = records(*range(number * 10, number * 10 + 10))
        frames = None if number == 2 else framed(rows, None, identity)
        answer = h.start_append(rows, identity=identity, frames=frames)
        settle(h)
        assert answer.get().staged == (number < 2)
    assert [record["data"] for record in h.read()] == list(range(30))


@WORLDS
@CLASSES
def test_they_create_their_topic_and_meet_its_caps(world: type[Harness], durability: str) -> None:
    h = world()
    assert write(h, *range(300)).created
    h.put(durability=durability, cap_records=5)
    write(h, *range(30))
    assert [record["data"] for record in h.read(320)] == list(range(25, 30))
    h.put(durability=durability, cap_records=5, discard="reject")
    with pytest.raises(RequestError, match="cap_records"):
        write(h, *range(30))


@CLASSES
def test_one_that_creates_its_topic_is_not_framed_in_one_pass(monkeypatch: pytest.MonkeyPatch, durability: str) -> None:
    h = RealWorld()
    monkeypatch.delattr(Staging, "stage_records")
    monkeypatch.delattr(EphemeralFrames, "stage_records")
    result = write(h, *range(3000), config=make_config(durability=durability))
    assert (result.created, result.last_seq) == (True, 3000)
    assert [record["data"] for record in h.read(2990)] == list(range(2990, 3000))


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
@pytest.mark.parametrize("committed", [False, True])
def test_one_that_creates_its_topic_is_one_batch_with_it(durability: str, committed: bool) -> None:
    """A crash leaves the topic with its records, or neither; a replay finds the records before the creation."""
    h = RealWorld()
    h.append("before", name="u")
    log = h.real_store.log
    config, batches = make_config(durability=durability, dead_letter="d" * 200), log.counters.commit.count
    in_the_same_pass = h.start_append(records("more"), "u")
    answer = start(h, *range(30), identity=Key(b"k"), config=config, name="t" * 200)
    if committed:
        h.until(lambda: answer.given)
        assert in_the_same_pass.get().last_seq == 2
        assert log.counters.commit.count == batches + 2
    h.restart()
    assert (h.engine._core.registry.named("t" * 200) is not None) == committed
    if committed:
        assert [record["data"] for record in h.read(0, "t" * 200)] == list(range(30))
        assert h.start_append(records(*range(30)), "t" * 200, key=b"k").get().deduped


def test_one_that_is_refused_leaves_the_topic_that_it_created() -> None:
    h = RealWorld()
    config = make_config(cap_records=5, discard="reject")
    with pytest.raises(RequestError, match="cap_records"):
        write(h, *range(30), config=config)
    h.restart()
    assert h.engine._core.registry.by_name["t"].config.cap_records == 5
    assert h.append("x").first_seq == 1


def test_one_that_grows_beyond_the_reserved_seqs_is_answered_when_more_are_reserved() -> None:
    h = RealWorld()
    assert write(h, *range(3000)).last_seq == 3000
    h.restart(power_lost=True)
    assert h.append("x").first_seq > 3000


def test_one_that_creates_its_topic_may_have_the_records_of_many_others_expire() -> None:
    """The losses that the quota asks for are in batches of their own, however many topics have expired records."""
    h = RealWorld(max_total_bytes=60_000)
    for number in range(100):
        h.put(f"old{number}", ttl_ms=1000)
        h.append("x" * 500, name=f"old{number}")
    h.advance_ms(2000)
    assert write(h, *range(3000)).last_seq == 3000
    assert h.read(name="old99") == []


def test_one_that_a_full_disk_refuses_evicts_nothing() -> None:
    h = RealWorld()
    h.put(durability="ephemeral", cap_records=3)
    write(h, *range(3))
    h.put(durability="disk", cap_records=3)
    write(h, "a")
    h.real_store.log.space.note_full()
    refused = start(h, *range(30))
    settle(h)
    with pytest.raises(DiskFullError):
        refused.get()
    h.restart()
    assert [record["data"] for record in h.read()] == ["a"]


def beyond_a_batch(flags: int = 0) -> Rows:
    """Rows whose frames have more than 4 GiB: all have the same payload, of 16 MiB."""
    payload = b"1" * (16 << 20)
    row = ROW.pack(0, len(payload), 0, 0, 0, 0, 0, 0, len(payload), flags)
    return Rows(payload, row * 256, 256, 256 * len(payload))


@pytest.mark.parametrize("flags", [0, BYTES])
@pytest.mark.parametrize("key", [None, b"k"])
def test_frames_beyond_a_batch_are_refused_before_their_topic_is_created(flags: int, key: bytes | None) -> None:
    harness = Harness()
    answer = harness.start_append(beyond_a_batch(flags), key=key)
    with pytest.raises(RequestError, match="bytes as they are stored: write less than 4 GiB") as refused:
        answer.get()
    assert refused.value.code == "batch_too_large"
    harness.settle()
    assert len(harness.stored.registry) == 0
    assert not harness.store.format.waiting
    assert harness.append(1).created


@pytest.mark.parametrize("flags", [0, BYTES])
def test_frames_beyond_a_batch_are_refused_by_a_topic_without_a_new_format(flags: int) -> None:
    harness = Harness()
    harness.append(1)
    with pytest.raises(RequestError, match="write less than 4 GiB"):
        harness.start_append(beyond_a_batch(flags)).get()
    assert not harness.store.format.waiting
    assert harness.append(2).last_seq == 2
