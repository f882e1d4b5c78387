"""WebSockets on a simulated machine whose seed decides everything: who says what, who does not read, who leaves.

Whatever happens: replies come in the order of the commands, acks before their records, and a subscription reports every
seq once and in order: as a record as it was written, silently when it was deleted, by a tombstone when a cap took it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket

TOPICS: dict[str, dict[str, Any]] = {
    "disk": {},
    "fsync": {"durability": "fsync"},
    "memory": {"durability": "ephemeral", "priority": -5},
    "capped": {"cap_records": 4, "priority": 900},
}
STEPS = 120


class Told:
    """The deliveries of one subscription so far."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.lost = 0
        """The end of the latest gap."""


class Person:
    """A client and what it may expect."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.reads = True
        self.socket: WebSocket
        self.said: list[dict[str, Any]] = []
        """Commands whose replies have not come."""
        self.follows: dict[str, Told] = {}
        self.acked: dict[str, int] = {}
        self.connect()

    def connect(self) -> None:
        self.socket = WebSocket(self.run.world)
        self.node = self.run.next_id()
        self.said.clear()
        self.follows.clear()
        self.reads = True

    def say(self, op: str, **fields: Any) -> None:
        command = {"op": op, "request_id": self.run.next_id(), **fields}
        self.said.append(command)
        self.socket.say(command)

    def hear(self) -> None:
        """Takes what has come; lets no time pass."""
        for message in self.socket.heard():
            if message["op"] in ("record", "tombstone", "caught_up"):
                self._on_delivery(message)
            else:
                self._on_reply(message)

    def _on_reply(self, message: Any) -> None:
        command = self.said.pop(0)
        assert message["request_id"] == command["request_id"], "replies come in the order of the commands"
        match message["op"]:
            case "ack":
                topic = command["topic"]
                for seq, record in zip(message["seqs"], command["records"], strict=True):
                    assert self.run.written[topic].setdefault(seq, record["data"]) == record["data"]
                self.acked[topic] = message["last_seq"]
            case "subscribed":
                for topic, numbers in message["topics"].items():
                    self.follows[topic] = Told(numbers["from_seq"])
            case "unsubscribed":
                for topic in message["topics"]:
                    self.follows.pop(topic, None)
            case other:
                assert other == "pong"

    def _on_delivery(self, message: Any) -> None:
        topic = message["topic"]
        told = self.follows[topic]
        match message["op"]:
            case "tombstone":
                assert topic == "capped"
                assert (message["gap_from"], message["reason"]) == (told.cursor + 1, "cap")
                told.lost = message["gap_to"]
            case "record":
                # A pass over only deleted records moves the cursor without a frame; what was missed
                # is checked below.
                assert message["from_seq"] >= told.cursor, "nothing twice"
                seqs = [record["$seq"] for record in message["records"]]
                assert seqs == sorted(set(seqs))
                assert max(told.cursor, told.lost) < seqs[0]
                assert seqs[-1] <= message["to_seq"]
                missing = set(range(max(told.cursor, told.lost) + 1, message["to_seq"] + 1)) - set(seqs)
                assert missing <= self.run.deleted[topic]
                for record in message["records"]:
                    known = self.run.written[topic].setdefault(record["$seq"], record["data"])
                    assert record["data"] == known
                    mine = record["data"][0] == self.node
                    assert not mine or record["$seq"] <= self.acked.get(topic, 0), "the ack comes first"
                told.cursor = message["to_seq"]
            case _:
                assert max(told.cursor, told.lost) <= message["head_seq"]
                told.cursor = message["head_seq"]


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = SimWorld(
            seed,
            shuffle=True,
            split=True,
            stream_high_water_bytes=self.rng.choice((200, 2000, 65_536)),
            stream_low_water_bytes=100,
            delivery_budget_us=self.rng.choice((0, 1, 5000)),
            ws_publishes_in_flight=self.rng.choice((1, 3, 256)),
            one_sender_passes=random.Random(f"alone {seed}").choice((0, 8)),
        )
        self.world.start()
        self.ids = 0
        self.written: dict[str, dict[int, Any]] = {}
        self.deleted: dict[str, set[int]] = {}
        for topic, config in TOPICS.items():
            self.world.put(topic, **config)
            self.written[topic] = {}
            self.deleted[topic] = set()
        self.people = [Person(self) for _ in range(3)]

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def step(self) -> None:
        rng = self.rng
        person, topic = rng.choice(self.people), rng.choice(list(TOPICS))
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                size = rng.choice((1, 1, 100, 1000))
                records = [{"data": [person.node, self.next_id(), "x" * size]} for _ in range(rng.randint(1, 3))]
                person.say("publish", topic=topic, records=records)
            case 5 | 6:
                start = rng.choice(({"tail": True}, {"from_seq": 0}))
                person.say("subscribe", topics={topic: start}, limit=rng.choice((1, 2, 1000)))
            case 7:
                person.say("unsubscribe", topic=topic)
            case 8:
                person.say("ping")
            case 9:
                person.reads = not person.reads
            case 10:
                if topic != "capped":  # what its caps take and what a delete takes would have to be distinguished
                    seq = rng.randint(1, 20)
                    self.deleted[topic] |= set(range(1, seq))
                    self.world.delete(topic, before_seq=seq)
            case _:
                if rng.random() < 0.2:
                    person.socket.connection.reset()
                    person.connect()
        self.world.advance_us(rng.choice((0, 50, 500, 5000)))
        for each in self.people:
            if each.reads:
                each.hear()

    def finish(self) -> None:
        """All readers read to the end."""
        for person in self.people:
            person.reads = True
        for _ in range(400):
            self.world.advance_ms(5)
            for person in self.people:
                person.hear()
        for person in self.people:
            assert person.said == [], "every command has its reply"
            for topic, told in person.follows.items():
                assert told.cursor == self.world.state(topic)["head_seq"], f"{topic} is told to its end"
        assert self.world.stop() == 0


@pytest.mark.parametrize("seed", seeds(12))
def test_whatever_happens_everything_is_told_once_and_in_order(seed: int) -> None:
    """R-WS-1, R-WS-2, R-WS-3, 11.5: three people, four topics, and a seed."""
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.finish()
