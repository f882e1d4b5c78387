"""A read of only the index and memory, as waiting readers make it: whatever it takes, it answers as any other read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.engine.harness import Answer
from tests.engine.real_world import RealWorld
from topics.common.values.configs import RouterConfig
from topics.engine.read import diff
from topics.engine.read.read_pass import ReadPass
from topics.engine.values.node_set import node_set
from topics.engine.values.results import DiffQuery, DiffResult


class Compared:
    """One topic, read both ways."""

    written = "t"
    """The topic that records are written to."""

    def __init__(self, seed: int, *, hot_tail_bytes: int = 256 << 10, **config: Any) -> None:
        self.rng = random.Random(f"plain reads {seed}")
        self.world = RealWorld(seed, hot_tail_bytes=hot_tail_bytes)
        self.world.put(**config)
        self.taken = 0

    def write(self, calls: int) -> None:
        for _ in range(calls):
            values = [self.rng.randbytes(self.rng.randrange(40)).hex() for _ in range(self.rng.randint(1, 4))]
            chosen: dict[str, Any] = {
                "tag": self.rng.choice((None, "a", "b")),
                "record_node": self.rng.choice((None, "n0", "n1")),
                "meta": self.rng.choice((None, {"m": 1})),
            }
            self.world.append(*values, name=self.written, **chosen)

    def route(self, **settings: Any) -> None:
        """Write to another topic from here on, of which a router makes copies by position."""
        self.written, made = "source", Answer()
        self.world.put("source", durability="disk")
        config = RouterConfig("source", "t", **settings)
        self.world.engine.put_router("router", config, lambda _name: True, made)
        self.world.wait(made)

    def change(self) -> None:
        """Delete some records, as a prefix or by a tag."""
        if self.rng.random() < 0.5:
            self.world.delete(before_seq=self.rng.randint(1, self.head + 1))
        else:
            self.world.delete(match=self.rng.choice(("a", "b")))

    @property
    def head(self) -> int:
        return self.world.state().head_seq

    def compare(self, count: int) -> None:
        engine, rng = self.world.engine, self.rng
        topic = engine._core.registry.named("t")
        assert topic is not None
        for _ in range(count):
            query = DiffQuery(
                rng.randint(0, topic.head + 1),
                limit=rng.randint(1, 8),
                nodes=node_set([b"n0"] if rng.random() < 0.2 else []),
                include_tags=rng.random() < 0.5,
                include_meta=rng.random() < 0.5,
                include_data=rng.random() < 0.9,
                max_batch_bytes=rng.randint(1, 400),
                bytes_apart=rng.random() < 0.1,
            )
            plain = engine._plain_reader.read_one(topic, query)
            if plain is None:
                continue
            assert not query.nodes, "a filter that the bulk call does not know"
            answer = Answer()
            ReadPass(engine._core, topic, query, answer).begin()
            assert plain == self.world.wait(answer)._replace(payloads=())
            self.taken += 1


@pytest.mark.parametrize("seed", seeds(4))
def test_a_read_that_is_plain_is_answered_as_any_other(seed: int) -> None:
    reads = Compared(seed, cap_records=60 if seed % 2 else 0)
    for _ in range(6):
        reads.write(8)
        reads.compare(30)
        reads.change()
        reads.compare(30)
    assert reads.taken > 60, "too few reads were plain for this test to mean anything"


@pytest.mark.parametrize("seed", seeds(4))
def test_a_plain_read_of_copies_shows_their_own_numbers_and_the_fields_that_they_keep(seed: int) -> None:
    reads = Compared(seed, durability="disk")
    reads.write(2)
    reads.route(preserve_tag=seed % 2 == 0, preserve_node=seed // 2 % 2 == 0)
    for _ in range(3):
        reads.write(8)
        assert reads.head > 8  # the state of a topic waits for its routers
        reads.compare(30)
        reads.change()
        reads.compare(30)
    assert reads.taken > 60, "too few reads were plain for this test to mean anything"
    reads.world.checkpoint()  # each copy that is left has a frame of its own now
    reads.compare(30)


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_copy_is_left_to_the_read_that_reports_it(damaged: int) -> None:
    reads = Compared(0, durability="disk")
    reads.route()
    reads.world.append("needle" * 9, name="source")
    assert reads.head == 1
    engine = reads.world.engine
    topic = engine._core.registry.named("t")
    assert topic is not None
    query = DiffQuery(0, limit=8, max_batch_bytes=1000)
    for chunks in reads.world.real_store.log.tail._files.values():
        for chunk in chunks:
            at = bytes(chunk.view).find(b"needle")
            if at >= 0:
                chunk.view[at] ^= damaged
    assert (engine._plain_reader.read_one(topic, query) is None) == bool(damaged)


def test_a_diff_of_what_is_in_memory_plans_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RealWorld(0, hot_tail_bytes=256 << 10)
    world.put()
    world.append(1, 2, 3)
    monkeypatch.setattr(diff, "ReadPass", None)  # it would be called
    assert world.diff(limit=2).next_from_seq == 2
    assert world.diff(2).count == 1


def test_a_read_that_is_likely_to_be_long_is_not_begun_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find no room for its last record, after it has rendered all others."""
    world = RealWorld(0, hot_tail_bytes=4 << 20, wal_file_bytes=4 << 20)
    world.put()
    for _ in range(80):
        world.append("x" * 10_000)
    engine = world.engine
    topic = engine._core.registry.named("t")
    assert topic is not None
    plain = engine._plain_reader

    def count(from_seq: int, limit: int, size: int) -> int | None:
        found = plain.read_one(topic, DiffQuery(from_seq, limit=limit, max_batch_bytes=size))
        return None if found is None else found.count

    assert count(0, 50, 1 << 20) == 50
    assert count(0, 100, 400_000) == 39
    assert count(60, 100, 1 << 20) == 20
    monkeypatch.setattr(plain._renderer, "project", None)
    assert count(0, 100, 1 << 20) is None


def test_a_read_that_reports_a_loss_or_needs_a_file_is_not_plain() -> None:
    reads = Compared(1, cap_records=2)
    reads.world.append(1, 2, 3, 4)
    engine = reads.world.engine
    topic = engine._core.registry.named("t")
    assert topic is not None
    assert engine._plain_reader.read_one(topic, DiffQuery(0, limit=8, max_batch_bytes=1000)) is None
    found = engine._plain_reader.read_one(topic, DiffQuery(2, limit=8, max_batch_bytes=1000))
    assert isinstance(found, DiffResult)
    assert found.count == 2
    reads.world.checkpoint()
    reads.world.restart(graceful=True)
    topic = reads.world.engine._core.registry.named("t")
    assert topic is not None
    assert reads.world.engine._plain_reader.read_one(topic, DiffQuery(2, limit=8, max_batch_bytes=1000)) is None


@pytest.mark.parametrize("seed", seeds(4))
def test_reads_of_a_file_become_plain_once_it_is_read_from_front_to_back(seed: int) -> None:
    reads = Compared(seed, hot_tail_bytes=0)
    reads.write(60)
    reads.world.checkpoint()
    reads.compare(30)
    empty = reads.taken
    assert empty < 5  # reads at the head
    cursor = 0
    while cursor < reads.head:
        cursor = reads.world.diff(cursor, limit=3).next_from_seq
    reads.compare(60)
    assert reads.taken > empty + 10
    reads.change()
    reads.compare(30)
