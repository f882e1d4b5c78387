"""One queue as the wire contract tells it, in the plainest way: the oracle of its state machine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ModelLease:
    number: int
    node: str
    deadline: int


@dataclass
class ModelQueue:
    """live: tags by seq. Whatever concerns a seq is in a dict of its own; looking costs what it costs."""

    lease_ms: int = 30_000
    max_deliveries: int = 0
    cap_records: int = 0
    head: int = 0
    live: dict[int, str] = field(default_factory=dict)
    leases: dict[int, ModelLease] = field(default_factory=dict)
    delayed: dict[int, int] = field(default_factory=dict)
    """Ready again at."""
    deliveries: dict[int, int] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)
    """Seqs moved to the dead-letter topic."""

    def look(self, now: int) -> None:
        """What is over is over."""
        self.leases = {seq: lease for seq, lease in self.leases.items() if now <= lease.deadline}
        self.delayed = {seq: at for seq, at in self.delayed.items() if now < at and seq in self.live}

    def counters(self, now: int) -> tuple[int, int, int]:
        """count, ready, in_flight."""
        self.look(now)
        in_flight = sum(seq in self.live for seq in self.leases)
        return len(self.live), len(self.live) - in_flight - len(self.delayed), in_flight

    def put(self, tags: list[str]) -> None:
        for tag in tags:
            self.head += 1
            self.live[self.head] = tag
        while self.cap_records and len(self.live) > self.cap_records:
            del self.live[min(self.live)]

    def claim(self, now: int, node: str, most: int, lease_ms: int) -> list[tuple[int, int]]:
        """(seq, deliveries) of each job handed out; the caller tells the lease numbers to `leased`."""
        self.look(now)
        free = [seq for seq in self.live if seq not in self.leases and seq not in self.delayed]
        given: list[int] = []
        for seq in sorted(free, key=lambda seq: (seq not in self.deliveries, seq)):
            if len(given) == most:
                break
            if 0 < self.max_deliveries <= self.deliveries.get(seq, 0):
                self.dead.append(seq)
                self.remove(seq)
            else:
                given.append(seq)
        for seq in given:
            self.deliveries[seq] = self.deliveries.get(seq, 0) + 1
            self.leases[seq] = ModelLease(0, node, now + lease_ms)
        return [(seq, self.deliveries[seq]) for seq in sorted(given)]

    def remove(self, seq: int) -> None:
        self.live.pop(seq, None)
        self.delayed.pop(seq, None)

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
        return len(acted), skipped

    def nack(
        self, now: int, node: str, seqs: list[int], fences: list[int | None], delay_ms: int
    ) -> tuple[int, list[int]]:
        acted, skipped = self.held(now, node, seqs, fences)
        for seq in acted:
            del self.leases[seq]
            if seq in self.live and delay_ms:
                self.delayed[seq] = now + delay_ms
        return len(acted), skipped

    def extend(
        self, now: int, node: str, seqs: list[int], fences: list[int | None], lease_ms: int
    ) -> tuple[list[int], list[int]]:
        acted, skipped = self.held(now, node, seqs, fences)
        for seq in acted:
            self.leases[seq].deadline = now + lease_ms
        return acted, skipped

    def restart(self, now: int, *, durable: bool) -> None:
        """R-DUR-11."""
        self.look(now)
        self.delayed = {}
        if durable:
            self.leases = {seq: lease for seq, lease in self.leases.items() if seq in self.live}
        else:
            self.leases, self.deliveries = {}, {}
