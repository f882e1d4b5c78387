"""One topic as the wire contract states it, in the plainest way. Source: sections 5.3, 6.1 to 6.8, 6.11, 6.12."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.long.model.model_readers import NamedReader
from topics.engine.values.results import Tombstone


def compact(value: Any) -> int:
    """Accounted bytes of a JSON value."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def payload_size(data: Any) -> int:
    """Accounted bytes of a payload (R-BYTES-3): `bytes` are a record of bytes, anything else is JSON."""
    return len(data) if isinstance(data, bytes) else compact(data)


_NOT_HELD = 1 << 64
_ANY_SIZE = 1 << 64


@dataclass
class Record:
    """size: accounted bytes; data: `bytes`, or JSON; hops: R-RTR-12.

    ts: exact once it was read; until then (since is not None) a guess.
    """

    size: int
    tag: str | None = None
    node: str | None = None
    data: Any = None
    meta: Any = None
    hops: int = 0
    seq: int = 0
    ts: int = 0
    since: int | None = None
    delay_ms: int = 0
    ttl_ms: int = 0

    @property
    def is_guessed(self) -> bool:
        """A copy that no client has read: a router may be long in making it."""
        return self.since is not None and self.hops > 0

    @property
    def shown_size(self) -> int:
        """Share of `max_batch_bytes`: for bytes the length of their base64 text (R-BYTES-3)."""
        return self.size + (-(-len(self.data) // 3) * 4 - len(self.data) if isinstance(self.data, bytes) else 0)


@dataclass
class Topic:
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    window_ms: int = 120_000
    head: int = 0
    last_ts: int = 0
    cap: int = 0
    ttl: int = 0
    trim: int = 0
    deleted: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Interior trim gaps, first and last seq of each."""
    holes: set[int] = field(default_factory=set)
    """Seqs that expired by a ttl of their own, with something live below them (R-RTTL-4)."""
    live: dict[int, Record] = field(default_factory=dict)
    """By seq, ascending."""
    keys: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """Idempotency keys: first seq, last seq, and between which instants the write began."""
    readers: dict[str, NamedReader] = field(default_factory=dict)

    # --- what it shows -----------------------------------------------------------------------------------------------
    @property
    def expires(self) -> bool:
        """Whether records may expire."""
        return bool(self.ttl_ms) or any(record.ttl_ms for record in self.live.values())

    @property
    def lost(self) -> int:
        return max(self.cap, self.ttl, self.trim)

    @property
    def earliest(self) -> int:
        return next(iter(self.live), self.head + 1)

    @property
    def count(self) -> int:
        return len(self.live)

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.live.values())

    @property
    def held(self) -> int:
        """R-READER-8: neither a cap nor expiry takes a record above this seq."""
        return min((reader.committed for reader in self.readers.values() if reader.holds), default=_NOT_HELD)

    def begin(self, begin: Any) -> int:
        """R-FROM: the cursor that a beginning is."""
        if begin == "now":
            return self.head
        if begin == "first":
            return self.earliest - 1
        if "last" in begin:
            last = list(self.live)[-begin["last"] :] if begin["last"] else []
            return last[0] - 1 if last else self.head
        return next((seq - 1 for seq, record in self.live.items() if record.ts >= begin["time"]), self.head)

    def read(
        self,
        from_seq: int,
        limit: int,
        node: str | None,
        most_bytes: int = _ANY_SIZE,
        upto: int | None = None,
        *,
        match: str | None = None,
        only_node: str | None = None,
    ) -> tuple[list[int], int, Tombstone | None]:
        """seqs, next_from_seq, tombstone. upto: no record above it, nor the cursor past it without a tombstone.

        match, only_node: only records with such a tag, or of this node.
        """
        tombstone, cursor = None, from_seq
        if from_seq > self.head:
            tombstone = Tombstone(1, self.head, "recreated", max(self.head, 1), self.earliest, self.head)
            cursor = self.earliest - 1
        elif from_seq < self.lost:
            tombstone = self._tombstone(from_seq, self.lost, self._reason(from_seq + 1))
            cursor = self.lost
        live = next((seq for seq in self.live if seq > cursor), self.head + 1)
        before = min([live, *(first for first, last in self.gaps if last > cursor)])
        hole = max((seq for seq in self.holes if cursor < seq < before), default=0)
        if hole and tombstone is None:  # R-RTTL-5
            tombstone = self._tombstone(cursor, hole, "ttl")
            cursor = hole
        stop = min([self.head, *(seq - 1 for seq in self.holes if seq > cursor)])
        for first, last in self.gaps:
            if first - 1 <= cursor < last and tombstone is None:
                tombstone = self._tombstone(cursor, last, "source_trim")
                cursor = last
            elif first > cursor:
                stop = min(stop, first - 1)
                break
        stop = max(cursor, stop if upto is None else min(stop, upto))
        reach = [record for record in self.live.values() if cursor < record.seq <= stop]
        seqs: list[int] = []
        passed = 0  # a record that was left out after a look at its node
        for record in reach:
            if match is not None and (record.tag is None or not matches(match, record.tag)):
                continue
            if (node is not None and record.node == node) or (only_node is not None and record.node != only_node):
                passed = passed if record.node is None else record.seq
                continue
            most_bytes -= record.shown_size
            if len(seqs) == limit:
                return seqs, seqs[-1], tombstone
            if seqs and most_bytes < 0:
                return seqs, max(seqs[-1], passed), tombstone
            seqs.append(record.seq)
        # Without a node, a record needs no look by a reader of one node.
        looked_at = [record.seq for record in reach if only_node is None or record.node is not None]
        if len(seqs) < limit or looked_at[-1] <= seqs[-1]:
            return seqs, stop, tombstone
        return seqs, seqs[-1], tombstone

    def _tombstone(self, cursor: int, upto: int, reason: str) -> Tombstone:
        return Tombstone(cursor + 1, upto, reason, upto - cursor, upto + 1, self.head)

    def _reason(self, gap_from: int) -> str:
        by_cap, by_ttl = self.cap >= gap_from, self.ttl >= gap_from
        if by_cap and by_ttl:
            return "mixed"
        return "cap" if by_cap else "ttl" if by_ttl else "source_trim"

    # --- what happens to it ------------------------------------------------------------------------------------------
    def expire(self, now: int) -> None:
        for seq, record in list(self.live.items()):
            if record.ttl_ms and now - record.ts > record.ttl_ms and seq <= self.held:
                self.holes.add(seq)
                del self.live[seq]
        while self.earliest in self.live and self.ttl_ms and now - self.live[self.earliest].ts > self.ttl_ms:
            if self.earliest > self.held:
                break
            self.ttl = self.earliest
            del self.live[self.ttl]
        self.settle_gaps()

    def stretch(self, now: int) -> None:
        """Copies that no client has read may not exist yet: a router works after the answers."""
        for record in self.live.values():
            if record.is_guessed:
                record.ts = max(record.ts, now)

    def evict(self) -> None:
        while self.discard == "old" and (0 < self.cap_records < self.count or 0 < self.cap_bytes < self.bytes):
            if self.earliest > self.held:
                break
            self.cap = self.earliest
            del self.live[self.cap]
        self.settle_gaps()

    def room(self, sizes: list[int]) -> int:
        """How many of these, in order, it admits one by one (R-CAP-5, R-READER-8)."""
        count, size = self._occupied()
        for at, more in enumerate(sizes):
            if self.is_strict and (
                0 < self.cap_records < count + at + 1 or 0 < self.cap_bytes < size + sum(sizes[:at]) + more
            ):
                return at
        return len(sizes)

    @property
    def is_strict(self) -> bool:
        """Whether its caps refuse."""
        return self.discard == "reject" or self.held != _NOT_HELD

    def _occupied(self) -> tuple[int, int]:
        """Records and bytes that make no room for others."""
        stays = [each for each in self.live.values() if self.discard == "reject" or each.seq > self.held]
        return len(stays), sum(record.size for record in stays)

    def append(self, now: int, records: Iterable[Record], since: int | None = None) -> str:
        """A client's write. Returns "" or the code of the refusal."""
        self.expire(now)
        records = list(records)
        if self.is_strict:
            size = sum(record.size for record in records)
            if 0 < self.cap_records < len(records) or 0 < self.cap_bytes < size:
                return "record_too_large"
            taken = self._occupied()
            if 0 < self.cap_records < taken[0] + len(records) or 0 < self.cap_bytes < taken[1] + size:
                return "topic_full"
        self.add(now, records, since)
        return ""

    def add(self, now: int, records: Iterable[Record], since: int | None = None) -> None:
        """Without asking for room."""
        since = None if since is None else max(since, self._last_since())
        self.last_ts = max(now, self.last_ts)
        for record in records:
            self.head += 1
            self.live[self.head] = replace(record, seq=self.head, ts=self.last_ts, since=since)
        self.evict()

    def _last_since(self) -> int:
        last = next(reversed(self.live.values()), None)
        return 0 if last is None else last.ts if last.since is None else last.since

    def add_holes(self, count: int) -> None:
        """R-TRIM-1."""
        if count:
            if self.gaps and self.gaps[-1][1] == self.head:
                self.gaps[-1] = (self.gaps[-1][0], self.head + count)
            else:
                self.gaps.append((self.head + 1, self.head + count))
            self.head += count
            self.settle_gaps()

    def settle_gaps(self) -> None:
        """R-TRIM-2, R-RTTL-4."""
        while self.gaps and self.gaps[0][0] <= self.earliest:
            self.trim = max(self.trim, self.gaps.pop(0)[1])
        settled = {seq for seq in self.holes if seq < self.earliest}
        self.ttl = max([self.ttl, *settled])
        self.holes -= settled

    def delete(self, now: int, before: int | None, match: str | None) -> int:
        self.expire(now)
        return self.remove(before, match)

    def remove(self, before: int | None, match: str | None) -> int:
        bound = self.head if before is None else min(before - 1, self.head)
        doomed = [
            seq
            for seq, record in self.live.items()
            if seq <= bound and (match is None or (record.tag is not None and matches(match, record.tag)))
        ]
        for seq in doomed:
            del self.live[seq]
        if match is None:
            self.deleted = max(self.deleted, bound)
        self.settle_gaps()
        return len(doomed)

    def learn_ts(self, now: int, seq: int, ts: int) -> None:
        """A reader sees when a record was written; a copy comes after what it is made of."""
        record = self.live[seq]
        if record.since is not None:
            assert record.since <= ts <= now, f"{ts} is not in {record.since} .. {now}"
            record.ts, record.since = ts, None
            self.last_ts = max(self.last_ts, ts)
        assert record.ts == ts, f"seq {seq} was written at {record.ts}, now it says {ts}"


def matches(pattern: str, tag: str) -> bool:
    return tag.startswith(pattern[:-1]) if pattern.endswith("*") else tag == pattern
