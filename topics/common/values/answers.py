"""Answers to the calls of the library and of its clients: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from topics.common.values.configs import RouterConfig, TopicConfig
from topics.common.values.reader_config import ReaderConfig


class AppendResult(NamedTuple):
    first_seq: int
    """0 if the write is `staged`; `last_seq` and `head_seq` are 0 then, too."""
    last_seq: int
    head_seq: int
    """The head right after this write."""
    count: int  # type: ignore[assignment]  # It hides tuple.count, which no caller needs on a result.
    created: bool
    """Whether this write created the topic."""
    deduped: bool
    """Whether the answer comes from the idempotency store: nothing was appended."""
    append_ns: int
    """The time from staging to the end of the write, ns."""
    sync_ns: int
    """The time of the sync, ns; 0 unless the commit class is `fsync`."""

    @property
    def staged(self) -> bool:
        """Whether the records are a piece of a part, which has no seqs before its last piece."""
        return not self.first_seq


class TopicHead(NamedTuple):
    """The head of a topic and its incarnation."""

    head_seq: int
    incarnation: str


class News(NamedTuple):
    """The answer to a wait for several topics."""

    heads: dict[str, TopicHead | None]
    """Heads of the named topics, then of others with a prefix; None: there is no topic."""
    left_out: str | None = None
    """The first topic with a prefix for which there was no place."""


class PutResult(NamedTuple):
    created: bool
    config: TopicConfig


class PatchResult(NamedTuple):
    """The whole configuration of a topic before a change of some of its fields, and after it."""

    before: TopicConfig
    after: TopicConfig


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A lease of a job that ended without an ack (R-Q-33)."""

    delivery: int
    """The count of deliveries, this one included."""
    node: str
    ended: str
    """"nacked", "expired" or "released"."""
    at: int
    """When it ended, ms."""
    reason: str = ""
    """The reason that the nack gave; "" for none."""


class FailedJob(NamedTuple):
    """A job with its last attempts, ascending."""

    seq: int
    deliveries: int
    attempts: tuple[Attempt, ...]


class RedriveResult(NamedTuple):
    """The outcome of a redrive: the number of dead letters that are jobs again, and other seqs."""

    redriven: int
    skipped: list[int]


class QueueState(NamedTuple):
    ready: int
    in_flight: int
    dead_lettered: int
    failed: Sequence[FailedJob] = ()
    """Jobs with attempts, the one that failed last first, if they were asked for."""
    delayed: int | None = None
    """Jobs that are not claimable yet; None if no record delays one."""


class TopicState(NamedTuple):
    """One topic at one instant, after retention. `next_seq` on the wire is head_seq + 1."""

    name: str
    config: TopicConfig
    head_seq: int
    earliest_seq: int
    count: int  # type: ignore[assignment]  # It hides tuple.count, as in AppendResult.
    bytes: int
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueState | None
    incarnation: str = ""
    """The topic's incarnation, which changes whenever seqs may name other records (R-INC)."""
    synced_seq: int = 0
    """The seq up to which all is on stable storage; 0 in class `ephemeral`. Not on the wire."""


class DeleteTopicResult(NamedTuple):
    deleted: bool
    routers_removed: list[str]


class DeleteResult(NamedTuple):
    """The number of live records that this call removed, and the state afterwards."""

    deleted: int
    earliest_seq: int
    head_seq: int
    count: int  # type: ignore[assignment]  # as in TopicState
    bytes: int


class Tombstone(NamedTuple):
    """A gap in a read: records gap_from .. gap_to were lost, not deleted.

    Source: R-TOMB, R-REC-2, R-TRIM-3, R-DUR-6.
    """

    gap_from: int
    gap_to: int
    reason: str
    """"cap", "ttl", "mixed", "source_trim", "crash" or "recreated"."""
    missed_estimate: int
    earliest_seq: int
    head_seq: int

    @property
    def is_recreated(self) -> bool:
        """Whether the cursor was above the head: it belongs to an earlier topic of that name.

        For a read of one record it means that the record is not there yet, and nothing was lost.
        """
        return self.reason == "recreated"

    @property
    def next_cursor(self) -> int:
        """The cursor of a reader that continues after it, with the next record that there is."""
        return self.earliest_seq - 1 if self.is_recreated else self.gap_to


class AckResult(NamedTuple):
    """Result of an ack or nack: `done` jobs ended; `skipped` has the others, in order."""

    done: int
    skipped: list[int]
    ready: int
    in_flight: int
    sync_ns: int = 0
    """Time from the commit to the sync's completion; 0 unless the class is `fsync`."""

    @property
    def repeated(self) -> bool:
        """Whether a client had to repeat it: of `skipped`, some may have ended by the first try."""
        return False


class RepeatedAckResult(AckResult):
    """Result of an ack or nack that a client had to repeat."""

    __slots__ = ()

    @property
    def repeated(self) -> bool:
        return True


class ExtendResult(NamedTuple):
    deadlines: dict[int, int]
    """New deadline by seq, ms."""
    skipped: list[int]


class RouterPut(NamedTuple):
    created: bool
    config: RouterConfig


class RouterState(NamedTuple):
    name: str
    config: RouterConfig
    forwarded: int
    """`forwarded_total`."""


class RouterDeleted(NamedTuple):
    deleted: bool


class ReaderState(NamedTuple):
    """One named reader at one instant."""

    name: str
    config: ReaderConfig
    position: int
    """Records up to here were handed out."""
    committed: int
    lag_records: int
    """Live records above the committed position."""
    lag_ms: int
    """Age of the oldest of them; 0 if there are none."""
    pages: int
    """Pages that are out."""


class ReaderLag(NamedTuple):
    """The records that a reader has not committed."""

    records: int
    ms: int
    """Age of the oldest of them; 0 if there are none."""
