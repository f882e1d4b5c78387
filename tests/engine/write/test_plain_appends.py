"""`append_plain`: many topics as columns, with the same outcome as `append` one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.engine.harness import Answer, Harness, records
from topics.engine.bodies.write_columns import GroupColumns
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.engine.values.topic_config import make_config
from topics.engine.write.plain_appends import PlainAppended
from topics.errors import DiskFullError, StorageError
from topics.store.format.rows import ROW, RowRecord, Rows, pack_rows

Write = tuple[str, list[RowRecord]]
"""A topic, and records for it."""


def columns(writes: list[Write]) -> tuple[GroupColumns, Rows]:
    """The groups of a pass as the lane has them, and the rows of all."""
    groups = []
    row = 0
    for number, (_name, added) in enumerate(writes):
        size = sum(len(record.data) for record in added)
        groups.append((number, number, 1, 1, row, len(added), size))
        row += len(added)
    return GroupColumns(*map(list, zip(*groups, strict=True))), pack_rows(
        [record for _name, added in writes for record in added]
    )


class Both:
    """Make equal writes to two engines, as columns to one and one by one to the other."""

    def __init__(self, **config: Any) -> None:
        self.fast = Harness(**config)
        self.slow = Harness(**config)
        self.taken = 0

    def do(self, method: str, *args: Any, **kwargs: Any) -> None:
        for world in (self.fast, self.slow):
            getattr(world, method)(*args, **kwargs)

    def write(self, writes: list[Write], error: Any = None) -> None:
        groups, rows = columns(writes)
        names = [name for name, _added in writes]
        answers = {number: Answer() for number in range(len(writes))}

        def done(appended: PlainAppended) -> None:
            failed, parts, told, first_seqs, append_ns, sync_ns = appended
            for at, (part, name) in enumerate(zip(zip(*parts, strict=True), told, strict=True)):
                assert name == names[part[0]]
                first = first_seqs[at]
                last = first + part[5] - 1
                result = AppendResult(first, last, last, part[5], False, False, append_ns, sync_ns)
                answers[part[0]](failed or result)

        left = self.fast.engine.append_plain(names, groups, rows.buffer, rows.spans, done)
        self.taken += len(writes) - len(left)
        for at in left:
            row, count, size = groups.rows[at], groups.records[at], groups.sizes[at]
            part = Rows(rows.buffer, rows.spans[row * ROW.size : (row + count) * ROW.size], count, size)
            self.fast.engine.append(AppendRequest(names[at], part), answers[at])
        expected = [self.slow.start_append(pack_rows(added), name) for name, added in writes]
        for world in (self.fast, self.slow):
            world.settle(error)
        for at, answer in enumerate(expected):
            assert [str(result) for result in answers[at].results] == [str(result) for result in answer.results]

    def same(self, names: list[str]) -> None:
        for name in names:
            assert self.fast.state(name) == self.slow.state(name)
            assert self.fast.read(name=name, include_tags=True) == self.slow.read(name=name, include_tags=True)
        assert self.fast.engine.stats() == self.slow.engine.stats()


def record(value: object, tag: str | None = None) -> RowRecord:
    data = str(value).encode()
    return RowRecord(data, None if tag is None else tag.encode())


@pytest.mark.parametrize("seed", seeds(6))
def test_many_topics_at_once_are_as_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    both = Both()
    names = [f"t{number}" for number in range(8)]
    for number, name in enumerate(names):
        kind = ("disk", "fsync", "memory", "ephemeral")[min(number % 5, 3)]
        both.do("put", name, durability=kind, cap_records=rng.choice((0, 5)), ttl_ms=rng.choice((0, 0, 0, 5000)))
    for turn in range(60):
        writes = [
            (
                name,
                [
                    record(1000 * turn + at, rng.choice((None,) * 30 + ("a",)))
                    for at in range(rng.choice((1, 1, 2, 30)))
                ],
            )
            for name in rng.choices(names, k=rng.randrange(1, 10))
        ]
        if rng.random() < 0.2:
            both.do("start_append", records(1), rng.choice(names))  # staged in the same pass, before them
        if rng.random() < 0.2:
            both.do("start_delete", rng.randrange(200), name=rng.choice(names))
        waits = rng.choice(names)
        if rng.random() < 0.2:
            both.do("start_diff", 10_000, waits, wait_ms=20_000)
        both.write(writes, StorageError("lost") if rng.random() < 0.05 else None)
        both.do("advance_ms", rng.choice((0, 1, 400)))
        if rng.random() < 0.1:
            both.same(names)
        if rng.random() < 0.05:
            both.do("restart", power_lost=False)
    both.same(names)
    assert both.taken > 50


def test_who_waits_is_told_and_what_is_staged_behind_comes_after() -> None:
    world = Harness()
    for name in ("a", "b"):
        world.put(name)
        world.append(0, name=name)
    poll = world.start_diff(1, "a", wait_ms=20_000)
    groups, rows = columns([("a", [record(1)]), ("b", [record(2), record(3)])])
    told: list[PlainAppended] = []
    assert world.engine.append_plain(["a", "b"], groups, rows.buffer, rows.spans, told.append) == []
    behind = world.start_append(records(4), "b")
    gone = world.start_delete(3, name="b")
    assert not told
    assert not poll.given
    world.settle()
    assert [(part.names, part.first_seqs) for part in told] == [(["a", "b"], [2, 2])]
    assert poll.get().next_from_seq == 2
    assert behind.get().first_seq == 4
    assert gone.get().deleted == 2
    assert world.seqs(name="b") == [3, 4]


def test_topics_of_class_ephemeral_are_columns_that_are_published_at_once() -> None:
    world = Harness()
    names = ["a", "b", "c", "logged"]
    for name in names[:3]:
        world.put(name, durability="ephemeral")
    world.put("logged")
    poll = world.start_diff(0, "a", wait_ms=20_000)
    staged = Answer()
    world.engine.put_topic("c", make_config(durability="ephemeral", cap_records=9000), staged)
    told: list[PlainAppended] = []
    long = record(f'"{"x" * 900}"')
    for turn in range(400):  # several chunks of memory
        groups, rows = columns([(name, [record(turn), long]) for name in names])
        left = world.engine.append_plain(names, groups, rows.buffer, rows.spans, told.append)
        assert left == ([] if turn else [2]), "the change of its configuration is in the log first"
        assert told[-1].names == [name for at, name in enumerate(names[:3]) if at not in left]
        assert world.engine._core.usage.pending_bytes == sum(groups.sizes[3:])
        world.settle()
    assert staged.given
    assert poll.get().next_from_seq > 0
    for name in names:
        found = [row["data"] for row in world.read(name=name, limit=1000)]
        assert found[::2] == list(range(1 if name == "c" else 0, 400))
        assert set(found[1::2]) == {"x" * 900}


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_columns_of_a_topic_with_a_ttl_come_after_the_expiry_that_is_due(durability: str) -> None:
    world = Harness()
    for name in ("a", "b"):
        world.put(name, durability=durability, ttl_ms=1000, cap_records=2)
        world.append(0, 1, name=name)
    poll = world.start_diff(2, "a", wait_ms=20_000)
    world.loop.clock.advance_ns(1001 * 1_000_000)  # No timer has looked at the topics.
    groups, rows = columns([(name, [record(2)]) for name in ("a", "b")])
    told: list[PlainAppended] = []
    assert world.engine.append_plain(["a", "b"], groups, rows.buffer, rows.spans, told.append) == []
    world.settle()
    assert [part.first_seqs for part in told] == [[3, 3]]
    assert poll.get().next_from_seq == 3
    for name in ("a", "b"):
        assert world.seqs(name=name) == [3]
        floors = world.engine._core.registry.by_name[name].floors
        assert (floors.lost, floors.ttl, floors.cap) == (2, 2, 0), "the write found room, and evicted nothing"
    world.restart()
    for name in ("a", "b"):
        assert world.seqs(name=name) == ([] if durability == "ephemeral" else [3])


def test_a_ttl_that_cannot_be_stated_leaves_the_write_to_be_refused() -> None:
    world = Harness()
    for name in ("a", "b"):
        world.put(name, ttl_ms=1000)
        world.append(0, name=name)
    world.advance_ms(1001)
    world.store.log.disk_full = True
    groups, rows = columns([(name, [record(1)]) for name in ("a", "b")])
    assert world.engine.append_plain(["a", "b"], groups, rows.buffer, rows.spans, lambda _: None) == [0, 1]


def test_what_is_not_plain_is_left_and_nothing_was_done() -> None:
    world = Harness()
    world.put("own-ttl")
    world.engine._core.registry.by_name["own-ttl"].made_expiries()
    world.put("reject", cap_records=9, discard="reject")
    world.put("twice")
    names = ["missing", "own-ttl", "reject", "twice", "twice"]
    groups, rows = columns([(name, [record(1)]) for name in names])
    assert world.engine.append_plain(names, groups, rows.buffer, rows.spans, lambda _: None) == [0, 1, 2, 4]
    assert world.engine.not_plain(names) == [0, 1, 2]


def test_no_power_cut_makes_topics_reuse_acknowledged_seqs() -> None:
    """R-DUR-6: a write beyond the reservation waits for the next one to be on stable storage, many topics at once."""
    world = Harness()
    names = [f"t{number}" for number in range(5)]
    for name in names:
        world.put(name)
    head = 0
    for count in (1, 200, 200, 3, 900):
        groups, rows = columns([(name, [record(1)] * count) for name in names])
        told: list[PlainAppended] = []
        assert world.engine.append_plain(names, groups, rows.buffer, rows.spans, told.append) == []
        world.settle()
        assert {part.sync_ns for part in told} == {0}
        head += count
        if count == 200:
            world.checkpoint()
    world.restart(power_lost=True)
    assert {world.append(1, name=name).first_seq > head for name in names} == {True}


def test_a_reservation_that_failed_is_asked_for_again() -> None:
    world = Harness()
    names = ["a", "b"]
    for name in names:
        world.put(name)
    groups, rows = columns([(name, [record(1)]) for name in names])
    for error in (StorageError("lost"), None):
        told: list[PlainAppended] = []
        assert world.engine.append_plain(names, groups, rows.buffer, rows.spans, told.append) == []
        assert world.store.log.filling.synced
        world.settle(error)
        assert told[0].error is error


def test_a_log_that_takes_nothing_leaves_all_to_be_refused_one_by_one() -> None:
    world = Harness()
    for name in ("a", "b"):
        world.put(name)
        world.append(0, name=name)
    world.store.log.disk_full = True
    groups, rows = columns([("a", [record(1)]), ("b", [record(1)])])
    assert world.engine.append_plain(["a", "b"], groups, rows.buffer, rows.spans, lambda _: None) == [0, 1]
    with pytest.raises(DiskFullError):
        world.append(1, name="a")
    world.store.log.disk_full = False
    assert world.append(1, name="a").first_seq == 2


def test_a_write_to_many_topics_counts_as_several_callbacks_of_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of 8,192 topics each, in one batch, were published, or failed, in one pass."""
    world = Harness()
    names = [f"t{number}" for number in range(200)]
    for name in names:
        world.append(0, name=name)
    counted: list[int] = []
    when_committed = world.store.log.when_committed

    def noted(topic_id: int, synced: bool, done: Any, parts: int = 1) -> None:
        counted.append(parts)
        when_committed(topic_id, synced, done, parts)

    monkeypatch.setattr(world.store.log, "when_committed", noted)
    groups, rows = columns([(name, [record(1)]) for name in names])
    told: list[PlainAppended] = []
    assert world.engine.append_plain(names, groups, rows.buffer, rows.spans, told.append) == []
    world.settle()
    assert world.engine.not_plain([*names, "missing", *names]) == [200]
    assert sum(counted) >= 200 // 64
    assert sum(len(part.names) for part in told) == 200
