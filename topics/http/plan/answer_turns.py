"""Turns of answers that one event decides: a commit, a failure of the log, a stop.

A log that fails, or a file of it that finds the disk full, fails all writes that wait for it, and a
commit ends all that wait for it. The shards of the log have turns of their own for what was staged
(`Shard._answer`), but one callback may have many writes, those of a topic; so many a pass are
answered. While the server stops, answers that the lane would give together are given one by one,
because they end their connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from topics.engine.values.ports import TimersPort
from topics.engine.values.turns import Turns

ANSWERS_A_PASS = 128
"""Answers that a pass begins with; it may end with as many. Each takes some 10 us, and a send."""


class AnswerTurns(Turns):
    """The answers of one server, in the order in which their requests failed, or were committed."""

    __slots__ = ()

    def __init__(self, timers: TimersPort) -> None:
        super().__init__(timers, ANSWERS_A_PASS, ANSWERS_A_PASS)

    @property
    def is_free(self) -> bool:
        """Whether `answer` sends at once."""
        return self.left > 0 and not self._waiting

    def answer(self, send: Callable[[], None]) -> None:
        """Call `send` now, or in a later pass after those that wait. It must not raise."""
        if self.is_free:
            self._count(send)
        else:
            self.wait(partial(self._count, send))

    def answer_each(self, sends: Iterator[Callable[[], None]]) -> None:
        """Call each of `sends` as `answer` does, and make the next one only then."""
        if self._waiting:
            self.wait(partial(self._answer_some, sends))
        else:
            self._answer_some(sends)

    def _answer_some(self, sends: Iterator[Callable[[], None]]) -> None:
        while self.left > 0:
            send = next(sends, None)
            if send is None:
                return
            self._count(send)
        self.wait(partial(self._answer_some, sends))

    def _count(self, send: Callable[[], None]) -> None:
        self.left -= 1
        send()
