"""The records of requests as columns of spans, which the engine passes to the store.

Layout: `rows.h`, the machine's (little-endian) order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.common.tuples import make_tuple
from topics.store.format._codec import ffi, lib
from topics.store.format.c_interface import dtype_of, layout_of, rows_of_list

ROW = layout_of(ffi, "tp_row")
"""data_off, data_len, meta_off, meta_len, tag_off, tag_len, node_off, node_len, size, flags."""

_OFFSETS = ("data_off", "meta_off", "tag_off", "node_off")
ROW_DTYPE = dtype_of(ffi, "tp_row")

PLACED = layout_of(ffi, "tp_placed")
PLACED_DTYPE = dtype_of(ffi, "tp_placed")
"""A framed row: its start, frame length, accounted size, the frame's flags, ms."""

TAG, NODE, META = lib.TP_ROW_TAG, lib.TP_ROW_NODE, lib.TP_ROW_META
"""Flags: which optional parts a row has."""
BYTES = lib.TP_ROW_IS_BYTES
"""Flag: `data` is any bytes, and no JSON text."""

DELAY, TTL, TIMES = lib.TP_ROW_DELAY, lib.TP_ROW_TTL, lib.TP_ROW_TIMES
"""Flags: the 8 bytes before `data` in the buffer are the delay in ms, a u64; the 8 bytes before
these, or before `data`, are the ttl; both flags.
"""
TIME_BYTES: int = lib.TP_TIME_BYTES
assert (TAG | NODE | META | BYTES | TIMES) >> 16 == 0, "`flags_in` reads two bytes of one row's flags"

ROW_BYTES = ROW.size
BUFFER_MAX = (1 << 32) - 1
"""Most bytes of a buffer, to which rows point with 32 bits."""
_FLAGS_AT = ROW_BYTES - 4
_TIMES_AT = _FLAGS_AT + 1
"""The byte of the flags with DELAY and TTL, and no others."""
_MANY = 32
"""Rows from which on columns are faster than rows one by one."""


class Rows(NamedTuple):
    """`count` records of one request.

    buffer: the bytes that the spans refer to; `data` and `meta` are JSON without white space
        outside strings (`data` of a row with the flag BYTES is any bytes), `tag` and `node` are
        decoded UTF-8.
    spans: `count` packed rows.
    size: the sum of the rows' accounted sizes (compact JSON of data + meta; the number of bytes).
    """

    buffer: bytes | bytearray | memoryview
    spans: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which no code calls on rows
    size: int

    def columns(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return the spans as a read-only structured array of shape (count,); see ROW_DTYPE."""
        return np.frombuffer(self.spans, dtype=ROW_DTYPE)


NO_ROWS = Rows(b"", b"", 0, 0)
"""A request without records."""


class TopicRows(NamedTuple):
    """Rows of several topics, none with a tag, to be framed together.

    buffer, spans: as in Rows, of all topics.
    The others are columns over the topics: id, first seq, ms, its first row, its number of rows.
    """

    buffer: bytes | bytearray | memoryview
    spans: bytes
    ids: Sequence[int]
    first_seqs: Sequence[int]
    stamps: Sequence[int]
    first_rows: Sequence[int]
    counts: Sequence[int]


class Framed(NamedTuple):
    """The frames of a request's rows: `placed` has one packed PLACED per row.

    Starts count as `start` does.
    """

    start: int
    placed: bytes

    def columns(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return `placed` as a read-only structured array of shape (count,); see PLACED_DTYPE."""
        return np.frombuffer(self.placed, dtype=PLACED_DTYPE)

    @property
    def lengths(self) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """Return the bytes of each frame, shape (count,)."""
        return np.ascontiguousarray(self.columns()["length"], dtype=np.uint32)

    def moved_to(self, start: int) -> Framed:
        """Return the frames with starts that count from another number."""
        columns = self.columns().copy()
        columns["start"] += np.uint32((start - self.start) % (1 << 32))
        return Framed(start, columns.tobytes())


def rows_of_bytes(payloads: Sequence[Any], record_max: int = BUFFER_MAX) -> Rows | int | None:
    """Return rows whose data is these bytes, which are a list or tuple.

    Returns: the index of the first one of more than `record_max` bytes; None if not all payloads
    are bytes, bytearrays and views of contiguous memory.

    Raises: OverflowError, they have 4 GiB or more.
    """
    rows = rows_of_list(payloads, record_max)
    return make_tuple(Rows, rows) if type(rows) is tuple else rows


def join_rows(parts: Sequence[tuple[bytes | bytearray | memoryview, bytes]]) -> Rows:
    """Return the rows of several requests as those of one. parts: buffer and spans of each."""
    spans = bytearray().join([spans for _buffer, spans in parts])
    columns = np.frombuffer(spans, dtype=ROW_DTYPE)
    size = int(columns["size"].sum(dtype=np.uint64))
    if len(parts) == 1:
        return Rows(parts[0][0], bytes(spans), len(columns), size)
    lengths = [len(buffer) for buffer, _spans in parts]
    starts = np.cumsum([0, *lengths[:-1]], dtype=np.uint32)
    moved = np.repeat(starts, [len(spans) // ROW_BYTES for _buffer, spans in parts])
    for name in _OFFSETS:
        columns[name] += moved
    return Rows(b"".join([buffer for buffer, _spans in parts]), bytes(spans), len(columns), size)


class RowRecord(NamedTuple):
    """One record copied out of its rows, for tests and slow paths. size: accounted bytes."""

    data: bytes
    tag: bytes | None = None
    node: bytes | None = None
    meta: bytes | None = None
    size: int = 0
    is_bytes: bool = False
    """Whether `data` is any bytes, and no JSON text."""
    delay_ms: int = 0
    ttl_ms: int = 0


def flags_in(spans: bytes | memoryview) -> int:
    """Return the flags that any of the packed rows has."""
    if len(spans) == ROW_BYTES:
        return spans[_FLAGS_AT] | spans[_TIMES_AT] << 8
    return lib.tp_row_flags(spans if type(spans) is bytes else ffi.from_buffer(spans), len(spans) // ROW_BYTES)


def any_tagged(spans: bytes | memoryview) -> bool:
    """Return whether any of the packed rows has a tag."""
    return flags_in(spans) & TAG != 0


def any_noded(spans: bytes | memoryview) -> bool:
    """Return whether any of the packed rows has a node of its own."""
    return flags_in(spans) & NODE != 0


def any_timed(spans: bytes | memoryview) -> bool:
    """Return whether any of the packed rows has a delay or a ttl."""
    return flags_in(spans) & TIMES != 0


class RowTimes(NamedTuple):
    """A time (ms) of each of some rows."""

    at: list[int]
    """Indexes of the rows, ascending."""
    ms: list[int]


def any_delayed(spans: bytes | memoryview) -> bool:
    """Return whether any of the packed rows has a delay."""
    return flags_in(spans) & DELAY != 0


def delays_in(rows: Rows) -> RowTimes:
    """Return the rows that have a delay, and the delays (ms)."""
    columns = rows.columns()
    which = np.flatnonzero(columns["flags"] & DELAY)
    return _times_at(rows.buffer, which, columns["data_off"][which] - np.uint32(TIME_BYTES))


def ttls_in(rows: Rows) -> RowTimes:
    """Return the rows that have a ttl, and the ttls (ms)."""
    columns = rows.columns()
    which = np.flatnonzero(columns["flags"] & TTL)
    before = np.where(columns["flags"][which] & DELAY, np.uint32(2 * TIME_BYTES), np.uint32(TIME_BYTES))
    return _times_at(rows.buffer, which, columns["data_off"][which] - before)


def _times_at(buffer: bytes | bytearray | memoryview, which: NDArray[np.intp], starts: NDArray[np.uint32]) -> RowTimes:
    if len(which) < _MANY:
        times = [int.from_bytes(buffer[start : start + TIME_BYTES], "little") for start in starts.tolist()]
    else:
        places = starts[:, None].astype(np.intp) + np.arange(TIME_BYTES)
        times = np.frombuffer(buffer, np.uint8)[places].view("<u8")[:, 0].tolist()
    return RowTimes(which.tolist(), times)


def tags_in(rows: Rows) -> list[bytes | None] | None:
    """Return the tag of each row; None if no row has a tag."""
    if not flags_in(rows.spans) & TAG:
        return None
    buffer, tags = rows.buffer, list[bytes | None]()
    if rows.count >= _MANY:
        columns = rows.columns()
        begins, ends = columns["tag_off"].tolist(), (columns["tag_off"] + columns["tag_len"]).tolist()
        if type(buffer) is bytes:
            tags += [buffer[begin:end] for begin, end in zip(begins, ends, strict=True)]
        else:
            tags += [bytes(buffer[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        for at in np.flatnonzero(columns["flags"] & TAG == 0).tolist():
            tags[at] = None
        return tags
    for _data, _data_len, _meta, _meta_len, tag, tag_len, _node, _node_len, _size, flags in ROW.iter_unpack(rows.spans):
        tags.append(bytes(buffer[tag : tag + tag_len]) if flags & TAG else None)
    return tags


def pack_rows(records: list[RowRecord]) -> Rows:
    """Return rows built from records, for tests and slow paths.

    A record without a size gets the lengths of `data` and `meta`, which are taken as compact.
    """
    buffer = bytearray()
    spans = bytearray()
    total = 0
    for record in records:
        offsets: list[int] = []
        for time_ms in (record.ttl_ms, record.delay_ms):
            buffer += time_ms.to_bytes(TIME_BYTES, "little") if time_ms else b""
        for text in (record.data, record.meta, record.tag, record.node):
            offsets += (len(buffer), len(text or b""))
            buffer += text or b""
        size = record.size or len(record.data) + len(record.meta or b"")
        flags = (
            (TAG if record.tag is not None else 0)
            | (NODE if record.node is not None else 0)
            | (META if record.meta is not None else 0)
            | (BYTES if record.is_bytes else 0)
            | (DELAY if record.delay_ms else 0)
            | (TTL if record.ttl_ms else 0)
        )
        spans += ROW.pack(*offsets, size, flags)
        total += size
    return Rows(bytes(buffer), bytes(spans), len(records), total)
