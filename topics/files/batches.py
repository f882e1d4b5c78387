"""The rows of one piece as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from topics.errors import UsageError
from topics.files.errors import BytesRecordError, SeqTooLargeError
from topics.files.live_rows import LiveRows
from topics.files.piece import Piece
from topics.files.piece_files import PieceSource, damaged_frame
from topics.files.texts import Decoder, Order
from topics.store.format.catalog import NO_TAG
from topics.store.layouts.index_format import TagTable

FIELDS = {
    "topic": pa.field("topic", pa.string(), nullable=False),
    "seq": pa.field("seq", pa.int64(), nullable=False),
    "ts": pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
    "tag": pa.field("tag", pa.string()),
    "node": pa.field("node", pa.string()),
    "data": pa.field("data", pa.string(), nullable=False),
    "meta": pa.field("meta", pa.string()),
    "size": pa.field("size", pa.int64(), nullable=False),
    "bytes": pa.field("bytes", pa.binary()),
}
COLUMNS = tuple(FIELDS)
_IN_FRAMES = ("node", "data", "meta", "bytes")
"""Columns that are read from the frames, because no index has them."""
_SEQ_MAX = (1 << 63) - 1
_GAP_BYTES = 64 << 10
"""Gap between two wanted frames up to which one read covers both; above it there are two reads."""


def schema_of(columns: Sequence[str]) -> Any:
    """Return the pa.Schema of batches with these columns.

    With `bytes`, which holds data of bytes, `data` is null for such records.

    Raises: UsageError for an unknown or repeated column.
    """
    for name in columns:
        if name not in FIELDS or columns.count(name) > 1:
            raise UsageError(f"columns: {name!r} is unknown or repeated; the columns are {', '.join(COLUMNS)}")
    schema = pa.schema([FIELDS[name] for name in columns])
    if "bytes" in columns and "data" in columns:
        schema = schema.set(schema.get_field_index("data"), FIELDS["data"].with_nullable(True))
    return schema


class Wanted(NamedTuple):
    """The columns and records that a reader asks for, and the bounds of a batch.

    tags: only records with one of these tags; None: all records.
    """

    schema: Any
    verify: bool
    tags: frozenset[bytes] | None
    batch_rows: int
    batch_bytes: int


class Batches:
    """Makes batches of pieces; buffers and arrays are reused from one piece to the next."""

    def __init__(self, source: PieceSource, decoder: Decoder, wanted: Wanted) -> None:
        self._source = source
        self._decoder = decoder
        self._wanted = wanted
        self._window = bytearray(decoder.window_bytes)
        self._rooms: dict[str, float] = {}
        self._tag_table: tuple[Sequence[bytes], Any] = ([], None)
        self._topics: tuple[str, Any] = ("", None)

    def of(self, piece: Piece) -> Iterator[Any]:
        """Yield the piece's live records as pa.RecordBatch, each with one row at least.

        Raises: VanishedError, only before the first batch; CorruptError; SeqTooLargeError;
        BytesRecordError.
        """
        path, rows = self._source.rows(piece)
        wanted = self._wanted
        if wanted.tags is not None:
            rows = rows.tagged(wanted.tags)
        if not len(rows.seqs):
            return
        if int(rows.seqs[-1]) > _SEQ_MAX:
            raise SeqTooLargeError(
                f"topic {piece.topic} has seqs above 2^63 - 1, which an Arrow column cannot hold: read it by url"
            )
        names = wanted.schema.names
        needs_tags = wanted.tags is not None and rows.tags is None
        texts = [name for name in names if name in _IN_FRAMES]
        if needs_tags or ("tag" in names and (texts or rows.tags is None)):
            texts.append("tag")  # reading it with the frame is cheaper than a lookup in a table
        if not texts:
            for start, end in _slices(rows, wanted):
                yield self._batch(piece, rows.select(slice(start, end)), {})
            return
        with self._source.data(path, piece) as fd:
            for start, end in _slices(rows, wanted):
                part = rows.select(slice(start, end))
                columns = self._read_texts(fd, path, piece, part, texts)
                batch = self._batch(piece, part, columns)
                if needs_tags:
                    batch = batch.filter(pc.is_in(columns["tag"], value_set=_strings(sorted(wanted.tags or ()))))
                if batch.num_rows:
                    yield batch

    def _read_texts(self, fd: int, path: str, piece: Piece, rows: LiveRows, names: list[str]) -> dict[str, Any]:
        """Read columns of texts, by name.

        Raises: CorruptError, naming the first frame that is damaged; BytesRecordError.
        """
        verify = self._wanted.verify and not rows.is_verified
        size = int(rows.lengths.sum(dtype=np.uint64))
        texts = self._decoder.texts(Order(piece.topic_id, names, len(rows.seqs), size, verify), self._rooms)
        for window in _windows(rows, size, len(self._window)):
            if window.size > len(self._window):
                self._window = bytearray(window.size)
            count = self._source.calls.read_into(fd, memoryview(self._window)[: window.size], window.start)
            part = rows.select(slice(window.first, window.last))
            added = texts.add(memoryview(self._window)[:count], window.start, part)
            if added < window.last - window.first:
                row = window.first + added
                if texts.lacks_bytes:
                    seq = int(rows.seqs[row])
                    raise BytesRecordError(
                        f"record {seq} of topic {piece.topic} is bytes, which the column data cannot hold: ask for the "
                        "column bytes, too (it is null for JSON, as data is for bytes)",
                        {"topic": piece.topic, "seq": seq},
                    )
                raise damaged_frame(path, int(rows.offsets[row]), piece, int(rows.seqs[row]))
        return {name: texts.column(name) for name in names}

    def _batch(self, piece: Piece, rows: LiveRows, texts: dict[str, Any]) -> Any:
        schema = self._wanted.schema
        arrays = [texts[name] if name in texts else self._column(name, piece, rows) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, piece: Piece, rows: LiveRows) -> Any:
        """Return a column that needs no frame."""
        if name == "topic":
            return self._topic(piece, rows)
        if name == "tag":
            return self._tags(rows)
        if name == "seq":
            return _numbers(rows.seqs.view(np.int64), pa.int64())
        if name == "ts":
            return _numbers((rows.ts * np.uint64(1000)).view(np.int64), FIELDS["ts"].type)
        return _numbers(rows.sizes.astype(np.int64), pa.int64())

    def _topic(self, piece: Piece, rows: LiveRows) -> Any:
        """Return the topic's name for each row, as a slice of one array."""
        name, array = self._topics
        if name != piece.topic or len(array) < len(rows.seqs):
            array = pa.repeat(pa.scalar(piece.topic), max(len(rows.seqs), min(16384, self._wanted.batch_rows)))
            self._topics = (piece.topic, array)
        return array.slice(0, len(rows.seqs))

    def _tags(self, rows: LiveRows) -> Any:
        assert rows.tags is not None, "tags of rows without an index are read from the frames"
        if self._tag_table[0] is not rows.tag_table:
            self._tag_table = (rows.tag_table, _strings(rows.tag_table))
        if not len(rows.tag_table):
            return pa.nulls(len(rows.seqs), pa.string())
        missing = rows.tags == NO_TAG
        return self._tag_table[1].take(pa.array(rows.tags, mask=missing if missing.any() else None))


def _numbers(values: NDArray[np.int64], kind: Any) -> Any:
    """Return numbers as a column; contiguous ones are not copied."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _strings(texts: Sequence[bytes]) -> Any:
    """Return the texts as a column."""
    if isinstance(texts, TagTable):
        ends, joined = texts.ends.astype(np.int32), texts.texts
        return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(joined))
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=ends[1:])
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def _slices(rows: LiveRows, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of each batch.

    A batch is within the bounds, except one of a single row that is larger.
    """
    count = len(rows.seqs)
    if count <= wanted.batch_rows and _span(rows) <= wanted.batch_bytes:
        yield 0, count
        return
    ends = np.cumsum(rows.lengths, dtype=np.int64)
    start = 0
    while start < count:
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + wanted.batch_bytes, "right"))
        end = min(count, start + wanted.batch_rows, max(start + 1, fitting))
        yield start, end
        start = end


class _Window(NamedTuple):
    """A range of bytes of the file that one call reads, and the rows in it: [first, last)."""

    start: int
    size: int
    first: int
    last: int


def _span(rows: LiveRows) -> int:
    """Return the bytes from the first frame to the end of the last, gaps included."""
    return int(rows.offsets[-1]) + int(rows.lengths[-1]) - int(rows.offsets[0])


def _windows(rows: LiveRows, size: int, window_bytes: int) -> Iterator[_Window]:
    """Yield the windows of rows, in order; each covers its frames completely, and little else.

    size: bytes of all frames together.
    window_bytes: the largest size of a window with more than one frame.
    """
    starts, lengths, count = rows.offsets, rows.lengths, len(rows.offsets)
    limits = [count]
    if _span(rows) - size > _GAP_BYTES:
        between = starts[1:].astype(np.int64) - starts[:-1] - lengths[:-1]
        limits = [*(np.flatnonzero(between > _GAP_BYTES) + 1).tolist(), count]
    first = 0
    for limit in limits:
        while first < limit:
            start = int(starts[first])
            last = limit
            if int(starts[limit - 1]) + int(lengths[limit - 1]) - start > window_bytes:
                behind = np.uint32(min(start + window_bytes, 0xFFFF_FFFF))
                last = first + max(1, int(np.searchsorted(starts[first:limit], behind, "right")) - 1)
            yield _Window(start, int(starts[last - 1]) + int(lengths[last - 1]) - start, first, last)
            first = last
