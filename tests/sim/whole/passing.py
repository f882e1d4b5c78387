"""Topics whose records go by themselves: one that expires them, and an ephemeral one that ends with the process.

R-TTL-1, R-TTL-3: a read shows no record that has expired, and every other. R-DUR-8: what was reported expired never
comes back. R-DUR-5: an ephemeral topic is empty after a restart and has its config.
"""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients import Client, Clients
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.wire import Wire


class Topic:
    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.path = f"/v0/topics/{name}"
        self.config = config
        self.ttl_ms: int = config.get("ttl_ms", 0)
        self.exists = False
        self.texts: set[str] = set()
        """Everything that was ever sent."""
        self.acked: dict[int, tuple[str, int]] = {}
        """Text, and the wall clock (ms) before which it was not written."""
        self.expired = 0
        """Up to here a reader was told of expiry."""

    @property
    def is_ephemeral(self) -> bool:
        return bool(self.config["durability"] == "ephemeral")


class Passing(Clients):
    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        durability = rng.choice(("disk", "fsync"))
        self.topics = [
            Topic("p-expires", {"durability": durability, "ttl_ms": rng.choice((2, 10, 60))}),
            Topic("p-ephemeral", {"durability": "ephemeral"}),
        ]
        self.clients = [_Client(self, number) for number in range(2)]

    def paths(self) -> list[str]:
        """None of them: time changes what they show."""
        return []

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits(self) -> list[Audit]:
        return [self._audit(topic) for topic in self.topics]

    def _audit(self, topic: Topic) -> Audit:
        machine = self.machine
        if not topic.exists:
            yield from self.put(topic.path, topic.config)
            topic.exists = True
        status, looked = yield "GET", f"{topic.path}?touch=false", None
        if status != 200 or looked["config"]["durability"] != topic.config["durability"]:
            raise machine.wrong(f"{topic.path}: {status} {looked} after a start")
        if topic.is_ephemeral:
            if looked["count"]:
                raise machine.wrong(f"{topic.path}: {looked['count']} records after a start")
            topic.acked.clear()
            return
        asked_ms = machine.ring.clock.now_ms()
        status, page = yield "POST", f"{topic.path}/diff", {"from_seq": 0, "limit": 1000}
        if status != 200:
            raise machine.wrong(f"{topic.path}: the audit was answered {status} {page}")
        lossy = (machine.power_failed or machine.io_failed) and topic.config["durability"] == "disk"
        self.check(topic, page, asked_ms, topic.expired, set() if lossy else set(topic.acked))
        found = {row["$seq"] for row in page["records"]}
        topic.acked = {seq: acked for seq, acked in topic.acked.items() if seq in found}

    def check(self, topic: Topic, page: Any, asked_ms: int, expired: int, must: set[int]) -> None:
        """A page from 0. Before it was asked for, expiry was told up to `expired`, and `must` were acknowledged."""
        wrong = lambda text: self.machine.wrong(f"{topic.path}: {text}")  # noqa: E731
        now_ms = self.machine.ring.clock.now_ms()
        found = {row["$seq"]: row for row in page["records"]}
        for seq, row in found.items():
            if row["data"] not in topic.texts or topic.acked.get(seq, (row["data"], 0))[0] != row["data"]:
                raise wrong(f"seq {seq} holds {row['data'][:20]}, not {topic.acked.get(seq)}")
            if topic.ttl_ms and row["$ts"] + topic.ttl_ms < asked_ms:
                raise wrong(f"seq {seq} of {row['$ts']} is shown at {asked_ms}, and lives for {topic.ttl_ms} ms")
            if seq <= expired:
                raise wrong(f"seq {seq} is back; up to {expired} all had expired")
        lost = [
            seq
            for seq in must - set(found)
            if topic.expired < seq <= page["next_from_seq"]
            and (not topic.ttl_ms or topic.acked[seq][1] + topic.ttl_ms >= now_ms)
        ]
        if lost:
            raise wrong(f"lost {lost[:5]} of {len(must)}")
        tombstone = page["tombstone"]
        if tombstone is not None and tombstone["reason"] == "ttl":
            topic.expired = max(topic.expired, tombstone["gap_to"])
            self.machine.counts["expiries told"] += 1


class _Client(Client):
    shared: Passing

    def step(self, wire: Wire) -> None:
        topic = self.rng.choice(self.shared.topics)
        if self.rng.random() < 0.6:
            self._write(wire, topic)
        else:
            self._read(wire, topic)

    def _next(self, name: str, status: int, answer: Any) -> bool:
        if self.machine.tracing:
            self.machine.say(f"passing {self.number} <- {name}: {status} {str(answer)[:160]}")
        self.count(name, status, answer)
        self._later(self.rng.randrange(1000, 600_000), self._step)
        return status == 200

    def _write(self, wire: Wire, topic: Topic) -> None:
        self.shared.serial += 1
        texts = [f"~p.{self.shared.serial}.{index}~" for index in range(self.rng.choice((1, 3)))]
        topic.texts.update(texts)
        asked_ms = self.machine.ring.clock.now_ms()

        def written(status: int, answer: Any) -> None:
            if self._next("writes that pass", status, answer):
                for seq, text in zip(range(answer["first_seq"], answer["last_seq"] + 1), texts, strict=True):
                    topic.acked[seq] = text, asked_ms

        wire.ask("POST", topic.path, {"records": [{"data": text} for text in texts]}, written)

    def _read(self, wire: Wire, topic: Topic) -> None:
        asked_ms, expired, must = self.machine.ring.clock.now_ms(), topic.expired, set(topic.acked)

        def read(status: int, page: Any) -> None:
            if self._next("reads of what passes", status, page):
                self.shared.check(topic, page, asked_ms, expired, must)

        wire.ask("POST", f"{topic.path}/diff", {"from_seq": 0, "limit": 1000}, read)
