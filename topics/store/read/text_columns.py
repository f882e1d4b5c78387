"""Texts of frames as columns in Arrow's layout, verified and copied in one pass in C."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.store.format._codec import ffi, lib
from topics.store.format.codec import ScanStop, row_pointers

if TYPE_CHECKING:
    from typing_extensions import Buffer

TEXTS = ("node", "tag", "data", "meta", "bytes")
"""Names of the texts, in their order in a frame; `bytes` is data that is no JSON, else null."""
_BYTES_MAX = (1 << 31) - 1
"""Most bytes of a column: its ends are signed and have 32 bits."""


class TextColumn(NamedTuple):
    """n texts: text i is text[ends[i] : ends[i + 1]]."""

    ends: NDArray[np.int32]
    """Shape (n + 1,)."""
    text: NDArray[np.uint8]
    valid: NDArray[np.uint8] | None
    """One bit per row, the lowest first, set if there is a text; None: each row has one."""
    nulls: int


class TextColumns:
    """Columns of records of one topic, while they are filled.

    names: some of TEXTS.
    rows: the number of rows there is room for.
    rooms: initial bytes by name; a column grows as needed.
    verify: compare each frame's checksum, in addition to its lengths, type, topic and seq.
    """

    def __init__(
        self, topic_id: int, names: Collection[str], *, rows: int, rooms: Mapping[str, int], verify: bool
    ) -> None:
        self._state: Any = ffi.new("struct tp_text_fill *")
        self._state.topic_id, self._state.verify, self._state.room = topic_id, verify, rows
        self._ends: dict[str, NDArray[np.int32]] = {}
        self._texts: dict[str, NDArray[np.uint8]] = {}
        self._valid: dict[str, NDArray[np.uint8]] = {}
        self._places = {name: TEXTS.index(name) for name in names}
        for name, place in self._places.items():
            ends = self._ends[name] = np.empty(rows + 1, np.int32)
            ends[0] = 0
            valid = self._valid[name] = np.zeros((rows + 7) // 8 or 1, np.uint8)
            self._state.columns[place].ends = ffi.from_buffer("int32_t[]", ends)
            self._state.columns[place].valid = ffi.from_buffer("uint8_t[]", valid)
            self._give(name, np.empty(max(1, min(rooms[name], _BYTES_MAX)), np.uint8))

    def _give(self, name: str, text: NDArray[np.uint8]) -> None:
        self._texts[name] = text
        column = self._state.columns[self._places[name]]
        column.bytes, column.room = ffi.from_buffer("char[]", text), len(text)

    def _grow(self, place: int, needed: int) -> None:
        name = TEXTS[place]
        used = self._state.columns[place].used
        assert used + needed <= _BYTES_MAX, "the caller bounds the bytes of its rows"
        text = np.empty(min(_BYTES_MAX, max(used + needed, 2 * used)), np.uint8)
        text[:used] = self._texts[name][:used]
        self._give(name, text)

    def add(
        self,
        data: Buffer,
        base: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        seqs: NDArray[np.uint64],
    ) -> int:
        """Add rows: row i is the frame of the record seqs[i] at data[offsets[i] - base].

        Its length is lengths[i] bytes.

        Return how many were added: if fewer than all, the next one is not its record's sound frame,
        or its data is bytes and there is no column for them (`lacks_bytes`).
        """
        view = memoryview(data).cast("B")
        state, count, done = self._state, len(seqs), 0
        starts, sizes, numbers = row_pointers(offsets, lengths, seqs)
        pointer = ffi.from_buffer(view)
        while True:
            lib.tp_fill_texts(
                pointer, len(view), base, starts + done, sizes + done, numbers + done, count - done, state
            )
            done += int(state.examined)
            if state.reason != ScanStop.ROOM:
                return done
            self._grow(state.full, state.needed)

    @property
    def lacks_bytes(self) -> bool:
        """Whether the last `add` stopped at data of bytes."""
        return bool(self._state.reason == ScanStop.KIND)

    @property
    def rows(self) -> int:
        """Number of rows added so far."""
        return int(self._state.rows)

    def column(self, name: str) -> TextColumn:
        """Return what was added so far. The arrays are views, so no row may be added afterwards."""
        state = self._state.columns[self._places[name]]
        rows = self.rows
        valid = self._valid[name][: (rows + 7) // 8] if state.nulls else None
        return TextColumn(self._ends[name][: rows + 1], self._texts[name][: state.used], valid, state.nulls)
