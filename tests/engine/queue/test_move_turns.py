"""Turns of moves of jobs to a dead-letter topic of another core: R-CORE-15.

Goal: claims beside a move look no more often than the jobs ask for, and wait a second at most; a pass of the loop
reads the jobs of one move, whatever else waits; and no queue holds up the moves of another one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.engine.harness import Answer
from tests.engine.queue.test_far_moves import CONFIG, DEAD, QUEUE, Queue, end_move
from tests.engine.real_world import RealWorld
from tests.engine.routers.far_cores import Asked, Cores, LinkedCores
from topics.engine.queue import move_turns
from topics.engine.queue.claim import Pass
from topics.engine.queue.far_moves import FarMove
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.state import leases
from topics.engine.state.control_frames import JobsMove
from topics.errors import RequestError


def poison(world: Cores, name: str, jobs: int) -> None:
    """Put a queue whose jobs were all delivered too often."""
    world.put(name, **{**CONFIG, "lease_ms": 10_000_000})
    world.append(name, *range(jobs))
    engine = world.engine_of(name)
    for _ in range(0, jobs, 100):
        claimed = Answer()
        engine.claim(ClaimRequest(name, "w", 100, None), claimed)
        world.wait(claimed)
    for first in range(1, jobs + 1, 100):
        engine.nack(HeldJobs(name, "w", list(range(first, min(first + 100, jobs + 1)))), 0, "", Answer())


def looks_of(monkeypatch: pytest.MonkeyPatch) -> list[Pass]:
    """Return a list that gets each pass of claims that looks for jobs from here on."""
    looks, begin = list[Pass](), Pass.begin

    def counted(self: Pass) -> None:
        looks.append(self)
        begin(self)

    monkeypatch.setattr(Pass, "begin", counted)
    return looks


@pytest.mark.parametrize("count", [100, 400])
def test_looks_of_claims_grow_with_the_jobs_that_are_moved_and_not_with_their_square(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 4)
    world = Cores(3, router_retry_ms=2)
    poison(world, QUEUE, count)
    looks = looks_of(monkeypatch)
    jobs, loop = world.worlds[0].stored.registry.by_name[QUEUE].index, world.worlds[0].loop

    def poll() -> None:
        def done(_result: Any) -> None:
            if jobs.live:
                loop.call_later(1_000_000, poll)

        world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), done)

    for _ in range(4):
        poll()
    world.run(lambda: not jobs.live)
    assert len(looks) <= count // 4 + 40, f"{len(looks)} looks"


def slowly(world: Cores, monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Let each order take so long."""
    execute, clock, dues = world._execute, world.worlds[0].loop.clock, dict[Asked, int]()

    def slow(asked: Asked) -> None:
        due_ns = dues.setdefault(asked, clock.monotonic_ns() + ms * 1_000_000)
        if clock.monotonic_ns() >= due_ns:
            execute(asked)

    monkeypatch.setattr(world, "_execute", slow)


def test_a_claim_waits_a_second_for_another_core_however_many_jobs_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 2)
    world = Cores(3, router_retry_ms=2)
    poison(world, QUEUE, 20)
    world.append(QUEUE, "good")
    slowly(world, monkeypatch, 900)
    clock = world.worlds[0].loop.clock
    began_ns = clock.monotonic_ns()
    claims = [Answer() for _ in range(3)]
    for claimed in claims:
        world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), claimed)
    world.run(lambda: all(claimed.given for claimed in claims))
    assert clock.monotonic_ns() - began_ns <= 1_100_000_000, "one of them has waited for each of its jobs"
    assert [claimed.get().count for claimed in claims].count(1) == 1
    end_move(world)


def test_claims_pass_over_jobs_that_come_after_those_that_take_long_and_are_moved_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 2)
    world = Cores(3, router_retry_ms=2)
    poison(world, QUEUE, 8)
    execute = world._execute
    monkeypatch.setattr(world, "_execute", lambda _asked: None)
    first = Answer()
    world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), first)
    world.run(lambda: first.given)
    looks = looks_of(monkeypatch)
    clock = world.worlds[0].loop.clock
    began_ns = clock.monotonic_ns()
    second = Answer()
    world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), second)
    world.run(lambda: second.given)
    assert clock.monotonic_ns() - began_ns < 500_000_000, "it has waited, too"
    assert len(looks) <= 4
    monkeypatch.setattr(world, "_execute", execute)
    queue = object.__new__(Queue)
    queue.world = world
    for _ in range(4):
        queue.claim()
        end_move(world)
    assert world.data(DEAD) == list(range(8))


def test_claims_that_wait_continue_when_the_move_before_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 2)
    world = Cores(3, router_retry_ms=100_000)
    poison(world, QUEUE, 8)
    monkeypatch.setattr(world, "_execute", lambda _asked: None)
    claims = [Answer() for _ in range(3)]
    clock = world.worlds[0].loop.clock
    began_ns = clock.monotonic_ns()
    for claimed in claims:
        world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), claimed)
    world.run(lambda: bool(world.asked))
    assert not any(claimed.given for claimed in claims)
    world.cut(0, 1)
    world.run(lambda: all(claimed.given for claimed in claims))
    assert clock.monotonic_ns() - began_ns < 500_000_000


def reads_a_pass(world: RealWorld, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return a count that gets the jobs of moves that each pass of a loop decodes."""
    passes, jobs = [0], Counter[int]()
    run_pass, on_read = world.real_loop.run_pass, FarMove._on_read

    def counted(self: FarMove, frames: Any) -> None:
        jobs[passes[0]] += len(frames)
        on_read(self, frames)

    def run_one(wait_ns: int) -> None:
        passes[0] += 1
        run_pass(wait_ns)

    monkeypatch.setattr(FarMove, "_on_read", counted)
    monkeypatch.setattr(world.real_loop, "run_pass", run_one)
    return jobs


def test_a_pass_reads_the_jobs_of_one_move(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Cores(9, router_retry_ms=50)
    monkeypatch.setattr(world, "_execute", lambda _asked: None)
    names = [f"queue-{number}-0" for number in range(4)]
    for name in names:
        poison(world, name, 40)
    jobs = reads_a_pass(world.worlds[0], monkeypatch)
    for name in names:
        world.engine_of(name).claim(ClaimRequest(name, "w", 1, None), Answer())
    world.run(lambda: len(world.asked) == 4)
    assert sum(jobs.values()) == 160
    world.cut(0, 1)  # all are tried again at the same time
    for _ in range(200):
        world.worlds[0].real_loop.run_pass(1_000_000)
    assert sum(jobs.values()) == 320
    assert max(jobs.values()) == 40


def test_a_start_continues_moves_of_some_queues_a_pass() -> None:
    world = RealWorld(3, router_retry_ms=1000, number=1)
    for number in range(50):
        name = f"q{number}"
        world.put(name, type="queue", max_deliveries=1, dead_letter=DEAD)
        world.append("a job", name=name)
        world.stored.registry.by_name[name].queue.move = JobsMove(f"{number:016}", 1, 1, DEAD, [1, 1])
    world.checkpoint()

    class Away(LinkedCores):
        def core_of(self, topic: str) -> int:  # type: ignore[override]
            return 1 if topic == DEAD else 0

        def ask(self, _topic: str, _order: Any, done: Any) -> None:
            done(RequestError("not_ready", "the core has ended"))

    world = RealWorld(ring=world.ring.next_life(power_cut=False), router_retry_ms=1000, number=1, joined=Away(0))
    lines = world.engine._far_moves._lines
    counts = [len(lines)]
    while len(lines) < 50:
        world.real_loop.run_pass(0)
        counts.append(len(lines))
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) == 16


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_router_to_a_core_that_does_not_answer_holds_back_no_move_of_other_queues(
    durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moves wait for routers out of their queues without a turn."""
    monkeypatch.setattr(move_turns, "_MOVES_MAX", 2)
    world = Cores(9, cores=3, router_retry_ms=2)
    names = ["first0", "second0", "last0"]
    engine = world.engine_of(QUEUE)
    for name in names:
        world.put(name, **CONFIG, durability=durability)
        if name != "last0":
            world.put(f"{name[:-1]}2", durability=durability)
            world.route(f"r-{name}", name, f"{name[:-1]}2")
    execute = world._execute
    monkeypatch.setattr(world, "_execute", lambda asked: None if asked.core == 2 else execute(asked))
    for name in names:
        world.append(name, name)
        claimed = Answer()
        engine.claim(ClaimRequest(name, "w", 1, None), claimed)
        world.wait(claimed)
        engine.nack(HeldJobs(name, "w", [1]), 0, "", Answer())
        engine.claim(ClaimRequest(name, "w", 1, None), Answer())
    dead = world.worlds[1].stored.registry.by_name
    world.run(lambda: DEAD in dead and dead[DEAD].index.live == 3)
    jobs = {name: world.worlds[0].stored.registry.by_name[name].index for name in names}
    world.run(lambda: not jobs["last0"].live)
    assert jobs["first0"].live == jobs["second0"].live == 1, "their routers have not forwarded them"


def test_jobs_on_their_way_are_counted_until_they_are_there() -> None:
    """The gauge `topics_topic_queue_moving`: of a move that does not end, and of no other queue."""
    world = Cores(9, router_retry_ms=50)
    execute = world._execute
    world._execute = lambda _asked: None  # type: ignore[method-assign]
    for name, jobs in ((QUEUE, 5), ("other0", 1)):
        poison(world, name, jobs)
    engine = world.engine_of(QUEUE)
    assert engine.moving_jobs(QUEUE) == 0
    engine.claim(ClaimRequest(QUEUE, "w", 1, None), Answer())
    world.run(lambda: bool(world.asked))
    world.cut(0, 1)
    world.run(lambda: bool(world.asked))
    assert [engine.moving_jobs(name) for name in (QUEUE, "other0", DEAD, "absent0")] == [5, 0, 0, 0]
    world._execute = execute  # type: ignore[method-assign]
    end_move(world)
    assert engine.moving_jobs(QUEUE) == 0
