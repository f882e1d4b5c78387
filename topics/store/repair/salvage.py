"""What is sound of a damaged segment or pack: bytes in, bytes out. One flipped bit costs one record at most.

A header in which a single bit has flipped is put right by its checksum; one that says nothing any more is made again
from the footer or from what a snapshot lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from topics.errors import CorruptError, FormatError
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.format.segment_format import (
    FOOTER_BYTES,
    RUN_DTYPE,
    RUN_HEADER_BYTES,
    RUN_MAGIC,
    PackFooter,
    PackHeader,
    RunHeader,
    SegmentFooter,
    SegmentHeader,
)
from topics.store.segments.manifest import PackRun, Segment
from topics.store.segments.pack import PackWriter
from topics.store.segments.segment import read_footer

_HEADER_MAX_BYTES = 8 * BLOCK_BYTES
"""Of a header with its description; behind one that is lost the first frame is looked for up to here."""
_UNFLIP_MAX_BYTES = BLOCK_BYTES
"""Of a header in which a flipped bit is looked for: some 50,000 checksums, done in a moment."""
H = TypeVar("H")
_LENGTH_BYTES = 4
_TOPIC_ID_AT = 6
_TOPIC_ID_BYTES = 8


# --- segments --------------------------------------------------------------------------------------------------------
def mend_segment(
    data: bytes, path: str, topic_id: int, hints: list[int], listed: Segment | None = None
) -> bytes | None:
    """A header and the sound frames, to take the place of a damaged segment; None when not even its header is left.

    topic_id: of the directory it lies in. hints: offsets of frames, increasing. listed: what a snapshot says of it.
    The description is the latest there is: the footer's, or else the header's.
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
        header = header._replace(description=footer.description)
        end = footer.frames_end
    elif listed is not None and not listed.sealed:
        end = listed.frames_end  # what lies behind was never part of it
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
        return unflipped(data, lambda head: SegmentHeader.unpack(head, path))


def unflipped(data: bytes | memoryview, unpack: Callable[[memoryview], H]) -> H | None:
    """The header that `data` begins with when just one of its bits has flipped; its checksum tells which."""
    head = memoryview(bytearray(data[:_HEADER_MAX_BYTES]))
    for bit in range(8 * min(len(head), _UNFLIP_MAX_BYTES)):
        head[bit >> 3] ^= 1 << (bit & 7)
        try:
            return unpack(head)
        except (CorruptError, FormatError):
            head[bit >> 3] ^= 1 << (bit & 7)
    return None


def _first_frame(data: bytes, topic_id: int) -> int:
    """Where frames begin behind a header that does not say so: at a whole block."""
    blocks = range(BLOCK_BYTES, _HEADER_MAX_BYTES + 1, BLOCK_BYTES)
    return next((at for at in blocks if _is_frame(memoryview(data), at, topic_id)), BLOCK_BYTES)


# --- frames ----------------------------------------------------------------------------------------------------------
def sound_frames(data: bytes, start: int, topic_id: int, hints: list[int]) -> bytes:
    """Every sound frame of a topic from `start` on, back to back, passing over damaged ones.

    Behind a damaged frame the next one is where its length says, or else at the next of `hints` (offsets, increasing),
    or else wherever bytes are a frame by their checksum.
    """
    view = memoryview(data)
    parts: list[memoryview] = []
    at, last_seq = start, 0
    while at < len(data):
        scan = codec.scan_frames(view[at:], base=at)
        for frame in scan.frames:
            if int(frame["topic_id"]) == topic_id and int(frame["seq"]) > last_seq:
                begin = int(frame["offset"])
                parts.append(view[begin : begin + int(frame["length"])])
                last_seq = int(frame["seq"])
        at += scan.position
        if at < len(data):
            at = _following(data, at, topic_id, hints)
    return b"".join(parts)


def _following(data: bytes, at: int, topic_id: int, hints: list[int]) -> int:
    """Where the next sound frame behind the damaged one at `at` lies; the end of the data when there is none."""
    view = memoryview(data)
    following = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
    if _is_frame(view, following, topic_id):
        return following
    for hint in hints:
        if hint > at and _is_frame(view, hint, topic_id):
            return hint
    mark = topic_id.to_bytes(_TOPIC_ID_BYTES, "little")
    found = data.find(mark, at + 1 + _TOPIC_ID_AT)
    while found >= 0:
        if _is_frame(view, found - _TOPIC_ID_AT, topic_id):
            return found - _TOPIC_ID_AT
        found = data.find(mark, found + 1)
    return len(data)


def _is_frame(view: memoryview, at: int, topic_id: int) -> bool:
    """Whether a sound frame of this topic lies here."""
    length = int.from_bytes(view[at : at + _LENGTH_BYTES], "little")
    if int.from_bytes(view[at + _TOPIC_ID_AT : at + _TOPIC_ID_AT + _TOPIC_ID_BYTES], "little") != topic_id:
        return False
    return len(codec.scan_frames(view[at : at + _LENGTH_BYTES + length]).frames) == 1


# --- packs -----------------------------------------------------------------------------------------------------------
class SalvagedRun(NamedTuple):
    """A run with sound frames."""

    header: RunHeader
    frames: bytes
    scan: codec.FrameScan
    """Of the frames."""


class SalvagedPack(NamedTuple):
    """What a pack's bytes still tell."""

    runs: list[SalvagedRun]
    """In the order of the file: of a sound pack, that of its run table."""
    sound: bool
    """The header and every run; the index behind them is derived again where it is damaged."""
    finished: bool
    """Its footer is sound: it was written to its end."""
    epoch: int


def salvage_pack(data: bytes, path: str) -> SalvagedPack:
    """Every run with any sound frames."""
    view = memoryview(data)
    runs: list[SalvagedRun] = []
    positions = _run_positions(data, path)
    sound, epoch = True, 0
    try:
        epoch = PackHeader.unpack(data, path).epoch
    except (CorruptError, FormatError):
        sound = False
    at = _next_run(data, BLOCK_BYTES, positions)
    while at >= 0:
        header: RunHeader | None
        try:
            header = RunHeader.unpack(view[at:], path)
        except (CorruptError, FormatError):
            sound = False
            header = unflipped(view[at:], lambda head: RunHeader.unpack(head, path))
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
    return SalvagedPack(runs, sound, positions is not None, epoch)


def _next_run(data: bytes, at: int, positions: list[int] | None) -> int:
    """Where the first run at or behind `at` begins; -1: there is none."""
    if positions is None:
        return data.find(RUN_MAGIC, at)
    return next((position for position in positions if position >= at), -1)


def _run_positions(data: bytes, path: str) -> list[int] | None:
    """Where the runs begin, by the table of a sound footer; None without one. A tag may look like a run's magic."""
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


def pack_of(runs: list[SalvagedRun], *, number: int, epoch: int, now_ms: int) -> tuple[bytes, list[PackRun]]:
    """A whole pack and what is listed of it; one run at least."""
    writer = PackWriter(number, epoch, now_ms)
    written = [writer.add_run(run.scan, run.frames, run.header.description)[0] for run in runs]
    return writer.finish(), written
