"""When work that is divided into small pieces lets the rest of the loop have its turn.

After a slice of work come passes that last twice as long together, or one that had nothing to do: beside a busy server
the work gets a third of the time, beside an idle one all of it. (Virtual time stands still within a pass: there every
pass had nothing to do.)
"""

from __future__ import annotations

from collections.abc import Callable

from topics.clock import Clock
from topics.loop.tasks import Future

_REST_SHARE = 2
_IDLE_PASS_NS = 100_000


class Turns:
    """One piece of work's. `if turns.over: await turns.rest()` between its pieces."""

    def __init__(self, clock: Clock, next_pass: Callable[[], Future[None]], slice_ns: int) -> None:
        """slice_ns: how long to work before resting; 0: never, by time."""
        self._now_ns = clock.monotonic_ns
        self._next_pass = next_pass
        self._slice_ns = slice_ns
        self._began_ns = self._now_ns()

    @property
    def over(self) -> bool:
        """The slice is used up."""
        return 0 < self._slice_ns <= self._now_ns() - self._began_ns

    def resume(self) -> None:
        """A slice begins: what came before was no work, for instance waiting for the disk."""
        self._began_ns = self._now_ns()

    async def rest(self) -> None:
        """Returns in a later pass, at the beginning of a slice."""
        now_ns = self._now_ns()
        until_ns = now_ns + _REST_SHARE * (now_ns - self._began_ns)
        while True:
            before_ns = now_ns
            await self._next_pass()
            now_ns = self._now_ns()
            if now_ns >= until_ns or now_ns - before_ns < _IDLE_PASS_NS:
                break
        self._began_ns = now_ns
