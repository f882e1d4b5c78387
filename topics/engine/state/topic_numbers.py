"""What may happen to the numbers of a topic: seqs, times, the reservation, and what is staged. No other module changes
them (`tests/project/test_one_write.py`), so what holds between them can be read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from topics.store.format.rows import Framed

if TYPE_CHECKING:
    from topics.engine.state.staged_operations import Operation

NO_RESERVATION = (1 << 64) - 1
"""`reserved` of a class that needs none."""
_RESERVE_MIN = 256
_RESERVE_MAX = 1 << 20
_RESERVE_REQUESTS = 64
"""Of the size that passed the last reservation: what writes in large batches reserves more."""
_AHEAD_MAX = _RESERVE_MAX // 2


class TakesRows(Protocol):
    """An operation that was queued, and still takes the rows of further requests."""

    def add(self, write: Any, count: int, size: int, framed: Framed, ts: int, tags: Any) -> None: ...  # noqa: PLR0917


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
        """Records may have to go when others become visible: see `retain_caps`."""
        self.next_seq = 1
        self.last_ts = 0
        """`$ts` of the newest record that was staged."""
        self.last_write_ms = 0
        """`$ts` of the newest record that readers have seen; 0: this process has not met any."""
        self.pending: list[Operation] = []
        """Staged and not applied yet, in the order in which they will be, which is that of their seqs."""
        self.pending_records = 0
        self.pending_bytes = 0
        self.filling: TakesRows | None = None
        """The last of `pending` while it may still take rows of this pass."""
        self.reserved = NO_RESERVATION
        """Class `disk`: seqs up to here may be acknowledged before they are on stable storage (R-DUR-6)."""
        self.ample = NO_RESERVATION
        """A write whose last seq is at most this needs no reservation, neither for itself nor ahead of the next one:
        a bound that is quick to look at, below which `lacks` and `is_short` say no."""
        self.growing = 0
        """Generation of a reservation on its way to stable storage, which no write waits for; 0: there is none."""
        self.generation = 0
        """Counts reservations: those of a generation that a snapshot released do not count in recovery."""

    # --- giving out ---------------------------------------------------------------------------------------------------
    def stamp(self, now_ms: int) -> int:
        """Return the `$ts` of a record written now: it never goes back, whatever the clock does."""
        return now_ms if now_ms > self.last_ts else self.last_ts

    def take(self, count: int, size: int, ts: int) -> None:
        """Give out the next seqs to records whose frames are staged."""
        self.next_seq += count
        self.last_ts = ts
        self.pending_records += count
        self.pending_bytes += size

    def take_holes(self, count: int) -> None:
        """Give out the next seqs to what stands for records that a router's source has lost."""
        self.next_seq += count

    def stage(self, operation: Operation, count: int, size: int, ts: int) -> None:
        """Queue an operation whose frames are staged, and give out the next seqs to its records."""
        self.pending.append(operation)
        self.next_seq += count
        self.last_ts = ts
        self.pending_records += count
        self.pending_bytes += size

    # --- the queue ----------------------------------------------------------------------------------------------------
    def enqueue(self, operation: Operation) -> None:
        """Queue an operation: what is staged from here on comes after it."""
        self.filling = None
        self.pending.append(operation)

    def fill(self, operation: TakesRows) -> None:
        """Let the operation that was queued last take the rows that come in this pass."""
        self.filling = operation

    def stop_filling(self) -> None:
        """Rows that come from here on are an operation of their own."""
        self.filling = None

    # --- decided ------------------------------------------------------------------------------------------------------
    def unstage(self, count: int, size: int) -> None:
        """So many records failed: they are pending no more."""
        self.pending_records -= count
        self.pending_bytes -= size

    def publish(self, count: int, size: int, upto: int, ts: int) -> None:
        """Let readers see so many records, which were pending; the last one has this seq and this `$ts`."""
        self.pending_records -= count
        self.pending_bytes -= size
        self.head = upto
        self.last_write_ms = ts
        if self.has_caps:
            self.retain_caps()

    def publish_new(self, last: int, ts: int) -> None:
        """Give out the next seqs, up to this one, to records that are committed already, and let readers see them."""
        self.head = last
        self.next_seq = last + 1
        self.last_ts = self.last_write_ms = ts
        if self.has_caps:
            self.retain_caps()

    def show_holes(self, upto: int) -> None:
        """Let readers see that there is nothing up to here."""
        self.head = max(self.head, upto)

    def retain_caps(self) -> None:
        """Evict what is beyond the caps."""
        raise NotImplementedError

    # --- reservations -------------------------------------------------------------------------------------------------
    def need_reservation(self, needed: bool) -> None:
        """Set whether seqs are to be reserved: the class is `disk`, or it is another one."""
        if not needed:
            self.reserve(NO_RESERVATION)
            self.growing = 0
        elif self.reserved == NO_RESERVATION:
            self.reserve(0)

    def lacks(self, count: int) -> bool:
        """Whether the next `count` seqs go beyond what is reserved."""
        return self.next_seq + count - 1 > self.reserved

    def is_short(self, first_seq: int) -> bool:
        """Whether little of the reservation is left at `first_seq`, and more is not on its way."""
        left = self.reserved - first_seq  # `ample` follows from the next line
        return left < _AHEAD_MAX and left < first_seq >> 2 and not self.growing

    def next_reservation(self, last_seq: int, count: int) -> int:
        """Begin a reservation of seqs beyond `last_seq`, that of a write of `count`; return its end."""
        self.generation += 1
        return last_seq + max(_RESERVE_MIN, min(_RESERVE_MAX, max(last_seq // 2, _RESERVE_REQUESTS * count)))

    def reserve(self, upto: int) -> None:
        """Count on a reservation: durable, or in the commit that publishes the first records which use it."""
        self.reserved = upto
        self.ample = upto if upto == NO_RESERVATION else max(upto - _AHEAD_MAX, upto - upto // 5 - 1)

    def reserve_ahead(self) -> int:
        """Note that the newest reservation is on its way by itself; return what `reserved_ahead` asks for."""
        self.growing = self.generation
        return self.growing

    def reserved_ahead(self, generation: int, upto: int) -> None:
        """The reservation is on stable storage up to here, or has failed (0).

        It does not count if a snapshot has released it meanwhile, or if the class is another.
        """
        if self.growing == generation:
            self.growing = 0
            if upto:
                self.reserve(max(self.reserved, upto))

    def lose_reservation(self) -> None:
        """Let the next write ask for another reservation: the commit of this one failed, or the class is changing."""
        if self.reserved != NO_RESERVATION:
            self.reserve(0)
            self.growing = 0

    def release_reservation(self) -> None:
        """Reserve no more than what is given out: a snapshot says so."""
        if self.reserved != NO_RESERVATION:
            self.reserve(self.next_seq - 1)
            self.growing = 0

    # --- recovery -----------------------------------------------------------------------------------------------------
    def found(self, upto: int, ts: int = 0) -> None:
        """Records up to this seq, written up to this time, were there to be seen."""
        self.head = max(self.head, upto)
        self.last_ts = max(self.last_ts, ts)

    def found_taken(self, upto: int) -> None:
        """Seqs up to here were given out, whether to records or to writes that failed."""
        self.next_seq = max(self.next_seq, upto + 1)

    def found_generation(self, generation: int) -> None:
        """So many reservations were made."""
        self.generation = max(self.generation, generation)

    def begin(self, reserved: int) -> None:
        """All was found: go on after it. reserved: seqs up to here were, and still are."""
        if self.reserved != NO_RESERVATION:
            self.reserve(max(self.head, reserved))
        self.next_seq = max(self.next_seq, self.head + 1)
