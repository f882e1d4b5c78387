"""Servers that are the cores of one: a queue of one, and its dead letters on the other one (R-CORE-15).

Goal: each job is a dead letter, once, also if a core is killed or loses its power after any of its effects.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.amount import seeds, stride
from tests.engine.harness import Answer
from tests.server.service.two_cores import TwoCores, request
from topics.engine.queue.queue_results import ClaimRequest

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
JOBS = 3
LOOKS = 150
"""Passes after which a client claims once more."""


class Queued(TwoCores):
    """Two cores, a queue on the first one with jobs that failed, and its dead letters on the second one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.queue, self.dead = self.topic_of(0, "q"), self.topic_of(1, "dead")
        self._looks = 0
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": self.dead, "leases_durable": True}
        config["durability"] = "fsync"
        body = {"records": [{"data": number} for number in range(JOBS)], "config": config}
        tcp, path = self.connect(0), f"/v0/topics/{self.queue}"
        assert self.ask(tcp, request("POST", path, body)).status == 201
        assert self.ask(tcp, request("POST", f"{path}/claim", {"node": "w", "max": JOBS})).status == 200
        assert self.ask(tcp, request("POST", f"{path}/nack", {"node": "w", "seqs": [1, 2, 3]})).status == 200

    def counts(self) -> list[int]:
        """The number of records of the queue and of its dead-letter topic; -1: unknown."""
        found = []
        for server, name in zip(self.servers, (self.queue, self.dead), strict=True):
            states = () if server.engine is None else server.engine.topic_states("", (), 100)
            found.append(next((state.count for state in states if state.name == name), -1))
        return found

    def has_moved(self) -> bool:
        engine = self.servers[0].engine
        if engine is not None and self._looks % LOOKS == 0:
            claimed = Answer()
            engine.claim(ClaimRequest(self.queue, "w", JOBS, None), claimed)
        self._looks += 1
        return self.counts() == [0, JOBS]


@pytest.mark.parametrize("cuts_power", [False, True])
@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(4))
def test_a_core_may_end_amid_moves(seed: int, dies: int, cuts_power: bool) -> None:
    for effects in range(1, 1000, stride(3)):
        world = Queued(seed)
        world.cuts_power = cuts_power
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(world.has_moved, dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        answer = world.ask(world.connect(0), request("GET", f"/v0/topics/{world.queue}/dead", {}))
        assert [record["data"] for record in answer.json["dead"]] == list(range(JOBS))
        if not world.killed:
            assert effects > 1, "there was a move to cut short"
            return
    raise AssertionError("it never ran to its end")
