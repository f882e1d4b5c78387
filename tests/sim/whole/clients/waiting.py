"""Clients that wait for news of several topics, also of topics that are created and deleted.

R-WAIT-1, R-WAIT-2: once the owner of a topic has the answer to a change, a client that waits for
that topic is answered soon. R-INC-1: while a topic shows the same incarnation, its head does not
fall, in any life of the server.
"""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine

_LATE_NS = 100_000_000
"""A wait with news is answered at once, whatever arrives in pieces."""
Head = tuple[int, str] | None
"""Head and incarnation; None: the topic does not exist."""


class Waiting(Clients):
    knows_no_starts = True

    def __init__(self, machine: Machine, rng: random.Random, names: list[str]) -> None:
        super().__init__(machine, rng)
        self.names = names
        self.highest: dict[str, int] = {}
        """By incarnation, the highest head that was shown."""
        self.waiters = [_Waiter(self, number) for number in range(2)]
        self.clients = self.waiters
        machine.on_changed += [waiter.on_changed for waiter in self.waiters]

    def paths(self) -> list[str]:
        """Return no paths: the topics have other owners."""
        return []

    def audits(self) -> list[Audit]:
        """Read nothing back; but seqs whose loss no process could note may be given out again."""
        if self.machine.may_forget:
            self.highest.clear()
        return []

    def crashed(self) -> None:
        for waiter in self.waiters:
            waiter.check_late()
        super().crashed()


class _Waiter(Client):
    shared: Waiting

    def __init__(self, shared: Waiting, number: int) -> None:
        super().__init__(shared, number)
        self.heads: dict[str, Head] = dict.fromkeys(shared.names)
        """The heads as its last answers stated them."""
        self.is_served = False
        """Whether it was answered on its present connection, so that nothing separates it from the
        server.
        """
        self.known: dict[str, Head] = {}
        """Its knowledge of the topics that it waits for; none: it waits for nothing."""
        self.due_ns = 0
        """Time from which there is news to answer with; 0: there may be none."""
        self.least: dict[str, int] = {}
        """The highest heads by incarnation at its request: answers of two connections may overtake
        each other.
        """

    def step(self, wire: Wire) -> None:
        rng = self.rng
        names = rng.sample(list(self.heads), rng.choice((1, 1, 2, len(self.heads))))
        self.known, self.due_ns = {name: self.heads[name] for name in names}, 0
        known: dict[str, Any] = {}
        for name, head in self.known.items():
            named = None if head is None else {"seq": head[0], "incarnation": head[1]}
            # To a client that only knows seq 0, the end of the topic is no news (R-WAIT-1).
            known[name] = head[0] if head is not None and head[0] and rng.random() < 0.5 else named
        self.least = dict(self.shared.highest)
        body = {"topics": known, "wait_ms": rng.choice((0, 5, 400, 400))}
        wire.ask("POST", "/v0/wait", body, self._answered)

    def begin(self) -> None:
        self.is_served = False
        super().begin()

    def lost(self) -> None:
        self.known, self.due_ns = {}, 0
        super().lost()

    def crashed(self) -> None:
        super().crashed()
        self.known, self.due_ns = {}, 0

    def on_changed(self, name: str, head_seq: int | None) -> None:
        """Note that an owner was answered: the head of a topic, or that it does not exist (None)."""
        if name not in self.known or not self.is_served or self.due_ns:
            return
        head = self.known[name]
        if head_seq != (None if head is None else head[0]):
            self.due_ns = self.machine.waited_ns()
            self.machine.counts["changes that somebody waits for"] += 1

    def check_late(self) -> None:
        late_ns = self.machine.waited_ns() - self.due_ns
        # Routers catch up before a wait looks (R-WAIT-5): that may take syncs, and a second for the
        # next log file.
        if self.machine.descriptors_are_few:
            return
        if self.due_ns and self.wire is not None and late_ns > _LATE_NS * self.machine.ring.sync_factor:
            raise self.machine.wrong(f"who waits for a topic that has changed waits {late_ns / 1e6:.0f} ms")

    def _answered(self, status: int, answer: Any) -> None:
        self.check_late()
        asked, self.known = self.known, {}
        self.is_served, self.due_ns = True, 0
        self.count("waits", status, answer)
        self._later(self.rng.randrange(1000, 100_000), self._step)
        if status != 200:
            return
        shared = self.shared
        if list(answer["topics"]) != list(asked):
            raise self.machine.wrong(f"waited for {list(asked)}, told of {list(answer['topics'])}")
        for name, told in answer["topics"].items():
            self.heads[name] = None if told is None else (told["head_seq"], told["incarnation"])
            if told is not None:
                head, incarnation = told["head_seq"], told["incarnation"]
                least = self.least.get(incarnation, 0)
                if head < least:
                    raise self.machine.wrong(f"{name}: {told}, and its head was {least}")
                shared.highest[incarnation] = max(head, shared.highest.get(incarnation, 0))
