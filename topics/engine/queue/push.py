"""Push streams: connections that get leased jobs as they come.

Source: wire contract 8.6, R-Q-28 to -30.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from topics.engine.queue.alarm import tend
from topics.engine.queue.claim import BYTES_A_LOOK, Claim, Claims, check_node
from topics.engine.queue.lease_log import log_ended
from topics.engine.queue.lookup import visible_queue
from topics.engine.queue.queue_results import ClaimRequest, ClaimResult
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import wake
from topics.engine.values.job import JobState, LeasedJob
from topics.engine.values.step_queue import StepQueue
from topics.errors import CorruptError, RequestError, TopicsError

_BITE = 16
"""Jobs claimed at once: few, for stalled clients hold them, and streams share them."""
_DELIVERED_AT_ONCE, _BYTES_A_JOB = 128, 4096
"""Jobs of one claim that the connection gets in a turn, and the part of the pass's budget for reads
that each takes: a claim of a window may have a thousand.
"""
_RELEASED_AT_ONCE = 128
"""Jobs of a stream that has ended which are released together, with one frame in the log."""
_STEPS_A_JOB = 3
"""Steps of `Core.partings` for the release of a job: some subscriptions end as fast."""
_BYTES_AN_END = 8192
"""Share of a pass's budget for reads that the end of a stream of a queue that is gone takes."""
_log = logging.getLogger(__name__)


class PushSink(Protocol):
    """The connection that gets the jobs.

    One of the `on_` methods ends the stream, if the client does not.
    """

    def deliver(self, seq: int, job: bytes) -> bool:
        """Take a job, an element of `claimed` (8.2).

        Return False to get no more until `PushStream.resume`.
        """

    def on_gone(self) -> None:
        """Take the end: the topic was deleted."""

    def on_shutdown(self) -> None:
        """Take the end: the server stops."""

    def on_error(self, error: TopicsError) -> None:
        """Take the end: no job can be claimed any more."""


class PushStream:
    """A claimer for its connection: claims into free slots, and releases all jobs at the end."""

    def __init__(
        self, claims: Claims, partings: StepQueue, topic: Topic, request: ClaimRequest, sink: PushSink
    ) -> None:
        assert topic.queue is not None, "only queues push"
        self._claims = claims
        self._partings = partings
        self._core = claims.core
        self._topic = topic
        self._leases = topic.queue
        self._node = request.node
        self._most = max(1, min(request.most, claims.core.config.max_claim))
        self._lease_ms = request.lease_ms
        self._with_attempts = request.with_attempts
        self._sink = sink
        self._held: dict[LeasedJob, None] = {}
        """Jobs leased on this connection."""
        self._claim: Claim | None = None
        """Claim in progress."""
        self._undelivered: deque[tuple[int, bytes]] = deque()
        """Jobs of the last claim that the connection gets in later turns, before the next claim."""
        self._told = False
        """Whether a change came during that claim, which it may have missed."""
        self._waits_for_turn = False
        self._paused = False
        self._is_open = False

    # --- what the connection calls -----------------------------------------------------------------------------------
    def open(self) -> None:
        """Start the stream. The first jobs may come before it returns."""
        self._is_open = True
        self._leases.streams[self] = None
        self._topic.waiters[self] = None
        if self._core.closing:
            self.on_shutdown()
        else:
            self._refill()

    def resume(self) -> None:
        """Continue after the client has read."""
        self._paused = False
        self._refill()

    def close(self) -> None:
        """End the stream: its jobs are claimable at once, their deliveries counted (R-Q-29).

        If they are many, they are released in turns.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._topic.waiters.pop(self, None)
        self._leases.streams.pop(self, None)
        if self._claim is not None:
            self._claim.cancel()
        self._partings.run(self._release())

    def _release(self) -> Iterator[None]:
        """Release the jobs. Those whose leases end meanwhile are not held any more."""
        while True:
            some = list(islice(self._held, _RELEASED_AT_ONCE))
            back = [job for job in some if job.state is JobState.LEASED]
            for job in some:
                del self._held[job]
                job.holder = None
            now_ms = self._core.clock.now_ms()
            for job in back:
                self._leases.note(job, "released", now_ms)
                self._leases.release(job)
            with contextlib.suppress(TopicsError):  # else their leases end at their deadline
                log_ended(self._core, self._topic, back, _ignore)
            wake(self._core, self._topic)
            for _ in range(_STEPS_A_JOB * len(some)):
                yield
            if not self._held:
                return

    # --- holder ------------------------------------------------------------------------------------------------------
    def on_leased(self, job: LeasedJob) -> None:
        self._held[job] = None

    def on_lease_ended(self, job: LeasedJob) -> None:
        """Free the job's slot, which is filled at the end of the pass."""
        self._held.pop(job, None)
        wake(self._core, self._topic)

    # --- waiter ------------------------------------------------------------------------------------------------------
    def look_again(self) -> None:
        """Fill the free slots, in a turn of the pass's reads, because thousands may wait."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._core.turns.take(self._on_turn)

    def _on_turn(self) -> None:
        self._waits_for_turn = False
        self._core.turns.spend(BYTES_A_LOOK)
        if self._is_open and self._topic.life is Life.GONE:
            self._core.turns.spend(_BYTES_AN_END)
            self._end_as_gone()
        else:
            self._refill()

    def on_topic_gone(self) -> None:
        """End in a turn, too."""
        self.look_again()

    def _end_as_gone(self) -> None:
        self.close()
        self._sink.on_gone()

    def on_shutdown(self) -> None:
        if not self._is_open:
            return
        self.close()
        self._sink.on_shutdown()

    # --- jobs --------------------------------------------------------------------------------------------------------
    def _refill(self) -> None:
        """Claim jobs for the free slots.

        Without a window to wait for, it claims a few at a time, so that streams take turns.
        """
        self._told = self._claim is not None or bool(self._undelivered)
        if not self._is_open or self._paused or self._told:
            return
        core, topic = self._core, self._topic
        free = self._most - len(self._held)
        if free <= 0 or not self._leases.counters(core.clock.now_ms()).ready:
            tend(core, topic)
            return
        if not topic.config.claim_jitter_ms:
            free = min(free, _BITE)
        self._claim = Claim(self._node, free, self._lease_ms, self._on_claimed, self, with_attempts=self._with_attempts)
        self._claims.enter(topic.name, self._claim)

    def _on_claimed(self, result: ClaimResult | TopicsError) -> None:
        self._claim = None
        if isinstance(result, CorruptError):
            # it was set aside, the others are claimable
            _log.error("a job cannot be pushed: %s", result)
            wake(self._core, self._topic)
        elif isinstance(result, RequestError):
            self._end_as_gone()
        elif isinstance(result, TopicsError):
            self.close()
            self._sink.on_error(result)
        elif result.count or self._told:
            self._undelivered.extend(result.each)
            self._deliver_some()

    def _deliver_some(self) -> None:
        """Give the connection jobs of the last claim, some in a turn."""
        jobs, turns = self._undelivered, self._core.turns
        for _ in range(min(len(jobs), _DELIVERED_AT_ONCE)):
            if not self._is_open:
                jobs.clear()
                return
            if not self._sink.deliver(*jobs.popleft()):
                self._paused = True
        if jobs:
            turns.spend(_DELIVERED_AT_ONCE * _BYTES_A_JOB)
            turns.take_later(self._deliver_some)
        else:
            wake(self._core, self._topic)  # more slots, or more jobs


def open_push(claims: Claims, partings: StepQueue, request: ClaimRequest, sink: PushSink) -> PushStream:
    """Return a stream of a queue's jobs; `open` starts it.

    partings: where it releases its jobs at its end.

    Raises: RequestError for node, topic or type, checked in this order.
    """
    check_node(claims.core.config, request.node)
    topic, _leases = visible_queue(claims.core.registry, request.queue)
    return PushStream(claims, partings, topic, request, sink)


def _ignore(_error: TopicsError | None) -> None:
    pass
