"""Quick appends of a library: one call in C frames and writes a batch (`tp_quick` in codec.h).

Such calls follow each other while no other code drives the log. The end of the log and its counts
follow for all of them together, once other code is about to drive (`InPlaceCommits.follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, NamedTuple, Protocol

from topics.common.histograms import BUCKET_COUNT, Distribution
from topics.common.tuples import make_tuple
from topics.store.commits.next_batch import BEGUN, NextPlace
from topics.store.commits.write_batch import Commit
from topics.store.format._codec import ffi, lib
from topics.store.format.c_interface import layout_of, quick_append
from topics.store.format.log_format import FLAG_FSYNC
from topics.store.format.rows import PLACED

assert lib.TP_TIME_BUCKETS == BUCKET_COUNT, "both sides count times alike"
_HOW = layout_of(ffi, "tp_quick", "is_open", "result")
"""The layout of a tp_quick from `is_open` to `result`."""


class WritePlace(NamedTuple):
    """How the next batch of a shard is written."""

    start: int
    """Offset in the file of the chunk's first byte."""
    view: memoryview
    """The chunk."""
    fd: int
    dsync: bool
    syncs: bool
    write: Callable[[int, memoryview, int, bool], int]
    address: int
    """Address of the function in C that does the same; 0: there is none."""


class QuickCaller(NamedTuple):
    """The side of the library: see TP_CELL_LOCK and the cells after it in codec.h."""

    lock: Any
    driver: Any
    now_ns: Callable[[], int]
    now_ms: Callable[[], int]
    queues: tuple[Sized, ...]
    wake_next_driver: Callable[[], None]


class Unpublished(NamedTuple):
    """Batches that were written one after the other."""

    batches: int
    rows: int
    size: int
    """Accounted bytes of the records."""
    used: int
    """Bytes of the batches."""
    begin: int
    """Begin of the first batch in the chunk."""
    end: int
    """End of the last batch in the chunk."""
    ts_ms: int
    checksum: int
    ended_ns: int
    """The last three are those of the last batch."""
    placed: bytes
    """A packed PLACED for each row, whose starts count from the body of the first batch."""
    appends: Distribution
    """Times of the appends, from the call to the end of the write."""
    writes: Distribution
    """Times of the writes."""
    sync_ns: list[int]
    """The time of each write, if they were synced."""


class QuickLog(Protocol):
    """The part of a shard that appends were written to, once they are to be published."""

    def follow(self, quick: Unpublished) -> Commit:
        """Move the end of the log past these batches, and count them."""

    def take_back(self, expected: int, res: int) -> None:
        """Judge a write that was not whole, as every commit is judged: it may latch the log.

        expected: the bytes that it was to write. res: its raw result.
        """


class QuickWrites:
    """A `struct tp_quick`, and the callable that uses it."""

    def __init__(self, caller: QuickCaller, result: type, plain: tuple[object, ...]) -> None:
        """result: type of the results. plain: see TP_CELL_PLAIN."""
        self._state: Any = ffi.new("struct tp_quick *")
        self._next: Any = ffi.buffer(ffi.addressof(self._state, "next"))
        self._how: Any = ffi.buffer(ffi.addressof(self._state, "is_open"), _HOW.size)
        self._placed: Any = ffi.buffer(ffi.addressof(self._state, "placed"))
        self._times: Any = ffi.buffer(ffi.addressof(self._state, "appends"), 2 * ffi.sizeof("struct tp_times"))
        self._no_times = bytes(len(self._times))
        self._cells: list[Any] = [None] * lib.TP_QUICK_CELLS
        cells = self._cells
        cells[lib.TP_CELL_LOCK], cells[lib.TP_CELL_DRIVER] = caller.lock, caller.driver
        cells[lib.TP_CELL_NOW_NS], cells[lib.TP_CELL_NOW_MS] = caller.now_ns, caller.now_ms
        cells[lib.TP_CELL_QUEUES], cells[lib.TP_CELL_WAKE_NEXT_DRIVER] = caller.queues, caller.wake_next_driver
        cells[lib.TP_CELL_RESULT], cells[lib.TP_CELL_PLAIN] = result, plain
        self.append: Callable[[Any, int], Any] = quick_append(int(ffi.cast("uintptr_t", self._state)), cells)
        """append(request, thread): see `tp_quick_append`."""

    def begin(
        self,
        name: str,
        place: NextPlace,
        how: WritePlace,
        numbers: tuple[int, int, int, int],
        until_ns: int,
        *,
        fsync: bool,
        left_flags: int,
    ) -> None:
        """Let `append` write to a topic until this time.

        numbers: id of the topic, next seq, last seq that may be given out, `$ts` of its last
        record. left_flags: requests with such rows are left to others.
        """
        cells = self._cells
        BEGUN.pack_into(self._next, 0, *place, *numbers, FLAG_FSYNC if fsync else 0, how.syncs)
        cells[lib.TP_CELL_NAME] = name
        if not how.address:
            cells[lib.TP_CELL_WRITE], cells[lib.TP_CELL_VIEW] = how.write, how.view
        self._times[:] = self._no_times
        _HOW.pack_into(
            self._how, 0, 1, how.address, until_ns, how.start, how.fd, how.dsync, left_flags, 0, 0, 0, 0, 0, 0
        )

    @property
    def bytes(self) -> int:
        """Bytes of the batches that were written. Any thread may ask."""
        return int(self._state.bytes)

    def stop(self) -> None:
        """Let `append` write nothing more."""
        self._state.is_open = 0

    @property
    def failed(self) -> tuple[int, int] | None:
        """The arguments of `QuickLog.take_back` if the last write since `begin` was not whole."""
        expected, result = self._state.expected, self._state.result
        return None if result == expected else (expected, result)

    def end(self) -> Unpublished | None:
        """Stop; return what was written since `begin`, if anything was."""
        state, cells = self._state, self._cells
        state.is_open = 0
        cells[lib.TP_CELL_WRITE] = cells[lib.TP_CELL_VIEW] = None
        batches, rows = state.batches, state.rows
        if not batches:
            return None
        return Unpublished(
            batches,
            rows,
            state.size,
            state.bytes,
            state.first_begin,
            state.end,
            state.ts_ms,
            state.checksum,
            state.ended_ns,
            self._placed[0 : rows * PLACED.size],
            _distribution(state.appends, batches),
            _distribution(state.writes, batches),
            list(state.write_ns[0:batches]) if state.next.syncs else [],
        )

    def forget(self) -> None:
        """Give up what the callable refers to, when the log is closed."""
        self.stop()
        self._cells[:] = [None] * len(self._cells)


def _distribution(times: Any, count: int) -> Distribution:
    return make_tuple(Distribution, (count, times.total_ns, ffi.unpack(times.buckets, BUCKET_COUNT)))
