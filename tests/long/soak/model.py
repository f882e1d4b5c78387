"""The required state of a topic: the oracle of kill_loop.py, for processes that are killed (the page cache survives).

A `Topic` is the state after the last answered operation. An operation that was cut off leaves several states that are
right; `outcomes` lists them, and a client that reads the server back picks the one that is there.
"""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Record(NamedTuple):
    data: str | bytes
    tag: str | None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Record:
        """The record of a row that was read."""
        encoded = row.get("data_base64")
        return cls(row["data"] if encoded is None else base64.b64decode(encoded), row.get("$tag"))

    @property
    def size(self) -> int:
        """Accounted bytes: of compact JSON of an ASCII string without escapes, or the bytes."""
        return len(self.data) if isinstance(self.data, bytes) else len(self.data) + 2

    @property
    def row(self) -> dict[str, Any]:
        """The row to write."""
        if isinstance(self.data, bytes):
            return {"data_base64": base64.b64encode(self.data).decode(), "tag": self.tag}
        return {"data": self.data, "tag": self.tag}


class Written(NamedTuple):
    """The answer of an idempotent write."""

    first: int
    last: int
    head: int


@dataclass(slots=True)
class Topic:
    """exists False: deleted, or never made. floor: highest seq a cap has taken.

    reader: position of its named reader, -1 if it has none.
    """

    name: str
    exists: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    head: int = 0
    floor: int = 0
    reader: int = -1
    records: dict[int, Record] = field(default_factory=dict)
    keys: dict[str, Written] = field(default_factory=dict)

    # --- what it shows -----------------------------------------------------------------------------------------------
    @property
    def earliest(self) -> int:
        return next(iter(self.records), self.head + 1)

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.records.values())

    def state(self) -> dict[str, Any]:
        """The fields of GET /v0/topics/:topic that an oracle can know."""
        return {
            "head_seq": self.head,
            "earliest_seq": self.earliest,
            "count": len(self.records),
            "bytes": self.bytes,
            "config": {"cap_records": 0, "cap_bytes": 0, **self.config},
        }

    def tombstone(self, cursor: int) -> tuple[int, int] | None:
        """(gap_from, gap_to) that is reported to a reader at the cursor."""
        if cursor > self.head:
            return (1, self.head)
        return (cursor + 1, self.floor) if cursor < self.floor else None

    # --- what happens to it ------------------------------------------------------------------------------------------
    def create(self, config: dict[str, Any]) -> None:
        if not self.exists:
            self.__init__(self.name, exists=True)  # type: ignore[misc]
        self.config = config
        self._evict()

    def delete(self) -> None:
        self.__init__(self.name)  # type: ignore[misc]

    def write(self, records: list[Record], key: str | None) -> Written:
        """The answer; the first one again for a key that is known."""
        if key is not None and key in self.keys:
            return self.keys[key]
        first = self.head + 1
        self.records.update(zip(range(first, first + len(records)), records, strict=True))
        self.head += len(records)
        written = Written(first, self.head, self.head)
        if key is not None:
            self.keys[key] = written
        self._evict()
        return written

    def put_reader(self) -> None:
        self.reader = max(self.reader, 0)

    def seek(self, seq: int) -> None:
        self.reader = seq

    def delete_records(self, before: int | None, match: str | None) -> int:
        bound = self.head + 1 if before is None else min(before, self.head + 1)
        dead = [seq for seq, record in self.records.items() if seq < bound and _matches(record, match)]
        for seq in dead:
            del self.records[seq]
        return len(dead)

    def _evict(self) -> None:
        cap_records, cap_bytes = self.config.get("cap_records", 0), self.config.get("cap_bytes", 0)
        total = self.bytes
        while (cap_records and len(self.records) > cap_records) or (cap_bytes and total > cap_bytes):
            self.floor = next(iter(self.records))
            total -= self.records.pop(self.floor).size


def _matches(record: Record, match: str | None) -> bool:
    if match is None:
        return True
    if record.tag is None:
        return False
    return record.tag.startswith(match[:-1]) if match.endswith("*") else record.tag == match


class Operation(NamedTuple):
    """A call on a topic: `method` of Topic with `arguments`. create: made by the same call if it does not exist."""

    method: str
    arguments: tuple[Any, ...] = ()
    create: dict[str, Any] | None = None

    def apply(self, topic: Topic) -> Any:
        if self.create is not None and not topic.exists:
            topic.create(self.create)
        return getattr(topic, self.method)(*self.arguments)


def outcomes(topic: Topic, cut_off: Operation | None) -> list[Topic]:
    """Return the right states when it is unknown whether the operation was carried out: whole or not at all."""
    states = [topic]
    if cut_off is not None:
        if cut_off.create is not None and not topic.exists:
            states.append(copy.deepcopy(topic))
            states[-1].create(cut_off.create)
        states.append(copy.deepcopy(topic))
        cut_off.apply(states[-1])
    return states
