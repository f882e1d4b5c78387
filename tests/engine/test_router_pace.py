"""How often routers step: what a busy source pays for them does not depend on how often it is written to."""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer, records
from tests.engine.real_world import RealWorld
from topics.engine.routers.forward import Forward
from topics.engine.routers.router import RouterConfig


def routed(destinations: int) -> RealWorld:
    world = RealWorld(wal_file_bytes=1 << 20)
    world.put("source")
    for number in range(destinations):
        world.put(f"dest{number}")
        made = Answer()
        world.engine.put_router(
            f"router{number}", RouterConfig(source="source", dest=f"dest{number}"), lambda _name: True, made
        )
        world.until(lambda made=made: made.given)  # type: ignore[misc]
    return world


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
    written = write_for(world, 1000)
    assert written > 500
    rounds = applied.count("dest0")
    assert 10 <= rounds <= 30  # one in 50 ms, some at the start after 10
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
