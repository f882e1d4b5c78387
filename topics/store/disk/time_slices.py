"""Time slices for work in small pieces, so that other work of the loop has its turn.

A slice of work is followed by a rest that is twice as long, or longer where the work is not urgent.
The rest ends once nothing has arrived for a moment. So beside a busy server the work gets a third
of the time at most, beside an idle one nearly all of it. A pass without work is no sign of an idle
server: clients that have their answers need a moment to send the next requests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

from topics.clock import Clock
from topics.loop.tasks import Future

REST_SHARE = 2
"""Length of a rest in lengths of the slice before it, for urgent work."""
_QUIET_NS = 100_000
"""A rest ends after this time without arrivals."""
_HURRIED_NS = 5_000_000
"""A slice in a hurry: long against the pass that follows it."""

_T = TypeVar("_T")


async def a_step_a_pass(next_pass: Callable[[], Future[None]], steps: Generator[None, None, _T]) -> _T:
    """Take one step in each pass of the loop; return what the generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return cast(_T, stop.value)
        await next_pass()


class RestingLoop(Protocol):
    """The part of a loop that time slices need."""

    clock: Clock

    @property
    def arrivals(self) -> int: ...
    def next_pass(self) -> Future[None]: ...
    def sleep(self, ns: int) -> Coroutine[Any, Any, None]: ...


class TimeSlices:
    """The slices of one piece of work: `if turns.over: await turns.rest()` between its parts.

    If several tasks share the work, each waits for its `turn` and does a part in `working`; time of
    others while it waits for the disk is not counted.
    """

    def __init__(self, loop: RestingLoop, slice_ns: int, rest_share: Callable[[], float] = lambda: REST_SHARE) -> None:
        """slice_ns: time to work before a rest; 0: never rest by time.

        rest_share: the length of the next rest in lengths of the slice, `REST_SHARE` at least.
        """
        self._loop = loop
        self._now_ns = loop.clock.monotonic_ns
        self._slice_ns = slice_ns
        self._rest_share = rest_share
        self._began_ns = self._now_ns()
        self._worked_ns = 0
        """Time of the slice used by tasks that share the work."""
        self._working_since_ns = 0
        self._slices = 0
        """Number of slices that have ended."""
        self.is_short = not slice_ns
        """Whether a rest is one pass: there is no limit, or no other work (`hurry`)."""
        self.given_ns = 0
        """Time of all rests beyond that of urgent work."""

    @property
    def over(self) -> bool:
        """Whether the slice is used up."""
        return 0 < self._slice_ns <= self._used_ns

    @property
    def _used_ns(self) -> int:
        return self._worked_ns + self._now_ns() - self._began_ns

    def hurry(self) -> None:
        """Rest for one pass after longer slices from now on, since no other work runs.

        That pass is for signals, timers and reports to a service manager.
        """
        self.is_short = True
        if self._slice_ns:
            self._slice_ns = max(self._slice_ns, _HURRIED_NS)

    def resume(self) -> None:
        """Restart the slice's clock.

        The time before was no work, for instance a wait for the disk.
        """
        self._began_ns = self._now_ns()

    async def rest(self) -> None:
        """Return in a later pass, at the beginning of a slice."""
        await self._rest(self._used_ns)

    async def turn(self) -> None:
        """Return once part of a slice is left, usually at once."""
        while 0 < self._slice_ns <= self._worked_ns:
            await self._rest(self._worked_ns)

    def working(self) -> TimeSlices:
        """Count the time of the `with` block, which awaits nothing, as work."""
        return self

    def __enter__(self) -> None:
        self._working_since_ns = self._now_ns()

    def __exit__(self, *_error: object) -> None:
        self._began_ns = self._now_ns()
        self._worked_ns += self._began_ns - self._working_since_ns

    async def _rest(self, used_ns: int) -> None:
        ended, rested_ns = self._slices, self._now_ns()
        until_ns = rested_ns + int(self._rest_share() * used_ns)
        await self._loop.next_pass()
        now_ns = self._now_ns()
        while now_ns < until_ns and not self.is_short:
            arrivals = self._loop.arrivals
            await self._loop.sleep(min(_QUIET_NS, until_ns - now_ns))
            now_ns = self._now_ns()
            if self._loop.arrivals == arrivals:
                break
        if self._slices == ended:  # otherwise the slice that another task began continues
            self._slices += 1
            self._worked_ns = 0
            self._began_ns = self._now_ns()
            self.given_ns += max(0, self._began_ns - rested_ns - REST_SHARE * used_ns)
