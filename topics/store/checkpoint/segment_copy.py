"""Records copied into a segment of one topic: its tail or a new one. Format: segment_format.py.

`fill` reads, verifies and writes all records of this segment, and its index and footer if it is
full then; several segments are filled side by side. Nothing counts before `settle`, which is called
in the order of the topic's seqs: then the segment is listed as it is now, and the catalog gets the
records' new places.
"""

from __future__ import annotations

import copy
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.store.checkpoint.copy_context import SEQ_SPAN_MAX, CopyContext, Placed, giving_up
from topics.store.checkpoint.live_frames import LiveFrameReader, LiveFrameReaders
from topics.store.disk.whole_files import make_directories, unlink_if_there, write_pieces
from topics.store.format.catalog import RowColumns
from topics.store.format.file_table import FileKind
from topics.store.format.log_format import FLAG_COPY
from topics.store.format.row_columns import select
from topics.store.layouts.directory_names import index_path, topic_directory
from topics.store.layouts.index_rows import index_of
from topics.store.layouts.segment_format import SEGMENT_HEADER_MIN, DescriptionPieces
from topics.store.segments.data_files import Segment, Totals
from topics.store.segments.segment import cut_back, extend, new_segment, packed_footer, packed_index

READS_A_CHUNK = 512


class Share(NamedTuple):
    """The records for one segment."""

    tail: Segment | None
    """The segment to extend; None: a new one."""
    rows: list[RowColumns]
    """Rows, each item of one file."""
    ends: bool
    """Whether the segment is sealed, full or not."""
    before: Totals = Totals()
    """Sums over the topic's earlier segments."""
    replaced: tuple[Segment, ...] = ()
    """Adjacent sealed segments that the new one, which is sealed, takes the place of."""


class Shares:
    """The division of one topic's records among segments: `add` rows in order, then `last`.

    A new segment takes more than one that grows from checkpoint to checkpoint may have, and is
    sealed then. A busy topic has fewer files, syncs and indexes, and unsealed segments, which a
    start has to scan, stay small.
    """

    def __init__(self, context: CopyContext, topic_id: int) -> None:
        config = context.config
        self._max_records = config.segment_max_events
        self._bulk_records = config.segment_max_events * max(1, config.segment_bulk)
        self._max_bytes = config.segment_max_bytes
        self._tail = context.manifest.tail(topic_id)
        self._before = context.manifest.sealed_totals(topic_id)
        self._rows: list[RowColumns] = []
        self._first_seq = self._records = self._bytes = 0
        """Numbers of the segment for the next record; first_seq 0: it begins with that record."""
        if self._tail is not None:
            self._first_seq, self._records = self._tail.first_seq, self._tail.records
            self._bytes = self._tail.frames_end

    def add(self, rows: RowColumns) -> list[Share]:
        """Add rows; return the shares that are complete now."""
        whole = []
        at = 0
        while at < len(rows.seqs):
            count = self._fitting(rows.seqs[at:], rows.lengths[at:])
            if count:
                self._rows.append(select(rows, slice(at, at + count)))
                self._records += count
                self._bytes += int(self._rows[-1].lengths.sum(dtype=np.int64))
                at += count
            if at < len(rows.seqs):
                whole.append(self._end())
        return whole

    def last(self) -> Share | None:
        """Return the rest, for a segment that may still grow."""
        return Share(self._tail, self._rows, False, self._before) if self._rows else None

    def _fitting(self, seqs: NDArray[np.uint64], lengths: NDArray[np.uint32]) -> int:
        """Return how many of these records the segment takes.

        The first one always fits, unless its seq is too far away.
        """
        if not self._first_seq:
            self._first_seq = int(seqs[0])
            self._bytes = SEGMENT_HEADER_MIN
        most = self._max_records if self._tail is not None else self._bulk_records
        near = int(np.searchsorted(seqs, np.uint64(self._first_seq + SEQ_SPAN_MAX)))
        space = self._max_bytes - self._bytes
        fitting = int(np.searchsorted(np.cumsum(lengths, dtype=np.int64), space, side="right"))
        least = 0 if self._rows else 1
        return min(near, max(least, min(fitting, most - self._records)))

    def _end(self) -> Share:
        share = Share(self._tail, self._rows, True, self._before)
        if self._tail is not None:
            self._before = self._before.plus(self._tail.records, self._tail.size)
        for part in self._rows:
            self._before = self._before.plus(len(part.seqs), int(part.sizes.sum(dtype=np.uint64)))
        self._tail, self._rows = None, []
        self._first_seq = self._records = self._bytes = 0
        return share


class SegmentCopy:
    """One share that is copied into its segment.

    Created in the order of seqs, and settled in it.
    """

    def __init__(self, context: CopyContext, readers: LiveFrameReaders, topic_id: int, share: Share) -> None:
        self._context = context
        self._readers = readers
        self._turns = readers.turns
        self._files = context.files
        self._directory = context.directory
        self._config = context.config
        self.topic_id = topic_id
        self._share = share
        self._described = DescriptionPieces()
        self._segment: Segment | None = None
        """The segment as it is to be listed."""
        self._fd = -1
        self._placed: list[Placed] = []
        self._rows: list[RowColumns] = []
        """The rows with their places in the segment."""

    async def fill(self) -> SegmentCopy:
        """Write the whole share, unless the topic is deleted meanwhile.

        After OSError or StorageError it was not copied.
        """
        if not self._context.catalog.exists(self.topic_id):
            return self
        self._described = await self._context.described(self.topic_id, self._turns)
        try:
            await self._open()
            with self._readers.one() as reader:
                for rows in self._share.rows:
                    if not await self._append(rows, reader):
                        break
            if not self._context.catalog.exists(self.topic_id):
                await self.give_up()
            elif self._share.ends or self._is_full():
                await self._seal()
            await self._close_file()
        except BaseException:
            with giving_up():
                await self.give_up()
            raise
        return self

    async def _open(self) -> None:
        tail = self._share.tail
        if tail is not None:
            await cut_back(self._files, self._directory, tail)
            self._fd = await self._files.open(self._path_of(tail), os.O_RDWR)
            self._segment = copy.copy(tail)
            return
        directory = topic_directory(self.topic_id)
        unsynced = self._context.unsynced.directories
        make_directories(self._files, self._directory, directory, unsynced)
        unsynced[f"{self._directory}/{directory}"] = None
        replaced = self._share.replaced
        segment, header = new_segment(
            self.topic_id,
            replaced[0].first_seq if replaced else int(self._share.rows[0].seqs[0]),
            epoch=self._context.new_epoch(),
            now_ms=self._context.now_ms,
            described=self._described,
        )
        segment.edition = 1 + max((earlier.edition for earlier in replaced), default=-1)
        path = self._path_of(segment)
        segment.file_id = self._context.table.add(FileKind.SEGMENT, path, size=segment.frames_end).file_id
        self._segment = segment
        self._fd = await self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        await write_pieces(self._files, self._fd, header, 0)

    async def _append(self, rows: RowColumns, reader: LiveFrameReader) -> bool:
        """Copy and verify rows of one file; False if the topic is gone."""
        chunks = _Chunks(rows, self._config.checkpoint_bytes_per_pass)
        at = 0
        while at < len(rows.seqs):
            if not self._context.catalog.exists(self.topic_id):
                return False
            end = chunks.end(at)
            await self._write(select(rows, slice(at, end)), reader)
            at = end
        return True

    async def _write(self, rows: RowColumns, reader: LiveFrameReader) -> None:
        segment = self.segment
        gathered = await reader.gather(rows, self.topic_id, segment.sum)
        lengths = gathered.lengths
        ends = np.cumsum(lengths, dtype=np.uint64) + np.uint64(segment.frames_end)
        offsets = (ends - lengths).astype(np.uint32)
        await self._files.write_all(self._fd, gathered.data, segment.frames_end)
        extend(segment, gathered.extension)
        self._placed.append(Placed(self.topic_id, rows.seqs, offsets, lengths))
        flags = rows.flags & np.uint8(~FLAG_COPY & 0xFF)
        self._rows.append(rows._replace(file_id=segment.file_id, offsets=offsets, lengths=lengths, flags=flags))

    async def _seal(self) -> None:
        """Write index and footer, and sync both files, so that they need not be opened again."""
        segment, clock = self.segment, self._context.clock
        began_ns = clock.monotonic_ns()
        if self._share.replaced:
            segment.last_seq = self._share.replaced[-1].last_seq
        path = self._path_of(segment)
        await self._turns.turn()
        with self._turns.working():
            columns = index_of([*self._earlier_rows(), *self._rows], segment.first_seq)
        await self._turns.turn()
        with self._turns.working():
            index = packed_index(segment, columns)
            footer = packed_footer(segment, self._share.before, self._context.now_ms, self._described)
        fd = await self._files.open(index_path(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            await self._files.write_all(fd, index, 0)
            await self._context.sync(fd)
        finally:
            await self._files.close(fd)
        footer_bytes = sum(map(len, footer))
        end = max(self._files.file_size(path), segment.frames_end + footer_bytes)
        await write_pieces(self._files, self._fd, footer, end - footer_bytes)
        await self._context.sync(self._fd)
        segment.sealed = True
        self._context.counters.count_seal(clock.monotonic_ns() - began_ns, end)

    def _earlier_rows(self) -> list[RowColumns]:
        """Return the live rows of the tail before the copy."""
        tail = self._share.tail
        if tail is None:
            return []
        here = np.array([tail.file_id], np.uint32)
        rows_of = self._context.catalog.rows_in_files
        return rows_of(self.topic_id, here, first_seq=tail.first_seq, last_seq=tail.last_seq)

    @property
    def segment(self) -> Segment:
        """The segment as it is so far."""
        assert self._segment is not None, "fill comes first"
        return self._segment

    def _path_of(self, segment: Segment) -> str:
        return f"{self._directory}/{segment.path}"

    def _is_full(self) -> bool:
        segment = self.segment
        return (
            segment.records >= self._config.segment_max_events or segment.frames_end >= self._config.segment_max_bytes
        )

    def settle(self) -> bool:
        """List the segment and announce the records' new places to the catalog.

        `Evacuation.sync` follows before the snapshot. Return False if the topic is gone, and the
        segment with it.
        """
        segment, tail = self._segment, self._share.tail
        if segment is None:
            return False
        path = self._path_of(segment)
        stored = self._context.table[segment.file_id]
        if segment.sealed:
            stored.size = self._files.file_size(path)
        else:
            stored.size = segment.frames_end
            self._context.unsynced.files[path] = None
        self._context.unsynced.directories[f"{self._directory}/{topic_directory(self.topic_id)}"] = None
        if self._share.replaced:
            self._context.manifest.replace(self._share.replaced, segment)
            self._context.given_up += [earlier.file_id for earlier in self._share.replaced]
        elif tail is None:
            self._context.manifest.add_segment(segment)
        else:
            self._context.manifest.replace_tail(segment)
        self._segment = None
        for entry in self._placed:
            self._context.announce(entry, segment.file_id)
        return True

    async def give_up(self) -> None:
        """Take back what was not settled; afterwards, or the second time, it does nothing."""
        await self._close_file()
        segment, self._segment = self._segment, None
        if segment is not None and self._share.tail is None:
            self._context.table.remove(self._context.table[segment.file_id])
            path = self._path_of(segment)
            await unlink_if_there(self._files, path)
            await unlink_if_there(self._files, index_path(path))

    async def _close_file(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            await self._files.close(fd)


class _Chunks:
    """The division of rows of one file into chunks.

    Each has at most the budget's bytes and a bounded number of reads, but at least one row.
    """

    def __init__(self, rows: RowColumns, budget: int) -> None:
        self._budget = budget
        self._ends = np.cumsum(rows.lengths, dtype=np.int64)
        apart = rows.offsets[1:].astype(np.int64) != rows.offsets[:-1].astype(np.int64) + rows.lengths[:-1]
        self._reads = np.concatenate(([0], np.cumsum(apart)))

    def end(self, start: int) -> int:
        """Return the end of the chunk that begins with row `start`."""
        before = int(self._ends[start - 1]) if start else 0
        end = int(np.searchsorted(self._ends, before + self._budget, side="right"))
        end = min(end, int(np.searchsorted(self._reads, int(self._reads[start]) + READS_A_CHUNK)))
        return max(start + 1, end)
