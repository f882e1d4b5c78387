"""How often routers step: what a busy source pays for them does not depend on how often it is written to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.harness import Answer, records
from tests.engine.real_world import RealWorld
from topics.common.values.configs import RouterConfig
from topics.engine.queue.job_removal import JobRemoval
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.routers.forward import Forward
from topics.engine.routers.forward_steps import ForwardSteps
from topics.engine.routers.forwarding import LOOKS_A_PASS, STEPS_A_PASS, TRIES_A_ROUND, Forwarding
from topics.engine.state.topic import Router
from topics.engine.values.topic_config import make_config
from topics.store.commits.write_batch import Commit


def routed(destinations: int, source: str = "log", **topic: Any) -> RealWorld:
    """A source of this type, and so many destinations of this configuration."""
    world = RealWorld(wal_file_bytes=1 << 20)
    world.put("source", type=source)
    answers: list[Answer] = []
    for number in range(destinations):
        answers += Answer(), Answer()
        world.engine.put_topic(f"dest{number}", make_config(**topic), answers[-2])
        config = RouterConfig(source="source", dest=f"dest{number}")
        world.engine.put_router(f"router{number}", config, lambda _name: True, answers[-1])
    world.until(lambda: all(answer.given for answer in answers))
    world.advance_ms(1000)
    return world


class Work:
    """The cost of routers, in units of work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[str] = []
        """Routers that were found to lag, by name."""
        self.stepped: list[str] = []
        """Routers that a step was begun of."""
        note, begin = Forwarding.note, ForwardSteps.begin
        monkeypatch.setattr(
            Forwarding, "note", lambda own, router: (self._count(self.noted, router), note(own, router))[1]
        )
        monkeypatch.setattr(
            ForwardSteps, "begin", lambda own, router: (self._count(self.stepped, router), begin(own, router))
        )

    @staticmethod
    def _count(names: list[str], router: Router) -> None:
        names.append(router.name)

    def of_passes(self, world: RealWorld, ms: int) -> tuple[int, int]:
        """The most that a pass noted, and stepped, within so much virtual time."""
        until = world.real_loop.clock.monotonic_ns() + ms * 1_000_000
        noted = stepped = 0
        while world.real_loop.clock.monotonic_ns() < until:
            before = len(self.noted), len(self.stepped)
            world.real_loop.run_pass(1_000_000)
            noted, stepped = max(noted, len(self.noted) - before[0]), max(stepped, len(self.stepped) - before[1])
        return noted, stepped


def write_for(world: RealWorld, ms: int) -> int:
    """Writes, each staged before the last is answered, for so much virtual time; returns how many."""
    until = world.real_loop.clock.monotonic_ns() + ms * 1_000_000
    written = 0
    while world.real_loop.clock.monotonic_ns() < until:
        world.start_append(records(written), "source")
        world.real_loop.run_pass(50_000)
        written += 1
    return written


def head_of(world: RealWorld, topic: str) -> int:
    asked = Answer()
    world.engine.state(topic, touch=False, done=asked)
    world.until(lambda: asked.given)
    head: int = asked.get().head_seq
    return head


def test_what_comes_while_a_step_is_on_its_way_waits_for_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[str] = []
    apply = Forward.apply
    monkeypatch.setattr(Forward, "apply", lambda self, commit: (applied.append(self.topic.name), apply(self, commit)))
    world = routed(3)
    written = write_for(world, 500)
    assert written > 250
    rounds = applied.count("dest0")
    assert 6 <= rounds <= 20  # one in 50 ms, some at the start after 10
    assert applied.count("dest1") == applied.count("dest2") == rounds
    assert [head_of(world, f"dest{number}") for number in range(3)] == [written] * 3


def test_a_reader_who_waits_at_a_destination_is_not_kept_waiting_by_a_busy_source() -> None:
    world = routed(2)
    write_for(world, 200)
    at = head_of(world, "dest1")
    poll = world.start_diff(at, "dest1", wait_ms=20_000)
    before = world.real_loop.clock.monotonic_ns()
    world.real_loop.call_soon(lambda: world.start_append(records("news"), "source"))  # in a pass, as a server does
    world.until(lambda: poll.given)
    assert world.real_loop.clock.monotonic_ns() - before < 10_000_000
    assert poll.get().next_from_seq > at


def test_the_routers_of_one_source_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * LOOKS_A_PASS
    world = routed(count)
    work = Work(monkeypatch)
    written: list[Answer] = []
    world.real_loop.call_soon(lambda: written.append(world.start_append(records("news"), "source")))
    noted, stepped = work.of_passes(world, 1000)
    assert noted <= LOOKS_A_PASS
    assert stepped <= STEPS_A_PASS
    assert sorted(work.stepped) == sorted(f"router{number}" for number in range(count))
    assert {head_of(world, f"dest{number}") for number in range(count)} == {1}


def test_destinations_that_are_all_waited_for_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * STEPS_A_PASS
    world = routed(count)
    polls = [world.start_diff(0, f"dest{number}", wait_ms=20_000) for number in range(count)]
    work = Work(monkeypatch)
    world.real_loop.call_soon(lambda: world.start_append(records("news"), "source"))
    assert work.of_passes(world, 100)[1] <= STEPS_A_PASS
    assert [poll.get().next_from_seq for poll in polls] == [1] * count


def test_a_read_drives_none_but_the_routers_that_feed_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    world = routed(300)
    world.append("news", name="source")
    work = Work(monkeypatch)
    poll = world.start_diff(0, "dest7")
    world.until(lambda: poll.given)
    assert poll.get().next_from_seq == 1
    assert work.stepped == ["router7"]


def test_a_source_that_is_written_to_while_its_routers_take_turns_has_them_all_look_again() -> None:
    count = 3 * LOOKS_A_PASS
    world = routed(count)
    written = write_for(world, 20)
    world.advance_ms(1000)
    assert {head_of(world, f"dest{number}") for number in range(count)} == {written}


def held(destinations: int) -> RealWorld:
    """Each of the destinations is full."""
    world = routed(destinations, cap_records=1, discard="reject")
    for number in range(2):
        world.append(number, name="source")
    world.advance_ms(1000)
    return world


def test_what_routers_without_room_cost_does_not_grow_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    world = held(4 * TRIES_A_ROUND)
    work = Work(monkeypatch)
    world.advance_ms(1000)
    rounds = 1000 // world.config.router_retry_ms
    assert 4 * TRIES_A_ROUND < len(work.stepped) <= (rounds + 1) * TRIES_A_ROUND
    assert len(set(work.stepped)) == 4 * TRIES_A_ROUND  # each in its turn


def test_routers_that_wait_for_the_same_room_go_on_when_one_of_them_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 8 * TRIES_A_ROUND
    world = held(count)
    cleared = [Answer() for _ in range(count)]
    for number, answer in enumerate(cleared):
        world.engine.delete_records(f"dest{number}", 2, None, answer)
    world.until(lambda: all(answer.given for answer in cleared))
    work = Work(monkeypatch)
    world.advance_ms(2 * world.config.router_retry_ms)  # eight rounds of tries would take four times that
    assert len(set(work.stepped)) == count
    assert {head_of(world, f"dest{number}") for number in range(count)} == {2}


def test_a_router_without_room_goes_on_for_who_reads_its_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    world = held(2 * TRIES_A_ROUND)
    work = Work(monkeypatch)
    for _ in range(3):
        head_of(world, "dest5")
    assert work.stepped.count("router5") >= 3


def test_routers_without_room_that_go_with_their_topic_are_taken_off_the_lists_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand were taken off in the pass that answers, each with a change of its state."""
    world = held(4 * TRIES_A_ROUND)
    forwarding = world.engine._routers._forwarding
    listed = len(forwarding._held)
    assert listed > 3 * TRIES_A_ROUND
    deleted = Answer()
    world.engine.delete_topic("source", if_empty=False, done=deleted)
    world.until(lambda: deleted.given)
    assert len(forwarding._held) > listed // 2, "the answer does not wait for the lists"
    work = Work(monkeypatch)
    world.until(lambda: len(world.engine._core.usage.reclaim) == 0)
    world.advance_ms(2 * world.config.router_retry_ms)
    assert (forwarding._held, forwarding._lagging, forwarding._news) == ({}, {}, {})
    assert work.stepped == [], "a deleted router is in no step (R-RTR-11)"


def test_a_topic_s_routers_are_released_after_its_deletion_is_answered_and_no_request_finds_them() -> None:
    world = routed(300)
    world.put("other")
    deleted, fed = Answer(), Answer()
    world.engine.delete_topic("source", if_empty=False, done=deleted)
    world.until(lambda: deleted.given)
    assert len(deleted.get().routers_removed) == 300
    assert len(world.engine._core.usage.reclaim) == 1
    world.engine.put_router("router0", RouterConfig("other", "dest0"), lambda _name: True, fed)
    world.until(lambda: fed.given)
    assert fed.get().created
    world.checkpoint()
    world.restart()
    assert list(world.engine._core.routers.by_name) == ["router0"]


def test_the_routers_that_an_ack_waits_for_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-RTR-18: nothing is consumed before the last of them has it."""
    count = 10 * STEPS_A_PASS
    world = routed(count, source="queue")
    world.append("a job", name="source")
    claimed, acked = Answer(), Answer()
    world.engine.claim(ClaimRequest("source", "w", 1, None), claimed)
    world.until(lambda: claimed.given)
    routers = [world.engine._core.routers.by_name[f"router{number}"] for number in range(count)]
    assert all(router.position == 0 for router in routers), "none has come to it yet"
    work = Work(monkeypatch)
    apply = JobRemoval.apply

    def counted(self: JobRemoval, commit: Commit) -> None:
        assert all(router.position == 1 for router in routers)
        apply(self, commit)

    monkeypatch.setattr(JobRemoval, "apply", counted)
    world.engine.ack(HeldJobs("source", "w", [1]), acked)
    most = len(work.stepped)
    while not acked.given:
        most = max(most, work.of_passes(world, 1)[1])
    assert acked.get().done == 1
    assert len(work.stepped) == count
    assert most <= STEPS_A_PASS, "those of the ack, of the new record and of the timer"


def test_an_ack_and_readers_who_wait_have_the_steps_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of work had those of a pass, so one began twice as many; a third kind is the timer's."""
    count = 3 * STEPS_A_PASS
    world = routed(4 * count, source="queue")
    world.put("log")
    for number in range(count):
        world.put(f"end{number}")
        world.engine.put_router(f"late{number}", RouterConfig("log", f"end{number}"), lambda _name: True, Answer())
    world.append("a job", name="source")
    claimed, acked = Answer(), Answer()
    world.engine.claim(ClaimRequest("source", "w", 1, None), claimed)
    world.until(lambda: claimed.given)
    polls = [world.start_diff(0, f"end{number}", wait_ms=20_000) for number in range(count)]
    work = Work(monkeypatch)

    def act() -> None:
        world.engine.ack(HeldJobs("source", "w", [1]), acked)
        world.start_append(records("news"), "log")

    world.real_loop.call_soon(act)
    assert work.of_passes(world, 100)[1] <= STEPS_A_PASS + 1, "one of the new record goes in each pass"
    assert acked.get().done == 1
    assert [poll.get().next_from_seq for poll in polls] == [1] * count
    assert len(work.stepped) == 5 * count
