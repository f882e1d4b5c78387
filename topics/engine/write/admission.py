"""The admission of a write: room in the log, caps that refuse, and the quota over all topics.

Source: R-CAP-5, R-LOG-2, wire contract 7.5 checks 7 and 8.
"""

from __future__ import annotations

from typing import Protocol

from topics.config import Config
from topics.engine.index.usage import Usage
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort
from topics.engine.write.retention import ExpiryCore, expire, expired_through
from topics.store.format.rows import Rows


class LogRoomCore(Protocol):
    """The part of the core that a check of the log needs."""

    log: LogPort
    log_refusals: int


class QuotaCore(ExpiryCore, Protocol):
    """The part of the core that a check of the quota needs."""

    config: Config
    registry: Registry
    usage: Usage
    quiet_from_ms: int
    quiet_until_ms: int


def check_backlog(log: LogPort) -> None:
    """Check that the disk keeps up. Raises: RequestError throttled, it lags too far."""
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
    """Check the caps of a topic with discard "reject".

    Raises: RequestError record_too_large or topic_full.
    """
    config = topic.config
    if config.discard == "reject":
        for amount, field in ((count, "cap_records"), (size, "cap_bytes")):
            if 0 < getattr(config, field) < amount:
                raise refusals.over_whole_cap(topic, field)
        if 0 < config.cap_records < topic.index.live + topic.pending_records + count:
            raise refusals.topic_full(topic)
        if 0 < config.cap_bytes < topic.index.bytes + topic.pending_bytes + size:
            raise refusals.topic_full(topic)


def check_quota(core: QuotaCore, size: int, now_ms: int) -> None:
    """Check the quota over all topics. Raises: RequestError throttled."""
    if _exceeds_quota(core, size):
        freed = expire_everywhere(core, now_ms)
        if _exceeds_quota(core, size - freed):
            raise refusals.limit_reached("max_total_bytes", core.config.max_total_bytes)


def expire_for_quota(core: QuotaCore, size: int, now_ms: int) -> None:
    """Stage what `check_quota` will stage for a write of this size. Raises: StorageError."""
    if _exceeds_quota(core, size):
        expire_everywhere(core, now_ms)


def _exceeds_quota(core: QuotaCore, size: int) -> bool:
    quota = core.config.max_total_bytes
    return 0 < quota < core.usage.bytes + core.usage.pending_bytes + size


def expire_everywhere(core: QuotaCore, now_ms: int) -> int:
    """Stage the loss of all expired records in all topics; return the bytes that it will free.

    It looks at the topics only if a record may have expired since the last look, because under a
    full quota every write asks.
    Raises: StorageError, the loss cannot be made durable.
    """
    if core.quiet_from_ms <= now_ms < core.quiet_until_ms:
        return 0
    freed, quiet_until_ms = 0, 1 << 64
    for topic in list(core.registry.by_name.values()):
        ttl_ms = topic.config.ttl_ms
        if not ttl_ms:
            continue
        ttl = expired_through(topic, now_ms)
        if ttl:
            freed += topic.index.totals_through(ttl)[1]
            before = topic.index.bytes
            expire(core, topic, now_ms)
            # A loss that is applied already is no longer among the live bytes.
            freed -= before - topic.index.bytes
        # Staged records may be older than those written from now on.
        oldest_ms = min(now_ms, topic.index.earliest_ts()) if topic.index.live else now_ms
        due_ms = now_ms if ttl or topic.pending_records else oldest_ms + ttl_ms + 1
        quiet_until_ms = min(quiet_until_ms, due_ms)
    core.quiet_from_ms, core.quiet_until_ms = now_ms, quiet_until_ms
    return freed
