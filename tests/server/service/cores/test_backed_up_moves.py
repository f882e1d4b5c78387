"""Servers that are the cores of one, and back up all that they have while jobs are moved from one core to the other.

Goal: whenever the instant of the backup comes, what is restored from it has each job once: in its queue, or, once the
move that it was on has ended there, among the dead letters (R-CORE-14, R-CORE-15).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.amount import seeds
from tests.engine.harness import Answer
from tests.server.service.cores.test_backup_lives import ROOT, Restored, made_disk
from tests.server.service.two_cores import TwoCores, request
from tests.sim import SimDisk
from topics.engine.queue.far_moves import FarMove
from topics.engine.queue.queue_results import ClaimRequest

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

JOBS = 3
PASSES_MAX = 1024
"""A backup has its instant after fewer passes."""
Counts = tuple[int, int, int]


def jobs_of(world: TwoCores, queue: str, dead: str) -> Counts:
    """The numbers of records of the queue and of its dead-letter topic, and of jobs on their way."""
    engines = [server.engine for server in world.servers]
    states = [state for engine in engines if engine is not None for state in engine.topic_states("", (), 100)]
    counts = {state.name: state.count for state in states}
    return counts.get(queue, 0), counts.get(dead, 0), sum(each.moving_jobs(queue) for each in engines if each)


def claim(world: TwoCores, queue: str) -> Answer:
    engine = world.servers[0].engine
    assert engine is not None
    claimed = Answer()
    engine.claim(ClaimRequest(queue, "w", JOBS, None), claimed)
    return claimed


def nack(queue: str) -> bytes:
    return request("POST", f"/v0/topics/{queue}/nack", {"node": "w", "seqs": [1, 2, 3]})


class Moving(TwoCores):
    """Two cores with one directory, and a queue on the first one whose jobs have failed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, data=(made_disk(), "/data"), backup_dir=ROOT, durability="fsync")
        self.queue, self.dead = self.topic_of(0, "q"), self.topic_of(1, "dead")
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": self.dead, "leases_durable": True}
        config["durability"] = "fsync"
        body = {"records": [{"data": number} for number in range(JOBS)], "config": config}
        tcp, path = self.connect(0), f"/v0/topics/{self.queue}"
        assert self.ask(tcp, request("POST", path, body)).status == 201
        assert self.ask(tcp, request("POST", f"{path}/claim", {"node": "w", "max": JOBS})).status == 200

    def move(self) -> None:
        """Begin the move."""
        assert self.ask(self.connect(0), nack(self.queue)).status == 200
        claim(self, self.queue)

    def backed_up(self, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Have a backup made; return its path."""
        asking, tcp = self.connect(1), self.connect(0)
        asking.send(request("POST", "/v0/backups", {}))
        meanwhile()
        self.run(lambda: bool(asking.receive()))
        while True:
            state: dict[str, Any] = self.ask(tcp, request("GET", "/v0/backups", {})).json["backup"]
            if state["state"] != "running":
                assert state["state"] == "done", state
                return str(state["path"])


class Found(Restored):
    """Servers on a directory that was restored. `counts`: see `jobs_of`, as it was found."""

    names = "", ""

    def __init__(self, disk: SimDisk) -> None:
        self.counts: Counts | None = None
        super().__init__(disk)

    @property
    def is_ready(self) -> bool:
        if self.counts is None and all(server.engine is not None for server in self.servers):
            self.counts = jobs_of(self, *self.names)
        return super().is_ready

    def end_moves(self) -> None:
        """Have all jobs moved; no claim gets one."""
        queue, _dead = self.names
        nacked = self.ask(self.connect(0), nack(queue))
        assert nacked.status == 200, "the backup may be older than that of its client"
        claims = [claim(self, queue)]

        def has_ended() -> bool:
            if claims[-1].given:
                assert not claims[-1].get().count, "a job that failed is delivered again"
                claims[-1] = claim(self, queue)
            return jobs_of(self, *self.names) == (0, JOBS, 0)

        self.run(has_ended)


def restored(world: Moving, path: str) -> Counts:
    """Return what is found in a backup, and check that it ends well."""
    queue, dead = Found.names = world.queue, world.dead
    made = Found.of(world, path)
    made.end_moves()
    assert sorted(made.data(dead, 0)) == list(range(JOBS)), "each is there once"
    assert made.data(queue, 0) == []
    assert made.counts is not None
    return made.counts


@pytest.mark.parametrize(
    ("step", "found"),
    [("_ask", (JOBS, 0, JOBS)), ("_on_copied", (JOBS, JOBS, JOBS)), ("_on_deleted", (0, JOBS, 0))],
)
def test_a_job_whose_move_is_held_up_is_once_in_what_is_restored(
    step: str, found: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move is noted; or its copies are there, too; or the jobs are gone, and it has not ended."""
    world, held = Moving(1), list[FarMove]()
    with monkeypatch.context() as patched:
        patched.setattr(FarMove, step, lambda move, *_arguments: held.append(move))
        world.move()
        world.run(lambda: bool(held))
        path = world.backed_up()
    assert restored(world, path) == found


@pytest.mark.parametrize("seed", seeds(4))
def test_a_job_that_is_moved_meanwhile_is_once_in_what_is_restored(seed: int) -> None:
    """Moves begin ever closer to the first one that is not in the backup."""

    def found_after(passes: int) -> Counts:
        world = Moving(seed)

        def begin() -> None:
            for _ in range(passes):
                world.next_server().loop.run_pass(20_000)
            world.move()

        return restored(world, world.backed_up(begin))

    early, late = 0, PASSES_MAX
    found = {early: found_after(early), late: found_after(late)}
    assert list(found.values()) == [(0, JOBS, 0), (JOBS, 0, 0)], "after the move, and before it"
    while late - early > 1:
        middle = (early + late) // 2
        found[middle] = found_after(middle)
        early, late = (early, middle) if found[middle] == (JOBS, 0, 0) else (middle, late)
    assert any(counts[2] for counts in found.values()), "amid the move"
