"""Scanning: verifies frames that are stored back to back, without an index.

The C module does it, or numpy and xxhash with an equal result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from topics.files.file_calls import FileReads
from topics.store.format.log_format import (
    FRAME_FIELD_TYPES,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_LENGTH,
    FRAME_MIN_BYTES,
    FRAME_TRAILER_BYTES,
    FRAME_VERSION,
    SAYS_DELETED,
)

WINDOW_BYTES = 4 << 20
_DELETED = np.frombuffer(SAYS_DELETED, np.bool_)

HEADER_DTYPE = np.dtype([(name, f"<{kind}") for name, kind in zip(FRAME_FIELDS, FRAME_FIELD_TYPES, strict=True)])
"""The first 52 bytes of a frame. Source: log_format.py."""


class StopReason(IntEnum):
    """The reasons for which a scan stops."""

    END = 0
    """The bytes ended after a frame, or zeros follow."""
    MORE = 1
    """The bytes end within a frame."""
    BAD = 2
    """The next frame is damaged."""


class Frames(NamedTuple):
    """Columns of n sound frames, in order; all of shape (n,)."""

    offsets: NDArray[np.uint64]
    """Bytes from the start of the file."""
    lengths: NDArray[np.uint32]
    types: NDArray[np.uint8]
    deleted: NDArray[np.uint8]
    """The byte after the frame's checksum, unchanged."""
    topic_ids: NDArray[np.uint64]
    seqs: NDArray[np.uint64]
    ts: NDArray[np.uint64]
    """Milliseconds."""
    sizes: NDArray[np.uint32]

    def says_deleted(self) -> NDArray[np.bool_]:
        """Return which frames are deleted, shape (n,).

        A damaged byte `deleted` counts as the nearer one of its two values.
        """
        marks: NDArray[np.bool_] = _DELETED[self.deleted]
        return marks


class Scan(NamedTuple):
    """The result of a scan: the sound frames, and where and why the scan stopped.

    position: end of the last sound frame, from the start of the bytes.
    sum: the running checksum over the checksums of the frames.
    """

    frames: Frames
    position: int
    sum: int
    stop: StopReason


Scanner = Callable[[memoryview, int, int], Scan]
"""(bytes, base, sum) -> Scan. base is added to the offsets; sum is the running checksum so far."""


def scan_pure(data: memoryview, base: int, running: int) -> Scan:
    """Scan with numpy and xxhash. See `Scanner`."""
    size, at = len(data), 0
    starts: list[int] = []
    stop = StopReason.MORE
    while size - at >= 4:
        length = FRAME_LENGTH.unpack_from(data, at)[0] + 4
        if length == 4:
            stop = StopReason.END
            break
        if length < FRAME_MIN_BYTES:
            stop = StopReason.BAD
            break
        if length > size - at:
            break
        starts.append(at)
        at += length
    if at == size:
        stop = StopReason.END
    offsets = np.array(starts, np.int64)
    heads = headers_at(data, offsets)
    lengths = heads["frame_bytes"] + np.uint32(4)
    sound = (heads["version"] == FRAME_VERSION) & (texts_bytes(heads) + FRAME_MIN_BYTES == lengths)
    count = len(starts) if sound.all() else int(np.argmin(sound))
    ends = (offsets + lengths).tolist()
    digest, trailer = xxhash.xxh3_64_intdigest, FRAME_TRAILER_BYTES
    for row in range(count):
        checksum = data[ends[row] - trailer : ends[row] - 1]
        if digest(data[starts[row] + 4 : ends[row] - trailer]) != int.from_bytes(checksum, "little"):
            count = row
            break
        running = digest(checksum, seed=running)
    if count < len(starts):
        at, stop = starts[count], StopReason.BAD
        offsets, lengths, heads = offsets[:count], lengths[:count], heads[:count]
    raw = np.frombuffer(data, np.uint8)
    frames = Frames(
        (offsets + base).astype(np.uint64),
        lengths,
        heads["type"],
        raw[offsets + lengths - 1],
        heads["topic_id"],
        heads["seq"],
        heads["ts_ms"],
        heads["size"],
    )
    return Scan(frames, at, running, stop)


def headers_at(data: memoryview | bytearray, offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Return the headers of the frames at these offsets, shape (n,), dtype HEADER_DTYPE.

    Each offset must be followed by at least 52 bytes.
    """
    if not len(offsets):
        return np.empty(0, HEADER_DTYPE)
    # numpy copies a block of bytes as a whole, but a structure field by field.
    plain = np.dtype((np.void, FRAME_HEADER_BYTES))
    every: NDArray[Any] = np.ndarray((len(data) - FRAME_HEADER_BYTES + 1,), plain, data, 0, (1,))
    heads: NDArray[Any] = every[offsets].view(HEADER_DTYPE)
    return heads


def texts_bytes(heads: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the bytes of all texts of each frame, shape (n,)."""
    total = heads["data_len"].astype(np.uint64)
    for name in ("ext_len", "node_len", "tag_len", "meta_len"):
        total += heads[name]
    return total


try:
    from topics.store.format import codec
except ImportError:  # a zip on an executor has no C module
    scan_native: Scanner | None = None
else:

    def scan_native(data: memoryview, base: int, running: int) -> Scan:
        """Scan with the C module. See `Scanner`."""
        scan = codec.scan_frames(data, base=base, sum=running)
        found = scan.frames
        stop = {codec.ScanStop.END: StopReason.END, codec.ScanStop.MORE: StopReason.MORE}.get(
            scan.reason, StopReason.BAD
        )
        frames = Frames(
            found["offset"],
            found["length"],
            found["type"],
            found["deleted"],
            found["topic_id"],
            found["seq"],
            found["ts_ms"],
            found["size"],
        )
        return Scan(frames, scan.position, scan.sum, stop)


def best_scanner() -> Scanner:
    """Return the scanner of the C module, or that of numpy if the module is missing."""
    return scan_native if scan_native is not None else scan_pure


def scan_range(calls: FileReads, fd: int, start: int, end: int, scan: Scanner) -> Iterator[Scan]:
    """Scan the frames in bytes [start, end) of a file, a window at a time.

    Positions count from the start of the file, and checksums continue from window to window. The
    last scan stops with END at `end`, or with the reason and the position of the problem.
    """
    running = 0
    buffer = bytearray(min(WINDOW_BYTES, end - start))
    at = start
    while True:
        size = min(len(buffer), end - at)
        count = calls.read_into(fd, memoryview(buffer)[:size], at)
        scanned = scan(memoryview(buffer)[:count], at, running)
        running = scanned.sum
        is_last = at + count == end or count < size
        if scanned.stop is StopReason.MORE and not is_last:
            if not scanned.position:  # the frame is larger than the window
                length = FRAME_LENGTH.unpack_from(buffer)[0] + 4
                buffer = bytearray(min(length, end - at))
                continue
            at += scanned.position
            yield scanned._replace(position=at)
            continue
        stop = StopReason.BAD if scanned.stop is StopReason.MORE else scanned.stop
        if stop is StopReason.END and scanned.position == count and not is_last:
            at += scanned.position
            yield scanned._replace(position=at)
            continue
        yield scanned._replace(position=at + scanned.position, stop=stop)
        return
