"""The next batch of lone writes to one topic, as C data that both sides know (codec.h)."""

from __future__ import annotations

from typing import Any, NamedTuple

from topics.store.format._codec import ffi
from topics.store.format.c_interface import address_of, layout_of
from topics.store.format.log_format import FLAG_FSYNC
from topics.store.format.rows import PLACED

BEGUN = layout_of(ffi, "tp_next_batch", last="syncs")
"""The layout of a tp_next_batch up to what the last call has framed."""
_FRAMED = layout_of(ffi, "tp_next_batch", first="begin")
PLACED_ROWS = 64
"""The most records of a batch."""

frame_next = address_of("tp_frame_next")
"""The address of the function in C that frames the next batch: `tp_write_next` calls it."""


class NextPlace(NamedTuple):
    """The place of the next batch of a shard, and the bounds of it and those after it."""

    chunk: int
    """Address of the memory that mirrors a part of the file."""
    at: int
    capacity: int
    most: int
    """The most bytes of a batch."""
    room: int
    """The most bytes of all batches from here on."""
    epoch: int
    batch_no: int
    synced_upto: int
    chain: int


class NextBatch:
    """A `struct tp_next_batch`. `begin` sets it; each call of `tp_frame_next` moves it on."""

    __slots__ = ("_memory", "_placed_bytes", "placed", "pointer")

    def __init__(self) -> None:
        self.pointer: Any = ffi.new("struct tp_next_batch *")
        self.placed: Any = ffi.new("unsigned char[]", PLACED_ROWS * PLACED.size)
        """A PLACED for each row of the batch that was framed last."""
        self._memory: Any = ffi.buffer(self.pointer)
        self._placed_bytes: Any = ffi.buffer(self.placed)

    def begin(
        self, place: NextPlace, topic_id: int, seq: int, last_seq: int, last_ts_ms: int, *, fsync: bool, syncs: bool
    ) -> None:
        """Set the place, and the numbers of the topic: see codec.h."""
        flags = FLAG_FSYNC if fsync else 0
        BEGUN.pack_into(self._memory, 0, *place, topic_id, seq, last_seq, last_ts_ms, flags, syncs)

    def framed(self) -> tuple[int, int, int, int, int, int]:
        """Return what the last call has framed.

        Returns: the place in the chunk, first seq, number of records, their accounted bytes, `$ts`,
        the batch's checksum.
        """
        return _FRAMED.unpack_from(self._memory, BEGUN.size)

    def placed_rows(self, count: int) -> bytes:
        """Return the PLACED of the rows of the batch that was framed last."""
        rows: bytes = self._placed_bytes[0 : count * PLACED.size]
        return rows
