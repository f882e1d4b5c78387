"""Frames to columns, for a reader in this process, without JSON around the payloads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from topics.store.format._codec import ffi, lib
from topics.store.format.codec import row_pointers, unsound_frame


class ColumnRenderer:
    """The seqs, times and payloads of one answer, collected.

    Unlike a `JsonRenderer` it has no bounds of its own; the caller applies them.
    """

    full = False

    def __init__(self, topic_id: int) -> None:
        self._topic_id = topic_id
        self._seqs: list[NDArray[np.uint64]] = []
        self._ts: list[NDArray[np.uint64]] = []
        self._kinds: list[NDArray[np.uint8]] = []
        self._ends: list[NDArray[np.uint64]] = []
        self._texts: list[memoryview] = []
        self._end = 0
        self.count = 0
        """Number of records delivered so far."""

    @property
    def size(self) -> int:
        """Bytes of the payloads so far."""
        return self._end

    def add(
        self,
        data: Buffer,
        base: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        seqs: NDArray[np.uint64],
    ) -> int:
        """Add rows of one range: row i is the frame of seqs[i] at data[offsets[i] - base].

        Its length is lengths[i] bytes.

        Return how many rows were taken: all.

        Raises: CorruptError for a frame whose checksum, seq, topic or length is wrong.
        """
        view = memoryview(data).cast("B")
        count = len(seqs)
        out = np.empty(int(lengths.sum(dtype=np.uint64)), np.uint8)
        ts, ends, kinds = np.empty(count, np.uint64), np.empty(count, np.uint64), np.empty(count, np.uint8)
        written = lib.tp_project_columns(
            ffi.from_buffer("char[]", out),
            ffi.from_buffer(view),
            len(view),
            base,
            *row_pointers(offsets, lengths, seqs),
            count,
            self._topic_id,
            ffi.from_buffer("uint64_t[]", ts),
            ffi.from_buffer("uint8_t[]", kinds),
            ffi.from_buffer("uint64_t[]", ends),
            self._end,
        )
        if written < 0:
            raise unsound_frame(self._topic_id, int(seqs[-1 - written]))
        self._seqs.append(seqs)
        self._ts.append(ts)
        self._kinds.append(kinds)
        self._ends.append(ends)
        self._texts.append(out[:written].data)
        self._end += written
        self.count += count
        return count

    def records(self) -> bytes:
        """Return the payloads without gaps between them."""
        joined = bytes(self._end)
        # No other code has seen these bytes yet. numpy copies without the interpreter's lock.
        room = np.frombuffer(ffi.buffer(ffi.from_buffer(joined), self._end), np.uint8) if joined else None
        at = 0
        for text in self._texts:
            if room is not None:
                room[at : at + len(text)] = text
            at += len(text)
        return joined

    def columns(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        """Return seqs, ts (ms), offsets of shape (count + 1,), and kinds (log_format.PAYLOAD_*).

        Payload i is records()[offsets[i] : offsets[i + 1]].
        """
        none = [np.empty(0, np.uint64)]
        offsets = np.concatenate([np.zeros(1, np.uint64), *self._ends])
        kinds = np.concatenate(self._kinds or [np.empty(0, np.uint8)])
        return np.concatenate(self._seqs or none), np.concatenate(self._ts or none), offsets, kinds
