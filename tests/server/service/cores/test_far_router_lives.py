"""Servers that are the cores of one: routers between their topics, whose orders go over the relay (R-CORE-11 to -13).

Goal: a reader of the destination finds each acknowledged record of the source, once and in order, also if a core is
killed or loses its power after any of its effects.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.amount import seeds, stride
from tests.server.service.two_cores import TwoCores, Writer, all_written, request

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Routed(TwoCores):
    """Two cores, a topic of each, and a router from the first to the second."""

    def __init__(self, seed: int, **config: Any) -> None:
        super().__init__(seed)
        self.source, self.dest = self.topic_of(0, "s"), self.topic_of(1, "d")
        for topic in (self.source, self.dest):
            assert self.ask(self.connect(0), request("PUT", f"/v0/topics/{topic}", config)).status == 201
        router = {"source": self.source, "dest": self.dest}
        assert self.ask(self.connect(1), request("PUT", "/v0/routers/r", router)).status == 201

    def has_copied(self, count: int) -> bool:
        """Whether so many copies are there, which no reader has asked for."""
        engine = self.servers[1].engine
        states = () if engine is None else engine.topic_states("", (), 100)
        return any(state.name == self.dest and state.count == count for state in states)

    def data(self, topic: str) -> list[Any]:
        answer = self.ask(self.connect(1), request("POST", f"/v0/topics/{topic}/diff", {}))
        return [record["data"] for record in answer.json["records"]]


def all_copied(world: Routed, writers: list[Writer]) -> bool:
    return all_written(writers) and world.has_copied(4)


def test_a_reader_of_the_destination_has_what_was_acknowledged_at_the_source() -> None:
    world = Routed(1)
    tcp = world.connect(0)
    for number in range(5):
        body = {"records": [{"data": number}]}
        assert world.ask(tcp, request("POST", f"/v0/topics/{world.source}", body)).status == 200
        assert world.data(world.dest)[-1] == number
    answer = world.ask(tcp, request("GET", "/v0/routers/r", {}))
    assert answer.json["forwarded_total"] == 5
    assert [row["router"] for row in world.ask(tcp, request("GET", "/v0/routers", {})).json["routers"]] == ["r"]


@pytest.mark.parametrize("cuts_power", [False, True])
@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(4))
def test_a_core_may_end_amid_copies(seed: int, dies: int, cuts_power: bool) -> None:
    for effects in range(1, 1000, stride(3)):
        world = Routed(seed, durability="fsync" if cuts_power else "disk")
        world.cuts_power = cuts_power
        writers = [Writer(world, world.source, 4)]
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(partial(all_copied, world, writers), dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        assert world.data(world.dest) == world.data(world.source) == list(range(4))
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")
