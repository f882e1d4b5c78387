"""Group commit as values: the filling batch, its primitive, the verdict, what is durable.

Nothing here does I/O; shards do what is decided here.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from mmap import mmap
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from topics.common.memory import LARGE_BYTES, page_aligned
from topics.errors import StorageError
from topics.loop.files import NOTHING_DONE
from topics.store.format._codec import ffi
from topics.store.format.codec import Pointer
from topics.store.format.log_format import BATCH_HEADER_BYTES, BLOCK_BYTES
from topics.store.format.rows import Framed
from topics.store.in_memory.hot_tail import TailBuffer

_PREPARED_BYTES = 8 << 20
"""Bytes of a large batch that are prepared in a pass, in some two milliseconds."""

TOPICS_NOTED = 1 << 14
"""Topics that one mapping of unsynced seqs takes, so that no mapping ever grows for long: see
`SyncedBatches.topics`. Those of one more batch may be in it, too.
"""

_FULL = (-errno.ENOSPC, -errno.EDQUOT)


class Commit(NamedTuple):
    """The end of a batch.

    After an error nothing of it is published, though it may be found after a restart.
    """

    error: StorageError | None
    file_id: int = 0
    base: int = 0
    """File offset of the batch's body, from which `Framed.start` counts."""
    write_ns: int = 0
    sync_ns: int = 0
    """Time from submission to the sync's completion; 0 for a batch that was not synced."""
    unsynced: dict[int, int] | None = None
    """Where the topics of the batch are noted: see `SyncedBatches.unsynced_from`. None: nothing of
    it waits for a sync.
    """


Done = Callable[[Commit], None]


class CarriedFrames(NamedTuple):
    """Frames of another topic that the batch of a lone write carries, after those of its rows.

    It is a control frame; the metric of frames does not count it, nor copies.
    """

    topic_id: int
    kind: int
    seq: int
    ts_ms: int
    payload: bytes
    is_copied: bool
    """Whether the rows come again after it, as records of that topic from `seq` on."""


LoneWritten = tuple[bytes, Commit, Callable[[], None], Framed | None]
"""A packed PLACED for each row of a lone write, whose starts count from the commit's base; the
commit; a function that the caller calls, once it has answered, before anything else, since the end
of the log moves only then; and the frames of the copies that it carried, whose `start` is to be
added to the commit's base.
"""


WriteNext = Callable[[int, int, int, int], tuple[Commit, Callable[[], None]] | None]
"""Function that commits a batch framed at the next place, see `InPlaceCommits.write_next`: place in
the chunk, bytes, frames, checksum. It returns the commit, and what is called after the answer, as
LoneWritten.
"""


class Prepared:
    """The preparation of a large, complete batch: its body's checksum and its copy in the mirror.

    It is done piece by piece.
    """

    __slots__ = ("_sum", "at", "done")

    def __init__(self, at: int) -> None:
        self.at = at
        """Start of the batch in the mirror, which follows from its offset in the file."""
        self.done = BATCH_HEADER_BYTES
        """Bytes of the batch done so far; its header is written last."""
        self._sum = xxhash.xxh3_64()

    def go_on(self, batch: Batch, mirror: TailBuffer) -> bool:
        """Do the next piece; return whether it was the last."""
        begin, self.done = self.done, min(self.done + _PREPARED_BYTES, batch.used)
        piece = memoryview(batch.memory)[begin : self.done]
        mirror.view[self.at + begin : self.at + self.done] = piece
        self._sum.update(piece)
        return self.done == batch.used

    @property
    def body_sum(self) -> int:
        return self._sum.intdigest()


class Batch:
    """A batch being filled: room for its header, then frames without gaps."""

    __slots__ = (
        "frames",
        "memory",
        "mirror",
        "pointer",
        "prepared",
        "room",
        "uncounted",
        "used",
        "waiters",
        "wants_sync",
    )

    def __init__(self, room: int, memory: bytearray | mmap | None = None) -> None:
        """memory: `room` bytes, in which there may be frames already; None: new memory."""
        self.memory: bytearray | mmap = bytearray(room) if memory is None else memory
        self.pointer: Pointer = ffi.from_buffer(self.memory)
        self.room = room
        self.used = BATCH_HEADER_BYTES
        self.frames = 0
        self.uncounted = 0
        """Number of frames that are left out of the metric of frames."""
        self.waiters: list[Done] = []
        self.wants_sync = False
        self.mirror: TailBuffer | None = None
        """Memory in which the hot tail may keep the batch."""
        self.prepared: Prepared | None = None
        """The preparation done before the batch is committed."""

    def grow(self, needed: int) -> None:
        """Grow to room for `needed` bytes in all, by doubling; for one large request to no more."""
        room = self.room
        while room < needed:
            room *= 2
        if needed >= LARGE_BYTES and self.used < needed // 2:
            room = needed
        memory = bytearray(room) if room < LARGE_BYTES else page_aligned(room)
        memory[: self.used] = memoryview(self.memory)[: self.used]
        self.memory, self.room = memory, room
        self.pointer = ffi.from_buffer(memory)

    def clear(self) -> None:
        """Empty the batch; its memory stays."""
        self.used = BATCH_HEADER_BYTES
        self.frames = 0
        self.uncounted = 0
        self.waiters = []
        self.wants_sync = False


class Primitive(Enum):
    """A way to write a batch to the disk."""

    BARE = "bare"
    """A buffered write; a background fdatasync follows some time."""
    BARE_DIRECT = "bare-direct"
    """An O_DIRECT write; a background fdatasync follows some time."""
    LINK = "link"
    """A buffered write softly linked to an fdatasync."""
    DIRECT = "direct"
    """An O_DIRECT write softly linked to an fdatasync."""
    DSYNC = "dsync"
    """One O_DIRECT write with RWF_DSYNC."""

    def __init__(self, name: str) -> None:
        self.syncs = name in {"link", "direct", "dsync"}
        """Whether its completion means that the batch is on stable storage."""
        self.is_chain = name in {"link", "direct"}
        """Whether it is a write softly linked to an fdatasync, with two results."""
        self.is_direct = name in {"bare-direct", "direct", "dsync"}
        """Whether it bypasses the page cache."""
        self.is_dsync = name == "dsync"
        """Whether it is one write with RWF_DSYNC."""


class Verdict(Enum):
    """The meaning of a commit's results."""

    DONE = 1
    """All bytes were written and, where asked for, synced."""
    REST = 2
    """Part of the bytes was written, or none because of a signal.

    The rest is written before anything else.
    """
    FULL = 3
    """No space: the batch fails, the file is given up, and the log continues in another."""
    FAILED = 4
    """The contents of the disk are unknown: the log is read-only from here on."""


_DONE = Verdict.DONE
"""A module name, since access to an Enum's member through its class takes ten times as long."""


def judge(primitive: Primitive, expected: int, write_res: int, sync_res: int) -> Verdict:
    """Judge the results of a commit.

    An ack needs the full count and the sync's 0; with soft links a short write cancels its sync.
    """
    chained = primitive.is_chain
    if write_res == expected:
        return _DONE if not chained or sync_res == 0 else Verdict.FAILED
    if chained and sync_res != -errno.ECANCELED:
        return Verdict.FAILED  # the sync ran after a failed write: not the chain that was built
    if write_res in _FULL:
        return Verdict.FULL
    if write_res in NOTHING_DONE or 0 <= write_res < expected:
        return Verdict.REST
    return Verdict.FAILED


def rest_begins(write_res: int) -> int:
    """Return the start of the rest of a short write: a whole block, as O_DIRECT needs it."""
    return max(0, write_res) & -BLOCK_BYTES


class SealedFile(NamedTuple):
    """A file that the log has left with bytes that are not synced yet."""

    file_id: int
    fd: int
    last_batch_no: int
    bytes: int
    """`SyncedBatches.bytes_written` when it was left."""


class SyncedBatches:
    """The written and the durable batches: a prefix each, over all files of the shard."""

    def __init__(self, last_batch_no: int) -> None:
        self.written = last_batch_no
        self.synced = last_batch_no
        self.bytes_written = 0
        """Bytes of batches since the start; the difference is what is not on stable storage."""
        self.bytes_synced = 0
        self.sealed: deque[SealedFile] = deque()
        self.topics: dict[int, int] = {}
        """By topic id the first seq in batches that no sync covers so far, running ones included.
        The engine enters what it publishes of a commit. When it has many, another one follows.
        """
        self._covered: deque[tuple[int, dict[int, int]]] = deque()
        """(number of a batch, `topics` of it and of earlier ones that a sync covers or will)."""

    @property
    def unsynced(self) -> bool:
        return self.written > self.synced

    def unsynced_from(self, topic_id: int) -> int | None:
        """Return the first seq of a topic that is not on stable storage; None: all are."""
        if not self.unsynced:
            return None
        return min([topics[topic_id] for topics in self._uncovered() if topic_id in topics], default=None)

    def note_shared(self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64]) -> None:
        """Note a topic's copies by position, of any shard: the sync of an original covers its copy.

        first_seq: of the first copy. source_id, seqs: the originals, all in files of this shard.
        """
        if not self.unsynced:
            return
        for topics in self._uncovered():
            if source_id in topics:
                row = int(np.searchsorted(seqs, np.uint64(topics[source_id])))
                if row < len(seqs):
                    topics[topic_id] = min(topics.get(topic_id, first_seq + row), first_seq + row)

    def _uncovered(self) -> Iterator[dict[int, int]]:
        """Yield `topics` of batches that are not on stable storage, in the order of the batches."""
        for _, topics in self._covered:
            yield topics
        yield self.topics

    def cover(self) -> None:
        """Begin another mapping: a sync of all that is written begins, or the log leaves its file.

        It may cover a commit that is not published yet: the engine then enters the commit's topics
        in the mapping that the commit names, so that is covered even while it is empty.
        """
        self._covered.append((self.written, self.topics))
        self.topics = {}

    @property
    def unsynced_bytes(self) -> int:
        return self.bytes_written - self.bytes_synced

    def on_written(self, *, synced: bool, size: int = 0, batches: int = 1) -> None:
        """Count the next batches as written; with `synced`, all up to them are durable."""
        self.written += batches
        self.bytes_written += size
        if synced:
            assert not self.sealed, "a sync of this file says nothing about the one before"
            self.synced = self.written
            self.bytes_synced = self.bytes_written
            self.topics = {}
            if self._covered:
                self._covered.clear()
        elif len(self.topics) > TOPICS_NOTED:
            self.cover()

    def on_synced(self, batch_no: int, bytes_written: int = 0) -> None:
        """Count batches as durable after a sync.

        batch_no: the last batch written to the synced file when the sync was submitted.
        bytes_written: the number then.
        """
        assert batch_no <= self.written, "nothing is synced before it is written"
        self.synced = max(self.synced, batch_no)
        self.bytes_synced = max(self.bytes_synced, bytes_written)
        while self.sealed and self.sealed[0].last_batch_no <= self.synced:
            self.sealed.popleft()
        while self._covered and self._covered[0][0] <= self.synced:
            self._covered.popleft()

    def on_file_left(self, file_id: int, fd: int) -> None:
        """Note that the log continues in another file."""
        if self.unsynced:
            self.sealed.append(SealedFile(file_id, fd, self.written, self.bytes_written))
            self.cover()
