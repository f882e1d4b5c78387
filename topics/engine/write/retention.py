"""Expiry: the loss of records that grew too old, durable before any client sees it.

Nothing expires by itself: each operation that depends on expiry asks first. While nothing is due,
asking costs one comparison. Source: R-TTL, R-DUR-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.engine.state.control_frames import encode, removal
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Life, PendingExpiry, Topic
from topics.engine.state.wakes import WakeCore, wake
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType
from topics.store.wal.commit import Commit

Then = Callable[[TopicsError | None], None]


class ExpiryCore(OperationCore, WakeCore, Protocol):
    """The part of the core that an expiry needs."""


class Expiry(Operation[ExpiryCore]):
    """The expiry of records up to `ttl`; `then` holds the callbacks that wait for it."""

    __slots__ = ("then", "ttl")

    def __init__(self, core: ExpiryCore, topic: Topic, ttl: int) -> None:
        super().__init__(core, topic)
        self.ttl = ttl
        self.then: list[Then] = []

    def apply(self, commit: Commit) -> None:
        self.topic.lose_through(ttl=self.ttl)
        wake(self.core, self.topic)
        self._end(None)

    def fail(self, error: TopicsError) -> None:
        """End the wait. In a topic that is gone nothing can expire: the callbacks find it gone."""
        self._end(None if self.topic.life is Life.GONE else error)

    def _end(self, error: TopicsError | None) -> None:
        if self.topic.expiry is self:
            self.topic.expiry = None
        for then in self.then:
            then(error)


def expired_through(topic: Topic, now_ms: int) -> int:
    """Return the seq up to which records are expired, now - $ts > ttl_ms (R-TTL-1); 0: none is."""
    ttl_ms, index = topic.config.ttl_ms, topic.index
    if not ttl_ms or not index.live or now_ms - index.earliest_ts() <= ttl_ms:
        return 0
    expired = index.last_before(now_ms - ttl_ms)
    held = topic.held
    if held < expired:  # A named reader holds what it has not committed.
        return index.last_live(1, held) if index.earliest <= held else 0  # not one that was deleted
    return expired


def expire(core: ExpiryCore, topic: Topic, now_ms: int) -> PendingExpiry | None:
    """Stage the loss of expired records, or return the one staged; None if there is none.

    Raises: StorageError, the loss cannot be made durable.
    """
    ttl = expired_through(topic, now_ms)
    if not ttl:
        return None
    if topic.expiry is not None and topic.expiry.ttl >= ttl:
        return topic.expiry
    expiry = Expiry(core, topic, ttl)
    if topic.stage_class == "ephemeral" or core.log.is_frozen:
        topic.expiry = expiry
        expiry.stage_unlogged()
        return topic.expiry
    with core.log.use_reserve():
        payload = encode(removal(topic, ttl=ttl))
        core.log.stage_control(topic.id, FrameType.FLOORS, topic.next_seq - 1, now_ms, payload)
    topic.expiry = expiry
    expiry.stage(synced=topic.stage_class == "fsync")
    return expiry


def when_retained(core: ExpiryCore, topic: Topic, now_ms: int, then: Then) -> None:
    """Call `then` once the loss of all records expired at `now_ms` is durable, or with the error.

    If nothing is expired, it is called at once.
    """

    def again(error: TopicsError | None) -> None:
        """Look again: a write in flight may have become visible meanwhile with records as old."""
        if error is None and topic.life is not Life.GONE:
            when_retained(core, topic, now_ms, then)
        else:
            then(error)

    if topic.config.ttl_ms:
        try:
            expiry = expire(core, topic, now_ms)
        except TopicsError as error:
            then(error)
            return
        if expiry is not None:
            expiry.then.append(again)
            return
    then(None)
