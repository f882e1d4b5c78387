"""The numbers of a topic and every change of them: seqs, times, reservation, staged records.

No other module changes them (`tests/project/structure/test_one_write.py`), so that the relations
between them can be checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.rows import Framed, RowTimes

NO_RESERVATION = (1 << 64) - 1
"""The value of `reserved` for a class that needs no reservation."""
_RESERVE_MIN = 256
_RESERVE_MAX = 1 << 20
_RESERVE_REQUESTS = 64
"""Writes as large as the one that exceeded the last reservation: larger batches reserve more."""
_AHEAD_MAX = _RESERVE_MAX // 2


class Staged(Protocol):
    """An operation that is queued until its commit ends: see staged_operations.py."""

    commit: Commit | None
    """The commit, once it has ended."""

    def apply(self, commit: Commit) -> None: ...
    def fail(self, error: TopicsError) -> None: ...
    def deletes(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_] | bool: ...


class TakesRows(Protocol):
    """A queued operation that still takes the rows of further requests."""

    batch_number: int
    """Number of the log's batch with its rows: one commit ends it, so it takes none of another."""

    def add(self, write: Any, count: int, size: int, framed: Framed, ts: int, tags: Any) -> None: ...  # noqa: PLR0917
    def note_times(self, first: int, ts: int, delays: RowTimes, ttls: RowTimes) -> None: ...


class TopicNumbers:
    """Readers see seqs up to `head`; seqs up to `next_seq` - 1 are given out."""

    __slots__ = (
        "ample",
        "filling",
        "generation",
        "growing",
        "has_caps",
        "head",
        "last_ts",
        "last_write_ms",
        "next_seq",
        "pending",
        "pending_bytes",
        "pending_records",
        "reserved",
    )

    def __init__(self) -> None:
        self.head = 0
        self.has_caps = False
        """Whether newly visible records may evict others: see `retain_caps`."""
        self.next_seq = 1
        self.last_ts = 0
        """The `$ts` of the newest staged record."""
        self.last_write_ms = 0
        """The `$ts` of the newest visible record; 0 if this process has not published any."""
        self.pending: list[Staged] = []
        """Operations staged and not applied yet, in the order of application, which is that of
        their seqs.
        """
        self.pending_records = 0
        self.pending_bytes = 0
        self.filling: TakesRows | None = None
        """The last of `pending` while it may still take rows of this pass."""
        self.reserved = NO_RESERVATION
        """Class `disk`: seqs up to here may be acknowledged before they are on stable storage
        (R-DUR-6).
        """
        self.ample = NO_RESERVATION
        """A write whose last seq is at most this needs no reservation, neither now nor in advance.
        This one comparison replaces `lacks` and `is_short`, which are both false below it.
        """
        self.growing = 0
        """The generation of a reservation in flight that no write waits for; 0 if there is none."""
        self.generation = 0
        """The counter of reservations. Recovery ignores those of generations that a snapshot
        released.
        """

    # --- giving out ---------------------------------------------------------------------------------------------------
    def stamp(self, now_ms: int) -> int:
        """Return the `$ts` of a record written now. It never decreases, even if the clock does."""
        return now_ms if now_ms > self.last_ts else self.last_ts

    def take_seqs(self, count: int, size: int, ts: int) -> None:
        """Give out the next seqs to records whose frames are staged."""
        self.next_seq += count
        self.last_ts = ts
        self.pending_records += count
        self.pending_bytes += size

    def skip_holes(self, count: int) -> None:
        """Give out the next seqs to holes for records that a router's source has lost."""
        self.next_seq += count

    # --- the queue ----------------------------------------------------------------------------------------------------
    def enqueue(self, operation: Staged) -> None:
        """Queue an operation; later operations are staged after it."""
        self.filling = None
        self.pending.append(operation)

    def fill(self, operation: TakesRows) -> None:
        """Let the operation that was queued last take further rows of this pass."""
        self.filling = operation

    def stop_filling(self) -> None:
        """Make further rows an operation of their own."""
        self.filling = None

    # --- decided ------------------------------------------------------------------------------------------------------
    def unstage(self, count: int, size: int) -> None:
        """Stop counting records as pending that failed."""
        self.pending_records -= count
        self.pending_bytes -= size

    def publish_new(self, last: int, ts: int) -> None:
        """Give out the next seqs up to `last` to committed records, and make them visible."""
        self.head = last
        self.next_seq = last + 1
        self.last_ts = self.last_write_ms = ts
        if self.has_caps:
            self.retain_caps()

    def show_holes(self, upto: int) -> None:
        """Advance the head over holes up to this seq."""
        self.head = max(self.head, upto)

    def retain_caps(self) -> None:
        """Evict the records beyond the caps."""
        raise NotImplementedError

    # --- reservations -------------------------------------------------------------------------------------------------
    def need_reservation(self, needed: bool) -> None:
        """Set whether seqs are to be reserved: True for class `disk`."""
        if not needed:
            self.reserve(NO_RESERVATION)
            self.growing = 0
        elif self.reserved == NO_RESERVATION:
            self.reserve(0)

    def lacks(self, count: int) -> bool:
        """Return whether the next `count` seqs exceed the reservation."""
        return self.next_seq + count - 1 > self.reserved

    def is_short(self, first_seq: int) -> bool:
        """Return whether the reservation is nearly used at `first_seq`, and none in flight."""
        left = self.reserved - first_seq  # `reserve` derives `ample` from the next line.
        return left < _AHEAD_MAX and left < first_seq >> 2 and not self.growing

    def next_reservation(self, last_seq: int, count: int) -> int:
        """Begin a reservation beyond `last_seq`, the last of a write of `count`; return its end."""
        self.generation += 1
        return last_seq + max(_RESERVE_MIN, min(_RESERVE_MAX, max(last_seq // 2, _RESERVE_REQUESTS * count)))

    def reserve(self, upto: int) -> None:
        """Count on a reservation: durable, or in the commit of its first records."""
        self.reserved = upto
        self.ample = upto if upto == NO_RESERVATION else max(upto - _AHEAD_MAX, upto - upto // 5 - 1)

    def reserve_ahead(self) -> int:
        """Note that the newest reservation is in flight by itself.

        Returns: the token for `reserved_ahead`.
        """
        self.growing = self.generation
        return self.growing

    def reserved_ahead(self, generation: int, upto: int) -> None:
        """Note the outcome of `reserve_ahead`: on stable storage up to `upto`, or failed (0).

        It is ignored if a snapshot has released it meanwhile, or if the class has changed.
        """
        if self.growing == generation:
            self.growing = 0
            if upto:
                self.reserve(max(self.reserved, upto))

    def lose_reservation(self) -> None:
        """Make the next write reserve again, after a failed commit or before a change of class."""
        if self.reserved != NO_RESERVATION:
            self.reserve(0)
            self.growing = 0

    def release_reservation(self) -> None:
        """Reduce the reservation to the seqs given out, as a snapshot states."""
        if self.reserved != NO_RESERVATION:
            self.reserve(self.next_seq - 1)
            self.growing = 0

    # --- recovery -----------------------------------------------------------------------------------------------------
    def found_visible(self, upto: int, ts: int = 0) -> None:
        """Note that records up to this seq, written up to this time, were visible."""
        self.head = max(self.head, upto)
        self.last_ts = max(self.last_ts, ts)

    def found_taken(self, upto: int) -> None:
        """Note that seqs up to here were given out, to records or to failed writes."""
        self.next_seq = max(self.next_seq, upto + 1)

    def found_generation(self, generation: int) -> None:
        """Note the number of reservations made."""
        self.generation = max(self.generation, generation)

    def begin_writes(self, reserved: int) -> None:
        """End recovery: continue after all that was found.

        reserved: seqs up to this one are reserved.
        """
        if self.reserved != NO_RESERVATION:
            self.reserve(max(self.head, reserved))
        self.next_seq = max(self.next_seq, self.head + 1)


# --- many topics: a pass may write to hundreds, so nothing is called for each --------------------------------------
def stamps_of(topics: Iterable[TopicNumbers], now_ms: int) -> list[int]:
    """Return `stamp(now_ms)` of each topic."""
    return [now_ms if now_ms > topic.last_ts else topic.last_ts for topic in topics]


def stage_each(
    operation: Staged,
    topics: Iterable[TopicNumbers],
    counts: Sequence[int],
    sizes: Sequence[int],
    stamps: Sequence[int],
) -> None:
    """Queue an operation whose frames are staged, and give out the next seqs of each topic."""
    for topic, count, size, ts in zip(topics, counts, sizes, stamps, strict=True):
        topic.pending.append(operation)
        topic.next_seq += count
        topic.last_ts = ts
        topic.pending_records += count
        topic.pending_bytes += size


def publish_each(
    topics: Iterable[TopicNumbers],
    first_seqs: Sequence[int],
    counts: Sequence[int],
    sizes: Sequence[int],
    stamps: Sequence[int],
) -> None:
    """Make pending records of each topic visible. stamps: `$ts` of the last ones."""
    for topic, first, count, size, ts in zip(topics, first_seqs, counts, sizes, stamps, strict=True):
        topic.pending_records -= count
        topic.pending_bytes -= size
        topic.head = first + count - 1
        topic.last_write_ms = ts
        if topic.has_caps:
            topic.retain_caps()
