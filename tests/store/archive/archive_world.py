"""A store with an archive on the simulated ring, and what it held at each time: the oracle of restores.

`run(seed)` writes, deletes, makes checkpoints, kills the store and cuts the power at random, with a target that fails
now and then. Then it restores to times of all lives: each has to be as it was, or refused because of a hole.
"""

from __future__ import annotations

import contextlib
import errno
import random
from dataclasses import replace
from typing import Any, NamedTuple

from tests.store.store_world import StoreWorld, small_config
from topics.config import Config
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import ArchiveNote
from topics.store.archive.archiver import ArchiveStats
from topics.store.archive.restore_archive import copy_point
from topics.store.archive.restore_point import point_at
from topics.store.archive.timelines import find_timelines
from topics.store.archive.verify_archive import verify_timelines

ARCHIVE = "archive"
Held = dict[int, list[int]]
"""By topic id the seqs of its live records."""


def archive_config(**changes: Any) -> Config:
    """Return a config of small files and a step every 500 ms: ten seconds pass before a base after a hole."""
    small = {"archive_dir": ARCHIVE, "archive_every_ms": 500, "segment_max_events": 10, "pack_run_bytes": 512}
    return small_config(**(small | changes))


def held(world: StoreWorld) -> Held:
    return {topic_id: sorted(topic.rows) for topic_id, topic in world.catalog.topics.items()}


def stats(world: StoreWorld) -> ArchiveStats:
    assert world.store.archiver is not None
    return world.store.archiver.stats


def note(world: StoreWorld) -> ArchiveNote:
    return world.run(find_timelines(world.loop, ARCHIVE))[-1].note


def wait(world: StoreWorld, ms: int) -> None:
    world.run(world.loop.sleep(ms * 1_000_000))


def archived(world: StoreWorld) -> int:
    """The time up to which the archive is, once that is now."""
    now = world.ring.clock.now_ms()
    for _ in range(4000):
        if stats(world).upto_ms >= now:
            return now
        wait(world, 50)
    raise AssertionError(f"the archive does not go on: {stats(world)}")


def restored(world: StoreWorld, at_ms: int) -> StoreWorld:
    """A directory made of the archive, opened beside the store. Raises as a restore does."""
    target = f"restored-{at_ms}"
    made = StoreWorld(world.ring.next_life(power_cut=False), config=replace(small_config(), data_dir=target))
    point = point_at(made.run(find_timelines(made.loop, ARCHIVE)), at_ms)
    made.run(copy_point(made.loop, point, target))
    return made.open()


def filled(**changes: object) -> StoreWorld:
    world = StoreWorld(config=archive_config(**changes)).open()
    world.create(1)
    world.append(1, 10, size=200)
    archived(world)
    wait(world, 200)
    return world


def after_many_batches(**changes: object) -> StoreWorld:
    """A store, killed when its archive has more batches than the start numbers: it joins the last ones."""
    world = filled(archive_base_every_ms=0, checkpoint_every_ms=1 << 30, **changes)
    for _ in range(30):
        world.append(1, 1, size=200, fsync=False)
    archived(world)
    return world


def grow(world: StoreWorld, steps: int = 4) -> None:
    """Fill log files, and have a checkpoint leave them."""
    for _ in range(steps):
        world.append(1, 20, size=1500)
        world.checkpoint()


class Moment(NamedTuple):
    """The records that there were at a time."""

    at_ms: int
    held: Held


class Outcome(NamedTuple):
    restored: int
    refused: int
    holes: int


class ArchiveRun:
    """One random history, and the restores at its end."""

    def __init__(self, seed: int, **settings: Any) -> None:
        """settings: in the place of those of the seed."""
        self.rng = rng = random.Random(seed)
        self.harmless = rng.random() < 0.3
        """Nothing happens that may make a hole."""
        self.keep_bytes = (1 << 30) if self.harmless or rng.random() < 0.5 else 1 << 17
        seeded = {
            "archive_keep_bytes": self.keep_bytes,
            "archive_every_ms": 50,
            "archive_base_every_ms": rng.choice((0, 700, 3000)),
            "wal_shards": rng.choice((1, 1, 2)),
        }
        config = archive_config(**{**seeded, **settings})
        self.world = StoreWorld(config=config, seed=seed).open()
        self.moments: list[Moment] = []
        self.next_id = 1

    def step(self) -> None:
        world, rng = self.world, self.rng
        wait(world, rng.choice((1, 2, 3, 40, 120)))
        ids = sorted(world.catalog.topics)
        choice = rng.random()
        if not ids or (choice < 0.08 and len(ids) < 5):
            world.create(self.next_id)
            self.next_id += 1
        elif choice < 0.6:
            world.append(
                rng.choice(ids), rng.randint(1, 12), size=rng.choice((20, 200, 2000)), fsync=rng.random() < 0.5
            )
        elif choice < 0.72:
            topic = world.topic(rng.choice(ids))
            if topic.rows:
                world.delete(topic.topic_id, sorted(rng.sample(sorted(topic.rows), min(3, len(topic.rows)))))
        elif choice < 0.76:
            topic = world.topic(rng.choice(ids))
            if topic.rows:
                world.evict(topic.topic_id, rng.choice(sorted(topic.rows)))
        elif choice < 0.79:
            world.drop(rng.choice(ids))
        elif choice < 0.95:
            world.checkpoint()
        elif not self.harmless:
            kind = rng.choice(("write", "sync", "open", "rename"))
            error = rng.choice((errno.EIO, errno.ENOSPC))
            world.ring.faults.fail(
                kind, error, nth=rng.randint(1, 6), times=rng.choice((1, 3, 12)), path_part=f"{ARCHIVE}/"
            )
        wait(world, 1)  # what comes next has another time
        self.moments.append(Moment(world.ring.clock.now_ms() - 1, held(world)))

    def end_life(self) -> None:
        """End the process in one of three ways, perhaps in the middle of a checkpoint and of a step."""
        world, rng = self.world, self.rng
        power_cut = not self.harmless and rng.random() < 0.4
        if rng.random() < 0.3:
            world.close()
        elif rng.random() < 0.5:
            world.loop.spawn(world.store.checkpointer.run(), "interrupted")
            world.passes(rng.randint(1, 60))
        if power_cut:
            world.ring.clock.advance_ns(5_000_000)
        self.world = world = world.next_life(power_cut=power_cut)
        # Whatever the step had copied and not noted is no damage.
        with contextlib.suppress(OSError):  # a fault that was to come
            assert (
                world.run(verify_timelines(world.loop, world.run(find_timelines(world.loop, ARCHIVE)))).findings == []
            )
        self.next_id = max([self.next_id, *(topic_id + 1 for topic_id in self.world.catalog.topics)])

    def run(self) -> Outcome:
        for life in range(self.rng.randint(1, 4)):
            if life:
                self.end_life()
            for _ in range(self.rng.randint(5, 30)):
                self.step()
        self.world.ring.faults.clear()
        wait(self.world, 25_000)  # a failed base is tried again after ten seconds
        self.moments.append(Moment(archived(self.world), held(self.world)))
        return self.check()

    def check(self) -> Outcome:
        world, counts = self.world, [0, 0]
        found = world.run(find_timelines(world.loop, ARCHIVE))
        assert world.run(verify_timelines(world.loop, found)).findings == []
        holes = [hole for timeline in found for hole in timeline.note.holes]
        if self.harmless:
            assert len(found) == 1
            assert not holes
        spans = [(timeline.bases[0].manifest.taken_ms, timeline.note.upto_ms) for timeline in found if timeline.bases]
        moments = self.moments[:-1]
        for moment in [*self.rng.sample(moments, min(8, len(moments))), self.moments[-1]]:
            try:
                again = restored(world, moment.at_ms)
            except UsageError:
                in_hole = any(hole.from_ms < moment.at_ms < (hole.to_ms or moment.at_ms + 1) for hole in holes)
                assert in_hole or not any(first <= moment.at_ms <= last for first, last in spans), (
                    moment,
                    holes,
                    spans,
                )
                counts[1] += 1
                continue
            assert held(again) == moment.held, (moment.at_ms, holes)
            again.check_every_record()
            again.close()
            counts[0] += 1
        return Outcome(counts[0], counts[1], len(holes) + len(found) - 1)


def main() -> None:
    import sys  # noqa: PLC0415 - by hand only

    first, count = int(sys.argv[1]), int(sys.argv[2])
    total = [0, 0, 0]
    for seed in range(first, first + count):
        try:
            outcome = ArchiveRun(seed).run()
        except (Exception, CorruptError) as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            raise
        total = [a + b for a, b in zip(total, outcome, strict=True)]
    print(f"{count} histories: {total[0]} restores equal, {total[1]} refused, {total[2]} holes")


if __name__ == "__main__":
    main()
