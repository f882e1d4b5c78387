"""Requests of any kind that change state, on few names, so that they meet."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.contract.world.answer import Answer
from tests.contract.world.world import ABSENT, Connection, World

TOPICS = "abcdef"
_ROUTERS = ("r1", "r2", "r3", "r4", "r5")
_SEQ_MAX = 20
"""The highest seq that acks and nacks name; most topics stay shorter."""
_LEASE_MS = 600_000
"""Longer than any run, so that no lease ends between two looks of which the second follows a kill."""


class Ask(NamedTuple):
    """One request. topic: the one whose records or config it may change, or which it reads."""

    method: str
    path: str
    body: Any = ABSENT
    topic: str | None = None

    @property
    def is_write(self) -> bool:
        return self.method == "POST" and self.path == f"/v0/topics/{self.topic}"

    @property
    def is_of_whole_topic(self) -> bool:
        """Return whether it may create the topic, delete it or change its class; a write may create
        it, too.
        """
        return self.method in ("PUT", "DELETE") and self.topic is not None

    def request(self, world: World) -> Answer:
        return world.request(self.method, self.path, self.body)

    def send(self, world: World) -> Connection:
        return world.ask(self.method, self.path, self.body)

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + ("" if self.body is ABSENT else f" {self.body}")


class Asks:
    """The requests of a seed. Two of the topics are always queues."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.queues = rng.sample(TOPICS, 2)
        self._numbers = itertools.count(1)
        routing = rng.choice((7, 30))
        self._kinds: dict[Callable[[], Ask], int] = {
            lambda: self.write(self._topic()): 40,
            self._delete: 10,
            lambda: self.configure(self._topic()): 8,
            lambda: self._about(self._topic(), "", method="DELETE"): 3,
            self._route: routing,
            lambda: Ask("DELETE", f"/v0/routers/{rng.choice(_ROUTERS)}"): 3,
            lambda: self.claim(rng.choice(self.queues), rng.choice((1, 2, 5))): 9,
            lambda: self._finish("ack", rng.choice((1, 3, 10))): 7,
            lambda: self._finish("nack", 3): 3,
            lambda: self._about(self._topic(), "/diff", {"from_seq": rng.choice((0, 3))}): 5,
        }

    def any(self) -> Ask:
        return self._rng.choices([*self._kinds], [*self._kinds.values()])[0]()

    def configure(self, topic: str) -> Ask:
        rng = self._rng
        config: dict[str, Any] = {"durability": rng.choice(("disk", "disk", "disk", "fsync", "memory"))}
        if rng.random() < 0.3:
            config["cap_records"] = rng.choice((1, 2, 3, 5, 8))
        if rng.random() < 0.2:
            config["cap_bytes"] = rng.choice((10, 40, 100, 1000))
        if rng.random() < 0.3:
            config["discard"] = "reject"
        if topic in self.queues:
            config |= {"type": "queue", "lease_ms": rng.choice((100, _LEASE_MS)), "leases_durable": rng.random() < 0.4}
            if rng.random() < 0.3:
                config |= {"max_deliveries": 1, "dead_letter": "dead"}
        return self._about(topic, "", config, method="PUT")

    def write(self, topic: str, *, create: bool = True) -> Ask:
        rng = self._rng
        body: dict[str, Any] = {"records": [self._record(topic) for _ in range(rng.choice((1, 1, 2, 3, 7)))]}
        if rng.random() < 0.2:
            body["idempotency_key"] = rng.choice("kl")
        if not create:
            body["create"] = False
        elif topic in self.queues:
            body["config"] = {"type": "queue", "lease_ms": _LEASE_MS}
        return self._about(topic, "", body)

    def claim(self, queue: str, count: int) -> Ask:
        return self._about(queue, "/claim", {"node": "n", "max": count})

    def ack(self, queue: str, seqs: list[int]) -> Ask:
        return self._about(queue, "/ack", {"node": "n", "seqs": seqs})

    def _record(self, topic: str) -> dict[str, Any]:
        record = {"data": f"{topic}{next(self._numbers)}" + "x" * self._rng.choice((0, 0, 5, 50))}
        return record | ({"tag": self._rng.choice("tuv")} if self._rng.random() < 0.6 else {})

    def _delete(self) -> Ask:
        body: dict[str, Any] = {}
        if self._rng.random() < 0.6:
            body["match"] = self._rng.choice("tu*")
        if not body or self._rng.random() < 0.3:
            body["before_seq"] = self._rng.choice((2, 3, 5, 10))
        return self._about(self._topic(), "/delete", body)

    def _route(self) -> Ask:
        rng = self._rng
        source, dest = rng.sample(TOPICS, 2)
        body: dict[str, Any] = {"source": source, "dest": dest, "allow_cycle": rng.random() < 0.1}
        if rng.random() < 0.3:
            body["filter"] = rng.choice("t*")
        if rng.random() < 0.25:
            body["guarantee"] = "exactly_once"
        return Ask("PUT", f"/v0/routers/{rng.choice(_ROUTERS)}", body)

    def _finish(self, how: str, count: int) -> Ask:
        seqs = sorted(self._rng.sample(range(1, _SEQ_MAX), count))
        return self._about(self._rng.choice(self.queues), f"/{how}", {"node": "n", "seqs": seqs})

    def _topic(self) -> str:
        return self._rng.choice(TOPICS)

    @staticmethod
    def _about(topic: str, part: str, body: Any = ABSENT, *, method: str = "POST") -> Ask:
        return Ask(method, f"/v0/topics/{topic}{part}", body, topic)
