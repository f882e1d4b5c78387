"""When work that is divided into small pieces lets the rest of the loop have its turn.

After a slice of work come passes that last twice as long together, or one that had nothing to do: beside a busy server
the work gets a third of the time, beside an idle one all of it. (Virtual time stands still within a pass: there every
pass had nothing to do.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topics.clock import Clock
from topics.loop.tasks import Future

_REST_SHARE = 2
_IDLE_PASS_NS = 100_000


class TimeSlices:
    """One piece of work's. `if turns.over: await turns.rest()` between its pieces.

    Where several tasks share the work, each waits for its `turn` and does a piece in `working`: what others do while
    it waits for the disk is not its work.
    """

    def __init__(self, clock: Clock, next_pass: Callable[[], Future[None]], slice_ns: int) -> None:
        """slice_ns: how long to work before resting; 0: never, by time."""
        self._now_ns = clock.monotonic_ns
        self._next_pass = next_pass
        self._slice_ns = slice_ns
        self._began_ns = self._now_ns()
        self._worked_ns = 0
        """What tasks that share the work have used of the slice."""
        self._slices = 0
        """That have ended."""

    @property
    def over(self) -> bool:
        """The slice is used up."""
        return 0 < self._slice_ns <= self._used_ns

    @property
    def _used_ns(self) -> int:
        return self._worked_ns + self._now_ns() - self._began_ns

    def hurry(self) -> None:
        """From now on nobody else works: the slice that has begun lasts to the end."""
        self._slice_ns = 0

    def resume(self) -> None:
        """What came before was no work, for instance waiting for the disk."""
        self._began_ns = self._now_ns()

    async def rest(self) -> None:
        """Returns in a later pass, at the beginning of a slice."""
        await self._rest(self._used_ns)

    async def turn(self) -> None:
        """Returns once there is something left of the slice, or of a later one: at once, mostly."""
        while 0 < self._slice_ns <= self._worked_ns:
            await self._rest(self._worked_ns)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A piece of work in which nothing is awaited."""
        began_ns = self._now_ns()
        try:
            yield
        finally:
            self._began_ns = self._now_ns()
            self._worked_ns += self._began_ns - began_ns

    async def _rest(self, used_ns: int) -> None:
        ended, now_ns = self._slices, self._now_ns()
        until_ns = now_ns + _REST_SHARE * used_ns
        while True:
            before_ns = now_ns
            await self._next_pass()
            now_ns = self._now_ns()
            if now_ns >= until_ns or now_ns - before_ns < _IDLE_PASS_NS or not self._slice_ns:
                break
        if self._slices == ended:  # else the slice that another task began goes on
            self._slices += 1
            self._worked_ns = 0
            self._began_ns = now_ns
