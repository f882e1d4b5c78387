"""The workers' knowledge about a queue: which jobs exist, are leased, handed back or done, as far
as answers show.
"""

from __future__ import annotations

import random
from typing import Any


class Held:
    """A lease that was given to a worker."""

    def __init__(self, node: str, job: dict[str, Any]) -> None:
        self.node = node
        self.seq: int = job["$seq"]
        self.text: str = job["data"]
        self.lease_id: str = job["lease_id"]
        self.deadline: int = job["deadline"]
        self.deliveries: int = job["deliveries"]
        """The count of deliveries; 0: a restart may have forgotten it."""
        self.ending = False
        """Whether it may have been acked or handed back, or may have ended."""

    @property
    def number(self) -> int:
        return int(self.lease_id[6:], 16)


class Queue:
    """The knowledge about one queue, which is never deleted."""

    def __init__(self, name: str, rng: random.Random, dead_letters: str) -> None:
        """dead_letters: the topic of them, if there is one."""
        self.name = name
        self.path = f"/v0/topics/{name}"
        self.durability = rng.choice(("disk", "fsync", "fsync"))
        self.leases_durable: bool | None = rng.random() < 0.5
        """The setting of the queue; None: it is being changed, or a change had no answer."""
        self.is_changed = rng.random() < 0.3
        """Whether clients change `leases_durable` from time to time."""
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
        self.dead_letters = dead_letters if rng.random() < 0.4 else ""
        if self.dead_letters:
            self.config |= {"max_deliveries": rng.choice((1, 2)), "dead_letter": self.dead_letters}
        self.exists = False
        self.there: set[str] = set()
        """Jobs acknowledged and not known to be done."""
        self.maybe: set[str] = set()
        """Jobs written without an answer."""
        self.ending: set[str] = set()
        """Jobs acked or deleted without an answer."""
        self.done: dict[str, int] = {}
        """Jobs acked, deleted or refused, with the time (ns) at which that was known."""
        self.sent = 0
        """Number of jobs that were ever sent."""
        self.deleting = 0
        """A delete of everything below this seq was requested."""
        self.seqs: dict[str, int] = {}
        """Seqs of jobs that an answer showed."""
        self.moved: set[str] = set()
        """Jobs seen among the dead letters."""
        self.leases: dict[str, Held] = {}
        """The newest lease of each job, by its text."""
        self.ended: dict[str, Held] = {}
        """Leases that were handed back before their time, as the answer confirmed."""
        self.delayed: dict[str, int] = {}
        """Jobs handed back with a delay, and the time (ms) at which they can be claimed, in this
        life of the server.
        """

        self.due: dict[str, int] = {}
        """Jobs that were written with a delay, and the time (ms) at which they can be claimed,
        whatever happens to the server.
        """
        self.latest_ms = 0
        """The highest time of the server at an end of its life: a job that was due by then may have
        been leased, also if the clock is set back.
        """

        self.reasons: dict[tuple[str, str, int], set[str]] = {}
        """The reasons with which a node handed a job back, by the job's text, node and delivery."""
        self.noted: dict[str, tuple[int, str]] = {}
        """The delivery and the reason of the last time that a job was handed back, as an answer
        confirmed; a crash has not forgotten it.
        """

        self.redriving: set[str] = set()
        """Dead letters whose redrive was requested without an answer."""
        self.redriven: set[str] = set()
        """Jobs that may have been redriven: their counts began anew."""
        self.doubled: set[str] = set()
        """Jobs that were found in the queue and among the dead letters, after a crash."""
        self.is_apart = bool(self.dead_letters)
        """Whether its dead letters were always on another core, and came there once (R-CORE-15)."""
        self.dead: dict[str, int] = {}
        """Jobs that were listed as dead letters, and the time (ns) of the answer."""

    @property
    def possible(self) -> set[str]:
        """Return the jobs that may exist; no others do."""
        return self.there | self.maybe | self.ending

    def redrive(self, texts: set[str]) -> None:
        """Note that these dead letters may be jobs again: what was known of them does not count."""
        self.redriving |= texts
        self.redriven |= texts
        self.maybe |= texts
        self.sent += len(texts)
        for known in (self.leases, self.ended, self.delayed, self.due, self.noted, self.seqs):
            for text in texts & known.keys():
                del known[text]

    def over(self, texts: set[str], now_ns: int) -> None:
        """Note that these jobs have ended for good."""
        self.done.update(dict.fromkeys(texts, now_ns))
        self.there -= texts
        self.maybe -= texts
        self.ending -= texts

    def crashed(self, now_ms: int) -> None:
        """Note a crash: an ended lease may have been noticed, even if the clock is set back; delays
        do not last.
        """
        self.delayed.clear()
        self.latest_ms = max(self.latest_ms, now_ms)
        self.due = {text: due_ms for text, due_ms in self.due.items() if due_ms > now_ms}
        if not self.leases_durable or self.durability != "fsync":
            self.noted.clear()
        for held in self.leases.values():
            held.ending |= held.deadline <= now_ms
