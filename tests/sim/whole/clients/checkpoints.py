"""Clients that request checkpoints, and then look at the files beside the running server.

R-CHK-1: once a checkpoint is answered as done, the files show each record that was acknowledged
before its request and still exists, and none that was deleted or evicted before.
"""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.clients.operation import Drop
from tests.sim.whole.clients.owned import Owner, OwningClient
from tests.sim.whole.clients.owned_topic import OwnedTopic
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.monitors.shown import Shown, shown


class Checkpoints(Clients):
    knows_no_starts = True

    def __init__(self, machine: Machine, rng: random.Random, owners: list[Owner]) -> None:
        super().__init__(machine, rng)
        self.owners = owners
        self.clients = [_Asking(self, number) for number in range(2)]

    def paths(self) -> list[str]:
        """Return no paths: the topics have other owners."""
        return []

    def audits(self) -> list[Audit]:
        return []


class _Before:
    """The certain content of a topic when a checkpoint was requested."""

    def __init__(self, client: OwningClient, topic: OwnedTopic, topic_id: int) -> None:
        assert topic.tip is not None, "it is there"
        self.client = client
        self.topic = topic
        self.topic_id = topic_id
        self.head = topic.tip.head
        self.rows = {seq: record.data for seq, record in topic.tip.records.items()}

    def problem(self, found: Shown) -> str:
        """Return the fault of the files; "" if there is none."""
        for seq in found.rows:
            if seq <= self.head and seq not in self.rows:
                return f"seq {seq} of {self.topic.name}, which was gone before"
        certain = self.topic.certain(self.client.under_way(self.topic), may_lose=False)
        for seq, text in self.rows.items():
            if text in certain and found.rows.get(seq) != f'"{text}"'.encode():
                return f"{found.rows.get(seq)!r} for seq {seq} of {self.topic.name}, which is {text[:20]}"
        return ""


class _Asking(Client):
    shared: Checkpoints

    def __init__(self, shared: Checkpoints, number: int) -> None:
        super().__init__(shared, number)
        self.asked: tuple[int, list[_Before]] | None = None
        """A request without an answer that it is done: the checkpoint's number, perhaps of a server
        that ended since.
        """

    def step(self, wire: Wire) -> None:
        wait_ms = self.rng.choice((0, 20, 1000, None))
        body = {} if wait_ms is None else {"wait_ms": wait_ms}
        before = self._look()
        if self.asked is not None and self.rng.random() < 0.7:
            body["checkpoint"], before = self.asked
        self.asked = None

        def answered(status: int, answer: Any) -> None:
            self.count("checkpoints asked for", status, answer)
            self._later(self.rng.randrange(1000, 1_000_000), self._step)
            if status != 200:
                return
            if answer["done"]:
                self._check(before, answer["snapshot"])
            else:
                self.asked = answer["checkpoint"], before

        wire.ask("POST", "/v0/checkpoint", body, answered)

    def _look(self) -> list[_Before]:
        found = []
        for owner in self.shared.owners:
            (client,) = owner.clients
            assert isinstance(client, OwningClient)
            for owned in owner.topics:
                topic = _visible(self.machine, owned.name)
                # The server may have done a delete, and created the topic again, before the answer.
                if any(isinstance(operation, Drop) for operation in client.under_way(owned)):
                    continue
                if topic is not None and len(owned.states) == 1 and owned.tip is not None and not owned.limbo:
                    found.append(_Before(client, owned, topic.id))
        return found

    def _check(self, before: list[_Before], number: int) -> None:
        machine = self.machine
        directories = [shown(machine.ring.disk, process.config) for process in machine.processes]
        newest = min(number for number, _topics in directories)
        topics = {name: topic for _number, topics in directories for name, topic in topics.items()}
        if newest < number:
            raise machine.wrong(f"told of snapshot {number}, and the newest is {newest}")
        for topic in before:
            found = topics.get(topic.topic.name)
            # A text that is certain now was perhaps sent again to a topic that was created again.
            present = _visible(machine, topic.topic.name)
            is_same = present is not None and present.id == topic.topic_id
            if found is not None and is_same and found.topic_id == topic.topic_id:
                machine.counts["topics compared with files"] += 1
                if problem := topic.problem(found):
                    raise machine.wrong(f"files show {problem}")


def _visible(machine: Machine, name: str) -> Any:
    """Return a topic as its engine has it; None: there is none."""
    engine = machine.home(name).engine
    return None if engine is None else engine._core.registry.visible(name)
