"""The content of one topic as clients see it, written only from the wire contract: the reference
for the server.

A `State` is never changed: every operation makes a new one. So all states that a topic has been in
can be stored, and after a crash the topic must be in one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

from tests.sim.whole.clients.payloads import payload_of

PRODUCER_EPOCHS = 3
"""`producer_epochs` of every life."""
CONFIG_DEFAULT = {"cap_records": 0, "cap_bytes": 0, "discard": "old", "durability": "disk"}


class Record(NamedTuple):
    data: str
    tag: str | None
    node: str | None = None
    meta: str | None = None

    @property
    def size(self) -> int:
        """Return the accounted bytes of a text: compact JSON of ASCII strings without escapes."""
        return len(self.data) + 2 + (len(self.meta) + 2 if self.meta is not None else 0)

    def shown_size(self, as_base64: bool) -> int:
        """Return the bytes of a read's budget that the record takes."""
        payload = payload_of(self.data) if as_base64 else None
        return self.size if payload is None else self.size - len(payload) + (len(payload) + 2) // 3 * 4


class Gap(NamedTuple):
    """Seqs that a power cut took, above live records."""

    first: int
    last: int


class Page(NamedTuple):
    """The right content of a read.

    `next_max` is the highest cursor that it may give back, `next_min` the lowest.
    """

    tombstone: dict[str, Any] | None
    seqs: list[int]
    next_min: int
    next_max: int


class Part(NamedTuple):
    """The name of a part of a producer's records."""

    producer: str
    epoch: int
    part: int


class Appended(NamedTuple):
    """A part that was appended: its seqs, and its records in an order of their own."""

    first: int
    last: int
    records: list[Record]


class Refused(Exception):
    """The write is to be refused with this status, and changes nothing. detail: expected members of
    its error's detail.
    """

    def __init__(self, status: int, detail: dict[str, Any] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.detail = detail or {}


class State:
    """One instance of a topic. head, cap, crash, gaps: the contract's H, L_cap, the crash floor and
    interior gaps.
    """

    __slots__ = (
        *("bytes", "cap", "config", "crash", "forgotten", "gaps", "head", "instance", "keys", "parts", "records"),
        "_identity",
    )

    def __init__(self, config: dict[str, Any], instance: int) -> None:
        self.config = config
        self.instance = instance
        """Number of this instance among those of the name, as its owner counts them."""
        self.head = 0
        self.cap = 0
        self.crash = 0
        self.gaps: tuple[Gap, ...] = ()
        self.records: dict[int, Record] = {}
        self.bytes = 0
        self.keys: dict[str, tuple[int, int]] = {}
        self.parts: dict[Part, Appended] = {}
        self.forgotten: dict[str, int] = {}
        """By producer: the highest epoch whose parts are not known any more."""
        self._identity: tuple[object, ...] | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Return a value that is equal for states which clients cannot distinguish.

        Only for states that change no more.
        """
        if self._identity is None:
            self._identity = (
                *(self.instance, self.head, self.cap, self.crash, self.gaps),
                *(tuple(self.records), tuple(self.records.values())),
                tuple(self.keys),
                tuple(self.parts),
                tuple(self.config.values()),
            )
        return self._identity

    def copy(self) -> State:
        new = State(self.config, self.instance)
        new.head, new.cap, new.crash, new.gaps, new.bytes = self.head, self.cap, self.crash, self.gaps, self.bytes
        new.records = self.records.copy()
        new.keys, new.parts, new.forgotten = self.keys, self.parts, self.forgotten
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

    def beginning(self, begin: Any) -> int:
        """Return the cursor that a beginning by name stands for (R-FROM-4)."""
        if begin == "now":
            return self.head
        if begin == "first":
            return self.earliest - 1
        count = begin["last"]
        live = list(self.records)[-count:] if count else []
        return live[0] - 1 if live else self.head

    def read(
        self,
        cursor: int,
        limit: int,
        max_bytes: int = 0,
        *,
        as_base64: bool = False,
        which: dict[str, str] | None = None,
    ) -> Page:
        """Return the right page: R-TOMB-1..6, R-REC-2, R-TRIM-3, R-BYTES-3, R-MATCH-1..5.

        max_bytes: 0 for more than there are. which: the reader's filters.
        """
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
        passes = _filter(which or {})
        seqs = [seq for seq, record in self.records.items() if cursor < seq <= stop and passes(record)]
        if max_bytes:
            sums = accumulate(self.records[seq].shown_size(as_base64) for seq in seqs)
            limit = min(limit, max(1, sum(size <= max_bytes for size in sums)))
        if len(seqs) > limit:
            return Page(tombstone, seqs[:limit], seqs[limit - 1], seqs[limit] - 1)
        if len(seqs) == limit:
            return Page(tombstone, seqs, seqs[-1], stop)
        return Page(tombstone, seqs, stop, stop)

    # --- what happens to it ------------------------------------------------------------------------------------------
    def known(self, part: Part, records: list[Record]) -> tuple[int, int] | None:
        """Return the seqs that answer a part which was appended before; None: the part is new.

        Raises: Refused (R-PROD-2, R-PROD-3).
        """
        found = self.parts.get(part)
        name = {"producer": part.producer, "epoch": part.epoch}
        if found is not None:
            if found.records != in_any_order(records):
                raise Refused(409, {**name, "part": part.part})
            return found.first, found.last
        epochs = self._epochs(part.producer)
        forgotten = self.forgotten.get(part.producer, -1)
        if part.epoch <= forgotten or (len(epochs) == PRODUCER_EPOCHS and part.epoch < epochs[0]):
            raise Refused(409, {**name, "newest": max([*epochs, forgotten])})
        return None

    def _epochs(self, producer: str) -> list[int]:
        return sorted({part.epoch for part in self.parts if part.producer == producer})

    def write(self, records: list[Record], key: str | None, first: int = 0, part: Part | None = None) -> State:
        """Return the state after a write whose key or part is unknown or expired.

        first: the seq that the server gave, if failed writes may have taken some. Raises: Refused
        (R-CAP-5).
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
        if part is not None:
            new.parts = {**self.parts, part: Appended(first, new.head, in_any_order(records))}
            new.forget_epochs(part.producer)
        new.evict()
        return new

    def forget_epochs(self, producer: str) -> None:
        """Forget the parts of all but the newest epochs (R-PROD-3)."""
        epochs = self._epochs(producer)
        if len(epochs) > PRODUCER_EPOCHS:
            self.forgotten = {**self.forgotten, producer: epochs[0]}
            lowest = (producer, epochs[0])
            self.parts = {part: found for part, found in self.parts.items() if part[:2] != lowest}

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
        """Evict records by the caps (R-CAP-1, 3, 4, 6)."""
        if self.config["discard"] == "reject":
            return
        most, most_bytes = self.config["cap_records"], self.config["cap_bytes"]
        while (most and len(self.records) > most) or (most_bytes and self.bytes > most_bytes):
            self.cap = next(iter(self.records))
            self.bytes -= self.records.pop(self.cap).size
        self.settle()

    def settle(self) -> None:
        """Merge gaps without a live record below them into the floor (R-TRIM-2; the same for crash
        gaps).
        """
        while self.gaps and self.gaps[0].first <= self.earliest:
            self.crash = max(self.crash, self.gaps[0].last)
            self.gaps = self.gaps[1:]

    def after_power_cut(self, head: int) -> State:
        """Return the state after a power cut: seqs up to `head` are skipped, and those above the
        survivors are a gap (R-DUR-6).
        """
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


def in_any_order(records: list[Record]) -> list[Record]:
    """Return the records in an order that depends only on their content."""
    return sorted(records, key=repr)


def _filter(which: dict[str, str]) -> Callable[[Record], bool]:
    """Return whether a reader with these filters gets a record."""
    match, node, only = which.get("match"), which.get("node"), which.get("only_node")
    return lambda record: (
        _matches(record, match) and (node is None or record.node != node) and (only is None or record.node == only)
    )


def _matches(record: Record, match: str | None) -> bool:
    if match is None:
        return True
    if record.tag is None:
        return False
    return record.tag.startswith(match[:-1]) if match.endswith("*") else record.tag == match
