"""Texts of frames as Arrow string columns.

The C module makes them, or numpy, pyarrow and xxhash with an equal result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from topics.files.live_rows import LiveRows
from topics.files.scanning import Scanner, headers_at, scan_native, scan_pure, texts_bytes
from topics.store.format.log_format import (
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_HEADER_BYTES,
    FRAME_MIN_BYTES,
    FRAME_TRAILER_BYTES,
    FRAME_VERSION,
    PAYLOAD_JSON,
    FrameType,
)

TEXTS = ("node", "tag", "data", "meta")
"""Names of the texts, in their order in a frame."""
BYTES = "bytes"
"""Name of the column of data that is bytes. Without it, columns of `data` end at such a record."""
_FLAGS = {"node": FLAG_NODE, "tag": FLAG_TAG, "meta": FLAG_META}


class Texts(Protocol):
    """Text columns of records of one topic, to be filled."""

    def add(self, data: memoryview, base: int, rows: LiveRows) -> int:
        """Add rows, and return how many were added.

        If it is fewer than all, the frame of the next row is damaged, or not that of its record, or
        its data is bytes for which there is no column (`lacks_bytes`).
        data, base: the frame of row i is at data[rows.offsets[i] - base], of rows.lengths[i] bytes.
        """

    @property
    def lacks_bytes(self) -> bool:
        """Whether the last `add` stopped at data of bytes."""

    def column(self, name: str) -> Any:
        """Return a column as pa.StringArray, or bytes as pa.BinaryArray.

        Rows cannot be added afterwards.
        """


class Order(NamedTuple):
    """The columns that are asked for.

    rows: the number of rows that will be added at most; bytes: those of their frames together.
    """

    topic_id: int
    names: Sequence[str]
    rows: int
    bytes: int
    verify: bool


class PureTexts:
    """Texts made by numpy, pyarrow and xxhash."""

    def __init__(self, order: Order, rooms: Mapping[str, float]) -> None:
        self._order = order
        self._parts: dict[str, list[Any]] = {name: [] for name in order.names}
        self.lacks_bytes = False

    def add(self, data: memoryview, base: int, rows: LiveRows) -> int:
        """Compare each frame with its row, and take the texts up to the first damaged frame."""
        starts, lengths, seqs = rows.offsets.astype(np.int64) - base, rows.lengths, rows.seqs
        inside = (starts >= 0) & (starts + lengths <= len(data)) & (lengths >= FRAME_MIN_BYTES)
        count = len(seqs) if inside.all() else int(np.argmin(inside))
        starts, lengths = starts[:count], lengths[:count]
        heads = headers_at(data, starts)
        in_order = np.ones(count, np.bool_)  # Arrow crashes on offsets of strings that decrease
        in_order[1:] = starts[1:] >= starts[:-1] + lengths[:-1]
        sound = (
            (heads["seq"] == seqs[:count])
            & (heads["topic_id"] == np.uint64(self._order.topic_id))
            & (heads["frame_bytes"] == lengths - np.uint32(4))
            & (heads["type"] == FrameType.RECORD)
            & (heads["version"] == FRAME_VERSION)
            & (texts_bytes(heads) + FRAME_MIN_BYTES == lengths)
            & in_order
        )
        if not sound.all():
            count = int(np.argmin(sound))
        if self._order.verify:
            count = _sound_frames(data, starts[:count], lengths[:count])
        names = self._order.names
        if "data" in names and BYTES not in names:
            kinds = heads["payload_kind"][:count]
            self.lacks_bytes = bool(kinds.any())
            if self.lacks_bytes:
                count = int(np.argmax(kinds != PAYLOAD_JSON))
        self._take(data, starts[:count], heads[:count])
        return count

    def _take(self, data: memoryview, starts: NDArray[np.int64], heads: NDArray[Any]) -> None:
        """Take the wanted texts out of one array of strings over all bytes.

        The array has five strings a frame: its four texts, and the bytes between them and the texts
        of the next frame.
        """
        count = len(heads)
        bounds = np.empty((count, len(TEXTS) + 1), np.int32)
        at = (starts + FRAME_HEADER_BYTES).astype(np.int32)
        at += heads["ext_len"]
        bounds[:, 0] = at
        for place, name in enumerate(TEXTS, 1):
            at += heads[f"{name}_len"].astype(np.int32)
            bounds[:, place] = at
        slots = max(0, bounds.size - 1)
        every = pa.StringArray.from_buffers(slots, pa.py_buffer(bounds), pa.py_buffer(data)) if slots else None
        for name, parts in self._parts.items():
            kind = pa.binary() if name == BYTES else pa.string()
            if name in _FLAGS:
                present = heads["flags"] & np.uint8(_FLAGS[name]) != 0
            else:
                present = (heads["payload_kind"] != PAYLOAD_JSON) == (name == BYTES)
            if every is None or not present.any():
                parts.append(pa.nulls(count, kind))
                continue
            first = np.arange(TEXTS.index("data" if name == BYTES else name), bounds.size, len(TEXTS) + 1)
            taken = every.take(pa.array(first, mask=None if present.all() else ~present))
            bits, ends, text = taken.buffers()
            parts.append(pa.Array.from_buffers(kind, count, [bits, ends, text], taken.null_count))

    def column(self, name: str) -> Any:
        parts = self._parts[name]
        kind = pa.binary() if name == BYTES else pa.string()
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.array([], kind)])


def _sound_frames(data: memoryview, starts: NDArray[np.int64], lengths: NDArray[np.uint32]) -> int:
    """Return the number of frames before the first whose checksum does not match."""
    if not len(starts):
        return 0
    ends = starts + lengths - FRAME_TRAILER_BYTES
    every: NDArray[np.uint64] = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    stored: list[int] = every[ends].tolist()
    # Slices of bytes are faster than slices of a memoryview.
    digest, copied = xxhash.xxh3_64_intdigest, bytes(data)
    found = [digest(copied[start:end]) for start, end in zip((starts + 4).tolist(), ends.tolist(), strict=True)]
    if found == stored:
        return len(stored)
    return next(row for row, (one, other) in enumerate(zip(found, stored, strict=True)) if one != other)


Maker = Callable[[Order, dict[str, float]], Texts]
"""(order, rooms) -> columns to fill. rooms: bytes a row of each column so far; they update it."""


class Decoder(NamedTuple):
    """The functions that turn frames into columns, with or without the C module."""

    name: str
    scan: Scanner
    texts: Maker
    window_bytes: int
    """Bytes of a file that one call reads."""


PURE = Decoder("numpy", scan_pure, PureTexts, 4 << 20)

try:
    from topics.store.read.text_columns import TextColumns
except ImportError:  # a zip on an executor has no C module
    NATIVE: Decoder | None = None
else:

    class NativeTexts:
        """Texts made by the C module."""

        def __init__(self, order: Order, rooms: dict[str, float]) -> None:
            self._rooms = rooms
            most = max(0, order.bytes - FRAME_MIN_BYTES * order.rows)
            self._columns = TextColumns(
                order.topic_id,
                order.names,
                rows=order.rows,
                rooms={
                    name: most if name == "data" else min(most, int(rooms.get(name, 16) * order.rows) + 64)
                    for name in order.names
                },
                verify=order.verify,
            )

        def add(self, data: memoryview, base: int, rows: LiveRows) -> int:
            return self._columns.add(data, base, rows.offsets, rows.lengths, rows.seqs)

        @property
        def lacks_bytes(self) -> bool:
            return self._columns.lacks_bytes

        def column(self, name: str) -> Any:
            ends, text, valid, nulls = self._columns.column(name)
            count = len(ends) - 1
            if count:
                self._rooms[name] = 1.1 * len(text) / count
            bits = None if valid is None else pa.py_buffer(valid)
            kind = pa.binary() if name == BYTES else pa.string()
            return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(ends), pa.py_buffer(text)], nulls)

    assert scan_native is not None, "both come with the C module"
    NATIVE = Decoder("C", scan_native, NativeTexts, 1 << 20)


def best_decoder() -> Decoder:
    """Return the decoder of the C module, or that of numpy if the module is missing."""
    return NATIVE if NATIVE is not None else PURE
