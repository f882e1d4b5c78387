"""Rows of many topics in one call: from rows to frames, and from frames to index columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from topics.store.format._codec import ffi, lib


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


def place_run(  # noqa: PLR0917 - hot
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
