"""R-WATCH-16 under anything: no reader that stays ever misses a record without a report, sees one twice, or stops."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from tests.amount import seeds
from tests.engine.delivery.shared_sends import FakeSharedSends, SharingReader
from tests.engine.harness import Harness, records
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, RecordsFrame, TombstoneFrame
from topics.engine.delivery.subscription import Subscription
from topics.engine.values.node_set import node_set
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError

TOPICS = ("a", "b", "c")
NODES = ("n0", "n1", "n2")


class Life:
    """The facts of one instance of a topic."""

    def __init__(self) -> None:
        self.nodes: list[str | None] = []
        """The records of seq 1, 2, ..."""
        self.deleted: set[int] = set()
        """On purpose."""


class Reader:
    """A sink that checks deliveries against what was written."""

    def __init__(self, world: World, nodes: tuple[str, ...], limit: int) -> None:
        self.world = world
        self.nodes = nodes
        self.feed = world.h.engine.open_feed(self)
        self.query = DiffQuery(nodes=node_set(node.encode() for node in nodes), limit=limit)
        self.cursors: dict[str, int] = {}
        self.lives: dict[str, Life | None] = {}
        self.told: dict[str, bool] = {}
        """Whether the last frame of a topic was a caught-up."""
        self.enough = False
        self.owed = False
        """It had enough and was not resumed."""
        self.audience = world.audience if world.rng.random() < 0.7 else None
        self.connection = SharingReader(world.shared, self._take_shared)

    @property
    def shared_connection(self) -> SharingReader | None:
        return None if self.audience is None else self.connection

    def _take_shared(self, burst: Burst) -> None:
        assert not self.enough, "its connection had something in flight"
        self._check(burst.frames[0].topic, burst)

    def follow(self, name: str, cursor: int) -> None:
        self.feed.subscribe(name, self.query, cursor)
        self.cursors[name] = cursor
        self.told[name] = False
        self.lives[name] = self.world.lives.get(name)
        if not self.owed:
            self.feed.resume()

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        self.connection.stop_sharing()
        self._check(subscription.name, burst)
        self.owed = self.enough
        return not self.owed

    def _check(self, name: str, burst: Burst) -> None:
        assert not self.owed, "it had enough"
        life = self.world.lives.get(name)
        tombstoned = False
        if life is not self.lives[name]:
            # Another instance, unnoticed: the reader continues from its number (R-REC-3), which may
            # have moved unseen.
            self.lives[name] = life
            self.cursors[name] = _start(burst)
        for frame in burst.frames:
            before = self.cursors[name]
            match frame:
                case DeletedFrame():
                    assert life is None
                    del self.cursors[name]
                    continue
                case TombstoneFrame(_, lost, cursor):
                    assert life is not None
                    if lost.reason != "recreated":
                        assert before < lost.gap_from <= lost.gap_to == cursor
                        self._check_skipped(life, before, lost.gap_from - 1)
                    self.cursors[name] = cursor
                    tombstoned = True
                case RecordsFrame(_, from_seq, cursor, head, values):
                    assert life is not None
                    assert from_seq >= before or tombstoned  # what is only skipped moves cursors without a frame
                    at = before
                    for record in msgspec.json.decode(b"[" + values + b"]"):
                        assert record["$seq"] > at
                        self._check_skipped(life, at, record["$seq"] - 1)
                        at = record["$seq"]
                        assert record["data"] == at
                        assert record.get("$node") == life.nodes[at - 1]
                        assert record.get("$node") not in self.nodes
                    self._check_skipped(life, at, cursor)
                    assert at <= cursor <= head
                    self.cursors[name] = cursor
                case CaughtUpFrame(_, cursor, head):
                    assert life is not None
                    assert not self.told[name]
                    assert cursor == head
                    self._check_skipped(life, before, cursor)
                    self.cursors[name] = cursor
            self.told[name] = isinstance(frame, CaughtUpFrame)

    def _check_skipped(self, life: Life, after: int, upto: int) -> None:
        """Whatever was passed over silently was deleted on purpose, or is of a node this reader leaves out."""
        for seq in range(after + 1, upto + 1):
            assert seq in life.deleted or life.nodes[seq - 1] in self.nodes, f"seq {seq} was passed over"

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        raise AssertionError(error)

    def set_enough(self, *, enough: bool) -> None:
        self.enough = enough
        self.connection.idle = not enough

    def resume(self) -> None:
        self.owed = False
        self.feed.resume()


def _start(burst: Burst) -> int:
    """The cursor before a burst, if the burst shows it."""
    first = burst.frames[0]
    if isinstance(first, RecordsFrame):
        return first.from_seq
    return first.tombstone.gap_from - 1 if isinstance(first, TombstoneFrame) else first.cursor


class World:
    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.h = Harness()
        self.shared = FakeSharedSends()
        self.audience = self.shared.audience()
        self.lives: dict[str, Life] = {}
        self.readers: list[Reader] = []
        self.waiting: list[tuple[Any, Any]] = []
        """Reads that have not reached the disk."""
        self.fetch = self.h.engine._core.reader.fetch
        monkeypatch.setattr(self.h.engine._core.reader, "fetch", self._fetch)

    def _fetch(self, pieces: Any, done: Any) -> None:
        if self.rng.random() < 0.2:
            self.waiting.append((pieces, done))
        else:
            self.fetch(pieces, done)

    def step(self) -> None:
        rng, h = self.rng, self.h
        name = rng.choice(TOPICS)
        life = self.lives.get(name)
        dice = rng.random()
        if life is None and dice < 0.5:
            ttl_ms, cap_records = rng.choice((0, 0, 50)), rng.choice((0, 0, 3, 20))
            h.put(name, ttl_ms=ttl_ms, cap_records=cap_records, durability=rng.choice(("disk", "ephemeral")))
            self.lives[name] = Life()
        elif dice < 0.35 and life is not None:
            nodes = [rng.choice((None, *NODES)) for _ in range(rng.choice((1, 1, 2, 7, 30)))]
            node = rng.choice((None, *NODES))
            first = len(life.nodes) + 1
            life.nodes += [node] * len(nodes)
            h.start_append(records(*range(first, first + len(nodes)), node=node), name)
            if rng.random() < 0.7:
                h.settle()
        elif dice < 0.45 and life is not None and life.nodes:
            h.settle()
            bound = rng.randint(1, len(life.nodes) + 1)
            life.deleted |= set(range(1, bound))
            h.delete(bound, name=name)
        elif dice < 0.48 and life is not None:
            h.settle()
            del self.lives[name]  # before its readers are notified
            h.delete_topic(name)
        elif dice < 0.55:
            h.advance_ms(rng.choice((1, 20, 60)))
        elif dice < 0.65:
            reader = Reader(self, tuple(rng.sample(NODES, rng.choice((0, 0, 0, 1)))), rng.choice((1, 256, 256)))
            self.readers.append(reader)
            reader.set_enough(enough=rng.random() < 0.3)
            for each in rng.sample(TOPICS, rng.randint(1, 3)):
                head = len(self.lives[each].nodes) if each in self.lives else 0
                reader.follow(each, rng.randint(0, head + 2))
        elif dice < 0.7 and self.readers:
            reader = rng.choice(self.readers)
            if rng.random() < 0.5:
                reader.feed.close()
                self.readers.remove(reader)
            elif reader.cursors:
                gone = rng.choice(sorted(reader.cursors))
                reader.feed.unsubscribe(gone)
                del reader.cursors[gone]
        elif dice < 0.85 and self.readers:
            reader = rng.choice(self.readers)
            reader.set_enough(enough=not reader.enough)
            if reader.owed:
                reader.resume()
        elif dice < 0.95 and self.waiting:
            self.fetch(*self.waiting.pop(rng.randrange(len(self.waiting))))
        else:
            h.settle()

    def finish(self) -> None:
        """All readers continue; then each has caught up with everything."""
        for _ in range(50):
            self.h.settle()
            while self.waiting:
                self.fetch(*self.waiting.pop())
            for reader in self.readers:
                reader.set_enough(enough=False)
                if reader.owed:
                    reader.resume()
            self.h.advance_ms(1)
        topics = list(self.h.engine._core.registry.all_but_staging())
        heads = {topic.name: topic.head for topic in topics}
        for reader in self.readers:
            for name, subscription in reader.feed.subscriptions.items():
                assert subscription.cohort is not None, "it stands with those that have caught up"
                assert subscription.cohort.cursor == heads[name]
                assert subscription.sent[0] == reader.cursors[name], "the cursor of the last frame"
                assert reader.told[name]
        assert all(cohort.members for topic in topics for cohort in topic.waiters)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", seeds(20))
def test_no_reader_misses_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-WATCH-16, R-WATCH-12, R-WATCH-14: through stalls, shared sends, slow disks, deletes, caps, expiry."""
    world = World(seed, monkeypatch)
    for _ in range(300):
        world.step()
    world.finish()
    assert world.readers
