"""Where a shard's log ends: the file written to, the chain of checksums, and what the next batch's header says."""

from __future__ import annotations

from topics.clock import Clock
from topics.store.format.codec import lib
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    align_up,
)
from topics.store.in_memory.hot_tail import HotTail, TailBuffer
from topics.store.wal.commit import Batch, Durability, Prepared
from topics.store.wal.counters import LogCounters
from topics.store.wal.log_bound import LogBound
from topics.store.wal.wal_files import WalDirectory, WalFile


class LogEnd:
    """`place` gives a batch its place behind all that is written; `on_written` moves behind it."""

    def __init__(  # noqa: PLR0917 - called in one place
        self,
        clock: Clock,
        directory: WalDirectory,
        tail: HotTail,
        counters: LogCounters,
        durable: Durability,
        bound: LogBound,
    ) -> None:
        self._clock = clock
        self._directory = directory
        self._tail = tail
        self._counters = counters
        self._durable = durable
        self._bound = bound
        self.file: WalFile | None = None
        self.header = b""
        """The file header, until the first batch takes it to the disk."""
        self.leaves_file = False
        """The next batch opens another file, though this one has room."""
        self.synced_commits = 0
        """In this file."""
        self.committed_ns = -(1 << 62)
        """When the last commit ended."""
        self._chain = 0
        """Checksum of the last batch written, or of the file's header."""
        self._sealed = 0
        """Checksum of the batch placed last."""

    def has_room(self, batch_bytes: int) -> bool:
        """The next batch goes into this file."""
        file = self.file
        return file is not None and not self.leaves_file and file.position + batch_bytes <= file.size

    def prepare_piece(self, batch: Batch, mirror: TailBuffer) -> bool:
        """Do a piece of what sealing and placing the next batch takes; False: call again in another pass."""
        file = self.file
        assert file is not None, "there is room in a file"
        at = BLOCK_BYTES if self.header else file.position % BLOCK_BYTES
        if batch.prepared is None or batch.prepared.at != at:
            batch.prepared = Prepared(at)
        return batch.prepared.go_on(batch, mirror)

    def place(self, batch: Batch) -> tuple[WalFile, memoryview, int]:
        """Seal a batch that has room and mirror it in the hot tail; return the file, the blocks to write, their offset.

        Its header says that it follows all that is written to this file.
        """
        file, header, prepared = self.file, self.header, batch.prepared
        assert file is not None, "there is room in a file"
        durable, size, now_ms = self._durable, batch.used - BATCH_HEADER_BYTES, self._clock.now_ms()
        written, synced, chain = durable.written + 1, durable.synced, self._chain
        fresh = batch.used
        if prepared is None:
            self._sealed = lib.tp_seal_batch(
                batch.pointer, file.epoch, written, synced, chain, size, batch.frames, now_ms
            )
        else:
            self._sealed = lib.tp_seal_summed(
                batch.pointer, file.epoch, written, synced, chain, size, batch.frames, now_ms, prepared.body_sum
            )
            fresh = BATCH_HEADER_BYTES
        position, file_id = file.position, file.stored.file_id
        data = memoryview(batch.memory)[: batch.used]
        if not header:
            blocks = self._tail.place(file_id, position, data, room=batch.mirror, fresh=fresh)
            return file, blocks, position & -BLOCK_BYTES
        block = header + bytes(BLOCK_BYTES - len(header))
        return file, self._tail.place(file_id, 0, data, head=block, room=batch.mirror, fresh=fresh), 0

    def take_back(self) -> None:
        """The batch placed last is not in the file."""
        assert self.file is not None, "a file is left only when nothing is in flight"
        self._tail.take_back(self.file.stored.file_id, 0 if self.header else self.file.position)

    def on_written(self, batch: Batch, submitted_ns: int, *, synced: bool) -> int:
        """The batch placed last is in the file; returns how long that took, ns."""
        file = self.file
        assert file is not None, "a file is left only when nothing is in flight"
        self.committed_ns = self._clock.monotonic_ns()
        elapsed_ns = self.committed_ns - submitted_ns
        self._durable.on_written(self._durable.written + 1, synced=synced)
        file.position = align_up(file.position + batch.used, BATCH_ALIGN)
        self._chain = self._sealed
        self.header = b""
        counters = self._counters
        counters.frames += batch.frames - batch.uncounted
        counters.uncounted_frames += batch.uncounted
        counters.batches += 1
        counters.bytes_written += batch.used
        counters.commit.add(elapsed_ns)
        self._bound.on_written(batch.used)
        if synced:
            self.synced_commits += 1
            counters.count_sync(elapsed_ns)
        return elapsed_ns

    # --- from file to file -------------------------------------------------------------------------------------------
    def request_rotation(self) -> None:
        """The next batch opens another file, so that all there is now lies in files the log has left."""
        file = self.file
        self.leaves_file = file is not None and file.position > WAL_FIRST_BATCH_OFFSET
        if file is not None and self.leaves_file:
            file.stored.leaving = True

    def cancel_rotation(self) -> None:
        """What comes next goes on in this file while there is room."""
        self.leaves_file = False
        if self.file is not None:
            self.file.stored.leaving = False

    def begin(self, file: WalFile) -> None:
        """Goes on in a prepared file; the one before was left."""
        assert self.file is None, "the file before was not left"
        self.synced_commits = 0
        self.file = file
        header = self._directory.begin(file, self._durable.written + 1, self._clock.now_ms())
        self.header = header.pack()
        self._chain = header.checksum

    def leave(self, file: WalFile) -> None:
        """The log goes on elsewhere; what is not synced here is synced before anything later counts as synced."""
        stored = file.stored
        stored.active = False
        stored.size = file.position
        self._durable.on_file_left(stored.file_id, stored.fd)
        self.file = None
        self.leaves_file = False
