"""A bridge out of a server that is killed, or meets an error, at each step: exactly once, in order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from tests.cli.bridge.fake_sides import FakeServer, FakeTarget, Killed, StepCount
from topics.bridge.bridge_errors import FencedError, SourceDownError, TargetDownError
from topics.bridge.bridge_messages import BridgePosition, TopicBatch
from topics.bridge.bridge_numbers import BridgeNumbers
from topics.bridge.carry_out import CarryOut, Retries, TakenBatches
from topics.bridge.topic_source import TopicPatterns, TopicSource
from topics.clock import ManualClock
from topics.errors import TopicsError


class TakenAtOnce:
    """A source whose batches are read when they are taken."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source

    @property
    def ended(self) -> bool:
        return self._source.ended

    def take(self, wait_s: float, bytes_max: int, messages_max: int) -> list[TopicBatch]:
        found = [self._source.next(0), self._source.next(0)]
        return [batch for batch in found if batch is not None]

    def close(self) -> None:
        pass


class NoWait(threading.Event):
    """A stop that is not waited for."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def bridge(
    server: FakeServer, target: FakeTarget, stop: threading.Event | None = None, *, is_once: bool = True
) -> tuple[CarryOut, BridgeNumbers]:
    numbers, ending = BridgeNumbers(), stop or NoWait()

    def source(locate: Callable[[str], BridgePosition | None]) -> TakenBatches:
        return TakenAtOnce(TopicSource(server, TopicPatterns.parse("orders*,jobs"), locate, is_once=is_once))

    carry = CarryOut(
        target,
        source,
        numbers=numbers,
        clock=ManualClock(),
        retries=Retries(ending, numbers, lambda: 0.0, ManualClock()),
        stop=ending,
        batch_bytes=1000,
        batch_messages=100,
    )
    return carry, numbers


def filled() -> FakeServer:
    server = FakeServer()
    server.append("orders.eu", *(f"eu{number}" for number in range(8)))
    server.append("orders.us", "us0")
    server.append("jobs", "job0", "job1")
    server.append("others", "not carried")
    return server


def values(target: FakeTarget) -> dict[str, list[str]]:
    return {topic: [message.value.decode() for _, message in found] for topic, found in target.stored.items()}


EXPECTED = {"orders.eu": [f"eu{number}" for number in range(8)], "orders.us": ["us0"], "jobs": ["job0", "job1"]}


def steps_of_a_life() -> tuple[int, int]:
    server, target = filled(), FakeTarget()
    bridge(server, target)[0].run()
    assert values(target) == EXPECTED
    return server.steps.count, target.steps.count


def test_a_bridge_that_is_killed_at_any_step_continues_without_a_loss_or_a_double() -> None:
    of_server, of_target = steps_of_a_life()
    for at in range(1, of_target + 1):
        server, target = filled(), FakeTarget()
        target.steps = StepCount(at)
        with pytest.raises(Killed):
            bridge(server, target)[0].run()
        bridge(server, target)[0].run()
        assert values(target) == EXPECTED, at
    for at in range(1, of_server + 1):
        server, target = filled(), FakeTarget()
        server.steps = StepCount(at)
        with pytest.raises(Killed):
            bridge(server, target)[0].run()
        bridge(server, target)[0].run()
        assert values(target) == EXPECTED, at


def test_a_side_that_fails_at_any_step_is_asked_again_from_the_stored_position() -> None:
    of_server, of_target = steps_of_a_life()
    for at in range(1, of_target + 1):
        server, target = filled(), FakeTarget()
        target.steps = StepCount(at, TargetDownError)
        carry, numbers = bridge(server, target)
        carry.run()
        assert values(target) == EXPECTED, at
        assert numbers.registry.get_sample_value("topics_bridge_failures_total", {"side": "target"}) == 1
    for at in range(1, of_server + 1):
        server, target = filled(), FakeTarget()
        server.steps = StepCount(at, SourceDownError)
        carry, numbers = bridge(server, target)
        carry.run()
        assert values(target) == EXPECTED, at
        assert numbers.registry.get_sample_value("topics_bridge_failures_total", {"side": "source"}) == 1


def test_a_bridge_that_is_to_end_asks_a_side_for_so_long_and_no_longer() -> None:
    """Each batch that was carried gives it all of that time anew; without a time, it asks forever."""
    clock, stop = ManualClock(), NoWait()
    down = TargetDownError("nats://h does not answer")
    retries = Retries(stop, BridgeNumbers(), lambda: 1.0, clock, 30.0)
    retries.failed(down)
    clock.advance_ns(25_000_000_000)
    retries.failed(down)
    retries.succeeded(has_carried=False)
    retries.failed(down)
    clock.advance_ns(5_000_000_000)
    with pytest.raises(TopicsError, match=r"^nats://h does not answer; nothing was carried for 30 s \(--timeout\): "):
        retries.failed(down)
    retries.succeeded(has_carried=True)
    retries.failed(down)
    forever = Retries(stop, BridgeNumbers(), lambda: 1.0, clock)
    for _ in range(100):
        clock.advance_ns(25_000_000_000)
        forever.failed(down)


def test_the_time_of_a_try_that_fails_is_a_part_of_the_patience() -> None:
    """A side that did not answer for 10 s was asked for 10 s more, with a patience of 1 s."""
    clock = ManualClock()
    retries = Retries(NoWait(), BridgeNumbers(), lambda: 1.0, clock, 1.0)
    clock.advance_ns(10_000_000_000)
    retries.succeeded(has_carried=False)  # of a side that was good, and had nothing
    retries.failed(TargetDownError("nats://h does not answer"))
    retries.succeeded(has_carried=True)
    clock.advance_ns(10_000_000_000)
    with pytest.raises(TopicsError, match=r"; nothing was carried for 1 s \(--timeout\): "):
        retries.failed(TargetDownError("nats://h does not answer"))


def test_a_topic_that_is_made_later_is_carried_and_one_that_was_created_again_is_marked() -> None:
    server, target = filled(), FakeTarget()
    bridge(server, target)[0].run()
    server.append("orders.later", "first")
    del server.topics["orders.us"]
    server.append("orders.us", "new0", "new1")
    bridge(server, target)[0].run()
    assert values(target) == EXPECTED | {"orders.later": ["first"], "orders.us": ["us0", "recreated", "new0", "new1"]}


def test_a_gap_is_carried_once_in_its_place_whenever_the_bridge_is_killed() -> None:
    def with_gap() -> FakeServer:
        server = filled()
        server.lose("orders.eu", 3, 5)
        return server

    expected = EXPECTED | {"orders.eu": ["eu0", "eu1", "lost", "eu5", "eu6", "eu7"]}
    server, target = with_gap(), FakeTarget()
    bridge(server, target)[0].run()
    assert values(target) == expected
    for at in range(1, target.steps.count + 1):
        server, target = with_gap(), FakeTarget()
        target.steps = StepCount(at)
        with pytest.raises(Killed):
            bridge(server, target)[0].run()
        bridge(server, target)[0].run()
        assert values(target) == expected, at


def test_a_bridge_that_is_not_to_end_runs_until_it_is_stopped() -> None:
    server, target, stop = filled(), FakeTarget(), NoWait()
    looks = itertools.count()

    def on_heads() -> None:
        look = next(looks)
        if look == 1:
            server.append("orders.eu", "written meanwhile")
        elif look == 4:
            stop.set()

    server.on_heads = on_heads
    assert not bridge(server, target, stop, is_once=False)[0].run()
    assert values(target)["orders.eu"] == [*EXPECTED["orders.eu"], "written meanwhile"]


def test_a_bridge_that_is_stopped_before_the_heads_is_not_done() -> None:
    """`topics bridge --once && ...` continued after a signal, as if all had been carried."""
    server, target, stop = filled(), FakeTarget(), NoWait()
    assert bridge(server, target, stop)[0].run()
    server.append("orders.eu", "later")
    server.on_heads = stop.set
    assert not bridge(server, target, stop)[0].run()


def test_a_bridge_that_another_one_has_followed_ends() -> None:
    server, target = filled(), FakeTarget()
    server.on_heads = lambda: setattr(target, "opened", target.opened + 1)
    with pytest.raises(FencedError):
        bridge(server, target)[0].run()
    assert not target.stored


def test_rates_lag_and_the_newest_batch_are_metrics() -> None:
    server, target = filled(), FakeTarget()
    carry, numbers = bridge(server, target)
    carry.run()
    sample = numbers.registry.get_sample_value
    assert sample("topics_bridge_records_total", {"topic": "orders.eu"}) == 8
    assert sample("topics_bridge_lag_records", {"topic": "orders.eu"}) == 0
    assert sample("topics_bridge_up") == 1
    assert sample("topics_bridge_last_stored_timestamp_seconds") == ManualClock().now_ms() / 1000
    assert sample("topics_bridge_store_seconds_count") is not None
