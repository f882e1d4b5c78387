"""The bodies of all plain writes of a pass, scanned in one call into one buffer of rows.

See records.h and columns.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from topics.common.tuples import make_tuple
from topics.config import Config
from topics.engine.bodies.write_body import new_writer
from topics.engine.json._records import ffi, lib
from topics.store.commits.next_batch import PLACED_ROWS, NextBatch, frame_next
from topics.store.format.c_interface import layout_of
from topics.store.format.rows import ROW, Rows

GROUP = layout_of(ffi, "tp_group")
"""topic, first, count, taken, row, rows, size."""
REQUEST = layout_of(ffi, "tp_request")
"""receive, topic, off, len, flags, end, key_off, key_len."""
PUBLISH_FOUND = layout_of(ffi, "tp_publish", "id_off", "without_seqs")
"""id_off, id_len and without_seqs."""
_SIZE_AT = 3
"""Index of `size` in a group, in u64; six u32 come before it."""
KEYED = lib.TP_KEYED
"""A bit of `topic`: the group is one request with an idempotency key."""

Framing = Callable[[Any, int, int], int]
"""A scan that frames what it finds as the next batch: see `WriteColumns.framing`."""
MakeFraming = Callable[[NextBatch], Framing]

BodyRows = Rows
"""The rows of a body, or of the bodies of a group."""


class GroupColumns(NamedTuple):
    """Columns over groups: the members of a tp_group."""

    topics: list[int]
    firsts: list[int]
    requests: list[int]
    taken: list[int]
    rows: list[int]
    records: list[int]
    sizes: list[int]

    @classmethod
    def of(cls, packed: memoryview, count: int) -> GroupColumns:
        """Return the first `count` packed groups as columns."""
        words, pairs = packed[: count * GROUP.size].cast("I"), packed[: count * GROUP.size].cast("Q")
        columns = [words[at :: GROUP.size // 4] for at in range(2 * _SIZE_AT)]
        return cls(*[column.tolist() for column in (*columns, pairs[_SIZE_AT :: GROUP.size // 8])])

    def select(self, positions: Sequence[int]) -> GroupColumns:
        """Return the groups at these positions."""
        return GroupColumns(*[[column[at] for at in positions] for column in self])


_new_room = ffi.new_allocator(should_clear_after_alloc=False)
"""Allocates room that every scan writes before it reads, so zeros in it would be for nothing."""
_KEY_ROOM = 65_536
_SCRATCH_BYTES = 1 << 18
"""Bytes of the scratch for cleaning a body with white space; a longer one is not plain."""
_ROOM_BODIES = 4
"""The number of bodies with the most records for which there is room."""
_ROWS_MIN = 16_384


class WriteColumns:
    """Scans with the limits of one server's settings; its room is allocated once.

    It is not for two threads at once.
    """

    def __init__(self, config: Config, few_records: int, *, command: bool = False) -> None:
        """few_records: the most of a request with the flag TP_FEW_RECORDS (columns.h).

        command: the bodies are commands, for `publishing`.
        """
        self._room = max(_ROWS_MIN, _ROOM_BODIES * config.max_batch_records)
        self._rows = _new_room("struct tp_row[]", self._room)
        self._scratch = _new_room("unsigned char[]", _SCRATCH_BYTES)
        self._keys = _new_room("uint64_t[]", _KEY_ROOM)
        self._writer = writer = new_writer(config)
        writer.rows = self._rows
        writer.keys = self._keys
        writer.key_room = _KEY_ROOM
        writer.few_records = few_records
        writer.command = command
        self._spans: Any = ffi.buffer(self._rows)

    def scan(self, buffer: Any, requests: Any, groups: Any, group_count: int, counts: Any, upto: Any) -> None:  # noqa: PLR0917
        """Complete the groups.

        buffer: C data that is written to (see records.h).
        counts: a u32 for each request, set to the number of its records, 0 if its body is not
        plain.
        upto: a u32 for each receive, set to the end of the part that was taken.
        """
        lib.tp_scan_writes(
            self._writer, buffer, requests, groups, group_count, self._room, counts, upto, self._scratch, _SCRATCH_BYTES
        )

    def single(self, request: Any) -> Callable[[Any, memoryview], Rows | None]:
        """Return the scan of one request's body, which changes none of its bytes.

        request: a tp_request, as C data, which is read at each scan. The scan gets the buffer that
        its offsets count from, as C data and as a view, and returns its rows; None: not plain.
        """
        writer, spans, scratch = self._writer, self._spans, self._scratch
        scratch_view = memoryview(ffi.buffer(scratch))
        scan, single = partial(lib.tp_scan_single_write, writer, scratch, _SCRATCH_BYTES), ROW.size
        request = ffi.cast("struct tp_request *", request)

        def rows(data: Any, view: memoryview) -> Rows | None:
            status = scan(data, request)
            if status < 0:
                return None
            count = writer.count
            return make_tuple(Rows, (scratch_view if status else view, spans[0 : count * single], count, writer.size))

        return rows

    def framing(self, request: Any, following: NextBatch) -> Framing:
        """Return the scan of one request's body that frames its rows as the next batch.

        request: as in `single`. The scan gets the buffer, its bytes and the time (ms); it returns
        as tp_write_next does (records.h).
        """
        request = ffi.cast("struct tp_request *", request)
        return self._framing(lib.tp_write_next, request, following)

    def publishing(self, publish: Any, following: NextBatch) -> Framing:
        """Return the scan of a WebSocket's frame that frames the rows of its publish.

        publish: a tp_publish, as C data, which is read and completed at each scan. The scan is one
        as in `framing`.
        """
        return self._framing(lib.tp_publish_next, publish, following)

    def _framing(self, scan: Any, asked: Any, following: NextBatch) -> Framing:
        next_batch = ffi.cast("struct tp_next_batch *", following.pointer)
        to_frame = frame_next, next_batch, following.placed, PLACED_ROWS
        return partial(scan, self._writer, self._scratch, _SCRATCH_BYTES, asked, *to_frame)

    def spans(self, groups: GroupColumns) -> bytes:
        """Return the packed rows of all groups up to the last one, at the positions in `groups`."""
        return bytes(self._spans[0 : (groups.rows[-1] + groups.records[-1]) * ROW.size])

    def rows(self, buffer: bytearray | memoryview, row: int, rows: int, size: int) -> BodyRows:
        """Return the rows of one group."""
        return make_tuple(Rows, (buffer, self._spans[row * ROW.size : (row + rows) * ROW.size], rows, size))
