"""The order of deliveries, the pressure on the engine, and the effect of a storm on deliveries."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.harness import Answer, Harness, records
from topics.config import Config
from topics.engine.delivery.frames import Burst, RecordsFrame
from topics.engine.delivery.subscription import Subscription
from topics.engine.queue.queue_results import ClaimRequest
from topics.engine.scheduling.governor import Governor, Sample
from topics.engine.scheduling.ready_topics import AGING_NS, WEIGHTS, ReadySet, aged, band_of
from topics.engine.values.results import DiffQuery
from topics.errors import RequestError, TopicsError

MS = 1_000_000
S = 1000 * MS
CALM = Sample(0, 0, 0)
STORM = Sample(100_000, 10 * S, 0)


# --- the ready set ----------------------------------------------------------------------------------------------------
def drawn(ready: ReadySet[str], **how: Any) -> list[str]:
    found = []
    while (entry := ready.take(**how)) is not None:
        found.append(entry.topic)
    return found


def test_a_band_is_first_come_first_served() -> None:
    ready: ReadySet[str] = ReadySet()
    for name in "bca":
        ready.add(name, 100, 0)
    ready.add("b", 100, 5)
    assert (len(ready), drawn(ready), len(ready)) == (3, ["b", "c", "a"], 0)


def test_a_round_gives_each_band_its_weight() -> None:
    ready: ReadySet[str] = ReadySet()
    for band, priority in enumerate((-1, 0, 250, 500, 750)):
        for number in range(40):
            ready.add(f"{band}-{number}", priority, 0)
    first = [name[0] for name in drawn(ready)[: sum(WEIGHTS)]]
    assert Counter(first) == {str(band): weight for band, weight in enumerate(WEIGHTS)}
    assert first[0] == "4"


def test_credit_is_not_saved_up_by_an_empty_band() -> None:
    ready: ReadySet[str] = ReadySet()
    for number in range(20):
        ready.add(f"low-{number}", 0, 0)
    for _ in range(10):
        ready.take()
    for number in range(100):
        ready.add(f"top-{number}", 1000, 0)
    found = drawn(ready)
    assert max(found.index(f"low-{number}") for number in range(10, 20)) > 40


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=60), st.randoms())
def test_each_topic_is_served_once(priorities: list[int], rng: random.Random) -> None:
    ready: ReadySet[int] = ReadySet()
    for number, priority in enumerate(priorities):
        ready.add(number, priority, 0)
        ready.age(rng.randrange(20) * S)
    found = []
    while (entry := ready.take()) is not None:
        found.append(entry.topic)
    assert sorted(found) == list(range(len(priorities)))


def test_the_lowest_band_can_be_left_out() -> None:
    ready: ReadySet[str] = ReadySet()
    ready.add("last", -1, 0)
    ready.add("first", 0, 0)
    assert drawn(ready, without_band_0=True) == ["first"]
    assert ready.count(without_band_0=True) == 0
    assert (ready.oldest_ns(), ready.oldest_ns(without_band_0=True)) == (0, None)
    assert drawn(ready) == ["last"]


@pytest.mark.parametrize(
    ("priority", "seconds", "band"), [(0, 2, 1), (0, 3, 2), (0, 10, 4), (-1000, 10, 1), (-500, 5, 1)]
)
def test_who_waits_grows_older(priority: int, seconds: int, band: int) -> None:
    assert band_of(aged(priority, seconds * S)) == band
    ready: ReadySet[str] = ReadySet()
    ready.add("t", priority, 0)
    ready.age(AGING_NS - 1 + seconds * S)
    ready.add("u", 249 if band == 1 else 750, 0)
    assert ready.take(without_band_0=True) is not None


# --- the governor -----------------------------------------------------------------------------------------------------
def test_pressure_follows_the_worst_signal() -> None:
    config = Config()
    for sample in (
        Sample(config.pressure_full_backlog, 0, 0),
        Sample(1, config.pressure_full_latency_ms * MS, 0),
        Sample(0, 0, config.pressure_full_lag_ms * MS),
        STORM,
    ):
        governor = Governor(config)
        governor.sample(sample)
        assert governor.pressure == pytest.approx(0.5)
        for _ in range(10):
            governor.sample(sample)
        assert 0.99 < governor.pressure <= 1
        for _ in range(10):
            governor.sample(CALM)
        assert governor.pressure == 0


def test_steps_are_taken_one_by_one_and_given_back_later() -> None:
    governor = Governor(Config())
    taken = []
    for _ in range(30):
        governor.sample(STORM)
        taken.append([name for name, step in governor.steps.items() if step.taken])
    assert taken[0] == ["coalesce", "widen"]
    assert taken[-1] == ["coalesce", "widen", "defer", "refuse"]
    first = {name: next(at for at, names in enumerate(taken) if name in names) for name in taken[-1]}
    assert first["defer"] < first["refuse"]
    assert first["refuse"] >= 10
    half = Sample(700, 0, 0)
    for _ in range(20):
        governor.sample(half)
    assert governor.defer.taken, "between off and on a step stays as it is"
    for _ in range(20):
        governor.sample(Sample(500, 0, 0))
    assert not governor.defer.taken
    assert not governor.refuse.taken
    assert governor.widen.taken


def test_windows_grow_with_the_pressure() -> None:
    governor = Governor(Config(commit_window_us=200, coalesce_max_ms=20, commit_window_max_us=10_000))
    assert (governor.coalesce_ns, governor.commit_window_ns) == (0, 200_000)
    for _ in range(30):
        governor.sample(STORM)
    assert governor.coalesce_ns == pytest.approx(20 * MS, rel=0.01)
    assert governor.commit_window_ns == pytest.approx(10 * MS, rel=0.01)


def test_writes_are_refused_only_while_deliveries_wait_and_if_allowed() -> None:
    for config, sample in ((Config(backpressure=False), STORM), (Config(), Sample(0, 0, 10 * S))):
        governor = Governor(config)
        for _ in range(50):
            governor.sample(sample)
        assert governor.pressure > 0.99
        assert not governor.refuse.taken


# --- deliveries -------------------------------------------------------------------------------------------------------
class Costly:
    """A reader whose deliveries take time."""

    def __init__(self, h: Harness, cost_us: int = 0) -> None:
        self.h = h
        self.cost_us = cost_us
        self.feed = h.engine.open_feed(self)
        self.seqs: dict[str, list[int]] = {}
        self.order: list[str] = []
        self.frames = 0

    def follow(self, *names: str) -> Costly:
        for name in names:
            self.feed.subscribe(name, DiffQuery(), 0)
        self.feed.resume()
        return self

    audience = shared_connection = None

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        self.h.loop.clock.advance_ns(self.cost_us * 1000)
        for frame in burst.frames:
            if isinstance(frame, RecordsFrame):
                self.frames += 1
                self.order.append(frame.topic)
                seen = self.seqs.setdefault(frame.topic, [])
                assert frame.from_seq == (seen[-1] if seen else 0), "frames follow each other without a gap"
                seen += range(frame.from_seq + 1, frame.cursor + 1)
        return True

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        raise AssertionError(error)


class CostlyJobs:
    """A push stream whose every job takes a millisecond."""

    def __init__(self, h: Harness) -> None:
        self.h = h
        self.jobs = 0

    def deliver(self, seq: int, job: bytes) -> bool:
        self.h.loop.clock.advance_ns(MS)
        self.jobs += 1
        return True

    def on_gone(self) -> None:
        raise AssertionError

    def on_shutdown(self) -> None:
        raise AssertionError

    def on_error(self, error: TopicsError) -> None:
        raise error


def test_what_changed_in_a_pass_is_delivered_in_order_of_names() -> None:
    h = Harness()
    for name in ("b", "a", "c"):
        h.put(name)
    reader = Costly(h).follow("a", "b", "c")
    for name in ("c", "a", "b"):
        h.start_append(records(1), name)
    h.settle()
    assert reader.order == ["a", "b", "c"]
    assert h.loop.waiting == 0, "without load there is nothing to measure"


def test_a_pass_ends_when_its_time_is_over_and_the_rest_comes_later() -> None:
    h = Harness(delivery_budget_us=5000)
    names = [f"t{number:02}" for number in range(10)]
    for name in names:
        h.put(name, durability="ephemeral")
    reader = Costly(h, cost_us=1000).follow(*names)
    for name in names:
        h.start_append(records(1), name)
    h.engine.flush()
    assert reader.order == names[:5]
    assert h.loop.waiting, "the loop comes back by itself"
    h.engine.flush()
    assert reader.order == names


def test_a_pass_also_ends_while_one_topic_alone_has_more_and_more() -> None:
    """A push stream that has got some jobs asks for more within the pass."""
    h = Harness(delivery_budget_us=5000)
    h.put("q", type="queue", durability="ephemeral")
    h.append(0, name="q")
    h.engine.claim(ClaimRequest("q", "n"), Answer())  # lease ids are reserved with the first one
    h.settle()
    h.append(*range(64), name="q")
    sink = CostlyJobs(h)
    h.engine.open_push(ClaimRequest("q", "n", 64), sink).open()
    for jobs in (16, 32, 48, 64):
        assert sink.jobs == jobs
        h.engine.flush()


def test_a_higher_priority_comes_first_when_not_all_can() -> None:
    h = Harness(delivery_budget_us=2000)
    for name, priority in (("a", -5), ("b", 100), ("c", 900), ("d", 900)):
        h.put(name, durability="ephemeral", priority=priority)
    reader = Costly(h, cost_us=1500).follow("a", "b", "c", "d")
    reader.order.clear()
    for name in "abcd":
        h.start_append(records(1), name)
    h.engine.flush()
    first = len(reader.order)
    for _ in range(5):
        h.engine.flush()
    assert [name for name in reader.order[first:] if name in "cd"] == sorted(
        name for name in reader.order[first:] if name in "cd"
    )
    assert Counter(reader.order) == Counter("abcd")


def test_a_pass_asked_for_later_is_asked_for_at_once_when_something_is_ready() -> None:
    """A topic that cools down or is paused may wait; the rest of a pass may not wait with it."""
    h = Harness(delivery_budget_us=1000)
    for name, priority in (("a", 0), ("b", 0), ("paused", -1)):
        h.put(name, durability="ephemeral", priority=priority)
    reader = Costly(h, cost_us=2000).follow("a", "b", "paused")
    governor = h.engine._scheduler.governor
    governor.pressure, governor.defer.taken = 0.9, True
    h.start_append(records(1), "paused")
    h.engine.flush()
    assert (reader.order, h.loop.next_due_ms()) == ([], 100)
    for name in "ab":
        h.start_append(records(1), name)
    h.engine.flush()
    assert (reader.order, h.loop.next_due_ms()) == (["a"], 0)
    h.engine.flush()
    assert reader.order == ["a", "b"]


class Storm:
    """Writes to hot topics in every pass, more than deliveries can keep up with, and a few writes to cold ones.

    A pass takes 1 ms, and a delivery `cost_us`. Each record's wait is measured.
    """

    def __init__(self, *, hot: int, cold: dict[str, int], cost_us: int, **config: Any) -> None:
        self.h = h = Harness(delivery_budget_us=20_000, max_topics=0, **config)
        self.hot = [f"hot{number:03}" for number in range(hot)]
        self.cold = cold
        for name in self.hot:
            h.put(name, durability="ephemeral", priority=1000)
        for name, priority in cold.items():
            h.put(name, durability="ephemeral", priority=priority)
        self.reader = Costly(h, cost_us).follow(*self.hot, *cold)
        self.heads: Counter[str] = Counter()
        self.written: dict[str, list[int]] = {name: [] for name in (*self.hot, *cold)}
        self.worst_ms: dict[str, int] = {}
        self.refused = 0

    def write(self, name: str, *, disable_backpressure: bool = False) -> None:
        engine = self.h.engine
        if engine.refuses_writes and not disable_backpressure:
            error = engine.refuse_write()
            assert (error.code, error.detail) == ("throttled", {"retry_after_ms": 1000})
            self.refused += 1
            return
        answer = self.h.start_append(records(1), name)
        assert answer.get().last_seq == self.heads[name] + 1
        self.heads[name] += 1
        self.written[name].append(self.now_ms)

    @property
    def now_ms(self) -> int:
        return self.h.loop.clock.monotonic_ns() // MS

    def run(self, ms: int, *, writes: bool = True) -> None:
        until = self.now_ms + ms
        while self.now_ms < until:
            if writes:
                for name in self.hot:
                    self.write(name)
                for name in self.cold:
                    if self.now_ms % 50 == 0 or not self.written[name]:
                        self.write(name, disable_backpressure=True)
            self.h.engine.flush()
            self.look()
            self.h.advance_ms(1)

    def look(self) -> None:
        """How long the records waited that came since the last look."""
        for name, waiting in self.written.items():
            delivered = len(self.reader.seqs.get(name, ()))
            missing = self.heads[name] - delivered
            while len(waiting) > missing:
                waited = self.now_ms - waiting.pop(0)
                self.worst_ms[name] = max(self.worst_ms.get(name, 0), waited)


def test_in_a_storm_latency_degrades_and_nothing_else() -> None:
    storm = Storm(hot=12, cold={"low": 0, "negative": -300}, cost_us=3000)
    storm.run(5000)
    load = storm.h.engine.load()
    assert load.pressure > 0.8
    assert all(times for name, (times, _) in load.steps.items() if name != "refuse")
    # No topic starves: not the lowest among the busy ones, and the paused one comes when its age
    # has made up for its priority, which takes ten seconds at most.
    assert storm.worst_ms["low"] < 2000
    assert "negative" in storm.worst_ms
    assert 1000 < storm.worst_ms["negative"] < 4000
    # Many records of a topic share a frame.
    assert storm.reader.frames < sum(storm.heads.values()) * 2 / 3
    # A diff gets everything at once, whatever is delivered to others.
    assert storm.h.diff(0, "negative", limit=1000).head_seq == storm.heads["negative"]
    storm.run(3000, writes=False)
    assert {name: len(seqs) for name, seqs in storm.reader.seqs.items()} == dict(storm.heads)
    assert storm.h.engine.load().pressure == 0
    assert storm.h.store.log.commit_window_ns == storm.h.config.commit_window_us * 1000
    storm.h.advance_ms(1000)
    assert storm.h.loop.waiting == 0


def test_at_last_writes_are_refused_and_taken_again_afterwards() -> None:
    storm = Storm(hot=12, cold={"vip": 500}, cost_us=9000)
    storm.run(4000)
    assert storm.refused > 0
    assert storm.h.engine.load().refused == storm.refused
    assert storm.heads["vip"] > 10, "whoever disables backpressure is served"
    storm.run(10_000, writes=False)
    assert not storm.h.engine.refuses_writes
    assert {name: len(seqs) for name, seqs in storm.reader.seqs.items()} == dict(storm.heads)


def test_commits_are_held_back_under_pressure_alone() -> None:
    storm = Storm(hot=12, cold={}, cost_us=3000)
    assert storm.h.engine.throttle_window_ns == 0
    storm.run(2000)
    window_ns = storm.h.engine.throttle_window_ns
    assert 5 * MS < window_ns <= 10 * MS
    assert storm.h.store.log.commit_window_ns == window_ns


def test_a_refusal_is_an_error_of_the_contract() -> None:
    error = Harness().engine.refuse_write()
    assert isinstance(error, RequestError)
    assert error.message
