"""One topic as the wire contract tells it, in the plainest way: the oracle of the state machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from topics.engine.results import Tombstone


@dataclass
class ModelRecord:
    seq: int
    ts: int
    size: int
    tag: str | None
    node: str | None


@dataclass
class Model:
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    head: int = 0
    last_ts: int = 0
    cap: int = 0
    ttl: int = 0
    deleted: int = 0
    live: dict[int, ModelRecord] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return max(self.cap, self.ttl)

    @property
    def earliest(self) -> int:
        return min(self.live, default=self.head + 1)

    @property
    def count(self) -> int:
        return len(self.live)

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.live.values())

    def expire(self, now: int) -> None:
        while self.live and self.ttl_ms and now - self.live[self.earliest].ts > self.ttl_ms:
            self.ttl = self.earliest
            del self.live[self.ttl]

    def evict(self) -> None:
        while self.discard == "old" and (0 < self.cap_records < self.count or 0 < self.cap_bytes < self.bytes):
            self.cap = self.earliest
            del self.live[self.cap]

    def append(self, now: int, records: list[tuple[int, str | None, str | None]]) -> str:
        """(size, tag, node) each. Returns "" or the code of the refusal."""
        self.expire(now)
        if self.discard == "reject":
            size = sum(record[0] for record in records)
            if 0 < self.cap_records < len(records) or 0 < self.cap_bytes < size:
                return "record_too_large"
            if 0 < self.cap_records < self.count + len(records) or 0 < self.cap_bytes < self.bytes + size:
                return "topic_full"
        self.last_ts = max(now, self.last_ts)
        for size, tag, node in records:
            self.head += 1
            self.live[self.head] = ModelRecord(self.head, self.last_ts, size, tag, node)
        self.evict()
        return ""

    def delete(self, now: int, before: int | None, match: str | None) -> int:
        self.expire(now)
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
        return len(doomed)

    def read(self, from_seq: int, limit: int, node: str | None) -> tuple[list[int], int, Tombstone | None]:
        """seqs, next_from_seq, tombstone."""
        tombstone, cursor = None, from_seq
        if from_seq > self.head:
            tombstone = Tombstone(1, self.head, "recreated", max(self.head, 1), self.earliest, self.head)
            cursor = self.earliest - 1
        elif from_seq < self.lost:
            by_cap, by_ttl = self.cap > from_seq, self.ttl > from_seq
            reason = "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
            tombstone = Tombstone(from_seq + 1, self.lost, reason, self.lost - from_seq, self.lost + 1, self.head)
            cursor = self.lost
        candidates = [r.seq for r in self.live.values() if r.seq > cursor and (node is None or r.node != node)]
        seqs = sorted(candidates)[:limit]
        if len(seqs) < limit or not any(seq > seqs[-1] for seq in self.live):
            return seqs, self.head, tombstone
        return seqs, seqs[-1], tombstone


def matches(pattern: str, tag: str) -> bool:
    return tag.startswith(pattern[:-1]) if pattern.endswith("*") else tag == pattern
