"""What one topic holds and shows, written from the wire contract alone: the reference a server is compared with.

A `State` is never changed: every operation makes a new one, so that all states a topic has been in can be kept, and a
crash be answered with "it must be one of these".
"""

from __future__ import annotations

from typing import Any, NamedTuple

CONFIG_DEFAULT = {"cap_records": 0, "cap_bytes": 0, "discard": "old", "durability": "disk"}


class Record(NamedTuple):
    data: str
    tag: str | None
    node: str | None = None
    meta: str | None = None

    @property
    def size(self) -> int:
        """Accounted bytes: the compact JSON of ASCII strings without escapes."""
        return len(self.data) + 2 + (len(self.meta) + 2 if self.meta is not None else 0)


class Gap(NamedTuple):
    """Seqs a power cut took, above live records."""

    first: int
    last: int


class Page(NamedTuple):
    """What a read must say. `next_max` is the highest cursor it may give back, `next_min` the lowest."""

    tombstone: dict[str, Any] | None
    seqs: list[int]
    next_min: int
    next_max: int


class Refused(Exception):
    """The write is to be refused with this status; nothing changes."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class State:
    """One instance of a topic. head, cap, crash, gaps: the contract's H, L_cap, the crash floor and interior gaps."""

    __slots__ = ("bytes", "cap", "config", "crash", "gaps", "head", "instance", "keys", "records")

    def __init__(self, config: dict[str, Any], instance: int) -> None:
        self.config = config
        self.instance = instance
        """Which life of the name this is, as its owner counts them."""
        self.head = 0
        self.cap = 0
        self.crash = 0
        self.gaps: tuple[Gap, ...] = ()
        self.records: dict[int, Record] = {}
        self.bytes = 0
        self.keys: dict[str, tuple[int, int]] = {}

    def copy(self) -> State:
        new = State(self.config, self.instance)
        new.head, new.cap, new.crash, new.gaps, new.bytes = self.head, self.cap, self.crash, self.gaps, self.bytes
        new.records = self.records.copy()
        new.keys = self.keys
        return new

    # --- what it shows -----------------------------------------------------------------------------------------------
    @property
    def earliest(self) -> int:
        return next(iter(self.records), self.head + 1)

    @property
    def lost(self) -> int:
        return max(self.cap, self.crash)

    def tombstone(self, first: int, last: int) -> dict[str, Any]:
        return {
            "gap_from": first,
            "gap_to": last,
            "reason": "cap" if self.cap >= first else "crash",
            "missed_estimate": last - first + 1,
            "earliest_seq": last + 1,
            "head_seq": self.head,
        }

    def read(self, cursor: int, limit: int) -> Page:
        """R-TOMB-1..6, R-REC-2, R-TRIM-3."""
        tombstone = None
        if cursor > self.head:
            earliest = self.earliest
            tombstone = self.tombstone(1, self.head) | {
                "reason": "recreated",
                "missed_estimate": max(self.head, 1),
                "earliest_seq": earliest,
            }
            cursor = earliest - 1
        elif cursor < self.lost:
            tombstone = self.tombstone(cursor + 1, self.lost)
            cursor = self.lost
        stop = self.head
        for gap in self.gaps:
            if gap.first - 1 <= cursor < gap.last and tombstone is None:
                tombstone = self.tombstone(cursor + 1, gap.last) | {"reason": "crash"}
                cursor = gap.last
            elif gap.first > cursor:
                stop = gap.first - 1
                break
        seqs = [seq for seq in self.records if cursor < seq <= stop]
        if len(seqs) > limit:
            return Page(tombstone, seqs[:limit], seqs[limit - 1], seqs[limit] - 1)
        if len(seqs) == limit:
            return Page(tombstone, seqs, seqs[-1], stop)
        return Page(tombstone, seqs, stop, stop)

    # --- what happens to it ------------------------------------------------------------------------------------------
    def write(self, records: list[Record], key: str | None, first: int = 0) -> State:
        """A write whose key is not known, or not any more.

        first: the seq the server gave, when failed writes may have burned some. Raises Refused (R-CAP-5).
        """
        size = sum(record.size for record in records)
        if self.config["discard"] == "reject":
            most, most_bytes = self.config["cap_records"], self.config["cap_bytes"]
            if 0 < most < len(records) or 0 < most_bytes < size:
                raise Refused(400)
            if 0 < most < len(self.records) + len(records) or 0 < most_bytes < self.bytes + size:
                raise Refused(422)
        new = self.copy()
        first = first or self.head + 1
        new.records.update(zip(range(first, first + len(records)), records, strict=True))
        new.head = first + len(records) - 1
        new.bytes += size
        if key is not None:
            new.keys = {**self.keys, key: (first, new.head)}
        new.evict()
        return new

    def delete_records(self, before: int | None, match: str | None) -> State:
        bound = self.head + 1 if before is None else min(before, self.head + 1)
        dead = [(seq, record) for seq, record in self.records.items() if seq < bound and _matches(record, match)]
        if not dead:
            return self
        new = self.copy()
        for seq, record in dead:
            del new.records[seq]
            new.bytes -= record.size
        new.settle()
        return new

    def configure(self, config: dict[str, Any]) -> State:
        if config == self.config:
            return self
        new = self.copy()
        new.config = config
        new.evict()
        return new

    def evict(self) -> None:
        """R-CAP-1, 3, 4, 6."""
        if self.config["discard"] == "reject":
            return
        most, most_bytes = self.config["cap_records"], self.config["cap_bytes"]
        while (most and len(self.records) > most) or (most_bytes and self.bytes > most_bytes):
            self.cap = next(iter(self.records))
            self.bytes -= self.records.pop(self.cap).size
        self.settle()

    def settle(self) -> None:
        """A gap with nothing live below belongs to the floor (R-TRIM-2, as for crash gaps)."""
        while self.gaps and self.gaps[0].first <= self.earliest:
            self.crash = max(self.crash, self.gaps[0].last)
            self.gaps = self.gaps[1:]

    def after_power_cut(self, head: int) -> State:
        """The seqs up to `head` are skipped, and those above what survived are a gap (R-DUR-6)."""
        if head <= self.head:
            return self
        new = self.copy()
        gap = Gap(self.head + 1, head)
        if new.gaps and new.gaps[-1].last + 1 == gap.first:
            gap = Gap(new.gaps[-1].first, head)
            new.gaps = new.gaps[:-1]
        new.gaps = (*new.gaps, gap)
        new.head = head
        new.settle()
        return new


def _matches(record: Record, match: str | None) -> bool:
    if match is None:
        return True
    if record.tag is None:
        return False
    return record.tag.startswith(match[:-1]) if match.endswith("*") else record.tag == match
