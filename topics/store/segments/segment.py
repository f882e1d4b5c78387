"""Segment files: created, extended, sealed, read back. segment_format.py defines their bytes.

An unsealed segment grows by one append per checkpoint; the last snapshot states its length. Bytes
that a crash left after that are zeroed before the file is used again, so frames are always followed
by zeros, a footer or the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topics.errors import CorruptError, FormatError
from topics.store.disk.whole_files import FileCalls, ReadCalls, read_file, read_view, write_new_file, zero_range
from topics.store.format import codec
from topics.store.format.catalog import RowColumns
from topics.store.format.codec import ScanStop
from topics.store.format.compressed_segment import HEADER_BYTES, image_of, is_compressed
from topics.store.format.log_format import FrameType
from topics.store.format.row_columns import rows_of, tags_of, times_in
from topics.store.layouts.directory_names import index_path
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import IndexColumns, IndexHeader
from topics.store.layouts.index_rows import index_of, index_rows, live_rows
from topics.store.layouts.segment_format import (
    SEGMENT_FOOTER_MAGIC,
    DescriptionPieces,
    SegmentFooter,
    SegmentHeader,
    footer_description_bytes,
    header_bytes_of,
)
from topics.store.segments.data_files import Segment, Totals


def new_segment(
    topic_id: int, first_seq: int, *, epoch: int, now_ms: int, described: DescriptionPieces
) -> tuple[Segment, list[bytes]]:
    """Return an empty segment, and the pieces of the header that its file begins with."""
    header = SegmentHeader(topic_id, epoch, first_seq, now_ms, b"")
    header_bytes = header_bytes_of(described.size)
    segment = Segment(topic_id, first_seq, first_seq - 1, 0, header_bytes, 0, epoch, now_ms)
    return segment, header.pieces_with(described)


def check_copied(
    data: bytes | memoryview, segment_sum: int, topic_id: int, seqs: np.ndarray, base: int
) -> codec.FrameScan:
    """Verify frames that are copied into a segment or pack: each checksum, the topic, the seqs.

    Raises: CorruptError naming topic and seq.
    """
    scan = codec.scan_frames(data, base=base, sum=segment_sum)
    frames = scan.frames
    sound = scan.reason is ScanStop.END and scan.position == len(data) and len(frames) == len(seqs)
    if not sound or np.count_nonzero(frames["topic_id"] != topic_id) or np.count_nonzero(frames["seq"] != seqs):
        good = int((frames["seq"] == seqs[: len(frames)]).sum()) if len(frames) <= len(seqs) else 0
        seq = int(seqs[min(good, len(seqs) - 1)])
        raise CorruptError(
            f"topic {topic_id}, seq {seq}: the log no longer holds this record", {"topic_id": topic_id, "seq": seq}
        )
    return scan


class Extension(NamedTuple):
    """The numbers that frames appended to a segment add to it; the sum is of all its frames."""

    records: int
    last_seq: int
    last_ts: int
    size: int
    written: int
    sum: int


def extension_of(scan: codec.FrameScan) -> Extension:
    """Return the numbers of at least one scanned frame."""
    frames = scan.frames
    size = int(frames["size"].sum(dtype=np.uint64))
    return Extension(len(frames), int(frames["seq"][-1]), int(frames["ts_ms"][-1]), size, scan.position, scan.sum)


def extend(segment: Segment, added: Extension) -> None:
    """Update the segment's numbers after frames were written at `frames_end`."""
    segment.last_seq = added.last_seq
    segment.last_ts = added.last_ts
    segment.records += added.records
    segment.size += added.size
    segment.frames_end += added.written
    segment.sum = added.sum


def packed_index(segment: Segment, columns: IndexColumns) -> bytearray:
    """Return the whole index file of a segment whose live rows these are."""
    return IndexHeader(
        segment.topic_id, segment.epoch, segment.first_seq, len(columns.ts), len(columns.tag_table), segment.sum
    ).pack(columns)


def packed_footer(segment: Segment, before: Totals, now_ms: int, described: DescriptionPieces) -> list[bytes]:
    """Return the pieces that end a segment's file. before: the topic's earlier segments."""
    total = before.plus(segment.records, segment.size)
    return SegmentFooter(
        segment.topic_id,
        segment.epoch,
        segment.first_seq,
        segment.last_seq,
        segment.last_ts,
        segment.records,
        total.records,
        segment.frames_end,
        segment.size,
        total.size,
        now_ms,
        segment.sum,
        b"",
    ).pieces_with(described)


async def cut_back(files: FileCalls, directory: str, segment: Segment, *, lost_writes: bool = False) -> None:
    """Zero durably the bytes that a crash left after an unsealed segment's frames.

    lost_writes: see `zero_range`.
    """
    path = f"{directory}/{segment.path}"
    await zero_range(files, path, segment.frames_end, files.file_size(path), lost_writes=lost_writes)


async def read_segment(files: ReadCalls, path: str, size: int | None = None) -> bytes:
    """Return the bytes of a segment, or its first `size` bytes, whether it is compressed or not.

    Raises: OSError, FormatError, CorruptError; StorageError, a package is missing.
    """
    head = await read_file(files, path, HEADER_BYTES)
    if not is_compressed(head):
        return await read_file(files, path, size)
    return image_of(await read_file(files, path), path)[:size]


class SegmentRows(NamedTuple):
    """The live rows of a segment and their source."""

    rows: RowColumns
    derived: bool
    """True if the index was missing or damaged, and the data was scanned instead."""


async def read_rows(files: ReadCalls, path: str, segment: Segment) -> SegmentRows:
    """Return the live rows of the segment at `path`, from its index or else its frames.

    A missing or damaged index is derived again from the data and is never evidence against it.

    Raises: CorruptError, the frames are not those of the segment when it was written.
    """
    if segment.sealed:
        try:
            data = await read_view(files, index_path(path))
            header, columns = IndexHeader.unpack(data, index_path(path))
            if (header.epoch, header.sum) == (segment.epoch, segment.sum):
                return SegmentRows(live_rows(index_rows(columns, np.uint64(header.first_seq), segment.file_id)), False)
        except (CorruptError, FormatError, FileNotFoundError, ValueError):
            pass
    return SegmentRows(await scan_rows(files, path, segment), segment.sealed)


async def scan_rows(files: ReadCalls, path: str, segment: Segment) -> RowColumns:
    """Return the live rows, derived from the frames. Raises CorruptError."""
    data = await read_segment(files, path, segment.frames_end)
    header = SegmentHeader.unpack(data, path)
    scan = codec.scan_frames(memoryview(data)[header.header_bytes :], base=header.header_bytes)
    at = header.header_bytes + scan.position
    if header.epoch != segment.epoch or header.topic_id != segment.topic_id:
        raise CorruptError(f"{path}: not the segment the snapshot lists", {"path": path, "offset": 0})
    if scan.reason is not ScanStop.END or at != segment.frames_end or scan.sum != segment.sum:
        raise CorruptError(
            f"{path}: damaged at byte {at} (topic {segment.topic_id}, after seq "
            f"{int(scan.frames['seq'][-1]) if len(scan.frames) else segment.first_seq - 1})",
            {"path": path, "offset": at},
        )
    live = scan.frames[~codec.deleted(scan.frames) & (scan.frames["type"] == FrameType.RECORD)]
    tags, table = tags_of(live, data, 0)
    return rows_of(live, tags, table, segment.file_id, times_in(live, data, 0))


async def rewrite_index(files: FileCalls, path: str, segment: Segment, rows: RowColumns) -> None:
    """Write a derived index beside its segment at `path`."""
    await write_new_file(files, index_path(path), packed_index(segment, index_of([rows], segment.first_seq)))


class Described(NamedTuple):
    """A segment as it describes itself, for rebuilding."""

    segment: Segment
    description: bytes
    """The latest description: the footer's, else the header's."""
    described_ms: int
    """Time of the description."""
    total_records: int


def describe_file(data: bytes, path: str) -> Described:
    """Verify a segment's bytes and return what they describe.

    Raises FormatError or CorruptError (also for a damaged frame).
    """
    header = SegmentHeader.unpack(data, path)
    footer = read_footer(data, path)
    stop = footer.frames_end if footer is not None else len(data)
    scan = codec.scan_frames(memoryview(data)[header.header_bytes : stop], base=header.header_bytes)
    end = header.header_bytes + scan.position
    segment = Segment(header.topic_id, header.first_seq, 0, 0, header.header_bytes, 0, header.epoch, header.created_ms)
    is_whole = scan.reason is ScanStop.END
    if footer is not None:
        is_whole &= (footer.epoch, footer.frames_end, footer.sum) == (header.epoch, end, scan.sum)
    if not is_whole:
        raise CorruptError(f"{path}: damaged at byte {end} (topic {header.topic_id})", {"path": path, "offset": end})
    if len(scan.frames):
        extend(segment, extension_of(scan))
    segment.sealed = footer is not None
    if footer is not None:
        segment.last_seq = max(segment.last_seq, footer.last_seq)  # the last records may be gone
    return Described(
        segment,
        footer.description if footer is not None else header.description,
        footer.sealed_ms if footer is not None else header.created_ms,
        footer.total_records if footer is not None else 0,
    )


def read_footer(data: bytes, path: str) -> SegmentFooter | None:
    """Return the footer of a whole file; None if it has none.

    Its magic may be damaged: the other bytes are a footer if their checksum matches.

    Raises: CorruptError.
    """
    fixed = data[-FOOTER_BYTES:]
    if len(fixed) < FOOTER_BYTES:
        return None
    length = footer_description_bytes(fixed)
    if fixed[:4] == SEGMENT_FOOTER_MAGIC:
        return SegmentFooter.unpack(data[-(FOOTER_BYTES + length) :], path)
    if length > len(data) - FOOTER_BYTES:
        return None
    description = data[len(data) - FOOTER_BYTES - length : len(data) - FOOTER_BYTES]
    try:
        return SegmentFooter.unpack(description + SEGMENT_FOOTER_MAGIC + fixed[4:], path)
    except (CorruptError, FormatError):
        return None
