"""One short life of a mirror, in which it or its server is killed after every operation.

In that life the log grows, a checkpoint moves records, and a power cut of the server makes a hole. So the mirror copies
log, notes the hole, copies a base of which some files are linked, and removes the base before. Once it is killed, and
once more after it has continued, a promotion has to be what the store held at the instant that the mirror states.

    python -m tests.store.mirror.mirror_sweep [EVERY]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.store.archive.archive_world import held, wait
from tests.store.mirror.mirror_world import Followed
from topics.errors import NoAnswerError
from topics.loop import Loop

_NEVER = 1 << 30


class Life(Followed):
    """A mirror that is late, beside a server whose archive is sound."""

    def __init__(self) -> None:
        super().__init__()
        self._append(3)
        self.catch_up()
        self._append(12)
        self.world.checkpoint()
        self._append(5)
        self.world = self.world.next_life(power_cut=True)
        wait(self.world, 12_000)  # a base comes after the hole
        self._append(2)
        wait(self.world, 200)

    def _append(self, count: int) -> None:
        self.world.append(1, count, size=2000)
        self.note()

    def note(self) -> None:
        """Note what there is at this time, which is that of no other."""
        wait(self.world, 1)
        self.note_moment()
        wait(self.world, 1)

    def follow_until(self, passes: int) -> int:
        """Let the mirror follow for so many passes of its loop at most; return how many it took."""
        until = self.world.ring.clock.now_ms()

        async def follow() -> None:
            while self.mirror.end.upto_ms < until or self.mirror.end.waits_for:
                await self.mirror.step(5)
                wait(self.world, 60)

        task = self.loop.spawn(follow(), "mirror")
        taken = 0
        while taken < passes and not task.done:
            self.loop.run_pass(None)
            taken += 1
        return taken


class Kill(NamedTuple):
    """An end of a process in the life of a mirror."""

    of: str
    """"mirror" or "server"."""
    power_cut: bool
    after: int
    """Passes of the loop of the mirror, or requests to the server."""

    def __str__(self) -> str:
        return f"{'power-cut' if self.power_cut else 'kill'}-of-the-{self.of}-after-{self.after}"

    def run(self) -> bool:
        """Return whether the life was that long. Raises: AssertionError."""
        life = Life()
        is_in_time = self._of_mirror(life) if self.of == "mirror" else self._of_server(life)
        life.catch_up()
        assert life.promoted() == held(life.world)
        return is_in_time

    def _of_mirror(self, life: Life) -> bool:
        taken = life.follow_until(self.after)
        life.ring = life.ring.next_life(power_cut=self.power_cut)
        life.loop = Loop(life.ring, life.ring.clock)
        life.check_promoted()
        life.mirror = life.opened()
        return taken == self.after

    def _of_server(self, life: Life) -> bool:
        killed = False

        def on_request(number: int) -> None:
            nonlocal killed
            if number == first + self.after:
                killed = True
                life.world = life.world.next_life(power_cut=self.power_cut)
                life.note()
                raise NoAnswerError("no answer: killed")

        first = life.source.asked
        life.source.on_request = on_request
        try:
            life.loop.run_task(life.mirror.step(_NEVER))
        except NoAnswerError:
            life.check_promoted()
            life.mirror = life.opened()
        return killed


def kills(every: int = 1) -> Iterator[Kill]:
    """Yield every so many kills of each kind, up to the length of the life."""
    life = Life()
    passes = life.follow_until(_NEVER)
    life = Life()
    before = life.source.asked
    life.loop.run_task(life.mirror.step(_NEVER))
    lengths = {"mirror": passes, "server": life.source.asked - before}
    for (of, length), power_cut in itertools.product(lengths.items(), (False, True)):
        for after in range(1, length, every):
            yield Kill(of, power_cut, after)


def main() -> None:
    import sys  # noqa: PLC0415 - by hand only

    counts = {"mirror": 0, "server": 0}
    for kill in kills(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        try:
            assert kill.run(), "it came after the end"
        except BaseException:
            print(kill)
            raise
        counts[kill.of] += 1
    print(f"{counts['mirror']} kills of the mirror, {counts['server']} of the server: each promotion equal")


if __name__ == "__main__":
    main()
