"""The whole server through checkpoints, kills, power cuts and graceful stops, against a model of what must be there.

Goal: records, deletes, caps and topics survive every mixture of them in class `fsync`. Method: a seeded run of requests
in which the store checkpoints or the process ends now and then; after each end every topic is read whole and compared.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.server.test_end_to_end import Life

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPICS = ("a", "b", "c", "d")
TAGS = ("x:1", "x:2", "y")


class Model:
    """The expected content of a topic: seq -> (data, tag); None: the topic does not exist."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, tuple[Any, str | None]]] = {}
        self.heads: dict[str, int] = {}
        self.caps: dict[str, int] = {}

    def write(self, topic: str, records: list[dict[str, Any]]) -> None:
        rows = self.topics[topic]
        for record in records:
            self.heads[topic] += 1
            rows[self.heads[topic]] = (record["data"], record.get("tag"))
        cap = self.caps[topic]
        while cap and len(rows) > cap:
            del rows[min(rows)]


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.life = Life()
        self.model = Model()
        self.serial = 0

    @property
    def checkpointer(self) -> Any:
        return self.life.server._backend.store.checkpointer  # type: ignore[union-attr]

    def step(self) -> None:
        rng, http, model = self.rng, self.life.http, self.model
        topic = rng.choice(TOPICS)
        action = rng.choices(
            ("write", "match", "before", "drop", "checkpoint", "kill", "power", "stop"), (60, 10, 5, 3, 12, 3, 3, 3)
        )[0]
        if action == "checkpoint":
            self.life.loop.run_task(self.checkpointer.run())
        elif action in ("kill", "power", "stop"):
            if action == "stop":
                self.life.stop()
            self.life = self.life.next(power_cut=action != "kill")
            self.check()
        elif topic not in model.topics:
            cap = rng.choice((0, 0, 15))
            http.ask("PUT", f"/v0/topics/{topic}", {"durability": "fsync", "cap_records": cap}, 201)
            model.topics[topic], model.heads[topic], model.caps[topic] = {}, 0, cap
        elif action == "write":
            records = []
            for _ in range(rng.randint(1, 12)):
                self.serial += 1
                record: dict[str, Any] = {"data": {"n": self.serial, "pad": "p" * rng.choice((0, 10, 900))}}
                if rng.random() < 0.7:
                    record["tag"] = rng.choice(TAGS)
                records.append(record)
            http.ask("POST", f"/v0/topics/{topic}", {"records": records})
            model.write(topic, records)
        elif action == "match":
            tag = rng.choice(TAGS)
            http.ask("POST", f"/v0/topics/{topic}/delete", {"match": tag})
            model.topics[topic] = {s: row for s, row in model.topics[topic].items() if row[1] != tag}
        elif action == "before":
            bound = rng.randint(1, model.heads[topic] + 1)
            http.ask("POST", f"/v0/topics/{topic}/delete", {"before_seq": bound})
            model.topics[topic] = {s: row for s, row in model.topics[topic].items() if s >= bound}
        else:
            http.ask("DELETE", f"/v0/topics/{topic}")
            del model.topics[topic]

    def check(self) -> None:
        http = self.life.http
        for topic in TOPICS:
            if topic not in self.model.topics:
                http.ask("GET", f"/v0/topics/{topic}", status=404)
                continue
            found: dict[int, tuple[Any, str | None]] = {}
            cursor = 0
            while True:
                page = http.diff(topic, from_seq=cursor, limit=1000, include_tags=True)
                found |= {r["$seq"]: (r["data"], r.get("$tag")) for r in page["records"]}
                if page["caught_up"]:
                    break
                cursor = page["next_from_seq"]
            assert found == self.model.topics[topic], topic
            state = http.state(topic)
            assert (state["head_seq"], state["count"]) == (self.model.heads[topic], len(found)), topic


@pytest.mark.parametrize("seed", seeds(2))
def test_everything_acknowledged_is_there_after_any_mixture(seed: int) -> None:
    run = Run(seed)
    for _ in range(120):
        run.step()
    run.life = run.life.next(power_cut=True)
    run.check()
