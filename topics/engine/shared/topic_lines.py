"""The lines of topics in the caches of the processor, before a pass that writes to many of them.

A write touches some 45 lines of its topic. With very many topics none of them is in a cache, and
each is waited for when its turn comes; here those of all topics of a pass are loaded side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from topics.engine.index.chunk import Chunk
from topics.engine.index.index import Index
from topics.engine.state.topic import Topic
from topics.store.format._codec import ffi, lib

_USED: tuple[tuple[type, tuple[str, ...], str], ...] = (
    (Topic, ("next_seq", "ample", "pending", "pending_records", "pending_bytes", "id", "head"), "index"),
    (Index, ("live", "bytes", "last_seq", "earliest"), "chunks"),
    (Chunk, ("count", "live", "bytes", "first", "addresses"), "count"),
)
"""Classes with the slots that a write uses, and the slot that leads to the next class."""


def _in_c(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function in C, called with the interpreter's lock: it reads objects of Python."""
    address = int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))
    called: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *arguments)(address)
    return called


_offset = _in_c("tp_slot_offset", ctypes.c_uint32, ctypes.py_object)
_load = _in_c("tp_load_slots", ctypes.c_uint64, ctypes.py_object, ctypes.c_void_p)
_CLASSES = ffi.new(
    "struct tp_slots[]",
    [
        {
            "bytes": each.__basicsize__,
            "count": len(names),
            "at": [_offset(getattr(each, name)) for name in names],
            "next": _offset(getattr(each, following)),
        }
        for each, names, following in _USED
    ],
)
_ADDRESS = int(ffi.cast("uintptr_t", _CLASSES))


def load_lines(topics: Sequence[Topic | None]) -> int:
    """Load what a write uses of these topics, a list. Return how many lines were asked for."""
    return int(_load(topics, _ADDRESS))
