"""Packs: one file for the few records of many topics, written once as a stream and never extended.

A topic has one run in a pack, which describes itself as a segment does. The index of all runs is at
the end.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError
from topics.store.disk.whole_files import ReadCalls, read_file
from topics.store.format import codec
from topics.store.format.catalog import NO_TAG, FewRows, PackRows
from topics.store.format.codec import ScanStop
from topics.store.format.log_format import BATCH_ALIGN, BLOCK_BYTES, FrameType, align_up
from topics.store.format.row_columns import joined_times, rows_of, select, tags_of, times_in
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import INDEX_DELETED, IndexColumns
from topics.store.layouts.index_rows import index_rows
from topics.store.layouts.pack_format import RUN_DTYPE, RUN_HEADER_BYTES, RUN_MAGIC, PackFooter, PackHeader, RunHeader
from topics.store.segments.data_files import Pack, PackRun

_INDEXED_ROWS = 1024
"""Rows, of runs or of one that has more, from which on their index columns are made together."""
RUNS_A_PACK = 2048
ROWS_A_PACK = 1 << 15
"""Bounds of a pack: its index is built in one step, some milliseconds for so many."""

_PADDING = [bytes(size) for size in range(BATCH_ALIGN)]


class FewRuns(NamedTuple):
    """Verified frames of topics with few rows."""

    few: FewRows
    frames: codec.Frames
    """Frames at their offsets in `data`."""
    data: bytes
    byte_ends: NDArray[np.int64]
    """The end in `data` of each topic's frames."""
    sums: list[int]
    """The running checksum over the checksums of each topic's frames."""


class PackWriter:
    """A collector of runs that returns the bytes to write.

    The caller writes them in order, then syncs.
    """

    def __init__(self, number: int, epoch: int, now_ms: int) -> None:
        self.number = number
        self.epoch = epoch
        self._parts: list[bytes | bytearray | memoryview] = [PackHeader(epoch, now_ms).pack()]
        self.position = BLOCK_BYTES
        """Bytes so far, including those already taken."""
        self.pending_bytes = BLOCK_BYTES
        self._runs: list[tuple[int, int, int, int, int]] = []
        self._columns: list[IndexColumns] = []
        self._unindexed: list[tuple[codec.Frames, bytes | memoryview, int, int]] = []
        """Runs without index columns: frames, their bytes, first seq, and the frames' offset."""
        self._unindexed_rows = 0

    @property
    def frames_offset(self) -> int:
        """Return where the frames of the next run begin, after its header and description."""
        return align_up(self.position, BATCH_ALIGN)

    def add_run(self, scan: codec.FrameScan, data: bytes | memoryview, description: bytes) -> tuple[PackRun, int]:
        """Add one topic's verified frames (`scan` with base 0 over `data`).

        Return the run and the offset of its frames in the file.
        """
        frames = scan.frames
        seqs = frames["seq"]
        topic_id, first_seq, last_seq = int(frames["topic_id"][0]), int(seqs[0]), int(seqs[-1])
        start = self.frames_offset
        header = RunHeader(
            self.epoch, topic_id, first_seq, last_seq, len(frames), len(data), scan.sum, description
        ).pack()
        frames_at = start + len(header)
        self._put(bytes(start - self.position))
        self._put(header)
        self._put(data)
        self._unindexed.append((frames, data, first_seq, frames_at))
        self._unindexed_rows += len(frames)
        if self._unindexed_rows >= _INDEXED_ROWS:
            self._index_runs()
        self._runs.append((topic_id, first_seq, last_seq, start, len(frames)))
        return PackRun(topic_id, first_seq, last_seq, len(self._runs) - 1), frames_at

    def add_runs(self, few: FewRuns) -> tuple[list[PackRun], NDArray[np.uint32]]:
        """Add verified frames of several topics, as `add_run` does for each.

        Return the runs and the offset of each frame in the file.
        """
        self._index_runs()
        (topic_ids, counts, descriptions, seqs, *_), frames, data, byte_ends, sums = few
        row_ends = np.cumsum(counts)
        first_seqs, last_seqs = seqs[row_ends - counts], seqs[row_ends - 1]
        begins = byte_ends - np.diff(byte_ends, prepend=0)
        described = np.fromiter(map(len, descriptions), np.int64, len(descriptions))
        before_frames = RUN_HEADER_BYTES + described
        sizes = before_frames + byte_ends - begins
        pads = -sizes % BATCH_ALIGN
        first = self.frames_offset
        starts = first + np.cumsum(sizes + pads) - sizes - pads
        columns = (topic_ids, first_seqs, last_seqs, starts, counts)
        numbered = list(zip(*(column.tolist() for column in columns), strict=True))
        bounds = zip(begins.tolist(), byte_ends.tolist(), pads.tolist(), strict=True)
        self._put(bytes(first - self.position))
        for run, description, total, (begin, end, pad) in zip(numbered, descriptions, sums, bounds, strict=True):
            topic_id, first_seq, last_seq, _start, count = run
            head = RunHeader(self.epoch, topic_id, first_seq, last_seq, count, end - begin, total, description)
            self._parts += (head.pack(), data[begin:end], _PADDING[pad])
        added = int(starts[-1] + sizes[-1] + pads[-1]) - self.position
        self.position += added
        self.pending_bytes += added
        moves = np.repeat((starts + before_frames - begins).astype(np.uint32), counts)
        columns_of = _columns_of(frames, data, np.repeat(first_seqs, counts))
        offsets = columns_of.offsets + moves
        self._columns.append(columns_of._replace(offsets=offsets))
        number = len(self._runs)
        self._runs += numbered
        runs = [PackRun(run[0], run[1], run[2], at) for at, run in enumerate(numbered, number)]
        return runs, offsets

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._parts.append(data)
        self.position += len(data)
        self.pending_bytes += len(data)

    def take(self) -> bytes:
        """Return the bytes added since the last call, in file order."""
        self._index_runs()  # their bytes are not kept
        data = b"".join(self._parts)
        self._parts.clear()
        self.pending_bytes = 0
        return data

    def _index_runs(self) -> None:
        """Make the index columns of the runs since the last call in one go: most have few rows."""
        if not self._unindexed:
            return
        self._unindexed_rows = 0
        parts, blocks, first_seqs, places = zip(*self._unindexed, strict=True)
        self._unindexed.clear()
        counts = list(map(len, parts))
        begins = [0, *accumulate(map(len, blocks))][:-1]
        # numpy joins arrays of records field by field, in 80 us each, and lends them in 20
        frames = np.frombuffer(bytearray().join([part.tobytes() for part in parts]), codec.FRAME_DTYPE)
        frames["offset"] += np.repeat(np.array(begins, np.uint64), counts)
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        columns = _columns_of(frames, data, np.repeat(np.array(first_seqs, np.uint64), counts))
        moves = np.array([place - begin for place, begin in zip(places, begins, strict=True)], np.uint32)
        self._columns.append(columns._replace(offsets=columns.offsets + np.repeat(moves, counts)))

    def finish(self) -> bytes:
        """Return the index and the footer, the rest of the file."""
        self._index_runs()
        self._put(bytes(self.frames_offset - self.position))
        table = np.array(self._runs, dtype=RUN_DTYPE).tobytes()
        columns = _joined(self._columns)
        counts = len(self._runs), len(columns.ts), len(columns.tag_table)
        footer = PackFooter(self.epoch, *counts, self.position, columns.marks)
        packed = columns.pack()
        self._put(table)
        self._put(packed)
        self._put(footer.pack(table, packed))
        return self.take()


def _columns_of(frames: codec.Frames, data: bytes | memoryview, first_seqs: Any) -> IndexColumns:
    """Return the columns of frames of runs, at their offsets in `data`.

    first_seqs: the first seq of each frame's run, u64 of shape (n,), or one for all.

    Frames that are deleted, or are no records, are marked deleted.
    """
    tags, table = tags_of(frames, data, 0)
    rows = rows_of(frames, tags, table, 0, times_in(frames, data, 0))
    dead = codec.deleted(frames) | (frames["type"] != FrameType.RECORD)
    return IndexColumns(
        rows.ts,
        (rows.seqs - first_seqs).astype(np.uint32),
        rows.offsets,
        rows.lengths,
        rows.sizes,
        tags,
        rows.flags | dead * np.uint8(INDEX_DELETED),
        table,
        rows.times,
    )


def _joined(parts: list[IndexColumns]) -> IndexColumns:
    """Return one set of columns with one tag table."""
    table: dict[bytes, int] = {}
    tags = []
    for part in parts:
        if part.tag_table:
            numbers = np.array([table.setdefault(tag, len(table)) for tag in part.tag_table] + [NO_TAG], np.uint32)
            tags.append(numbers[np.minimum(part.tags, len(part.tag_table))])
        else:
            tags.append(part.tags)
    return IndexColumns(
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.deltas for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate(tags),
        np.concatenate([part.flags for part in parts]),
        list(table),
        joined_times([(part.times, len(part.ts)) for part in parts]),
    )


class PackIndex(NamedTuple):
    """The run table and all rows of a pack."""

    table: np.ndarray
    """Run table, dtype RUN_DTYPE, shape (runs,)."""
    columns: IndexColumns
    derived: bool

    def live(self, runs: Collection[int], file_id: int) -> PackRows:
        """Return the live rows of these runs, without runs that have none.

        runs: rows of the run table.
        """
        records = self.table["records"]
        rows = index_rows(self.columns, np.repeat(self.table["first_seq"], records), file_id)
        wanted = np.zeros(len(self.table), np.bool_)
        wanted[list(runs)] = True
        live = ((rows.flags & INDEX_DELETED) == 0) & np.repeat(wanted, records)
        counts = np.add.reduceat(live, np.cumsum(records, dtype=np.int64) - records, dtype=np.int64)
        found = np.flatnonzero(counts)
        topic_ids = self.table["topic_id"][found].astype(np.uint64)
        return PackRows(topic_ids, np.cumsum(counts[found]), rows if live.all() else select(rows, live))


async def read_pack(files: ReadCalls, directory: str, pack: Pack) -> PackIndex:
    """Return the index at the end of a pack, or one derived from its runs if that is damaged.

    Raises: CorruptError, also for another pack that once had this number (a disk may have lost the
        writes of the listed one); FormatError; OSError.
    """
    path = f"{directory}/{pack.path}"
    try:
        return await _read_index(files, path, pack)
    except (CorruptError, FormatError, ValueError):
        data = await read_file(files, path)
        index = scan_pack(data, path)
        if PackHeader.unpack(data, path).epoch != pack.epoch or not _holds(index.table, pack):
            raise CorruptError(f"{path}: not the pack the snapshot lists", {"path": path}) from None
        return index


def _holds(table: np.ndarray, pack: Pack) -> bool:
    """Return whether each listed run is in its row of the run table."""
    rows = table[["topic_id", "first_seq", "last_seq"]].tolist()
    return all(
        number < len(rows) and rows[number] == (run.topic_id, run.first_seq, run.last_seq)
        for number, run in pack.runs.items()
    )


async def _read_index(files: ReadCalls, path: str, pack: Pack) -> PackIndex:
    fd = await files.open(path, os.O_RDONLY)
    try:
        size = files.file_size(path)
        fixed = bytearray(FOOTER_BYTES)
        if size < FOOTER_BYTES or await files.read_into(fd, fixed, size - FOOTER_BYTES) != FOOTER_BYTES:
            raise CorruptError(f"{path}: too short for a pack", {"path": path})
        footer = PackFooter.unpack(memoryview(fixed), path)
        if not BLOCK_BYTES <= footer.table_offset <= footer.columns_offset <= size - FOOTER_BYTES:
            raise CorruptError(f"{path}: the pack footer points outside the file", {"path": path})
        index = bytearray(size - FOOTER_BYTES - footer.table_offset)
        await files.read_into(fd, index, footer.table_offset)
    finally:
        await files.close(fd)
    table = memoryview(index)[: footer.columns_offset - footer.table_offset]
    columns = memoryview(index)[footer.columns_offset - footer.table_offset :]
    footer.check(memoryview(fixed), table, columns, path)
    if footer.epoch != pack.epoch:
        raise CorruptError(f"{path}: not the pack the snapshot lists", {"path": path})
    return PackIndex(
        np.frombuffer(table, RUN_DTYPE),
        IndexColumns.unpack(columns, footer.rows, footer.tag_count, footer.marks),
        False,
    )


class ScannedRun(NamedTuple):
    """A run as its own header describes it."""

    position: int
    header: RunHeader
    frames: codec.Frames
    """Frames whose offsets count from the start of the file."""


def scan_runs(data: bytes, path: str) -> list[ScannedRun]:
    """Verify and return every run of a pack.

    Raises CorruptError naming the place and the topic, or FormatError.
    """
    epoch = PackHeader.unpack(data, path).epoch
    view = memoryview(data)
    runs = []
    at = BLOCK_BYTES
    while at + RUN_HEADER_BYTES <= len(data) and bytes(view[at : at + 4]) == RUN_MAGIC:
        header = RunHeader.unpack(view[at:], f"{path}, byte {at}")
        if header.epoch != epoch:
            break  # a run of a pack that had this number before
        start = at + RUN_HEADER_BYTES + len(header.description)
        end = start + header.frames_bytes
        scan = codec.scan_frames(view[start:end], base=start)
        if scan.reason is not ScanStop.END or scan.sum != header.sum or len(scan.frames) != header.records:
            place = start + scan.position
            seq = int(scan.frames["seq"][-1]) + 1 if len(scan.frames) else header.first_seq
            raise CorruptError(
                f"{path}: damaged at byte {place} (topic {header.topic_id}, seqs {header.first_seq} to "
                f"{header.last_seq})",
                {"path": path, "offset": place, "topic_id": header.topic_id, "seq": seq},
            )
        runs.append(ScannedRun(at, header, scan.frames))
        at = align_up(end, BATCH_ALIGN)
    return runs


def scan_pack(data: bytes, path: str) -> PackIndex:
    """Return the index derived from the runs themselves. Raises CorruptError."""
    runs = scan_runs(data, path)
    rows = []
    parts = []
    for run in runs:
        header, frames = run.header, run.frames
        rows.append((header.topic_id, header.first_seq, header.last_seq, run.position, header.records))
        parts.append(_columns_of(frames, data, np.uint64(header.first_seq)))
    if not runs:
        raise CorruptError(f"{path}: a pack without runs", {"path": path})
    return PackIndex(np.array(rows, dtype=RUN_DTYPE), _joined(parts), True)
