"""Goal: a write costs no more system calls and submissions than it did.

Method: a whole server on a ring that counts. A wait of the ring is one system call, and so is each of
its calls that act at once; what is queued is submitted by the next wait. The tables say what a write
cost when they were written: less is an improvement, to be written here.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any, NamedTuple

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection
from tests.server.lane_streams import plain

WAITS = ("submit_and_wait", "wait_single")
AT_ONCE = ("send_now", "write_now", "write_parts_now", "sync_now", "read_now")
QUEUED = ("queue_recv", "queue_read", "queue_write", "queue_commit", "queue_fsync", "queue_rename", "queue_open")
ROUNDS = 20
TRIALS = 4
"""Calls in all rounds that the choice of a commit primitive may add, which tries another one at times."""


class CountingWorld(SimWorld):
    """A server whose topics `m`, `d` and `f` are of the classes memory, disk and fsync."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(only_woken=True, **settings)
        self.calls: Counter[str] = Counter()
        self._is_inside = False
        for name in (*WAITS, *AT_ONCE, *QUEUED):
            setattr(self.ring, name, self._counted(name, getattr(self.ring, name)))
        sends = self.ring.queue_sends

        def queue_sends(each: Any) -> None:
            self.calls["sends"] += len(each)
            sends(each)

        self.ring.queue_sends = queue_sends  # type: ignore[method-assign]
        self.start()
        for name, durability in (("m", "memory"), ("d", "disk"), ("f", "fsync")):
            assert self.connect().request("PUT", f"/v0/topics/{name}", {"durability": durability}).status < 300

    def _counted(self, name: str, call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._is_inside:  # wait_single of this ring is a wait of its own
                return call(*arguments, **options)
            self.calls[name] += 1
            self._is_inside = True
            try:
                return call(*arguments, **options)
            finally:
                self._is_inside = False

        return counted

    def warm(self, topics: str, writers: list[Connection]) -> None:
        """Write until names, seqs and commit choices are known.

        Garbage of earlier tests is collected before: large memory in it would be returned by this
        server, which makes a pass for each of its steps.
        """
        gc.collect()
        for conn, name in zip(writers, topics, strict=True):
            for _ in range(4):
                conn.send(plain(name)).answer("POST")
        self.settle()
        self.calls.clear()

    def write(self, topics: str, writers: list[Connection], rounds: int = ROUNDS) -> None:
        """Make rounds, in each of which all writers write at once."""
        for _ in range(rounds):
            for conn, name in zip(writers, topics, strict=True):
                conn.send(plain(name))
            for conn in writers:
                assert conn.answer("POST").status == 200


class Cost(NamedTuple):
    """The most that ROUNDS rounds of writes may cost."""

    topics: str
    """The topic of each writer."""
    system_calls: int
    submissions: int
    settings: dict[str, Any]
    in_lane: int
    """The number of these writes that the lane takes: a column of all, or a single request, once it is
    known that one client waits for each answer.
    """


GENERAL, IN_RING = {"http_lane": "off"}, {"commit_in_place_max_us": 0}
COSTS = {
    # A round waits for the request, writes in place, and sends.
    **{f"lone, {name}": Cost(name, 80, 4, {}, 16) for name in "mdf"},
    **{f"lone, {name}, no lane": Cost(name, 80, 4, GENERAL, 0) for name in "mdf"},
    **{f"lone, {name}, through the ring": Cost(name, 80, 24, IN_RING, 16) for name in "mdf"},
    # All writers of a round are one commit, and the sends of all are submitted at once.
    **{f"lane, {name}": Cost(8 * name, 80, 160, {}, 160) for name in "mdf"},
    "lane, of three classes": Cost("mdfmdfmd", 80, 160, {}, 160),
    "lane, through the ring": Cost(8 * "f", 80, 180, IN_RING, 160),
    **{f"group, {name}": Cost(8 * name, 80, 160, GENERAL, 0) for name in "mdf"},
    "group, of three classes": Cost("mdfmdfmd", 80, 160, GENERAL, 0),
    "group, through the ring": Cost(8 * "f", 80, 180, {**GENERAL, **IN_RING}, 0),
}


@pytest.mark.parametrize("case", COSTS)
def test_the_system_calls_of_a_write_do_not_grow(case: str) -> None:
    cost = COSTS[case]
    world = CountingWorld(**cost.settings)
    writers = [world.connect() for _ in cost.topics]
    world.warm(cost.topics, writers)
    world.write(cost.topics, writers)
    calls = world.calls
    assert world.server is not None
    lane = world.server.lane
    assert cost.in_lane == (0 if lane is None else lane.taken)
    system_calls = sum(calls[name] for name in (*WAITS, *AT_ONCE))
    submissions = calls.total() - system_calls
    assert system_calls <= cost.system_calls + TRIALS, f"{system_calls} system calls in {ROUNDS} rounds: {dict(calls)}"
    assert submissions <= cost.submissions + TRIALS, f"{submissions} submissions in {ROUNDS} rounds: {dict(calls)}"
