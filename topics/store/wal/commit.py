"""Group commit as values: what fills, how it goes to the disk, what its results mean, and what is durable since.

Nothing here does I/O; `shard.py` does what is decided here.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from enum import Enum
from mmap import mmap
from typing import NamedTuple

import xxhash

from topics.errors import StorageError
from topics.store.format.codec import Pointer, ffi
from topics.store.format.log_format import BATCH_HEADER_BYTES, BLOCK_BYTES
from topics.store.in_memory.hot_tail import TailBuffer

_PREPARED_BYTES = 8 << 20
"""Of a large batch, in a pass: some two milliseconds."""

_FULL = (-errno.ENOSPC, -errno.EDQUOT)
_AGAIN = (-errno.EINTR, -errno.EAGAIN)


class Commit(NamedTuple):
    """How a batch ended. With an error nothing of it is published, though it may be found after a restart."""

    error: StorageError | None
    file_id: int = 0
    base: int = 0
    """File offset of the batch's body: what `Framed.start` counts from."""
    write_ns: int = 0
    sync_ns: int = 0
    """From the submission to the sync's completion; 0 for a batch that was not synced."""


Done = Callable[[Commit], None]


class Prepared:
    """Of a large batch that is complete: its body's checksum and its copy in the mirror, made piece by piece."""

    __slots__ = ("_sum", "at", "done")

    def __init__(self, at: int) -> None:
        self.at = at
        """Where in the mirror the batch begins, which follows from where it goes in the file."""
        self.done = BATCH_HEADER_BYTES
        """So many bytes of the batch; its header is written last."""
        self._sum = xxhash.xxh3_64()

    def go_on(self, batch: Batch, mirror: TailBuffer) -> bool:
        """Does the next piece; True when there is no more."""
        begin, self.done = self.done, min(self.done + _PREPARED_BYTES, batch.used)
        piece = memoryview(batch.memory)[begin : self.done]
        mirror.view[self.at + begin : self.at + self.done] = piece
        self._sum.update(piece)
        return self.done == batch.used

    @property
    def body_sum(self) -> int:
        return self._sum.intdigest()


class Batch:
    """A batch being filled: room for its header, then frames back to back."""

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
        """memory: of so many bytes, in which frames may lie already; None: new memory."""
        self.memory: bytearray | mmap = bytearray(room) if memory is None else memory
        self.pointer: Pointer = ffi.from_buffer(self.memory)
        self.room = room
        self.used = BATCH_HEADER_BYTES
        self.frames = 0
        self.uncounted = 0
        """Of the frames: those that the metric of frames leaves out."""
        self.waiters: list[Done] = []
        self.wants_sync = False
        self.mirror: TailBuffer | None = None
        """Memory in which the hot tail may keep it."""
        self.prepared: Prepared | None = None
        """What was done of it before its turn to be committed."""

    def grow(self, needed: int) -> None:
        """Makes room for `needed` bytes in all, by doubling."""
        room = self.room
        while room < needed:
            room *= 2
        memory = bytearray(room)
        memory[: self.used] = memoryview(self.memory)[: self.used]
        self.memory, self.room = memory, room
        self.pointer = ffi.from_buffer(memory)

    def clear(self) -> None:
        """Empty again; the memory stays."""
        self.used = BATCH_HEADER_BYTES
        self.frames = 0
        self.uncounted = 0
        self.waiters = []
        self.wants_sync = False


class Primitive(Enum):
    """How a batch goes to the disk."""

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
        """Its completion means: on stable storage."""
        self.is_chain = name in {"link", "direct"}
        """A write softly linked to an fdatasync: two results."""
        self.is_direct = name in {"bare-direct", "direct", "dsync"}
        """Past the page cache."""
        self.is_dsync = name == "dsync"
        """With RWF_DSYNC."""


class Verdict(Enum):
    """What the results of a commit mean."""

    DONE = 1
    """All bytes written and, where asked for, synced."""
    REST = 2
    """Part of the bytes written, or none because of a signal: the rest goes out before anything else."""
    FULL = 3
    """No space: the batch fails, the file is given up, the log goes on in another."""
    FAILED = 4
    """Nobody knows what the disk holds: the log is read-only from here on."""


_DONE = Verdict.DONE
"""Here, since looking up the member of an Enum by its class takes as long as ten of other names."""


def judge(primitive: Primitive, expected: int, write_res: int, sync_res: int) -> Verdict:
    """Source: an ack needs the full count and the sync's 0 (soft links: a short write cancels its sync)."""
    chained = primitive.is_chain
    if write_res == expected:
        return _DONE if not chained or sync_res == 0 else Verdict.FAILED
    if chained and sync_res != -errno.ECANCELED:
        return Verdict.FAILED  # a sync that ran behind a write that did not: not the chain we built
    if write_res in _FULL:
        return Verdict.FULL
    if write_res in _AGAIN or 0 <= write_res < expected:
        return Verdict.REST
    return Verdict.FAILED


def rest_begins(write_res: int) -> int:
    """Where the rest of a short write begins: whole blocks again, so that it may go direct, too."""
    return max(0, write_res) & -BLOCK_BYTES


class SealedFile(NamedTuple):
    """A file the log has left with bytes that are not synced yet."""

    file_id: int
    fd: int
    last_batch_no: int


class Durability:
    """Which batches are written and which are on stable storage: a prefix each, over all files of the shard."""

    def __init__(self, last_batch_no: int) -> None:
        self.written = last_batch_no
        self.synced = last_batch_no
        self.sealed: deque[SealedFile] = deque()

    @property
    def unsynced(self) -> bool:
        return self.written > self.synced

    def on_written(self, *, synced: bool) -> None:
        """The next batch is on disk; with `synced`, so is all before it."""
        self.written += 1
        if synced:
            assert not self.sealed, "a sync of this file says nothing about the one before"
            self.synced = self.written

    def on_synced(self, batch_no: int) -> None:
        """A sync ended that was submitted when `batch_no` was the last one written (to the file it was for)."""
        assert batch_no <= self.written, "nothing is synced before it is written"
        self.synced = max(self.synced, batch_no)
        while self.sealed and self.sealed[0].last_batch_no <= self.synced:
            self.sealed.popleft()

    def on_file_left(self, file_id: int, fd: int) -> None:
        """The log goes on in another file."""
        if self.unsynced:
            self.sealed.append(SealedFile(file_id, fd, self.written))
