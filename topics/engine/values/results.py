"""What the engine is asked and what it answers: plain values, the seam to http, ws, server and the embedded API.

Every operation takes a `done` callback, called exactly once with the result or with the error that ends the request
(RequestError, or StorageError for a 500), possibly before the operation returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from topics.engine.values.node_set import NO_NODES, NodeSet
from topics.engine.values.topic_config import TopicConfig
from topics.errors import RequestError, TopicsError
from topics.store.format.rows import Rows

if TYPE_CHECKING:
    from topics.engine.state.identity import Identity
    from topics.store.in_memory.prebuilt_frames import PrebuiltFrames

T = TypeVar("T")
Done = Callable[[T | TopicsError], None]
Cancel = Callable[[], None]
"""Abandons a wait: `done` is not called any more. Harmless when it was called already."""


class AppendRequest(NamedTuple):
    """One write. Source: wire contract, section 7.5."""

    topic: str
    rows: Rows
    node: bytes | None = None
    """For rows without their own."""
    identity: Identity | None = None
    """The identity by which the write is known when it is sent again; None: it has none."""
    create: bool | None = None
    config: TopicConfig | None = None
    """Used only if this write creates the topic."""
    may_create_with_config: RequestError | Literal[True] = True
    """The client may create a topic with `config`, or why not (no admin, a foreign dead letter)."""
    violation: RequestError | None = None
    """`WriteBody.violation`: checks 3 and 4, which come after the one of `may_create_with_config`."""
    incarnation: str | None = None
    """The incarnation that the topic must have, else the write is refused (R-INC-4). None: any."""
    frames: PrebuiltFrames | None = None
    """Of a large write: its rows as frames already, made in turns."""


class AppendResult(NamedTuple):
    first_seq: int
    """0 where the write is `staged`, as `last_seq` and `head_seq` are."""
    last_seq: int
    head_seq: int
    """Right after this write."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a result
    created: bool
    """This write brought the topic into existence."""
    deduped: bool
    """Answered from the idempotency store: nothing was appended."""
    append_ns: int
    """Staging to written."""
    sync_ns: int
    """0 unless the class is `fsync`."""

    @property
    def staged(self) -> bool:
        """Whether the records are a piece of a part, which has no seqs before its last piece comes."""
        return not self.first_seq


def repeated(first_seq: int, records: int) -> AppendResult:
    """The answer to a repetition of a write, whose own last seq was the head right after it."""
    last = first_seq + records - 1
    return AppendResult(first_seq, last, last, records, False, True, 0, 0)


class KnownTopic(NamedTuple):
    """A topic as a waiting client knows it."""

    seq: int | None
    """The head; None: there is no such topic."""
    incarnation: str | None = None
    """None: the client does not know it."""


class TopicHead(NamedTuple):
    """The end of a topic, and which one of its name it is."""

    head_seq: int
    incarnation: str


class CheckpointResult(NamedTuple):
    snapshot: int
    """Number of the newest snapshot."""
    done: bool
    """Whether that snapshot shows all that was acknowledged before the request, or the one whose number it brought."""
    number: int
    """The checkpoint that was waited for, to be named by the next request when it is not done."""


class PutResult(NamedTuple):
    created: bool
    config: TopicConfig


class QueueState(NamedTuple):
    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(NamedTuple):
    """One topic at one instant, after retention. `next_seq` on the wire is head_seq + 1."""

    name: str
    config: TopicConfig
    head_seq: int
    earliest_seq: int
    count: int  # type: ignore[assignment]  # hides tuple.count, as in AppendResult
    bytes: int
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueState | None
    incarnation: str = ""
    """Changes whenever seqs may name other records (R-INC)."""


class TopicPage(NamedTuple):
    """One page of the list of topics, ascending by name (bytes)."""

    rows: list[TopicState]
    next_after: str | None
    """Where the next page starts, exclusively; None on the last."""


class DeleteTopicResult(NamedTuple):
    deleted: bool
    routers_removed: list[str]


class DeleteResult(NamedTuple):
    """`deleted` live records were removed by this call; the rest is the state afterwards."""

    deleted: int
    earliest_seq: int
    head_seq: int
    count: int  # type: ignore[assignment]  # as in TopicState
    bytes: int


class DiffQuery(NamedTuple):
    """One read from a cursor. 0 for limit and max_batch_bytes means the default; all bounds are clamped (5.2)."""

    from_seq: int = 0
    limit: int = 0
    nodes: NodeSet = NO_NODES
    """Records whose node is one of these are left out (R-NODE)."""
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    wait_ms: int = 0
    """Long poll: how long an empty, caught-up answer may be held back."""
    max_batch_bytes: int = 0
    from_ms: int | None = None
    """Instead of `from_seq`: the cursor is just before the first live record of this `$ts` or a later one, else H."""


class Tombstone(NamedTuple):
    """Records gap_from .. gap_to were lost, not deleted. Source: R-TOMB, R-REC-2, R-TRIM-3, R-DUR-6."""

    gap_from: int
    gap_to: int
    reason: str
    """cap, ttl, mixed, source_trim, crash or recreated."""
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffResult(NamedTuple):
    records: bytes
    """The elements of the JSON array, joined by commas; b"" for none."""
    count: int  # type: ignore[assignment]  # as in TopicState
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int
    """Stored slots examined, delivered or skipped."""
    cold_segments: int
    """Files read from the cold tier."""

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


class EngineStats(NamedTuple):
    """For metrics; cheap to take."""

    topics: int
    topics_by_class: dict[str, int]
    """All four classes, always."""
    queues: int
    routers: int
    records_live: int
    bytes_live: int
    producers: int = 0
    producer_parts: int = 0
    staged_bytes: int = 0
    """Bytes of pieces that wait for their parts; 512 more for each."""
    log_refusals: int = 0
    """Appends and creations refused because the log was as long as it may be."""
