"""The checksum over rows of a topic, equal for the log and an exported file, with and without C.

Rows are ordered by seq. The columns are seq, ts (microseconds since 1970), tag, node, data and
meta. A column of numbers is one stream of bytes, its numbers as little-endian 64-bit integers. A
column of texts is two: the lengths of the texts (-1 for null) in that form, and the texts back to
back. The checksum is the XXH3-64 of the XXH3-64s of these streams, 8 bytes big-endian each, in that
order. Rows with the column bytes have it as a further column of texts. The checksum does not depend
on how rows are cut into batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from topics.pipelines.seqs import numbers_of

NUMBERS = ("seq", "ts")
TEXTS = ("tag", "node", "data", "meta")
COLUMNS = (*NUMBERS, *TEXTS)
WITH_BYTES = (*COLUMNS, "bytes")
"""COLUMNS, and the data of records of bytes, for which `data` is null."""


class RowSum:
    """The checksum and the count of the rows added so far. columns: COLUMNS or WITH_BYTES."""

    def __init__(self, columns: tuple[str, ...] = COLUMNS) -> None:
        self._texts = columns[len(NUMBERS) :]
        self._streams = {name: xxhash.xxh3_64() for name in NUMBERS}
        for name in self._texts:
            self._streams[f"{name} lengths"] = xxhash.xxh3_64()
            self._streams[name] = xxhash.xxh3_64()
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch that has the columns, in any order."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        for name in NUMBERS:
            self._streams[name].update(numbers_of(batch.column(name)).data)
        for name in self._texts:
            lengths, octets = text_bytes(batch.column(name))
            self._streams[f"{name} lengths"].update(lengths.data)
            self._streams[name].update(octets.data)

    def hexdigest(self) -> str:
        """Return the checksum as 16 hex digits."""
        return str(xxhash.xxh3_64_hexdigest(b"".join(stream.digest() for stream in self._streams.values())))


def text_bytes(column: pa.StringArray | pa.BinaryArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (lengths int64, -1 for null; all bytes of the texts in a row) of a column of texts."""
    count = len(column)
    if column.null_count == count:
        return np.full(count, -1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + count + 1]
    lengths = np.diff(offsets).astype(np.int64)
    if column.null_count:
        valid = np.asarray(column.is_valid())
        if lengths[~valid].any():  # Arrow allows bytes below a null.
            return text_bytes(pa.array(column.to_pylist(), column.type))
        lengths[~valid] = -1
    octets = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return lengths, octets
