"""A claim that waits for the first jobs. Source: wire contract, R-Q-31."""

from __future__ import annotations

from topics.engine.queue.alarm import tend
from topics.engine.queue.claim import BYTES_A_LOOK, Claims
from topics.engine.queue.queue_results import ClaimRequest, ClaimResult
from topics.engine.state import refusals
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import TimerPort
from topics.engine.values.results import Cancel, Done
from topics.errors import TopicsError

_BYTES_AN_END = 8192
"""Share of a pass's budget for reads that the answer of a queue that is gone takes."""


class ClaimWait:
    """One claim, repeated after each change of its queue until it gets jobs or its time has passed.

    Like a push stream it is a waiter of the topic, and has the queue's alarm set for the end of
    leases and delays.
    """

    def __init__(self, claims: Claims, topic: Topic, request: ClaimRequest, wait_ms: int, done: Done[ClaimResult]):
        """Make the claim; `begin` starts it. topic: a queue."""
        assert topic.queue is not None, "only queues have claims"
        self._claims = claims
        self._topic = topic
        self._leases = topic.queue
        self._request = request
        self._wait_ms = wait_ms
        self._done: Done[ClaimResult] | None = done
        self._cancel: Cancel | None = None
        """Cancels the claim in progress."""
        self._changed = False
        """Whether a change came during that claim, which it may have missed."""
        self._waits_for_turn = False
        self._timer: TimerPort | None = None
        self._is_last = False

    def begin(self) -> None:
        core = self._claims.core
        self._leases.streams[self] = None
        self._topic.waiters[self] = None
        self._timer = core.loop.call_later(self._wait_ms * 1_000_000, self._on_deadline)
        self._is_last = core.closing
        self._claim()

    def cancel(self) -> None:
        """Give up the answer; a claim in progress gives its jobs back."""
        self._done = None
        self._leave()
        if self._cancel is not None:
            self._cancel()

    def _claim(self) -> None:
        self._changed = False
        answers: list[ClaimResult | TopicsError] = []

        def on_claimed(result: ClaimResult | TopicsError) -> None:
            answers.append(result)
            self._cancel = None
            self._on_claimed(result)

        cancel = self._claims.claim(self._request, on_claimed)
        if not answers:
            self._cancel = cancel

    def _on_claimed(self, result: ClaimResult | TopicsError) -> None:
        if isinstance(result, TopicsError) or result.count or self._is_last:
            self._answer(result)
        elif self._changed:
            self._claims.core.loop.call_later(0, self.look_again)
        else:
            tend(self._claims.core, self._topic)

    def _answer(self, result: ClaimResult | TopicsError) -> None:
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(result)

    def _leave(self) -> None:
        self._topic.waiters.pop(self, None)
        self._leases.streams.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    # --- waiter ------------------------------------------------------------------------------------------------------
    def look_again(self) -> None:
        """Claim again, after a change or when time has made jobs claimable.

        It does so in a turn of the pass's reads, because thousands may wait.
        """
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._claims.core.turns.take(self._on_turn)

    def _on_turn(self) -> None:
        self._waits_for_turn = False
        if self._done is None:
            return
        self._claims.core.turns.spend(BYTES_A_LOOK)
        if self._cancel is not None:
            self._changed = True
        elif self._topic.life is Life.GONE:
            self._claims.core.turns.spend(_BYTES_AN_END)
            self._answer(refusals.topic_not_found(self._topic.name))
        elif self._is_last or self._leases.counters(self._claims.core.clock.now_ms()).ready:
            self._claim()
        else:  # another one was faster, or no job came: so many claims that wait cost little
            tend(self._claims.core, self._topic)

    def on_topic_gone(self) -> None:
        self.look_again()

    def on_shutdown(self) -> None:
        self._is_last = True
        self._on_turn()

    def _on_deadline(self) -> None:
        """Answer with the claim in progress, or with one more."""
        self._is_last = True
        self.look_again()
