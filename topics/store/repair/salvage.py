"""The sound part of a damaged segment or pack: bytes in, bytes out.

A flipped bit costs at most a record.

A header in which a single bit has flipped is corrected by its checksum. A header that is unreadable
is derived from the footer or from the entry in a snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from topics.errors import CorruptError, FormatError
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.compressed_segment import (
    CODEC_PLAIN,
    CODEC_ZSTD,
    HEADER_BYTES,
    MAGIC,
    Blocks,
    CompressedHeader,
    flag,
    image_of,
    is_compressed,
    surplus_bytes,
    walked_blocks,
)
from topics.store.format.log_format import BLOCK_BYTES, FRAME_LENGTH, FRAME_START, FRAME_TOPIC_AT
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.pack_format import RUN_DTYPE, RUN_HEADER_BYTES, RUN_MAGIC, PackFooter, PackHeader, RunHeader
from topics.store.layouts.segment_format import SEGMENT_MAGIC, SegmentFooter, SegmentHeader
from topics.store.segments.data_files import PackRun, Segment
from topics.store.segments.pack import PackWriter
from topics.store.segments.segment import read_footer

HEADER_MAX_BYTES = 8 * BLOCK_BYTES
"""Bytes of a header with its description.

If the header is lost, the first frame is searched up to here.
"""
_UNFLIP_MAX_BYTES = BLOCK_BYTES
"""Header size up to which a flipped bit is searched, with some 50,000 checksums."""
H = TypeVar("H")


# --- segments --------------------------------------------------------------------------------------------------------
def mend_segment(
    data: bytes, path: str, topic_id: int, hints: list[int], listed: Segment | None = None
) -> bytes | None:
    """Return a header and the sound frames to replace a damaged segment.

    Return None if not even its header is left.

    topic_id: of its directory.
    hints: offsets of frames, increasing.
    listed: its entry in a snapshot.

    The description is the latest available, with its time: the footer's, or else the header's.
    """
    footer = _sound_footer(data, path)
    header = _segment_header(data, path)
    start = header.header_bytes if header is not None else _first_frame(data, topic_id)
    if header is None and footer is not None:
        header = SegmentHeader(topic_id, footer.epoch, footer.first_seq, footer.sealed_ms, footer.description)
    elif header is None and listed is not None:
        header = SegmentHeader(topic_id, listed.epoch, listed.first_seq, listed.created_ms, b"")
    if header is None or header.topic_id != topic_id:
        return None
    end = len(data)
    if footer is not None:
        header = header._replace(created_ms=footer.sealed_ms, description=footer.description)
        end = footer.frames_end
    elif listed is not None and not listed.sealed:
        end = listed.frames_end  # bytes after it were never part of the segment
    return header.pack() + sound_frames(data[:end], start, topic_id, hints)


def _sound_footer(data: bytes, path: str) -> SegmentFooter | None:
    try:
        return read_footer(data, path)
    except (CorruptError, FormatError):
        return None


def _segment_header(data: bytes, path: str) -> SegmentHeader | None:
    try:
        return SegmentHeader.unpack(data, path)
    except (CorruptError, FormatError):
        return unflipped(data, SEGMENT_MAGIC, lambda head: SegmentHeader.unpack(head, path))


def unflipped(data: bytes | memoryview, magic: bytes, unpack: Callable[[memoryview], H]) -> H | None:
    """Return the header at the start of `data` if just one of its bits has flipped.

    Its checksum decides which. Bytes that differ from `magic` in more than one bit are no header.
    """
    head = memoryview(bytearray(data[:HEADER_MAX_BYTES]))
    flipped = int.from_bytes(head[: len(magic)], "little") ^ int.from_bytes(magic, "little")
    if flipped.bit_count() > 1:
        return None
    bits = [flipped.bit_length() - 1] if flipped else range(8 * min(len(head), _UNFLIP_MAX_BYTES))
    for bit in bits:
        head[bit >> 3] ^= 1 << (bit & 7)
        try:
            return unpack(head)
        except (CorruptError, FormatError):
            head[bit >> 3] ^= 1 << (bit & 7)
    return None


def _first_frame(data: bytes, topic_id: int) -> int:
    """Return where frames begin after a header that is lost: at a whole block."""
    blocks = range(BLOCK_BYTES, HEADER_MAX_BYTES + 1, BLOCK_BYTES)
    return next((at for at in blocks if _is_frame(memoryview(data), at, topic_id)), BLOCK_BYTES)


class StoredImage(NamedTuple):
    """The segment in a file."""

    data: bytes
    intact: bool
    """Whether nothing of the compressed file is damaged. The segment's own checksums are not
    compared.
    """


def salvaged_image(data: bytes, path: str, topic_id: int, hints: list[int]) -> StoredImage:
    """Return the segment in a file, without what is damaged of a compressed one.

    A damaged block becomes zeros, and without a sound table so do all blocks after the first one
    that is damaged. Delete flags are set in the frames that are left. A file that is not compressed
    is returned as it is.
    """
    with contextlib.suppress(CorruptError, FormatError):
        if is_compressed(data) or data[: len(SEGMENT_MAGIC)] == SEGMENT_MAGIC:
            return StoredImage(image_of(data, path), not surplus_bytes(data, path))
    try:
        header = CompressedHeader.unpack(data, path)
    except (CorruptError, FormatError):
        found = unflipped(data[:HEADER_BYTES], MAGIC, lambda head: CompressedHeader.unpack(head, path))
        if found is None:
            return StoredImage(data, True)
        header = found
    try:
        blocks = Blocks(header, data[header.table_at : header.blocks_at], path)
    except CorruptError:
        blocks = walked_blocks(header, data, path)
    image = bytearray(header.image_bytes)
    for block in range(header.blocks):
        with contextlib.suppress(CorruptError):
            text = blocks.inflate(block, data)
            image[block * header.block_bytes : block * header.block_bytes + len(text)] = text
    plain = bytes(image)
    described = _segment_header(plain, path)
    start = described.header_bytes if described is not None else _first_frame(plain, topic_id)
    flags = data[HEADER_BYTES : header.table_at]
    for frame in _sound(plain, start, topic_id, hints):
        flag(image, int(frame["offset"]) + int(frame["length"]) - 1, flags)
    return StoredImage(bytes(image), False)


def codec_of(data: bytes) -> int:
    """Return the codec of a file, as a manifest lists it."""
    return CODEC_ZSTD if is_compressed(data) else CODEC_PLAIN


# --- frames ----------------------------------------------------------------------------------------------------------
def sound_frames(data: bytes, start: int, topic_id: int, hints: list[int]) -> bytes:
    """Return every sound frame of a topic from `start` on, without gaps and without damaged ones.

    After a damaged frame the next one is where its length points, or else at the next of `hints`
    (offsets, increasing), or else wherever bytes are a frame by their checksum.
    """
    view = memoryview(data)
    places = [(int(frame["offset"]), int(frame["length"])) for frame in _sound(data, start, topic_id, hints)]
    return b"".join([view[begin : begin + length] for begin, length in places])


def _sound(data: bytes, start: int, topic_id: int, hints: list[int]) -> Iterator[np.void]:
    """Yield the rows of the frames that `sound_frames` returns."""
    view = memoryview(data)
    at, last_seq = start, 0
    while at < len(data):
        scan = codec.scan_frames(view[at:], base=at)
        for frame in scan.frames:
            if int(frame["topic_id"]) == topic_id and int(frame["seq"]) > last_seq:
                last_seq = int(frame["seq"])
                yield frame
        at += scan.position
        if at < len(data):
            at = _following(data, at, topic_id, hints)


def _following(data: bytes, at: int, topic_id: int, hints: list[int]) -> int:
    """Return where the next sound frame after the damaged one at `at` begins.

    It is the end of the data if there is none.
    """
    view = memoryview(data)
    following = at + FRAME_LENGTH.size + int.from_bytes(data[at : at + FRAME_LENGTH.size], "little")
    if _is_frame(view, following, topic_id):
        return following
    for hint in hints:
        if hint > at and _is_frame(view, hint, topic_id):
            return hint
    mark = topic_id.to_bytes(8, "little")
    found = data.find(mark, at + 1 + FRAME_TOPIC_AT)
    while found >= 0:
        if _is_frame(view, found - FRAME_TOPIC_AT, topic_id):
            return found - FRAME_TOPIC_AT
        found = data.find(mark, found + 1)
    return len(data)


def _is_frame(view: memoryview, at: int, topic_id: int) -> bool:
    """Return whether a sound frame of this topic is at this offset."""
    if at + FRAME_START.size > len(view):
        return False
    length, _type, _flags, topic, _seq = FRAME_START.unpack_from(view, at)
    return topic == topic_id and len(codec.scan_frames(view[at : at + FRAME_LENGTH.size + length]).frames) == 1


# --- packs -----------------------------------------------------------------------------------------------------------
class SalvagedRun(NamedTuple):
    """A run with sound frames."""

    header: RunHeader
    frames: bytes
    scan: codec.FrameScan
    """Scan of the frames."""


class SalvagedPack(NamedTuple):
    """The sound part of a pack."""

    runs: list[SalvagedRun]
    """Runs in the order of the file; in a sound pack that is the order of its run table."""
    sound: bool
    """The header and every run are sound, whatever the index after them is."""
    finished: bool
    """Its footer and its index are sound, so it was written to its end."""
    epoch: int
    created_ms: int
    """0 if its header is damaged."""


def salvage_pack(data: bytes, path: str) -> SalvagedPack:
    """Return every run with at least one sound frame."""
    view = memoryview(data)
    runs: list[SalvagedRun] = []
    positions = _run_positions(data, path)
    sound, head = True, PackHeader(0, 0)
    try:
        head = PackHeader.unpack(data, path)
    except (CorruptError, FormatError):
        sound = False
    at = _next_run(data, BLOCK_BYTES, positions)
    while at >= 0:
        header: RunHeader | None
        try:
            header = RunHeader.unpack(view[at:], path)
        except (CorruptError, FormatError):
            sound = False
            header = unflipped(view[at:], RUN_MAGIC, lambda head: RunHeader.unpack(head, path))
        if header is None:
            at = _next_run(data, at + 8, positions)
            continue
        start = at + RUN_HEADER_BYTES + len(header.description)
        frames = bytes(view[start : start + header.frames_bytes])
        scan = codec.scan_frames(frames)
        if scan.reason is not ScanStop.END or scan.sum != header.sum:
            sound = False
            frames = sound_frames(frames, 0, header.topic_id, [])
            scan = codec.scan_frames(frames)
        if frames:
            runs.append(SalvagedRun(header, frames, scan))
        at = _next_run(data, start + header.frames_bytes, positions)
    return SalvagedPack(runs, sound, positions is not None, *head)


def _next_run(data: bytes, at: int, positions: list[int] | None) -> int:
    """Return where the first run from `at` on begins; -1 if there is none."""
    if positions is None:
        return data.find(RUN_MAGIC, at)
    return next((position for position in positions if position >= at), -1)


def _run_positions(data: bytes, path: str) -> list[int] | None:
    """Return where the runs begin, by the table of a sound footer; None without one.

    (A tag may look like a run's magic.)
    """
    view = memoryview(data)
    fixed, end = view[-FOOTER_BYTES:], len(data) - FOOTER_BYTES
    try:
        footer = PackFooter.unpack(fixed, path)
        if not BLOCK_BYTES <= footer.table_offset <= footer.columns_offset <= end:
            return None
        table = view[footer.table_offset : footer.columns_offset]
        footer.check(fixed, table, view[footer.columns_offset : end], path)
    except (CorruptError, FormatError):
        return None
    positions: list[int] = np.frombuffer(table, RUN_DTYPE)["position"].tolist()
    return positions


def pack_of(runs: list[SalvagedRun], *, number: int, epoch: int, created_ms: int) -> tuple[bytes, list[PackRun]]:
    """Return a whole pack and the entries of its runs; at least one run.

    created_ms: the time of the descriptions in the runs.
    """
    writer = PackWriter(number, epoch, created_ms)
    written = [writer.add_run(run.scan, run.frames, run.header.description)[0] for run in runs]
    return writer.finish(), written
