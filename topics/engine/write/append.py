"""Staged records and their publication: one operation for one topic or for many.

Source: wire contract 7.5, R-SEQ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.id_blocks import IdSet
from topics.common.tuples import make_tuple
from topics.engine.index.index import extend_each
from topics.engine.index.usage import Usage
from topics.engine.state.staged_operations import Operation, OperationCore, settle, settle_all
from topics.engine.state.topic import Topic
from topics.engine.state.topic_numbers import publish_each, stage_each
from topics.engine.state.wakes import WakeCore, wake
from topics.engine.values.results import AppendResult, Done
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.codec import place_rows
from topics.store.format.rows import PLACED, PLACED_DTYPE, Framed, RowTimes

_PLACED_BYTES = PLACED.size
_index_of = attrgetter("index")

WRITES_A_PART = 16
"""Writes of one topic and pass whose outcome takes as long as a callback of one that is by itself.

The log counts so many as one callback more, because it runs some of a commit in a pass.
"""
Tags = list[bytes | None] | NDArray[np.uint32] | None
"""A tag for each record, or its number in the index; None if no record has one."""
Write = tuple[int, bool, Done[AppendResult]]
"""One request: the number of its records, whether it created the topic, done."""
Decided = Callable[[TopicsError | None, list[int], int, int], None]
"""The outcome of writes to several topics: error, the first seq of each topic, append_ns,
sync_ns.
"""


class NotifyCore(WakeCore, Protocol):
    """The part of the core that a notice of new records needs."""

    forwardable: dict[Topic, None]


class AppendCore(OperationCore, NotifyCore, Protocol):
    """The part of the core that an append needs."""

    usage: Usage
    in_log: IdSet
    quiet_until_ms: int


class Append(Operation[AppendCore]):
    """Consecutive records in each of some topics, committed together, as columns over the topics.

    With one topic, it takes the rows of further requests while the topic's `filling` is this
    operation and the log's batch is the one with its first rows; each request is answered by its
    own `done` (`writes`). With many topics, which share
    a shard, it is complete when it is created, and `decided` answers for all.
    """

    __slots__ = (
        "batch_number",
        "carried",
        "counts",
        "decided",
        "delayed",
        "ends",
        "file_id",
        "first_seqs",
        "fsync",
        "placed",
        "reserves",
        "sizes",
        "stamps",
        "tags",
        "topics",
        "writes",
    )

    def __init__(  # noqa: PLR0917 - columns
        self,
        core: AppendCore,
        topics: list[Topic],
        first_seqs: list[int],
        counts: list[int],
        sizes: list[int],
        stamps: list[int],
        placed: bytes | bytearray,
        *,
        fsync: bool,
        decided: Decided | None = None,
    ) -> None:
        """counts, sizes, stamps: for each topic its records, their bytes, the last `$ts` (ms).

        placed: a packed PLACED for each record, topic by topic.
        """
        super().__init__(core, topics[0])
        self.topics = topics
        self.first_seqs = first_seqs
        self.counts = counts
        self.sizes = sizes
        self.stamps = stamps
        self.placed = placed
        self.fsync = fsync
        self.decided = decided
        self.batch_number = 0
        """Number of the log's batch that has its rows; 0 if the rows are a batch by themselves."""
        self.carried: Operation[AppendCore] | None = None
        """The step of a router in the same batch, decided next (routers/carried_step.py)."""
        self.file_id = 0
        """The file of frames that exist already and count as rows of it: in memory (class
        `ephemeral`), or those that a router copies by position. 0: the commit states the file.
        """
        self.reserves = False
        """Whether a reservation for each topic is in the same commit."""
        self.writes: list[Write] = []
        self.tags: Tags = None
        self.delayed: tuple[list[int], list[int]] | None = None
        """Seqs and due times (ms) of the jobs that are not claimable at once; None without any."""
        self.ends: tuple[list[int], list[int]] | None = None
        """Seqs and ends (ms) of the records with a ttl of their own; None without any."""

    # --- staged -------------------------------------------------------------------------------------------------------
    def add(self, write: Write, count: int, size: int, framed: Framed, ts: int, tags: Tags) -> None:  # noqa: PLR0917 - hot
        """Take the staged records of one more request; they get the topic's next seqs."""
        if tags is not None or self.tags is not None:
            self._add_tags(tags, count)
        self.placed += framed.placed
        self.writes.append(write)
        if not len(self.writes) % WRITES_A_PART:
            self.core.log.when_committed(self.topic.id, False, _part)
        self.counts[0] += count
        self.sizes[0] += size
        self.stamps[0] = ts
        self.topic.take_seqs(count, size, ts)
        self.core.usage.pending_bytes += size

    def note_times(self, first: int, ts: int, delays: RowTimes, ttls: RowTimes) -> None:
        """Note the delays and ttls of the next rows."""
        if delays.at:
            self.delayed = _with_times(self.delayed, first, ts, delays)
        if ttls.at:
            self.ends = _with_times(self.ends, first, ts, ttls)

    def hold_all(self) -> None:
        """Give out the seqs of all topics, and queue the operation in each of them."""
        stage_each(self, self.topics, self.counts, self.sizes, self.stamps)
        self.core.usage.pending_bytes += sum(self.sizes)

    def staged(self, topic: Topic) -> tuple[int, int]:
        """Return the number of records it has staged on a topic, and their bytes."""
        at = self.topics.index(topic)
        return self.counts[at], self.sizes[at]

    def rely_on(self, reserved: Sequence[int]) -> None:
        """Note that the same commit has a reservation for each topic."""
        self.reserves = True
        for topic, upto in zip(self.topics, reserved, strict=True):
            topic.reserve(upto)

    def _add_tags(self, tags: Tags, count: int) -> None:
        """Add the tags of the next `count` records."""
        if isinstance(tags, np.ndarray):
            assert not self.counts[0], "numbers are those of one request, which is an operation of its own"
            self.tags = tags
            return
        if self.tags is None:
            self.tags = [None] * self.counts[0]
        assert isinstance(self.tags, list), "numbers are those of one request, which is an operation of its own"
        self.tags += [None] * count if tags is None else tags

    # --- decided ------------------------------------------------------------------------------------------------------
    def on_commit(self, commit: Commit) -> None:
        self.commit = commit
        if len(self.topics) == 1:
            settle(self.topic)
        else:
            settle_all(self, self.topics)
        if self.carried is not None:
            self.carried.on_commit(commit)

    def apply(self, commit: Commit) -> None:
        """Publish: extend indexes, show heads, apply caps, wake waiters, answer writers."""
        core, topics, file_id, first_seqs = self.core, self.topics, self.file_id, self.first_seqs
        usage, unsynced = core.usage, commit.unsynced
        if file_id:
            self.place(file_id, 0)
        else:
            self.place(commit.file_id, commit.base)
        # Copies by position name the file of the originals.
        is_logged = not file_id or not usage.is_memory(file_id)
        if self.delayed is not None and self.topic.queue is not None:
            self.topic.queue.hold_back(*self.delayed)
        if self.ends is not None:
            self.topic.note_ends(*self.ends)
            core.quiet_until_ms = min(core.quiet_until_ms, min(self.ends[1]) + 1)
        publish_each(topics, first_seqs, self.counts, self.sizes, self.stamps)
        ids = [topic.id for topic in topics]
        if is_logged:
            core.in_log.add_all(ids)
        if unsynced is not None:
            for number, first in zip(ids, first_seqs, strict=True):
                if number not in unsynced:
                    unsynced[number] = first
        for topic in topics:
            if topic.waiters or topic.routers:
                notify(core, topic)
        size = sum(self.sizes)
        usage.pending_bytes -= size
        usage.appended_bytes += size
        usage.appended_records += sum(self.counts)
        write_ns, sync_ns = commit.write_ns, commit.sync_ns if self.fsync else 0
        if self.decided is not None:
            self.decided(None, first_seqs, write_ns, sync_ns)
            return
        first = first_seqs[0]
        for count, created, done in self.writes:
            last = first + count - 1
            done(make_tuple(AppendResult, (first, last, last, count, created, False, write_ns, sync_ns)))
            first = last + 1

    def place(self, file_id: int, base: int) -> None:
        """Put the rows into the indexes.

        base: the file offset that their starts are relative to.
        """
        topics, first_seqs, counts = self.topics, self.first_seqs, self.counts
        if len(topics) == 1:
            index_some(topics[0], first_seqs[0], counts[0], self.placed, 0, self.tags, file_id, base)
        else:
            index_rows(self.core.usage, topics, first_seqs, counts, self.sizes, self.placed, file_id, base)

    def fail(self, error: TopicsError) -> None:
        """Fail the writes. The seqs are burned, because the frames may be found after a restart."""
        for topic, count, size in zip(self.topics, self.counts, self.sizes, strict=True):
            topic.unstage(count, size)
            if self.reserves:
                topic.lose_reservation()
        usage = self.core.usage
        usage.pending_bytes -= sum(self.sizes)
        if self.file_id and self.counts[0]:
            usage.left(self.file_id, self.counts[0])
        if isinstance(self.tags, np.ndarray):
            self.topic.index.give_back_tags(self.tags)
        if self.decided is not None:
            self.decided(error, self.first_seqs, 0, 0)
        for _count, _created, done in self.writes:
            done(error)


def append_to(core: AppendCore, topic: Topic, *, fsync: bool) -> Append:
    """Build an append for one topic, without rows."""
    return Append(core, [topic], [topic.next_seq], [0], [0], [0], bytearray(), fsync=fsync)


def _with_times(
    noted: tuple[list[int], list[int]] | None, first: int, ts: int, times: RowTimes
) -> tuple[list[int], list[int]]:
    """Add to the seqs and times that are noted those of the rows from the seq `first` on."""
    seqs, ends = noted or ([], [])
    seqs += [first + at for at in times.at]
    ends += [ts + ms for ms in times.ms]
    return seqs, ends


# --- publication ------------------------------------------------------------------------------------------------------
def notify(core: NotifyCore, topic: Topic) -> None:
    """Notify waiters and routers of new records, at the end of the pass."""
    wake(core, topic)
    if topic.routers:
        core.forwardable[topic] = None


def publish_lone(  # noqa: PLR0917 - hot
    core: AppendCore,
    topic: Topic,
    count: int,
    size: int,
    placed: bytes,
    tags: Tags,
    ts: int,
    commit: Commit,
    base: int,
) -> None:
    """Publish committed records, the next ones of a topic, that were never pending.

    Waiters and routers are not notified. size: bytes of the records. base: the file offset that the
    starts in `placed` are relative to; 0 for frames in memory.

    `Append.apply` does the same over columns. With columns of one topic a lone write would take 124
    bytecodes more, of the 1840 that a whole request may take.
    """
    first = topic.next_seq
    index_some(topic, first, count, placed, 0, tags, commit.file_id, base)
    if base:
        core.in_log.add(topic.id)
    core.usage.appended_records += count
    core.usage.appended_bytes += size
    if commit.unsynced is not None:
        commit.unsynced.setdefault(topic.id, first)
    topic.publish_new(first + count - 1, ts)


def index_rows(  # noqa: PLR0917 - columns
    usage: Usage,
    topics: Sequence[Topic],
    first_seqs: Sequence[int],
    counts: Sequence[int],
    sizes: Sequence[int],
    placed: bytes | bytearray,
    file_id: int,
    base: int,
) -> None:
    """Put rows without tags into the indexes of topics; columns as in `Append`.

    One call fills the columns of all indexes whose last chunk has room for all of a topic's rows.
    """
    columns, runs, left = extend_each(list(map(_index_of, topics)), first_seqs, counts, sizes, file_id)
    records, size = sum(counts), sum(sizes)
    if left:
        starts = list(accumulate(counts, initial=0))
        records -= sum([counts[at] for at in left])
        size -= sum([sizes[at] for at in left])
    if runs:
        place_rows(b"".join(columns), runs, placed, file_id, base)
        usage.records += records
        usage.bytes += size
        usage.placed(file_id, records)
    for at in left:
        index_some(topics[at], first_seqs[at], counts[at], placed, starts[at], None, file_id, base)


def index_some(  # noqa: PLR0917 - columns
    topic: Topic, first: int, count: int, placed: bytes | bytearray, at: int, tags: Tags, file_id: int, base: int
) -> None:
    """Put the rows from position `at` on into the index of one topic, like `index_rows`."""
    if tags is None:
        topic.index.add_placed(first, count, placed, at, file_id, base)
        return
    if count == 1 and not isinstance(tags, np.ndarray):
        start, length, size, flags, ts = PLACED.unpack_from(placed, at * _PLACED_BYTES)
        topic.index.append_row(first, file_id, base + start, length, size, ts, flags, tags[0])
        return
    rows = np.frombuffer(placed, PLACED_DTYPE, count, at * _PLACED_BYTES)
    offsets = rows["start"] + np.uint32(base)
    topic.index.append_rows(first, file_id, offsets, rows["length"], rows["size"], rows["ts_ms"], rows["flags"], tags)


def _part(_commit: Commit) -> None:
    """A part of the callback before it."""
