"""Topics whose records have a time to live of their own, among others that stay.

R-RTTL-1: a read shows every record that has not expired, and no other. R-RTTL-5: reads report what
expired, and only deleted records are missing without a report. R-RTTL-6: a record that was reported
as expired never comes back, and an old cursor gets the report again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine, Wrong

_TTLS_MS = (0, 0, 0, 1, 5, 20, 100, 2000)
_STAY = 0.08
"""Share of deletes among requests, by which records that stay go in the end."""


@dataclass
class Known:
    """One record that was acknowledged. since_ms: it was not written before."""

    text: str
    since_ms: int
    ttl_ms: int
    may_be_gone: bool = False
    """A delete of it was requested."""


class Topic:
    """One topic with one client."""

    def __init__(self, name: str, durability: str) -> None:
        self.path = f"/v0/topics/{name}"
        self.config = {"durability": durability}
        self.exists = False
        self.sent: dict[str, int] = {}
        """The ttl of every text that was ever sent."""
        self.known: dict[int, Known] = {}
        self.told: set[int] = set()
        """Seqs that were reported as expired."""
        self.latest_ms = 0
        """The highest time of the server that was ever seen."""
        self.in_doubt = False
        """Whether a delete may still be in progress: it is silent, so nothing of its share expires."""


class Walk:
    """One walk from a cursor to the head, page by page."""

    def __init__(self, topic: Topic, cursor: int) -> None:
        self.cursor = cursor
        self.known = set(topic.known)
        self.told = set(topic.told)
        self.lost: list[tuple[int, int]] = []


class Expiring(Clients):
    may_stall = False

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        self.topics = [Topic(f"p-own-{durability}", durability) for durability in ("disk", "fsync")]
        self.clients = [_Client(self, number) for number in range(2)]

    def paths(self) -> list[str]:
        """Return no paths: time changes what the topics show."""
        return []

    def crashed(self) -> None:
        super().crashed()
        for topic in self.topics:
            topic.latest_ms = max(topic.latest_ms, self.machine.ring.clock.now_ms())

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits_at(self, is_there: Callable[[str], bool]) -> list[Audit]:
        return [self._audit(topic) for topic in self.topics if is_there(topic.path)]

    def _audit(self, topic: Topic) -> Audit:
        machine = self.machine
        if not topic.exists:
            yield from self.put(topic.path, topic.config)
            topic.exists = True
        topic.in_doubt = False
        if (machine.power_failed or machine.io_failed) and topic.config["durability"] == "disk":
            topic.told.clear()  # the note of an expiry may be lost, too
            topic.known.clear()
        walk, caught_up, found = Walk(topic, 0), False, dict[int, Any]()
        while not caught_up:
            asked_ms = machine.ring.clock.now_ms()
            status, page = yield "POST", f"{topic.path}/diff", {"from_seq": walk.cursor, "limit": 1000}
            if status != 200:
                raise machine.wrong(f"{topic.path}: the audit was answered {status} {page}")
            self.check(topic, page, walk, asked_ms)
            found |= {row["$seq"]: row for row in page["records"]}
            caught_up = page["caught_up"]
        missing = [seq for seq in walk.told if not any(low <= seq <= high for low, high in walk.lost)]
        if missing:
            raise machine.wrong(f"{topic.path}: {missing[:5]} had expired, and nobody is told of it now: {walk.lost}")
        machine.counts["expired records told again"] += len(walk.told)
        topic.known = {
            seq: topic.known.get(seq, Known(row["data"], row["$ts"], row.get("$ttl_ms", 0)))
            for seq, row in found.items()
        }

    def check(self, topic: Topic, page: Any, walk: Walk, asked_ms: int) -> None:
        """Check the page that a walk got."""

        def wrong(text: str) -> Wrong:
            return self.machine.wrong(f"{topic.path} from {walk.cursor}: {text}")

        now_ms = self.machine.ring.clock.now_ms()
        topic.latest_ms = max(topic.latest_ms, now_ms)
        found = {row["$seq"]: row for row in page["records"]}
        for seq, row in found.items():
            known, ttl_ms = topic.known.get(seq), row.get("$ttl_ms", 0)
            if topic.sent.get(row["data"]) != ttl_ms or (known is not None and known.text != row["data"]):
                raise wrong(f"seq {seq} holds {row}, not {known}")
            if ttl_ms and row["$ts"] + ttl_ms < asked_ms and not topic.in_doubt:
                raise wrong(f"seq {seq} of {row['$ts']} is shown at {asked_ms}, and lives for {ttl_ms} ms")
            if seq in walk.told:
                raise wrong(f"seq {seq} is back: it had expired")
        lost = page["tombstone"]
        upto = 0
        if lost is not None:
            if lost["gap_from"] != walk.cursor + 1 or lost["reason"] not in {"ttl", "crash"}:
                raise wrong(f"was told of {lost}")
            upto = lost["gap_to"]
            walk.lost.append((lost["gap_from"], upto))
            self.machine.counts["holes told"] += lost["reason"] == "ttl"
        for seq in sorted(walk.known - found.keys()):
            known = topic.known[seq]
            if not walk.cursor < seq <= page["next_from_seq"] or known.may_be_gone:
                continue
            if seq > upto:
                raise wrong(f"seq {seq} is missing, and nothing was told: {known}, {lost}")
            if not known.ttl_ms or known.since_ms + known.ttl_ms >= topic.latest_ms:
                raise wrong(f"seq {seq} was told as lost by {lost}, and lives: {known} at {now_ms}")
            topic.told.add(seq)
        if not page["caught_up"] and page["next_from_seq"] <= max(walk.cursor, upto - 1):
            raise wrong(f"the read ended at {page['next_from_seq']}, with {len(found)} records and {lost}")
        walk.cursor = page["next_from_seq"]


class _Client(Client):
    shared: Expiring

    @property
    def topic(self) -> Topic:
        return self.shared.topics[self.number]

    def begin(self) -> None:
        self._later(1000, self._step)

    def step(self, wire: Wire) -> None:
        choice = self.rng.random()
        if choice < _STAY:
            self._delete(wire)
        elif choice < 0.6:
            self._write(wire)
        else:
            cursor = self.rng.choice((0, 0, max(self.topic.known, default=0) // 2))
            self._read(wire, Walk(self.topic, cursor))

    def _next(self, name: str, status: int, answer: Any) -> bool:
        if self.machine.tracing:
            self.machine.say(f"expiring {self.number} <- {name}: {status} {str(answer)[:200]}")
        self.count(name, status, answer)
        self._later(self.rng.randrange(1000, 2_000_000), self._step)
        return status == 200

    def _write(self, wire: Wire) -> None:
        topic = self.topic
        self.shared.serial += 1
        texts = [f"~o.{self.shared.serial}.{index}~" for index in range(self.rng.choice((1, 1, 3)))]
        ttls = {text: self.rng.choice(_TTLS_MS) for text in texts}
        topic.sent |= ttls
        asked_ms = self.machine.ring.clock.now_ms()

        def written(status: int, answer: Any) -> None:
            if self._next("writes that expire", status, answer):
                for seq, text in zip(range(answer["first_seq"], answer["last_seq"] + 1), texts, strict=True):
                    topic.known[seq] = Known(text, asked_ms, ttls[text])

        rows = [{"data": text, "tag": text[-2]} | ({"ttl_ms": ttls[text]} if ttls[text] else {}) for text in texts]
        wire.ask("POST", topic.path, {"records": rows}, written)

    def _read(self, wire: Wire, walk: Walk) -> None:
        asked_ms = self.machine.ring.clock.now_ms()

        def read(status: int, page: Any) -> None:
            if status != 200 or page["caught_up"]:
                self._next("walks", status, page)
            if status == 200:
                self.shared.check(self.topic, page, walk, asked_ms)
                if not page["caught_up"]:
                    self._read(wire, walk)

        wire.ask("POST", f"{self.topic.path}/diff", {"from_seq": walk.cursor, "limit": 1000}, read)

    def _delete(self, wire: Wire) -> None:
        """Delete by seq or by tag, silently."""
        topic = self.topic
        bound = self.rng.choice([0, *topic.known]) + 1
        body: dict[str, Any] = {"before_seq": bound}
        if self.rng.random() < 0.7:
            body["match"] = self.rng.choice("012")
        for seq, known in topic.known.items():
            known.may_be_gone |= seq < bound and body.get("match", known.text[-2]) == known.text[-2]
        topic.in_doubt = True

        def deleted(status: int, answer: Any) -> None:
            if self._next("deletes among what expires", status, answer):
                topic.in_doubt = False

        wire.ask("POST", f"{topic.path}/delete", body, deleted)
