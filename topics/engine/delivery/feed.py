"""The subscriptions of one connection: which of them lag, and one read pass at a time for those."""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import partial
from typing import Protocol

from topics.engine.delivery.cohort import Cohorts
from topics.engine.delivery.frames import Burst, DeletedFrame
from topics.engine.delivery.prefix_watch import PrefixCore, PrefixWatch, WatchingFeed
from topics.engine.delivery.reader_pass import Further, read_pass, take_pass
from topics.engine.delivery.subscription import Sink, Subscription
from topics.engine.state.topic import Life, Topic
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.results import DiffQuery, DiffResult
from topics.engine.values.step_queue import StepQueue
from topics.errors import TopicsError

_log = logging.getLogger(__name__)

_READS_A_PASS = 64
"""Reads that a feed makes before other feeds get a turn; one without news takes 30 us.

All feeds share the budget of the pass (`ReadTurns`).
"""
_BYTES_AN_END = 8192
"""Part of the loop's budget for reads that the news of a topic's end takes: some 20 us."""
_READS_A_TURN = 4
"""Reads that a feed makes at least before others that wait for a turn get theirs."""


class FeedCore(PrefixCore, Protocol):
    """The part of the core that a feed needs."""

    bounds: ReadBounds
    partings: StepQueue


class Feed:
    """Topics that a connection follows.

    A topic lags, and is read in order of names up to its head; or it is in a cohort and delivers
    when it changes. No burst is delivered from inside `subscribe` and `unsubscribe`, so an answer
    to them can be written first. After `unsubscribe` and `close` no burst of theirs is delivered.
    """

    __slots__ = (
        "_behind",
        "_cohorts",
        "_core",
        "_deferred",
        "_reading",
        "_running",
        "closed",
        "paused",
        "prefixes",
        "sink",
        "subscriptions",
    )

    def __init__(self, core: FeedCore, cohorts: Cohorts, sink: Sink) -> None:
        self._core = core
        self._cohorts = cohorts
        self.sink = sink
        self.subscriptions: dict[str, Subscription] = {}
        self.prefixes: PrefixWatch | None = None
        """The prefixes by which topics are followed, too, since `watch_prefixes`."""
        self.paused = True
        """Whether nothing is delivered until `resume`."""
        self.closed = False
        self._behind: list[str] = []
        """Names of lagging topics, ascending."""
        self._reading: Subscription | None = None
        """Subscription whose pass is in progress."""
        self._running = False
        self._deferred = False

    # --- what a connection calls -------------------------------------------------------------------------------------
    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        """Follow a topic from a cursor (exclusive), starting with `resume`.

        Replaces a subscription of this name.

        query: options; 0 for `limit` and `max_batch_bytes` means diff's defaults, bounds are
        clamped; `from_seq` and `wait_ms` in it have no meaning. The topic need not exist: the first
        pass then reports that it is gone.
        """
        self.unsubscribe(name)
        options = self._core.bounds.one_pass(query._replace(from_seq=0))
        subscription = self.subscriptions[name] = Subscription(self, name, options, from_seq)
        insort(self._behind, name)
        return subscription

    def unsubscribe(self, name: str) -> bool:
        """End a subscription. Return whether it existed."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            return False
        if subscription.cohort is not None:
            subscription.cohort.remove(subscription)
        else:
            self._leave_behind(name)
        if self._reading is subscription:
            self._reading = None
        return True

    def watch_prefixes(
        self, within: Prefixes, most: int, most_in_all: int, of: WatchingFeed | None = None
    ) -> PrefixWatch:
        """Return the prefixes of this feed, at first none: see `PrefixWatch`.

        of: the feed that this one is a part of.
        """
        prefixes = self.prefixes
        if prefixes is None:
            prefixes = self.prefixes = PrefixWatch(self._core, of or self, within, most, most_in_all)
        return prefixes

    def pause(self) -> None:
        """Stop delivery until `resume`, because the connection's output buffer is full."""
        self.paused = True
        conn = self.sink.shared_connection
        if conn is not None:
            conn.stop_sharing()

    def resume(self) -> None:
        """Continue from the cursor: deliver what is readable until the sink has enough."""
        self.paused = False
        self.read_on()

    def resume_soon(self) -> None:
        """Resume delivery in the next pass instead of in this call."""
        self.paused = False
        if self._behind or (self.prefixes is not None and self.prefixes.has_news):
            self._defer()

    def close(self, *, at_once: bool = False) -> None:
        """End all subscriptions. Their cohorts drop them at once, or in turns if there are many.

        at_once: the sink's connection continues, and may be of a cohort's audience again.
        """
        self.pause()
        self.closed = True
        prefixes, self.prefixes = self.prefixes, None
        if prefixes is not None:
            prefixes.close()
        self.sink = _NO_SINK
        self._behind.clear()
        self._reading = None
        leave = self._leave_cohorts(self.subscriptions)
        self.subscriptions = {}
        if at_once:
            for _ in leave:
                pass
        else:
            self._core.partings.run(leave)

    @staticmethod
    def _leave_cohorts(subscriptions: dict[str, Subscription]) -> Iterator[None]:
        for subscription in subscriptions.values():
            if subscription.cohort is not None:
                subscription.cohort.remove(subscription)
            yield

    # --- the subscriptions that are behind ---------------------------------------------------------------------------
    def fall_behind(self, subscription: Subscription) -> None:
        """Read a subscription that left its cohort by itself, from its cursor on."""
        if not self.closed:
            insort(self._behind, subscription.name)

    def on_topic_gone(self, subscription: Subscription) -> None:
        """Report that the topic of a subscription is gone. It has left its cohort.

        Another topic may have its name by now, which a reader that takes records does not follow.
        """
        self.fall_behind(subscription)
        if self.paused:
            return
        self._report_deleted(subscription)
        self.read_on()

    def _leave_behind(self, name: str) -> None:
        """Remove a name by bisection: there may be as many names as topics."""
        del self._behind[bisect_left(self._behind, name)]

    def read_on(self) -> None:
        """Read lagging topics by name until all have caught up or a read has to wait.

        Others are served in between, because a connection may follow thousands.
        """
        if self._running or self._deferred:
            return
        self._running = True
        made, turns = 0, self._core.turns
        try:
            if self.prefixes is not None:
                self.prefixes.report()
            while self._behind and not (self.paused or self._reading or self._deferred):
                # Those that wait share a pass; a read would wait for a pass of each feed otherwise.
                if turns.left <= 0 or made >= max(_READS_A_TURN, _READS_A_PASS // (1 + len(turns))):
                    self._defer()
                    break
                made += 1
                self._read(self.subscriptions[self._behind[0]])
        finally:
            self._running = False

    def _read(self, subscription: Subscription) -> None:
        topic = subscription.topic
        if topic is None or topic.life is Life.GONE:
            prefixes = self.prefixes
            if topic is not None and prefixes is not None and subscription.name in prefixes:
                self._core.turns.spend(_BYTES_AN_END)
                self._report_deleted(subscription)  # One that has its name now is another topic.
                return
            topic = subscription.topic = self._core.registry.visible(subscription.name)
            if topic is None:
                self._core.turns.spend(_BYTES_AN_END)
                self._report_deleted(subscription)
                return
        self._reading = subscription
        self._cohorts.catch_up(topic, lambda: self._read_now(subscription, topic))

    def _read_now(self, subscription: Subscription, topic: Topic) -> None:
        if self._reading is subscription:
            query, cursor = subscription.query, subscription.cursor
            read_pass(
                self._cohorts.reads, topic, query, cursor, lambda result: self._on_read(subscription, topic, result)
            )
        else:
            self.read_on()

    def _on_read(self, subscription: Subscription, topic: Topic, result: DiffResult | TopicsError) -> None:
        if self._reading is not subscription:
            # unsubscribed meanwhile: other topics may have waited for this pass to end
            self.read_on()
            return
        self._reading = None
        if self.paused:
            return  # paused meanwhile: it is read again when the sink has room
        if isinstance(result, DiffResult):
            self._take(subscription, topic, result)
        elif topic.life is not Life.GONE:
            self.unsubscribe(subscription.name)
            self.sink.fail(subscription, result)
        self.read_on()

    def _take(self, subscription: Subscription, topic: Topic, result: DiffResult) -> None:
        """Deliver a pass's result and move the cursor."""
        cohorts = self._cohorts
        deliver = partial(self._deliver, subscription)
        further = take_pass(cohorts.loop.clock, cohorts.reads, topic, subscription, result, deliver)
        subscription.fresh = False
        if self.subscriptions.get(subscription.name) is not subscription:
            return  # its sink has ended it
        if further is Further.WAITS and topic.life is not Life.GONE:
            self._leave_behind(subscription.name)
            cohorts.join(subscription, topic)
        elif further is Further.AFTER_OTHERS:
            self._defer()

    def _deliver(self, subscription: Subscription, burst: Burst) -> None:
        subscription.own_sent = burst.cursor, burst.at_ns
        try:
            if not self.sink.deliver(subscription, burst):
                self.paused = True
        except Exception as error:
            self.give_up(subscription, error)

    def give_up(self, subscription: Subscription, error: Exception) -> None:
        """Close this connection after an unexpected exception; others continue."""
        _log.error("delivering %s failed by a bug of ours; its reader is dropped", subscription.name, exc_info=error)
        sink = self.sink
        self.close()
        sink.fail(subscription, TopicsError("delivering failed by a bug of ours"))

    def _defer(self) -> None:
        if not self._deferred:
            self._deferred = True
            self._cohorts.loop.call_later(0, self._after_others)

    def _after_others(self) -> None:
        self._core.turns.take(self._on_turn)

    def _on_turn(self) -> None:
        self._deferred = False
        self.read_on()

    def _report_deleted(self, subscription: Subscription) -> None:
        self.unsubscribe(subscription.name)
        burst = Burst((DeletedFrame(subscription.name, subscription.cursor),), self._cohorts.loop.clock.monotonic_ns())
        self._deliver(subscription, burst)
        if self.prefixes is not None:
            self.prefixes.on_end(subscription.name)


class _NoSink:
    """Sink of a closed feed, which does not hold its former one."""

    audience = shared_connection = None

    def deliver(self, _subscription: Subscription, _burst: Burst) -> bool:
        return False

    def deliver_left_out(self, _name: str, _most: int) -> bool:
        return False

    def fail(self, _subscription: Subscription, _error: TopicsError) -> None:
        pass


_NO_SINK = _NoSink()
