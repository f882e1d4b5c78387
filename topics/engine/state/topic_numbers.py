"""What may happen to the numbers of a topic: seqs, times, the reservation, and what is staged. No other module changes
them (`tests/project/test_one_write.py`), so what holds between them can be read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from topics.store.format.rows import Framed, Rows

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

    def add(self, write: Any, rows: Rows, framed: Framed, ts: int) -> None: ...


class TopicNumbers:
    """Readers see seqs up to `head`; seqs up to `next_seq` - 1 are given out."""

    __slots__ = (
        "filling",
        "generation",
        "growing",
        "head",
        "last_ts",
        "next_seq",
        "pending",
        "pending_bytes",
        "pending_records",
        "reserved",
    )

    def __init__(self) -> None:
        self.head = 0
        self.next_seq = 1
        self.last_ts = 0
        """`$ts` of the newest record that was staged."""
        self.pending: list[Operation] = []
        """Staged and not applied yet, in the order in which they will be, which is that of their seqs."""
        self.pending_records = 0
        self.pending_bytes = 0
        self.filling: TakesRows | None = None
        """The last of `pending` while it may still take rows of this pass."""
        self.reserved = NO_RESERVATION
        """Class `disk`: seqs up to here may be acknowledged before they are on stable storage (R-DUR-6)."""
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

    # --- the queue ----------------------------------------------------------------------------------------------------
    def enqueue(self, operation: Operation) -> None:
        """Queue an operation: what is staged from here on comes after it."""
        self.filling = None
        self.pending.append(operation)

    def fill(self, operation: TakesRows) -> None:
        """Let the operation that was queued last take the rows that come in this pass."""
        self.filling = operation

    def dequeue(self, operation: Operation) -> None:
        """Take the first operation out of the queue: it is decided."""
        assert self.pending[0] is operation, "a topic's operations are decided in order"
        del self.pending[0]

    def stop_filling(self) -> None:
        """Rows that come from here on are an operation of their own."""
        self.filling = None

    # --- decided ------------------------------------------------------------------------------------------------------
    def unstage(self, operation: object, count: int, size: int) -> None:
        """The records of an operation are published or have failed: they are pending no more."""
        if self.filling is operation:
            self.filling = None
        self.pending_records -= count
        self.pending_bytes -= size

    def show(self, upto: int) -> None:
        """Let readers see the seqs up to here."""
        self.head = upto

    def write_through(self, count: int, ts: int) -> int:
        """Give out the next seqs to records that are committed already, and show them; return the last one."""
        last = self.head = self.next_seq + count - 1
        self.next_seq = last + 1
        self.last_ts = ts
        return last

    # --- reservations -------------------------------------------------------------------------------------------------
    def need_reservation(self, needed: bool) -> None:
        """Set whether seqs are to be reserved: the class is `disk`, or it is another one."""
        if not needed:
            self.reserved = NO_RESERVATION
            self.growing = 0
        elif self.reserved == NO_RESERVATION:
            self.reserved = 0

    def lacks(self, count: int) -> bool:
        """Whether the next `count` seqs go beyond what is reserved."""
        return self.next_seq + count - 1 > self.reserved

    def is_short(self, first_seq: int) -> bool:
        """Whether little of the reservation is left at `first_seq`, and more is not on its way."""
        left = self.reserved - first_seq
        return left < _AHEAD_MAX and left < first_seq >> 2 and not self.growing

    def next_reservation(self, last_seq: int, count: int) -> int:
        """Begin a reservation of seqs beyond `last_seq`, that of a write of `count`; return its end."""
        self.generation += 1
        return last_seq + max(_RESERVE_MIN, min(_RESERVE_MAX, max(last_seq // 2, _RESERVE_REQUESTS * count)))

    def reserve(self, upto: int) -> None:
        """Count on a reservation whose commit publishes the first records that use it."""
        self.reserved = upto

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
                self.reserved = max(self.reserved, upto)

    def lose_reservation(self) -> None:
        """Let the next write ask for another reservation: the commit of this one failed, or the class is changing."""
        if self.reserved != NO_RESERVATION:
            self.reserved = self.growing = 0

    def release_reservation(self) -> None:
        """Reserve no more than what is given out: a snapshot says so."""
        if self.reserved != NO_RESERVATION:
            self.reserved = self.next_seq - 1
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
            self.reserved = max(self.head, reserved)
        self.next_seq = max(self.next_seq, self.head + 1)
