"""A batch of group commit, as a value: what fills, what it carries, and how it has ended."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from typing import NamedTuple

import xxhash

from topics.common.memory import LARGE_BYTES, page_aligned
from topics.errors import StorageError
from topics.store.format._codec import ffi
from topics.store.format.codec import Pointer
from topics.store.format.log_format import BATCH_HEADER_BYTES
from topics.store.format.rows import Framed
from topics.store.in_memory.hot_tail import TailBuffer

_PREPARED_BYTES = 8 << 20
"""Bytes of a large batch that are prepared in a pass, in some two milliseconds."""


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
