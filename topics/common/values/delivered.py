"""Values that a read or a claim hands out: records, pages, jobs, and gaps that are errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from topics.common.values.answers import Attempt, Tombstone
from topics.errors import TopicsError


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it was written. ts: milliseconds since the epoch.

    data: the bytes that were given, or the JSON value. delay_ms: of a job, from ts on;
    ttl_ms: it expires so long after ts; 0: as its topic says.
    """

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: Any
    meta: Any = None
    tag: str | None = msgspec.field(name="$tag", default=None)
    node: str | None = msgspec.field(name="$node", default=None)
    delay_ms: int = msgspec.field(name="$delay_ms", default=0)
    ttl_ms: int = msgspec.field(name="$ttl_ms", default=0)


class GapError(TopicsError):
    """Records below the next readable one were lost, not deleted. `tombstone`: which and why."""

    def __init__(self, topic: str, tombstone: Tombstone) -> None:
        self.topic = topic
        self.tombstone = tombstone
        self.resume_from = 0 if tombstone.is_recreated else tombstone.gap_to
        """Cursor that passes the gap."""
        lost = f"{tombstone.gap_from}..{tombstone.gap_to}"
        super().__init__(
            f"{topic}: records {lost} were lost ({tombstone.reason}); read on from {self.resume_from} (resume_from)"
        )


class Page(msgspec.Struct, frozen=True):
    """One read of a topic."""

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    size: int = 0
    """Accounted bytes of the records: `data` and `meta` as they are stored."""
    incarnation: str = ""
    """The topic's incarnation, if the read has asked for it."""

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def has_begun(self) -> bool:
        """Whether a read from a time has met its first record."""
        return bool(self.records) or not self.caught_up


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A record leased to a node.

    ts, deadline: milliseconds since the epoch; deliveries: 1 the first time; data: bytes, if it was
    bytes; delay_ms, ttl_ms: of its record, from ts on.
    """

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    lease_id: str
    deadline: int
    deliveries: int
    data: Any
    meta: Any = None
    tag: str | None = msgspec.field(name="$tag", default=None)
    delay_ms: int = msgspec.field(name="$delay_ms", default=0)
    ttl_ms: int = msgspec.field(name="$ttl_ms", default=0)
    attempts: tuple[Attempt, ...] = ()
    """How its earlier leases ended, ascending, if the claim asked for them."""


Jobs = Iterable[Job | int]
"""Jobs as claimed, fenced by their leases; or bare seqs, which have no fence."""
