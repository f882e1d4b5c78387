"""The checksum over rows of a topic: the same from the log, from an exported file, with and without C.

Rows stand in order of seq. Each of the columns seq, ts (microseconds since 1970), tag, node, data and
meta has two streams of bytes: its numbers, or the lengths of its texts (-1 for null), as little-endian
64-bit integers, and its texts back to back. The checksum is the XXH3-64 of the XXH3-64s of those
streams, 8 bytes big-endian each, in that order. How rows are cut into batches makes no difference.
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


class RowSum:
    """The checksum of the rows it was given so far, and their count."""

    def __init__(self) -> None:
        self._streams = {name: xxhash.xxh3_64() for name in NUMBERS}
        for name in TEXTS:
            self._streams[f"{name} lengths"] = xxhash.xxh3_64()
            self._streams[name] = xxhash.xxh3_64()
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch that has COLUMNS, in whatever order."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        for name in NUMBERS:
            self._streams[name].update(numbers_of(batch.column(name)).data)
        for name in TEXTS:
            lengths, octets = text_bytes(batch.column(name))
            self._streams[f"{name} lengths"].update(lengths.data)
            self._streams[name].update(octets.data)

    def hexdigest(self) -> str:
        """16 hex digits."""
        return str(xxhash.xxh3_64_hexdigest(b"".join(stream.digest() for stream in self._streams.values())))


def text_bytes(column: pa.StringArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(lengths int64, -1 for null; the bytes of all texts back to back) of a string column."""
    count = len(column)
    if column.null_count == count:
        return np.full(count, -1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + count + 1]
    lengths = np.diff(offsets).astype(np.int64)
    if column.null_count:
        valid = np.asarray(column.is_valid())
        if lengths[~valid].any():  # a null with bytes below it, which Arrow allows
            return text_bytes(pa.array(column.to_pylist(), pa.string()))
        lengths[~valid] = -1
    octets = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return lengths, octets
