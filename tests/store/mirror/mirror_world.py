"""A store with an archive, and a mirror of it on another simulated machine, both killed and cut off at random.

`MirrorRun(seed).run()` takes the random histories of `ArchiveRun`; between their steps the mirror follows, its disk
fails, fills up, loses power, and the server does not answer. Then a restore of the mirror has to be what the store held
at the instant that the mirror states.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from tests.sim import SimRing
from tests.store.archive.archive_world import ArchiveRun, Held, Moment, Outcome, held
from tests.store.store_world import StoreWorld, small_config
from topics.common.values.archive_state import ArchiveState
from topics.errors import CorruptError, NoAnswerError, StorageError, TopicsError, UsageError
from topics.loop import Loop
from topics.store.archive.restore_archive import copy_point
from topics.store.archive.restore_point import END, point_at
from topics.store.archive.timelines import Timeline, find_timelines
from topics.store.mirror.mirror import newest_timeline
from topics.store.mirror.mirror_source import MissingPartError
from topics.store.mirror.server_mirror import ServerMirror

MIRROR = "mirror"


class FakeSource:
    """The archive of a store on another ring, which may not answer."""

    def __init__(self, run: MirrorRun) -> None:
        self._run = run
        self.asked = 0
        """Requests so far."""
        self.on_request: Callable[[int], None] = lambda _number: None
        """Called with the number of each request; what it raises is the answer."""

    def _cut(self) -> None:
        self.asked += 1
        self.on_request(self.asked)
        if self._run.cut_rng.random() < self._run.cut_share:
            raise NoAnswerError("no answer: cut off")

    async def state(self, upto_ms: int) -> ArchiveState:
        self._run.stated_ms = max(self._run.stated_ms, upto_ms)
        self._cut()
        found = self._run.world.store.archive.state
        assert found is not None
        return found

    async def piece(self, timeline: str, path: str, offset: int, most: int) -> bytes:
        self._cut()
        found: list[bytes | TopicsError] = []
        world = self._run.world
        world.store.archive.read(timeline, path, offset, min(most, 8192), found.append)
        while not found:
            world.passes(1)
        if isinstance(found[0], TopicsError):
            if isinstance(found[0], StorageError):
                raise found[0]
            raise MissingPartError(path)
        return found[0]


class Mirrored(NamedTuple):
    """The numbers of a run."""

    equal: int
    refused: int
    kills: int
    holes: int


class MirrorRun(ArchiveRun):
    """One random history with a mirror."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.cut_rng = random.Random(seed * 7 + 1)
        self.cut_share = 0.0
        self.ring = SimRing(seed + 1_000_000)
        self.loop = Loop(self.ring, self.ring.clock)
        self.source = FakeSource(self)
        self.equal = self.refused = self.kills = self.holes = self.promotions = 0
        self.stated_ms = 0
        """The newest time that the mirror has stated."""
        self.mirror = self.opened()

    def opened(self, timeline: str = "", *, retain_ms: int = 0) -> ServerMirror:
        mirror = ServerMirror(self.loop, lambda _core: self.source, MIRROR, retain_ms=retain_ms, piece_bytes=8192)
        self.loop.run_task(mirror.open(timeline))
        return mirror

    def step(self) -> None:
        super().step()
        if self.cut_rng.random() < 0.5:
            self.follow()

    def follow(self) -> None:
        rng = self.cut_rng
        self.cut_share = rng.choice((0, 0, 0, 0.05, 0.4))
        if rng.random() < 0.15:
            kind = rng.choice(("write", "sync", "open", "rename", "link"))
            error = rng.choice((errno.EIO, errno.ENOSPC))
            self.ring.faults.fail(kind, error, nth=rng.randint(1, 8), times=rng.choice((1, 2, 5)))
        if rng.random() < 0.15:
            self.kill()
            return
        self.step_mirror()

    def note_moment(self) -> None:
        self.moments.append(Moment(self.world.ring.clock.now_ms(), held(self.world)))

    def step_mirror(self) -> None:
        try:
            self.loop.run_task(self.mirror.step(5))
            self.stated_ms = max(self.stated_ms, self.mirror.end.upto_ms)
        except UsageError as error:
            if "another log now" not in str(error):
                raise
            self.refused += 1
            name = str(error).partition("--timeline ")[2].partition(",")[0]
            self.ring.faults.clear()
            self.mirror = self.opened(name)
        except CorruptError:
            raise
        except (OSError, StorageError, NoAnswerError):
            pass

    def kill(self) -> None:
        """End the mirror in the middle of a step, and compare what is there then."""
        self.kills += 1
        rng = self.cut_rng
        task = self.mirror.step(5)

        async def run() -> None:
            with contextlib.suppress(TopicsError, OSError):
                await task

        ended = self.loop.spawn(run(), "mirror")
        for _ in range(rng.randint(1, 60)):
            if not ended.done:
                self.loop.run_pass(None)  # up to the next operation that ends
        power_cut = rng.random() < 0.5
        self.ring = self.ring.next_life(power_cut=power_cut)
        self.ring.faults.clear()
        self.loop = Loop(self.ring, self.ring.clock)
        self.check_promoted()
        self.mirror = self.opened()

    def check_promoted(self) -> None:
        """Compare what a promotion gives with what the store held at that instant."""
        try:
            point = point_at(self.newest(self.loop), END)
        except UsageError:
            assert not self.stated_ms, "it had that"
            return
        upto_ms = point.timeline.note.upto_ms
        assert upto_ms >= self.stated_ms, "it is less than what the mirror had"
        found = self.promoted()
        before = [moment.held for moment in self.moments if moment.at_ms <= upto_ms][-1:] or [{}]
        after = [moment.held for moment in self.moments if moment.at_ms > upto_ms][:1]
        assert found in [*before, *after], (upto_ms, found, before, after)
        self.equal += 1

    def newest(self, loop: Loop) -> list[Timeline]:
        """Return the timelines of which a promotion takes the newest."""
        return loop.run_task(find_timelines(loop, loop.run_task(newest_timeline(loop, MIRROR))))

    def promoted(self) -> Held:
        """Return what a promotion of the mirror has, which ends the mirror's process."""
        ring = self.ring.next_life(power_cut=False)
        ring.faults.clear()
        self.promotions += 1
        target = f"promoted-{self.promotions}"
        made = StoreWorld(ring, config=replace(small_config(), data_dir=target))
        point = point_at(self.newest(made.loop), END)
        made.run(copy_point(made.loop, point, target))
        made.open()
        found = held(made)
        made.check_every_record()
        made.close()
        self.ring = made.ring.next_life(power_cut=False)
        self.loop = Loop(self.ring, self.ring.clock)
        return found

    def check(self) -> Outcome:
        """Let the mirror come to the end before the restores of the archive itself."""
        self.ring.faults.clear()
        self.cut_share = 0
        until = self.world.ring.clock.now_ms()
        for _ in range(400):
            self.step_mirror()
            if self.mirror.end.upto_ms >= until and not self.mirror.end.waits_for:
                break
            self.world.run(self.world.loop.sleep(60_000_000))
        else:
            raise AssertionError(f"the mirror does not go on: {self.mirror.end}")
        self.holes = len(self.mirror.end.holes)
        if self.harmless:
            assert not self.holes
            assert not self.refused
        self.note_moment()
        self.check_promoted()
        return super().check()

    def mirrored(self) -> Mirrored:
        self.run()
        return Mirrored(self.equal, self.refused, self.kills, self.holes)


class Followed(MirrorRun):
    """A store with one topic and a mirror, both sound, that a test drives by hand."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(seed=4, **settings)
        self.world.create(1)
        self.catch_up()

    def catch_up(self) -> None:
        until = self.world.ring.clock.now_ms()
        for _ in range(400):
            self.loop.run_task(self.mirror.step(5))
            if self.mirror.end.upto_ms >= until and not self.mirror.end.waits_for:
                self.note_moment()
                return
            self.world.run(self.world.loop.sleep(60_000_000))
        raise AssertionError(f"the mirror does not go on: {self.mirror.end}")


def main() -> None:
    import sys  # noqa: PLC0415 - by hand only

    first, count = int(sys.argv[1]), int(sys.argv[2])
    total = [0, 0, 0, 0]
    for number, seed in enumerate(range(first, first + count), 1):
        try:
            outcome = MirrorRun(seed).mirrored()
        except BaseException as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            raise
        total = [a + b for a, b in zip(total, outcome, strict=True)]
        if number % 20 == 0 or number == count:
            print(
                f"{number} histories: {total[0]} promotions equal, {total[1]} refused, {total[2]} kills, "
                f"{total[3]} holes",
                flush=True,
            )


if __name__ == "__main__":
    main()
