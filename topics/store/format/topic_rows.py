"""Rows of many topics in one call each way: into frames, and from there into the columns of indexes."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from numpy.typing import NDArray

from topics.store.format.codec import ffi, lib


class TopicRows(NamedTuple):
    """Rows of several topics, none with a tag, to be framed together.

    buffer, spans: as in Rows, of all. topics: five numbers a topic: id, first seq, ms, its first row, how many it has.
    count: rows of all topics.
    """

    buffer: bytes | bytearray | memoryview
    spans: bytes
    topics: list[int]
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on rows


def place_rows(columns: bytes, runs: list[int], placed: bytes | bytearray, file_id: int, base: int) -> int:
    """Framed rows into columns of indexes; returns the sum of their sizes.

    columns: six packed u64 an index, as `addresses_of` gives them. runs: three numbers an index: its first row in
    `placed`, the row of the columns it becomes, how many follow; the columns have room. base: what starts count from.
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


def addresses_of(*columns: NDArray[Any]) -> bytes:
    """Where the columns lie, a packed u64 each; good as long as they are there."""
    return array("Q", [int(ffi.cast("uintptr_t", ffi.from_buffer(column))) for column in columns]).tobytes()
