"""Parts of producers through anything that may happen to a data directory: never appended twice."""

from __future__ import annotations

import random

import pytest

from tests.amount import seeds
from tests.engine.harness import records
from tests.engine.real_world import RealWorld
from topics.engine.state.producer_part import Part
from topics.engine.values.results import AppendResult
from topics.errors import RequestError
from topics.loop import Loop
from topics.store.repair.rebuild import rebuild

_STEPS = 80
Name = tuple[bytes, int, int]


class Story:
    """One topic of class `fsync`; what was acknowledged is known, whatever follows."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.world = RealWorld(
            seed,
            checkpoint_wal_bytes=1,
            pack_run_bytes=rng.choice((0, 1 << 20)),
            segment_max_events=rng.choice((3, 20)),
            producer_epochs=3,
        )
        self.cap = rng.choice((0, 3, 10))
        self.world.put(durability="fsync", cap_records=self.cap)
        self.sent: dict[Name, tuple[list[int], int]] = {}
        """Values and first seq."""

    def step(self) -> None:
        rng, world = self.rng, self.world
        choice = rng.random()
        if choice < 0.45:
            self.write()
        elif choice < 0.65 and self.sent:
            self.again(rng.choice([*self.sent]))
        elif choice < 0.72:
            world.append(*range(rng.randint(1, 3)), tag="x")
        elif choice < 0.78:
            world.delete(before_seq=rng.randint(1, world.state().head_seq + 1))
        elif choice < 0.82:
            world.delete(match="x")
        elif choice < 0.9:
            world.checkpoint()
        elif choice < 0.95:
            world.restart(power_lost=rng.random() < 0.5)
        else:
            self.rebuild(with_snapshots=True)

    def write(self) -> None:
        newest = max((epoch for _producer, epoch, _part in self.sent), default=5)
        name = (self.rng.choice((b"p", b"q")), newest + self.rng.choice((-2, 0, 0, 0, 1)), self.rng.randrange(4))
        if name in self.sent:
            return
        values = [self.rng.randrange(1000) for _ in range(self.rng.randint(1, 3))]
        result = self.send(name, values)
        if result is not None:
            assert not result.deduped
            self.sent[name] = values, result.first_seq

    def again(self, name: Name) -> bool:
        """Whether the part is known; nothing was appended."""
        values, first_seq = self.sent[name]
        result = self.send(name, self.rng.sample(values, len(values)))
        if result is None:
            return False
        assert (result.deduped, result.first_seq, result.count) == (True, first_seq, len(values)), name
        return True

    def send(self, name: Name, values: list[int]) -> AppendResult | None:
        """For None, the topic has forgotten the part's epoch."""
        answer = self.world.start_append(records(*values), identity=Part(*name))
        self.world.settle()
        try:
            result: AppendResult = answer.get()
        except RequestError as error:
            if error.code != "producer_stale":
                raise
            return None
        return result

    def rebuild(self, *, with_snapshots: bool) -> None:
        ring = self.world.ring.next_life(power_cut=self.rng.random() < 0.5)
        if not with_snapshots:
            for name in ring.disk.list_directory("data/snapshots"):
                ring.disk.unlink(f"data/snapshots/{name}")
        loop = Loop(ring, ring.clock)
        loop.run_task(rebuild(loop, "data"))
        self.world._open(ring)

    def check(self) -> None:
        """The three newest epochs of each producer are known."""
        for producer in (b"p", b"q"):
            epochs = sorted({epoch for found, epoch, _part in self.sent if found == producer})
            for name in self.sent:
                if name[0] == producer:
                    assert self.again(name) is (name[1] in epochs[-3:]), name


@pytest.mark.parametrize("seed", seeds(8))
def test_a_part_that_was_acknowledged_is_never_appended_again(seed: int) -> None:
    """R-PROD-1, R-PROD-3, R-PROD-7: kills, power cuts, caps, deletes, checkpoints, rebuilds."""
    story = Story(seed)
    for _ in range(_STEPS):
        story.step()
    story.check()
    story.rebuild(with_snapshots=True)
    story.check()


@pytest.mark.parametrize("seed", seeds(4))
def test_without_a_snapshot_parts_whose_records_are_there_are_known(seed: int) -> None:
    """R-PROD-7: a rebuild from only segments, packs and the log."""
    story = Story(seed)
    for _ in range(_STEPS):
        story.step()
    live = set(story.world.seqs(limit=1000))
    story.rebuild(with_snapshots=False)
    for name, (_values, first_seq) in story.sent.items():
        if first_seq in live:
            story.again(name)
