"""What workers know of a queue: which jobs are there, leased, handed back or done, as far as answers have told."""

from __future__ import annotations

import random
from typing import Any


class Held:
    """A lease a worker was told of."""

    def __init__(self, node: str, job: dict[str, Any]) -> None:
        self.node = node
        self.seq: int = job["$seq"]
        self.text: str = job["data"]
        self.lease_id: str = job["lease_id"]
        self.deadline: int = job["deadline"]
        self.deliveries: int = job["deliveries"]
        """0: a restart may have forgotten how many there were."""
        self.ending = False
        """It may have been acked or handed back, or be over."""

    @property
    def number(self) -> int:
        return int(self.lease_id[6:], 16)


class Queue:
    """What is known of one queue, which is never deleted."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.path = f"/v0/topics/{name}"
        self.durability = rng.choice(("disk", "fsync", "fsync"))
        self.leases_durable: bool | None = rng.random() < 0.5
        """None: it is being changed, or nobody knows whether it was."""
        self.is_changed = rng.random() < 0.3
        """`leases_durable` is, now and then."""
        self.cap_records = 40 if rng.random() < 0.25 else 0
        self.config: dict[str, Any] = {
            "type": "queue",
            "durability": self.durability,
            "leases_durable": self.leases_durable,
            "lease_ms": rng.choice((100, 1000)),
            "claim_jitter_ms": rng.choice((0, 0, 0, 1)),
        }
        if self.cap_records:
            self.config |= {"cap_records": self.cap_records, "discard": "reject"}
        self.dead_letters = f"{name}-dead" if rng.random() < 0.4 else ""
        if self.dead_letters:
            self.config |= {"max_deliveries": rng.choice((1, 2)), "dead_letter": self.dead_letters}
        self.exists = False
        self.there: set[str] = set()
        """Jobs acknowledged and not known to be done."""
        self.maybe: set[str] = set()
        """Written without an answer."""
        self.ending: set[str] = set()
        """Acked or deleted without an answer."""
        self.done: dict[str, int] = {}
        """Acked, deleted or refused, with the time (ns) at which that was known."""
        self.sent = 0
        """Jobs ever sent."""
        self.deleting = 0
        """A delete of what lies below this seq was asked for."""
        self.seqs: dict[str, int] = {}
        """Of jobs that an answer told of."""
        self.moved: set[str] = set()
        """Seen among the dead letters."""
        self.leases: dict[str, Held] = {}
        """The newest lease of each job, by its text."""
        self.ended: dict[str, Held] = {}
        """Those that were handed back, as the answer said, before their time."""
        self.delayed: dict[str, int] = {}
        """Handed back, and not to be claimed before this time (ms), in this life of the server."""

    @property
    def possible(self) -> set[str]:
        """Jobs that may be there, and no others are."""
        return self.there | self.maybe | self.ending

    def over(self, texts: set[str], now_ns: int) -> None:
        """These jobs are gone for good."""
        self.done.update(dict.fromkeys(texts, now_ns))
        self.there -= texts
        self.maybe -= texts
        self.ending -= texts

    def crashed(self, now_ms: int) -> None:
        """A lease that is over may have been found to be, though the clock be set back; delays do not last."""
        self.delayed.clear()
        for held in self.leases.values():
            held.ending |= held.deadline <= now_ms
