"""Typed access to codec.c: frames and batches in bulk.

Shapes and units are given here, layouts in log_format.py.
"""
# ruff: noqa: PLR0917 - C functions take their arguments by position

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError
from topics.store.format._codec import ffi, lib
from topics.store.format.c_interface import dtype_of
from topics.store.format.log_format import (
    FLAG_FSYNC,
    FLAG_ROUTED,
    FRAME_MIN_BYTES,
    SAYS_DELETED,
    check_batch_bytes,
)
from topics.store.format.rows import PLACED, ROW_BYTES, Framed, Rows, TopicRows

if TYPE_CHECKING:
    from typing_extensions import Buffer

Pointer = Any
"""A cffi pointer; cffi itself has no types."""


class ScanStop(IntEnum):
    """The reason why a scan stopped. Source: codec.h."""

    END = lib.TP_STOP_END
    """Nothing follows: zeros, or (frames) exactly the end of the given bytes."""
    MORE = lib.TP_STOP_MORE
    """The batch or frame extends past the given bytes."""
    FOREIGN = lib.TP_STOP_FOREIGN
    """No batch of this epoch: bytes that an earlier use of the file left, or no batch at all."""
    TORN = lib.TP_STOP_TORN
    """A batch (or frame) of this log whose checksum is wrong."""
    ORDER = lib.TP_STOP_ORDER
    """A sound batch of this epoch that does not follow the one before, by number or chain."""
    BAD = lib.TP_STOP_BAD
    """Right checksum, impossible contents: an unknown version, or lengths that disagree."""
    ROOM = lib.TP_STOP_ROOM
    """No room is left in the output."""
    KIND = lib.TP_STOP_KIND
    """Data of bytes, for which there is no column."""


FRAME_DTYPE = dtype_of(ffi, "tp_frame")
"""In a frame the texts follow its 52-byte header in the order ext, node, tag, data, meta."""

Frames = NDArray[np.void]
"""Shape (n,), dtype FRAME_DTYPE."""


_SAYS_DELETED = np.frombuffer(SAYS_DELETED, np.bool_)


def deleted(frames: Frames) -> NDArray[np.bool_]:
    """Return which frames are deleted, shape (n,).

    No checksum covers the byte after a frame's checksum, so the nearer of the two values counts.
    """
    marks: NDArray[np.bool_] = _SAYS_DELETED[frames["deleted"]]
    return marks


class LogScan(NamedTuple):
    """The result of `scan_log`: frames of all whole batches, and what must come next."""

    frames: Frames
    batches: int
    position: int
    """Start of the next batch in the given bytes, not yet rounded up to a multiple of 8."""
    epoch: int
    batch_no: int
    """Expected number of the next batch."""
    chain: int
    synced_upto: int
    """The highest value seen; 0 if no batch was applied."""
    written_ms: int
    reason: ScanStop
    needed: int
    """For ScanStop.MORE: bytes from `position` on that contain the next batch, or its header."""


def scan_log(data: Buffer, *, epoch: int, batch_no: int, chain: int, start: int = 0, base: int = 0) -> LogScan:
    """Verify the batches from `start` on and list their frames, of whole batches only.

    data: a chunk of a WAL file that begins at a multiple of 8 in the file.
    base: added to the offsets (the chunk's own offset in the file).
    epoch, batch_no, chain: the values that the first batch must have.

    A body's checksum covers its frames, so the frames' own checksums are not computed.
    """
    view = memoryview(data).cast("B")
    state = ffi.new("struct tp_log_scan *")
    state.epoch, state.batch_no, state.chain, state.position = epoch, batch_no, chain, start
    frames = np.empty(max(0, len(view) - start) // FRAME_MIN_BYTES + 1, FRAME_DTYPE)
    out = ffi.from_buffer("struct tp_frame[]", frames)
    lib.tp_scan_log(ffi.from_buffer(view), len(view), base, state, out, len(frames))
    return LogScan(
        frames[: state.frames],
        state.batches,
        state.position,
        epoch,
        state.batch_no,
        state.chain,
        state.synced_upto,
        state.written_ms,
        ScanStop(state.reason),
        state.needed,
    )


class FoundBatch(NamedTuple):
    """A sound batch further on: its position, number and `synced_upto`."""

    position: int
    batch_no: int
    synced_upto: int


def find_batch(data: Buffer, *, epoch: int, start: int) -> FoundBatch | None:
    """Return the first sound batch of this epoch at or after `start`, None if there is none.

    It distinguishes a torn middle from a torn tail.
    """
    view = memoryview(data).cast("B")
    state = ffi.new("struct tp_log_scan *")
    at = lib.tp_find_batch(ffi.from_buffer(view), len(view), start, epoch, state)
    return None if at < 0 else FoundBatch(at, state.batch_no, state.synced_upto)


class FrameScan(NamedTuple):
    """The result of `scan_frames`. `sum` is the running checksum over the frames' checksums."""

    frames: Frames
    position: int
    sum: int
    reason: ScanStop


def scan_frames(data: Buffer, *, start: int = 0, base: int = 0, sum: int = 0) -> FrameScan:
    """Verify frames that follow each other without gaps from `start` on.

    base: added to the offsets.
    sum: the `sum` of an earlier call to continue.
    """
    view = memoryview(data).cast("B")
    state = ffi.new("struct tp_frame_scan *")
    state.position, state.sum = start, sum
    frames = np.empty(max(0, len(view) - start) // FRAME_MIN_BYTES + 1, FRAME_DTYPE)
    out = ffi.from_buffer("struct tp_frame[]", frames)
    lib.tp_scan_frames(ffi.from_buffer(view), len(view), base, state, out, len(frames))
    return FrameScan(frames[: state.frames], state.position, state.sum, ScanStop(state.reason))


def frame_rows(
    rows: Rows,
    *,
    topic_id: int,
    first_seq: int,
    ts_ms: int,
    fsync: bool = False,
    node: bytes | None = None,
    extension: bytes = b"",
    start: int = 0,
    routed: bool = False,
) -> tuple[bytes, Framed]:
    """Return rows as frames in bytes of their own, for position `start`.

    The log stages in place instead. Raises: RequestError, they exceed a batch.
    """
    buffer = rows.buffer if type(rows.buffer) is bytes else ffi.from_buffer(rows.buffer)
    placed = bytearray(PLACED.size * rows.count)
    dest = bytearray(0)
    while True:
        written = lib.tp_frame_rows(
            ffi.from_buffer(dest),
            0,
            len(dest),
            buffer,
            len(rows.buffer),
            rows.spans,
            rows.count,
            topic_id,
            first_seq,
            ts_ms,
            (FLAG_FSYNC if fsync else 0) | (FLAG_ROUTED if routed else 0),
            node or b"",
            len(node or b""),
            node is not None,
            extension,
            len(extension),
            start,
            ffi.from_buffer(placed),
        )
        if written >= 0:
            assert written or not rows.count, "a row points outside its buffer"
            return bytes(dest[:written]), Framed(start, bytes(placed))
        check_batch_bytes(-written)
        dest = bytearray(-written)


def frame_topics(rows: TopicRows, *, start: int) -> tuple[bytes, Framed]:
    """Return rows of several topics as frames, as `frame_rows`."""
    count = sum(rows.counts)
    placed = ffi.new("char[]", PLACED.size * count)
    dest = bytearray(0)
    while True:
        written = frame_topics_at(ffi.from_buffer(dest), 0, len(dest), rows, 0, start, placed)
        if written >= 0:
            return bytes(dest[:written]), Framed(start, ffi.unpack(placed, PLACED.size * count))
        dest = bytearray(-written)


def frame_topics_at(dest: Pointer, at: int, room: int, rows: TopicRows, flags: int, start: int, placed: Pointer) -> int:
    """Write rows of several topics as frames to dest[at:room]; starts count from `start`.

    placed: room for a PLACED of each row.
    Returns: the bytes of the frames; -n, and they are not valid, if n bytes of room or more are
    needed. Raises: RequestError, they exceed a batch.
    """
    buffer, spans, ids, first_seqs, stamps, first_rows, counts = rows
    written: int = lib.tp_frame_topics(
        dest,
        at,
        room,
        ffi.from_buffer(buffer),
        len(buffer),
        spans,
        ffi.from_buffer("uint64_t[]", array("Q", ids)),
        ffi.from_buffer("uint64_t[]", array("Q", first_seqs)),
        ffi.from_buffer("uint64_t[]", array("Q", stamps)),
        ffi.from_buffer("uint32_t[]", array("I", first_rows)),
        ffi.from_buffer("uint32_t[]", array("I", counts)),
        len(ids),
        flags,
        start,
        placed,
    )
    if written < 0:
        check_batch_bytes(-written)
    assert written, "a row points outside its buffer"
    return written


def checksum(data: Buffer, seed: int = 0) -> int:
    """Return the XXH3-64 of the bytes."""
    view = memoryview(data).cast("B")
    return lib.tp_checksum(ffi.from_buffer(view), len(view), seed)


def sum_rows(rows: Rows, node: bytes | None = None) -> int:
    """Return a 64-bit checksum of records, whatever their order.

    The checksums of parts add up, modulo 2^64, to the whole's.

    node: the node of rows without their own.
    """
    total = ffi.new("uint64_t *")
    buffer = rows.buffer if type(rows.buffer) is bytes else ffi.from_buffer(rows.buffer)
    status = lib.tp_sum_rows(
        buffer, len(rows.buffer), rows.spans, rows.count, node or b"", len(node or b""), node is not None, total
    )
    assert status == 0, "a row points outside its buffer"
    return int(total[0])


def row_pointers(
    offsets: NDArray[np.uint32], lengths: NDArray[np.uint32], seqs: NDArray[np.uint64]
) -> tuple[Pointer, Pointer, Pointer]:
    """Return pointers to the columns of rows for C.

    Each keeps its column, or a contiguous copy, alive.
    """
    return (
        ffi.from_buffer("uint32_t[]", np.ascontiguousarray(offsets, np.uint32)),
        ffi.from_buffer("uint32_t[]", np.ascontiguousarray(lengths, np.uint32)),
        ffi.from_buffer("uint64_t[]", np.ascontiguousarray(seqs, np.uint64)),
    )


def unsound_frame(topic_id: int, seq: int) -> CorruptError:
    """Return the error for a row whose frame is damaged or another record's."""
    return CorruptError(
        f"record {seq} of topic id {topic_id} does not match its checksum or its place",
        {"topic_id": topic_id, "seq": seq},
    )


class CopiedFrames(NamedTuple):
    """The result of `copy_frames`.

    sum: the running checksum over the frames' checksums.
    size: accounted bytes.
    """

    written: int
    sum: int
    size: int
    last_ts: int


def copy_frames(
    out: Buffer,
    data: Buffer,
    base: int,
    offsets: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    seqs: NDArray[np.uint64],
    topic_id: int,
    *,
    sum: int = 0,
) -> CopiedFrames:
    """Verify a topic's frames and copy them unchanged, without gaps, into `out`.

    The caller provides room for all of them.

    offsets, lengths, seqs: shape (n,); row i is at data[offsets[i] - base].
    sum: the `sum` of an earlier call to continue.
    Raises: CorruptError naming topic id and seq of a row that is not the sound frame of its record.
    """
    view = memoryview(data).cast("B")
    state = ffi.new("struct tp_copied *")
    state.sum = sum
    assert memoryview(out).nbytes >= int(lengths.sum(dtype=np.uint64)), "no room for all"
    written = lib.tp_copy_frames(
        ffi.from_buffer(out),
        ffi.from_buffer(view),
        len(view),
        base,
        *row_pointers(offsets, lengths, seqs),
        len(seqs),
        topic_id,
        state,
    )
    if written < 0:
        seq = int(seqs[-1 - written])
        message = f"topic {topic_id}, seq {seq}: the log no longer holds this record"
        raise CorruptError(message, {"topic_id": topic_id, "seq": seq})
    return CopiedFrames(written, state.sum, state.size, state.last_ts)


class Reframed(NamedTuple):
    """Frames without gaps between them, and the length of each; offsets count from the first."""

    data: bytearray
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


def reframe(
    data: Buffer,
    base: int,
    offsets: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    seqs: NDArray[np.uint64],
    ts: NDArray[np.uint64],
    flags: NDArray[np.uint8],
    topic_id: int,
) -> Reframed:
    """Return frames of the topic's own for rows of which some are copies (FLAG_COPY).

    Columns have shape (n,); row i is at data[offsets[i] - base].
    Raises: CorruptError naming topic id and seq of a copy whose frame is not sound.
    """
    view = memoryview(data).cast("B")
    out = bytearray(int(lengths.sum(dtype=np.uint64)))
    made = np.empty(len(seqs), np.uint32)
    written = lib.tp_reframe(
        ffi.from_buffer(out),
        ffi.from_buffer(view),
        len(view),
        base,
        *row_pointers(offsets, lengths, seqs),
        ffi.from_buffer("uint64_t[]", np.ascontiguousarray(ts)),
        ffi.from_buffer("uint8_t[]", np.ascontiguousarray(flags)),
        len(seqs),
        topic_id,
        ffi.from_buffer("uint32_t[]", made),
    )
    if written < 0:
        raise unsound_frame(topic_id, int(seqs[-1 - written]))
    ends = np.cumsum(made, dtype=np.uint64)
    del out[written:]
    return Reframed(out, (ends - made).astype(np.uint32), made)


def rows_of_frames(
    data: Buffer,
    base: int,
    columns: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64]],
    topic_id: int,
    keep: int,
    start: int,
) -> bytearray:
    """Return record frames of a topic as packed rows; offsets count from `start` before `data`.

    columns: offsets, lengths and seqs, each of shape (n,); frame i is at data[offsets[i] - base].
    keep: TAG and NODE, if the rows keep them.
    Raises: CorruptError naming topic id and seq of a frame that is not sound.
    """
    view = memoryview(data).cast("B")
    seqs = columns[2]
    rows = bytearray(ROW_BYTES * len(seqs))
    made = lib.tp_rows_of_frames(
        ffi.from_buffer(rows),
        ffi.from_buffer(view),
        len(view),
        base,
        *row_pointers(*columns),
        len(seqs),
        topic_id,
        keep,
        start,
    )
    if made < 0:
        raise unsound_frame(topic_id, int(seqs[-1 - made]))
    return rows


def place_rows(columns: bytes, runs: list[int], placed: bytes | bytearray, file_id: int, base: int) -> int:
    """Write framed rows into the columns of indexes; return the sum of their sizes.

    columns: six packed u64 per index, from `addresses_of`.
    runs: three numbers per index: its first row in `placed`, its first row in the columns, and the
        number of rows, for which the columns have room.
    base: added to the rows' starts.
    """
    count = len(runs) // 3
    return lib.tp_place_rows(
        ffi.from_buffer("uint64_t[]", columns),
        ffi.from_buffer("uint32_t[]", array("I", runs)),
        count,
        placed if type(placed) is bytes else ffi.from_buffer(placed),
        file_id,
        base,
    )


def place_run(
    columns: bytes, first: int, placed: bytes | bytearray, at: int, count: int, file_id: int, base: int
) -> int:
    """Write rows from position `at` on into the columns of one index; return their sizes' sum.

    first: their first row in the columns. The others: as in `place_rows`.
    """
    return lib.tp_place_run(
        columns, first, placed if type(placed) is bytes else ffi.from_buffer(placed), at, count, file_id, base
    )


def addresses_of(*columns: NDArray[Any]) -> bytes:
    """Return the addresses of the columns, a packed u64 each; valid while the columns live."""
    return array("Q", [int(ffi.cast("uintptr_t", ffi.from_buffer(column))) for column in columns]).tobytes()
