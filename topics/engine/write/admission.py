"""The admission of a write: room in the log, caps that refuse, and the quota over all topics.

Source: R-CAP-5, R-LOG-2, wire contract 7.5 checks 7 and 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from topics.engine.index.usage import Usage
from topics.engine.shared.limits import Limits
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.named_reader import NO_HOLD
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import LogPort
from topics.engine.values.topic_config import TopicConfig
from topics.engine.write.retention import ExpiryCore, expire, expired_through, is_expired
from topics.errors import StorageError
from topics.store.format.rows import Rows

_LOOK, _EXPIRY = 1, 15
EXPIRY_WORK_MAX = 1 << 14
"""Looks at topics in a call of `expire_everywhere`; an expiry counts for 16. 5 to 15 ms."""
_ANY = 1 << 62
"""The room of a topic without a cap."""


class LogRoomCore(Protocol):
    """The part of the core that a check of the log needs."""

    log: LogPort
    log_refusals: int


class QuotaCore(ExpiryCore, Protocol):
    """The part of the core that a check of the quota needs."""

    limits: Limits
    registry: Registry
    usage: Usage
    quiet_from_ms: int
    quiet_until_ms: int
    expiry_round: Iterator[Topic] | None


def check_backlog(log: LogPort) -> None:
    """Check that the disk keeps up with writes. Raises: RequestError throttled."""
    if log.is_backlogged():
        raise refusals.backlogged()


def check_log(core: LogRoomCore) -> None:
    """Check that records or topics may be added.

    Raises: RequestError throttled, the disk lags, or the log has its maximum length (R-LOG-2).
    """
    check_backlog(core.log)
    retry_ms = core.log.append_retry_ms()
    if retry_ms:
        core.log_refusals += 1
        raise refusals.log_too_long(retry_ms)


def check_admission(core: QuotaCore, topic: Topic, rows: Rows, now_ms: int) -> None:
    """Check caps and quota for a write; staged records count like published ones.

    Raises: RequestError record_too_large, topic_full or throttled.
    """
    check_caps(topic, rows.count, rows.size)
    check_quota(core, rows.size, now_ms)


def check_caps(topic: Topic, count: int, size: int) -> None:
    """Check the caps of a topic with discard "reject", or with records that a reader holds.

    Raises: RequestError record_too_large or topic_full.
    """
    config = topic.config
    if config.discard == "reject" or topic.held != NO_HOLD:
        field = exceeded_cap(config, count, size)
        if field:
            raise refusals.over_whole_cap(topic, field)
        room = cap_room(topic)
        if room is not None and (room[0] < count or room[1] < size):
            field = "cap_records" if room[0] < count else "cap_bytes"
            readers = topic.readers if config.discard == "old" else None
            raise refusals.topic_full(topic, field, None if readers is None else readers.holder)


def exceeded_cap(config: TopicConfig, count: int, size: int) -> str:
    """Return the cap that one write exceeds by itself; "" if none."""
    if 0 < config.cap_records < count:
        return "cap_records"
    return "cap_bytes" if 0 < config.cap_bytes < size else ""


def cap_room(topic: Topic) -> tuple[int, int] | None:
    """Return the records and bytes for which the caps have room; None: any number, they evict.

    A number is negative after a cap became smaller.

    With discard "old", records that every holding reader has committed make room (R-READER-8).
    """
    config, index, held = topic.config, topic.index, topic.held
    evicts = config.discard == "old"
    if evicts and held == NO_HOLD:
        return None
    records, size = index.live + topic.pending_records, index.bytes + topic.pending_bytes
    if evicts:
        free = index.totals_through(held)
        records, size = records - free[0], size - free[1]
    return (
        config.cap_records - records if config.cap_records else _ANY,
        config.cap_bytes - size if config.cap_bytes else _ANY,
    )


def _own_bytes(topic: Topic, ttl: int) -> int:
    """Return the bytes of records above `ttl` that are about to expire by a ttl of their own."""
    if topic.expiry is None:
        return 0
    seqs = np.array([seq for seq in topic.expiry.seqs if seq > ttl], np.uint64)
    seqs = seqs[topic.index.alive(seqs)]
    return int(topic.index.at(seqs).sizes.sum(dtype=np.uint64)) if len(seqs) else 0


def check_quota(core: QuotaCore, size: int, now_ms: int) -> None:
    """Check the quota over all topics. Raises: RequestError throttled."""
    if _exceeds_quota(core, size):
        freed = expire_everywhere(core, now_ms)
        if _exceeds_quota(core, size - freed):
            raise core.limits.total_bytes.refusal(size - freed)


def expire_for_quota(core: QuotaCore, size: int, now_ms: int) -> None:
    """Stage what `check_quota` will stage for a write of this size. Raises: StorageError."""
    if _exceeds_quota(core, size):
        expire_everywhere(core, now_ms)


def _exceeds_quota(core: QuotaCore, size: int) -> bool:
    return core.usage.bytes + core.usage.pending_bytes + size > core.limits.total_bytes.most


def expire_everywhere(core: QuotaCore, now_ms: int) -> int:
    """Stage the loss of expired records in all topics; return the bytes that it will free.

    With very many topics a call looks at some of them, and the next one continues there: a write
    that is refused meanwhile may be sent again. The topics are looked at only if a record may have
    expired since the last look, because under a full quota every write asks.
    Raises: StorageError, the loss cannot be made durable.
    """
    if core.expiry_round is None:
        if core.quiet_from_ms <= now_ms < core.quiet_until_ms:
            return 0
        core.expiry_round = core.registry.all_but_staging()
        core.quiet_from_ms = core.quiet_until_ms = 1 << 64  # It falls as topics are looked at.
    freed = work = 0
    for topic in core.expiry_round:
        work += _LOOK
        if topic.expires and topic.life is not Life.GONE:
            has_expired = is_expired(topic, now_ms)
            work += _EXPIRY if has_expired else 0
            try:
                freed += _expire_one(core, topic, now_ms, has_expired=has_expired)
            except StorageError:
                core.expiry_round = None  # It did not look at this topic.
                raise
        if work >= EXPIRY_WORK_MAX:
            return freed
    core.expiry_round = None
    core.quiet_from_ms = now_ms
    return freed


def _expire_one(core: QuotaCore, topic: Topic, now_ms: int, *, has_expired: bool) -> int:
    """Stage the loss of the expired records of a topic, and note when others are due.

    Return the bytes that it will free.
    """
    freed, ttl = 0, expired_through(topic, now_ms)
    if has_expired:
        expire(core, topic, now_ms)
        # A loss that is applied already is no longer among the live bytes.
        freed = (topic.index.totals_through(ttl)[1] if ttl else 0) + _own_bytes(topic, ttl)
    own_ms = topic.expiries.next_end() if topic.expiries is not None else None
    if own_ms is not None:
        core.quiet_until_ms = min(core.quiet_until_ms, own_ms + 1)
    if topic.config.ttl_ms:
        # Staged records may be older than those written from now on.
        oldest_ms = min(now_ms, topic.index.earliest_ts()) if topic.index.live else now_ms
        if topic.held < topic.index.earliest:  # Nothing expires before a position is committed.
            oldest_ms = now_ms
        due_ms = now_ms if ttl or topic.pending_records else oldest_ms + topic.config.ttl_ms + 1
        core.quiet_until_ms = min(core.quiet_until_ms, due_ms)
    return freed
