"""Rows cut into pieces that fit in a request to a server, always in the same way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_BYTES = 4 << 20
"""Bytes of texts in a request at most.

It must not change, because a server remembers the parts that rows were cut into.
"""


def cut(rows: pa.Table, limit: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of string columns in batches of at most `limit` bytes.

    A longer row is a batch of its own.
    """
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    ends = np.cumsum(sizes)
    first = 0
    while first < rows.num_rows:
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + limit, "right")))
        [batch] = rows.slice(first, last - first).combine_chunks().to_batches()
        yield batch
        first = last
