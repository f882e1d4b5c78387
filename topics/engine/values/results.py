"""Requests to the engine and their results: plain values between it and its callers.

The callers are http, ws, server and the embedded API. Every operation takes a `done` callback,
called exactly once with the result or with the error that ends the request (RequestError, or
StorageError for a 500), possibly before the operation returns. Results that a client of a server
gets, too, are defined in `topics.common.values.answers`; the engine takes them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from topics.common.values.answers import (
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    PatchResult,
    PutResult,
    QueueState,
    Tombstone,
    TopicHead,
    TopicState,
)
from topics.common.values.begin import Begin
from topics.common.values.configs import Predicate
from topics.common.values.seen_topics import KnownTopic
from topics.engine.values.node_set import NO_NODES, NodeSet
from topics.errors import TopicsError

__all__ = [
    "AppendResult",
    "Cancel",
    "CheckpointResult",
    "DeleteResult",
    "DeleteTopicResult",
    "DiffQuery",
    "DiffResult",
    "Done",
    "EngineStats",
    "FlushResult",
    "KnownTopic",
    "PatchResult",
    "PutResult",
    "QueueState",
    "Tombstone",
    "TopicHead",
    "TopicPage",
    "TopicState",
    "repeated",
]

T = TypeVar("T")
Done = Callable[[T | TopicsError], None]
Cancel = Callable[[], None]
"""Abandons a wait: `done` is no longer called. Has no effect after `done` was called."""


def repeated(first_seq: int, records: int) -> AppendResult:
    """Build the answer to a repetition of a write. Its own last seq was the head right after it."""
    last = first_seq + records - 1
    return AppendResult(first_seq, last, last, records, False, True, 0, 0)


class CheckpointResult(NamedTuple):
    snapshot: int
    """Number of the newest snapshot."""
    done: bool
    """Whether that snapshot covers everything acknowledged before the request, or before the
    request whose checkpoint number this one named.
    """
    number: int
    """The checkpoint that was waited for; the client names it in its next request if `done` is
    False.
    """


class FlushResult(NamedTuple):
    synced_seq: int
    """The seq up to which all of the topic is on stable storage; 0 if no topic was named."""
    done: bool
    """Whether that includes all that was asked for."""


class TopicPage(NamedTuple):
    """One page of the list of topics, ascending by name (bytes)."""

    rows: list[TopicState]
    next_after: str | None
    """The name after which the next page starts; None on the last page."""


class DiffQuery(NamedTuple):
    """One read from a cursor.

    0 for `limit` and `max_batch_bytes` takes the default. All bounds are clamped (5.2).
    """

    from_seq: int = 0
    limit: int = 0
    nodes: NodeSet = NO_NODES
    """Records whose node is one of these are left out (R-NODE), see `only_nodes`."""
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    wait_ms: int = 0
    """The longest time that a long poll holds back an empty, caught-up answer."""
    max_batch_bytes: int = 0
    begin: Begin | None = None
    """A beginning instead of `from_seq`."""
    bytes_apart: bool = False
    """Whether data of bytes comes in `DiffResult.payloads`, for a reader in this process."""
    only_nodes: bool = False
    """Whether `nodes` are those whose records come, and no others (R-MATCH-2)."""
    match: Predicate | None = None
    """Records whose tag does not match are left out (R-MATCH-1)."""


class DiffResult(NamedTuple):
    records: bytes
    """The elements of the JSON array, joined by commas; b"" if there are none."""
    count: int  # type: ignore[assignment]  # as in TopicState
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int
    """The number of stored rows examined, whether delivered or skipped."""
    cold_segments: int
    """The number of files read from the cold tier."""
    size: int = 0
    """Accounted bytes of the records; of a result that was cut for a node filter, of the result
    before the cut.
    """
    payloads: Sequence[tuple[int, bytes]] = ()
    """Data of bytes, if it was to come apart, and the index of its record; the JSON has null."""

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the records take."""
        return len(self.records) + sum([len(data) for _index, data in self.payloads])

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


class EngineStats(NamedTuple):
    """Counts for metrics; cheap to compute."""

    topics: int
    topics_by_class: dict[str, int]
    """The count for each of the four commit classes."""
    queues: int
    routers: int
    records_live: int
    bytes_live: int
    producers: int = 0
    producer_parts: int = 0
    staged_bytes: int = 0
    """Bytes of pieces that wait for their parts, plus 512 for each piece."""
    log_refusals: int = 0
    """Appends and creations refused because the log had reached its maximum length."""
    appended_records: int = 0
    appended_bytes: int = 0
    """Records that became visible since the start, copies of routers included, and their bytes."""
    claimed_jobs: int = 0
    acked_jobs: int = 0
    nacked_jobs: int = 0
    dead_lettered_jobs: int = 0
    """Jobs to which this has happened since the start, over all queues, gone ones included."""
    arrived_copies: int = 0
    """Copies of records of other cores that routers have written here since the start."""
