"""A queue beyond its topic, as the wire contract states it, in the plainest way. Source: R-Q, R-DUR-11."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.long.model.model_topic import Record, Topic

ATTEMPTS_MAX = 8
"""R-Q-34."""


@dataclass
class Lease:
    number: int
    node: str
    deadline: int


@dataclass(frozen=True)
class Attempt:
    """R-Q-33. at: between these instants."""

    delivery: int
    node: str
    ended: str
    at: tuple[int, int]
    reason: str = ""

    def is_told(self, told: dict[str, Any]) -> bool:
        known = {"delivery": self.delivery, "node": self.node, "ended": self.ended, "at": told["at"]}
        return (
            told == known | ({"reason": self.reason} if self.reason else {}) and self.at[0] <= told["at"] <= self.at[1]
        )


@dataclass
class Jobs:
    """Whatever concerns a seq is in a dict of its own; looking costs what it costs."""

    topic: Topic
    lease_ms: int = 30_000
    max_deliveries: int = 0
    dead_letters: bool = True
    """There is a topic for them; otherwise poison is delivered again and again."""
    leases: dict[int, Lease] = field(default_factory=dict)
    delayed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Ready again at: not before the first instant, surely from the second on."""
    by_record: set[int] = field(default_factory=set)
    """The delayed jobs that their record delays."""
    came_back: set[int] = field(default_factory=set)
    """Jobs that their record has delayed in this life of the server: they come before fresh ones."""
    deliveries: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    """By the last claim."""
    dead: list[int] = field(default_factory=list)
    """Seqs moved to the dead-letter topic."""
    moved: list[Record] = field(default_factory=list)
    """By the last claim."""

    def look(self, now: int) -> None:
        """End the leases whose time has passed."""
        self.topic.expire(now)
        for seq, lease in self.leases.items():
            if now > lease.deadline:
                self.note(seq, lease, "expired", (lease.deadline, lease.deadline))
        self.attempts = {seq: known for seq, known in self.attempts.items() if seq in self.topic.live}
        self.leases = {seq: lease for seq, lease in self.leases.items() if now <= lease.deadline}
        self.delayed = {seq: at for seq, at in self.delayed.items() if now < at[1] and seq in self.topic.live}
        self.by_record &= self.delayed.keys()

    def hold_back(self, first: int) -> None:
        """R-DELAY-1, for the records of a write from this seq on."""
        for seq in range(first, self.topic.head + 1):
            record = self.topic.live.get(seq)
            if record is not None and record.delay_ms:
                since = record.ts if record.since is None else record.since
                self.delayed[seq] = (since + record.delay_ms, record.ts + record.delay_ms)
                self.by_record.add(seq)
                self.came_back.add(seq)

    def shown_delayed(self) -> dict[str, int]:
        """R-DELAY-4."""
        return {"delayed": len(self.delayed)} if self.by_record else {}

    def note(self, seq: int, lease: Lease, ended: str, at: tuple[int, int], reason: str = "") -> None:
        if seq in self.topic.live:
            attempt = Attempt(self.deliveries[seq], lease.node, ended, at, reason)
            self.attempts[seq] = [*self.attempts.get(seq, []), attempt][-ATTEMPTS_MAX:]

    def is_told(self, seq: int, told: list[dict[str, Any]]) -> bool:
        """Whether these are the attempts of a job, as an answer has them."""
        known = self.attempts.get(seq, [])
        return len(known) == len(told) and all(one.is_told(each) for one, each in zip(known, told, strict=True))

    def counters(self, now: int) -> tuple[int, int, int]:
        """count, ready, in_flight."""
        self.look(now)
        live = self.topic.live
        in_flight = sum(seq in live for seq in self.leases)
        return len(live), len(live) - in_flight - len(self.delayed), in_flight

    def claim(self, now: int, node: str, most: int, lease_ms: int) -> list[tuple[int, int]]:
        """(seq, deliveries) of each job handed out, ascending; the caller gives the leases their numbers."""
        self.look(now)
        self.moved, self.reasons = [], {}
        free = [seq for seq in self.topic.live if seq not in self.leases and seq not in self.delayed]
        given: list[int] = []
        for seq in sorted(free, key=lambda seq: (seq not in self.deliveries and seq not in self.came_back, seq)):
            if len(given) == most:
                break
            if self.dead_letters and 0 < self.max_deliveries <= self.deliveries.get(seq, 0):
                self.dead.append(seq)
                self.moved.append(self.topic.live[seq])
                self.reasons[seq] = next((one.reason for one in self.attempts.get(seq, [])[::-1] if one.reason), "")
                self.remove(seq)
            else:
                given.append(seq)
        for seq in given:
            self.deliveries[seq] = self.deliveries.get(seq, 0) + 1
            self.leases[seq] = Lease(0, node, now + lease_ms)
        self.topic.settle_gaps()
        return [(seq, self.deliveries[seq]) for seq in sorted(given)]

    def remove(self, seq: int) -> None:
        self.topic.live.pop(seq, None)
        self.delayed.pop(seq, None)
        self.attempts.pop(seq, None)

    def held(self, now: int, node: str, seqs: list[int], fences: list[int | None]) -> tuple[list[int], list[int]]:
        """The seqs a completion acts on, and those it skips."""
        self.look(now)
        acted: list[int] = []
        skipped: list[int] = []
        for at, seq in enumerate(seqs):
            lease = self.leases.get(seq)
            fence = fences[at] if fences else None
            if lease is None or lease.node != node or fence not in (None, lease.number) or seq in acted:
                skipped.append(seq)
            else:
                acted.append(seq)
        return acted, skipped

    def ack(self, now: int, node: str, seqs: list[int], fences: list[int | None]) -> tuple[int, list[int]]:
        acted, skipped = self.held(now, node, seqs, fences)
        for seq in acted:
            del self.leases[seq]
            self.remove(seq)
        self.topic.settle_gaps()
        return len(acted), skipped

    def nack(
        self,
        now: int,
        node: str,
        seqs: list[int],
        fences: list[int | None],
        delay_ms: int,
        *,
        reason: str = "",
        since: int | None = None,
    ) -> tuple[int, list[int]]:
        """since: when it was asked, if that is not `now`."""
        acted, skipped = self.held(now, node, seqs, fences)
        for seq in acted:
            self.note(seq, self.leases.pop(seq), "nacked", (now if since is None else since, now), reason)
            if seq in self.topic.live and delay_ms:
                self.delayed[seq] = ((now if since is None else since) + delay_ms, now + delay_ms)
        return len(acted), skipped

    def extend(
        self, now: int, node: str, seqs: list[int], fences: list[int | None], lease_ms: int
    ) -> tuple[list[int], list[int]]:
        acted, skipped = self.held(now, node, seqs, fences)
        for seq in acted:
            self.leases[seq].deadline = now + lease_ms
        return acted, skipped

    def restart(self, now: int, *, durable: bool) -> None:
        """R-DUR-11, R-DELAY-6."""
        self.look(now)
        self.delayed = {seq: self.delayed[seq] for seq in self.by_record}
        self.came_back = set(self.by_record)
        if durable:
            self.leases = {seq: lease for seq, lease in self.leases.items() if seq in self.topic.live}
        else:
            self.leases, self.deliveries, self.attempts = {}, {}, {}
