"""The lines of topics in the caches of the processor, before a pass that writes to many of them.

A write touches some 45 lines of its topic. With very many topics none of them is in a cache, and
each is waited for when its turn comes; here those of all topics of a pass are loaded side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from topics.engine.index.chunk import Chunk
from topics.engine.index.index import Index
from topics.engine.state.topic import Topic
from topics.store.format._codec import ffi
from topics.store.format.c_interface import load_slots, slot_offset

_USED: tuple[tuple[type, tuple[str, ...], str], ...] = (
    (Topic, ("next_seq", "ample", "pending", "pending_records", "pending_bytes", "id", "head"), "index"),
    (Index, ("live", "bytes", "last_seq", "earliest"), "chunks"),
    (Chunk, ("count", "live", "bytes", "first", "addresses"), "count"),
)
"""Classes with the slots that a write uses, and the slot that leads to the next class."""


_CLASSES = ffi.new(
    "struct tp_slots[]",
    [
        {
            "bytes": each.__basicsize__,
            "count": len(names),
            "at": [slot_offset(getattr(each, name)) for name in names],
            "next": slot_offset(getattr(each, following)),
        }
        for each, names, following in _USED
    ],
)
_ADDRESS = int(ffi.cast("uintptr_t", _CLASSES))


def load_lines(topics: Sequence[Topic | None]) -> int:
    """Load what a write uses of these topics, a list. Return how many lines were asked for."""
    return int(load_slots(topics, _ADDRESS))
