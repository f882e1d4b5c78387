"""Frames to JSON: the records of one answer, one C call per contiguous range of frames.

Data of bytes is `data_base64`; a reader in this process takes it apart from the JSON.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from topics.common.memory import LARGE_BYTES, page_aligned
from topics.store.format._codec import ffi, lib
from topics.store.format.c_interface import layout_of
from topics.store.format.codec import ScanStop, unsound_frame

Payload = tuple[int, bytes]
"""Data of bytes, and the index of its record among those delivered."""
LEASE = layout_of(ffi, "tp_lease")
"""lease id, deadline (ms), deliveries."""
_FEW_ROWS = 64
"""Number of rows up to which Python's own numbers are summed faster than an array's."""
_APART_ROOM = 1 << 20
"""Bytes that the texts of frames usually take beside payloads that are taken apart."""
_ROW_ROOM, _LEASED_ROW_ROOM = 64, 176
"""Bytes that one row usually takes beside its texts."""


class JsonRenderer:
    """The collector of `{"$seq":..,"$ts":..,"$node"?,"$tag"?,"data":..,"meta"?}` joined by ','.

    A record of bytes has `data_base64` instead of `data`.

    It collects until a bound is reached.

    limit: records.
    budget: accounted bytes, where base64 counts for its own length; a record that would exceed it
        is left out, except the first one.
    nodes: a set as in codec.h; records whose node is in it are skipped, and count for neither
        bound.
    only_nodes: records whose node is not in `nodes` are skipped instead.
    bytes_apart: data of bytes is null in the JSON, and is in `payloads`.
    """

    def __init__(
        self,
        topic_id: int,
        *,
        limit: int,
        budget: int,
        nodes: bytes = b"",
        only_nodes: bool = False,
        include_tags: bool = False,
        include_meta: bool = True,
        include_data: bool = True,
        bytes_apart: bool = False,
    ) -> None:
        self._state = ffi.new("struct tp_projection *")
        self._state.topic_id = topic_id
        self._state.limit = limit
        self._state.budget = budget
        self._state.include_tags = include_tags
        self._state.include_meta = include_meta
        self._state.include_data = include_data
        self._state.only_nodes = only_nodes
        self._nodes = nodes
        self._apart = bytes_apart
        self.payloads: list[Payload] = []
        self._taken = 0
        """Number of records that `take` has returned."""
        self._expected = 0
        self._out: bytearray | mmap.mmap = bytearray()

    @property
    def count(self) -> int:
        """Number of records delivered so far."""
        return int(self._state.count)

    @property
    def size(self) -> int:
        """Bytes delivered so far, as the budget counts them."""
        return int(self._state.size)

    @property
    def full(self) -> bool:
        """Whether a bound was reached; rows not examined by the last `add` are left for later."""
        return bool(self._state.full)

    def add(  # noqa: PLR0917 - columns
        self,
        data: Buffer,
        base: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        seqs: NDArray[np.uint64],
        leases: bytes = b"",
    ) -> int:
        """Add rows of one range: row i is seqs[i], lengths[i] bytes at data[offsets[i] - base].

        leases: one packed LEASE per row. The rows are then rendered as jobs: with `lease_id`,
            `deadline`, `deliveries`, without `$node`.

        Return how many rows were examined (delivered or skipped): all unless `full`.

        Raises: CorruptError for a frame whose checksum, seq, topic or length is wrong.
        """
        state = self._state
        view = memoryview(data).cast("B")
        row_room = _LEASED_ROW_ROOM if leases else _ROW_ROOM
        done = n = 0
        spans = ffi.NULL
        if self._apart:
            spans = self._state.apart = ffi.new("uint64_t[]", 3 * len(seqs))
        while True:
            if done:
                offsets, lengths, seqs, leases = offsets[n:], lengths[n:], seqs[n:], leases[n * LEASE.size :]
            frames = sum(lengths.tolist()) if len(lengths) <= _FEW_ROWS else int(lengths.sum())
            if self._apart:
                frames = min(frames, _APART_ROOM)  # most of them may be payloads
            elif frames >= LARGE_BYTES:
                # Some may become base64, and room that is not used costs nothing.
                frames += frames // 3 + 4
            room = int(state.written) + frames + row_room * len(seqs) + int(state.needed)
            if len(self._out) < room:
                self._grow(room)
            out = ffi.from_buffer(self._out)
            rows = (
                _column("uint32_t[]", offsets, np.uint32),
                _column("uint32_t[]", lengths, np.uint32),
                _column("uint64_t[]", seqs, np.uint64),
                len(seqs),
            )
            source = ffi.from_buffer(view)
            if leases:
                held = ffi.from_buffer("struct tp_lease[]", leases)
                lib.tp_project_jobs(out, len(self._out), source, len(view), base, *rows, held, state)
            else:
                nodes = self._nodes
                lib.tp_project(out, len(self._out), source, len(view), base, *rows, nodes, len(nodes), state)
            ffi.release(out)
            if state.apart_count:
                self._take_apart(view, spans)
            n = int(state.examined)
            done += n
            if state.reason == ScanStop.TORN:
                raise unsound_frame(int(state.topic_id), int(seqs[n]))
            if state.reason != ScanStop.ROOM:
                return done

    def _take_apart(self, view: memoryview, spans: Any) -> None:
        """Take the payloads of bytes of one call, whose texts have none."""
        apart = iter(ffi.unpack(spans, 3 * self._state.apart_count))
        for index, start, length in zip(apart, apart, apart, strict=True):
            self.payloads.append((index, bytes(view[start : start + length])))

    def expect(self, frames: int) -> None:
        """Note how many bytes of frames will be added: memory for all of them is got at once."""
        self._expected = 0 if self._apart else frames

    def _grow(self, room: int) -> None:
        """Get memory for `room` bytes, with what was written.

        It is twice what it was at least, so that pieces in any number cost one copy together.
        """
        before, written = self._out, int(self._state.written)
        if self._expected > room:
            room = self._expected + self._expected // 3
        elif written:
            room = max(room, 2 * len(before))
        # A page of large memory is made by its first use, and not filled with zeros before.
        self._out = page_aligned(room) if room >= LARGE_BYTES else bytearray(room)
        if written:
            self._out[:written] = memoryview(before)[:written]

    def records(self) -> bytes:
        """Return the elements of the JSON array so far."""
        return bytes(memoryview(self._out)[: self._state.written])

    def take(self) -> tuple[bytes, list[Payload]]:
        """Return the elements added since the last `take`, and their payloads, and drop them.

        Indexes of payloads count from the first of these elements.
        """
        state, first = self._state, self._taken
        payloads, self.payloads, self._taken = self.payloads, [], int(state.count)
        # A comma precedes each element but the first of all.
        records = bytes(memoryview(self._out)[min(first, 1) : state.written])
        state.written = 0
        return records, [(index - first, payload) for index, payload in payloads] if first else payloads


def _column(kind: str, values: NDArray[np.generic], dtype: type[np.generic]) -> object:
    return ffi.from_buffer(kind, np.ascontiguousarray(values, dtype))
