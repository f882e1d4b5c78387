"""One connection's subscriptions: which of them is behind, and one read pass at a time for those."""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from functools import partial
from typing import TYPE_CHECKING

from topics.engine.delivery.frames import Burst, DeletedFrame
from topics.engine.delivery.reader_pass import Further, read_pass, take_pass
from topics.engine.delivery.subscription import Sink, Subscription
from topics.engine.state.topic import Life, Topic
from topics.engine.values.results import DiffQuery, DiffResult
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.engine.shared.core import Core

_log = logging.getLogger(__name__)


class Feed:
    """What a connection follows. A topic is behind, and read in order of names up to its head; or it stands in a cohort
    and delivers when it changes.

    Nothing is delivered from inside `subscribe` and `unsubscribe`, so an answer to them can be written first; after
    `unsubscribe` and `close` nothing of theirs is delivered any more.
    """

    __slots__ = ("_behind", "_core", "_deferred", "_reading", "_running", "closed", "paused", "sink", "subscriptions")

    def __init__(self, core: Core, sink: Sink) -> None:
        self._core = core
        self.sink = sink
        self.subscriptions: dict[str, Subscription] = {}
        self.paused = True
        """Nothing is delivered until `resume`."""
        self.closed = False
        self._behind: list[str] = []
        """Names, ascending."""
        self._reading: Subscription | None = None
        """Whose pass is under way."""
        self._running = False
        self._deferred = False

    # --- what a connection calls -------------------------------------------------------------------------------------
    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        """Follows a topic from a cursor (exclusive), replacing what was followed under this name; `resume` starts it.

        query: options; 0 for `limit` and `max_batch_bytes` means diff's defaults, bounds are clamped; `from_seq` and
        `wait_ms` in it mean nothing. The topic need not be there: the first pass tells that it is gone.
        """
        self.unsubscribe(name)
        options = self._core.bounds.one_pass(query._replace(from_seq=0))
        subscription = self.subscriptions[name] = Subscription(self, name, options, from_seq)
        insort(self._behind, name)
        return subscription

    def unsubscribe(self, name: str) -> bool:
        """Whether there was such a subscription."""
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

    def pause(self) -> None:
        """Delivers nothing until `resume`: the connection holds enough."""
        self.paused = True

    def resume(self) -> None:
        """Reads on, from where it was; delivers what is readable until the sink has enough."""
        self.paused = False
        self.read_on()

    def resume_soon(self) -> None:
        """The same, but reads what is behind only after whoever calls this, and whoever called that, has returned."""
        self.paused = False
        if self._behind:
            self._defer()

    def close(self) -> None:
        """Follows nothing any more."""
        self.closed = True
        self.sink = _NOBODY
        self._behind.clear()
        self._reading = None
        subscriptions, self.subscriptions = self.subscriptions, {}
        for subscription in subscriptions.values():
            if subscription.cohort is not None:
                subscription.cohort.remove(subscription)

    # --- the subscriptions that are behind ---------------------------------------------------------------------------
    def fall_behind(self, subscription: Subscription) -> None:
        """It left its cohort: it is read by itself from its cursor on."""
        insort(self._behind, subscription.name)

    def _leave_behind(self, name: str) -> None:
        """There may be as many as topics."""
        del self._behind[bisect_left(self._behind, name)]

    def read_on(self) -> None:
        """Passes over what is behind, in order of names, until all has caught up or something has to be waited for."""
        if self._running or self._deferred:
            return
        self._running = True
        try:
            while self._behind and not (self.paused or self._reading or self._deferred):
                self._read(self.subscriptions[self._behind[0]])
        finally:
            self._running = False

    def _read(self, subscription: Subscription) -> None:
        core = self._core
        topic = subscription.topic
        if topic is None or topic.life is Life.GONE:
            topic = subscription.topic = core.registry.visible(subscription.name)
            if topic is None:
                self._tell_deleted(subscription)
                return
        self._reading = subscription
        core.catch_up(topic, lambda: self._read_now(subscription, topic))

    def _read_now(self, subscription: Subscription, topic: Topic) -> None:
        if self._reading is subscription:
            query, cursor = subscription.query, subscription.cursor
            read_pass(self._core, topic, query, cursor, lambda result: self._on_read(subscription, topic, result))
        else:
            self.read_on()

    def _on_read(self, subscription: Subscription, topic: Topic, result: DiffResult | TopicsError) -> None:
        if self._reading is not subscription:
            self.read_on()  # unsubscribed meanwhile: others may have waited for this pass to end
            return
        self._reading = None
        if self.paused:
            return  # meanwhile; it is read again when there is room for it
        if isinstance(result, DiffResult):
            self._take(subscription, topic, result)
        elif topic.life is not Life.GONE:
            self.unsubscribe(subscription.name)
            self.sink.fail(subscription, result)
        self.read_on()

    def _take(self, subscription: Subscription, topic: Topic, result: DiffResult) -> None:
        """Delivers a pass's result and moves the cursor."""
        further = take_pass(self._core, topic, subscription, result, partial(self._deliver, subscription))
        subscription.fresh = False
        if self.subscriptions.get(subscription.name) is not subscription:
            return  # its sink has ended it
        if further is Further.WAITS and topic.life is not Life.GONE:
            self._leave_behind(subscription.name)
            self._core.cohorts.join(subscription, topic)
        elif further is Further.AFTER_OTHERS:
            self._defer()

    def _deliver(self, subscription: Subscription, burst: Burst) -> None:
        try:
            if not self.sink.deliver(subscription, burst):
                self.paused = True
        except Exception as error:
            self.give_up(subscription, error)

    def give_up(self, subscription: Subscription, error: Exception) -> None:
        """Delivering failed by a bug of ours: this connection is over, the others go on."""
        _log.error("delivering %s failed by a bug of ours; its reader is dropped", subscription.name, exc_info=error)
        sink = self.sink
        self.close()
        sink.fail(subscription, TopicsError("delivering failed by a bug of ours"))

    def _defer(self) -> None:
        if not self._deferred:
            self._deferred = True
            self._core.loop.call_later(0, self._after_others)

    def _after_others(self) -> None:
        self._deferred = False
        self.read_on()

    def _tell_deleted(self, subscription: Subscription) -> None:
        self.unsubscribe(subscription.name)
        burst = Burst((DeletedFrame(subscription.name, subscription.cursor),), self._core.clock.monotonic_ns())
        self._deliver(subscription, burst)


class _Nobody:
    """The sink of a feed that is closed, which does not keep the one it had."""

    def deliver(self, _subscription: Subscription, _burst: Burst) -> bool:
        return False

    def fail(self, _subscription: Subscription, _error: TopicsError) -> None:
        pass


_NOBODY = _Nobody()
