"""Leases: which jobs of a queue are held, delayed or ready, and which come next."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from heapq import heapify
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engine.harness import Answer
from tests.engine.queue.queue_calls import claim, counters, queue, start_ack
from topics.engine.index.index import Index
from topics.engine.queue.queue_results import HeldJobs
from topics.engine.state import leases
from topics.engine.state.control_frames import LeaseRow
from topics.engine.state.leases import Leases
from topics.engine.values.job import BLOCK_SEQS, LeasedJob
from topics.engine.values.topic_config import make_config
from topics.store.format.floors import Floors
from topics.store.format.rows import RowRecord, pack_rows


# --- over a fake index -----------------------------------------------------------------------------------------
class FakeIndex:
    """Live seqs of a queue: what leases ask an index for."""

    def __init__(self, *seqs: int) -> None:
        self.seqs = set(seqs)
        self.usage: Any = None

    @property
    def live(self) -> int:
        return len(self.seqs)

    def live_seqs(self, after: int, upto: int, limit: int) -> list[int]:
        return sorted(seq for seq in self.seqs if after < seq <= upto)[:limit]

    def next_live(self, seq: int) -> int:
        return min((each for each in self.seqs if each >= seq), default=1 << 64)

    def alive(self, seqs: Any) -> Any:
        return np.isin(seqs, np.array(sorted(self.seqs), np.uint64))


class Stream:
    """A holder that remembers its calls."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def on_leased(self, job: LeasedJob) -> None:
        self.held.append(job.seq)

    def on_lease_ended(self, job: LeasedJob) -> None:
        self.held.remove(job.seq)


class Queue:
    """Leases of jobs 1 to `count`, and a clock that the test sets."""

    def __init__(self, count: int = 5, **config: Any) -> None:
        self.head = count
        self.index = FakeIndex(*range(1, count + 1))
        self.floors = Floors()
        self.config = make_config(type="queue", **config)
        self.leases = self.another()
        self.now_ms = 1000
        self.last_id = 0

    def another(self) -> Leases:
        return Leases(self.index, self.floors)  # type: ignore[arg-type]

    def claim(self, most: int = 1, *, lease_ms: int = 100, holder: Stream | None = None) -> list[LeasedJob]:
        self.leases.apply_time(self.now_ms)
        jobs = self.leases.take(most, self.head, self.config).jobs
        self.leases.lease(jobs, self.last_id + 1, self.now_ms + lease_ms, "node", holder)
        self.last_id += len(jobs)
        return jobs

    def seqs(self, most: int = 1, *, lease_ms: int = 100) -> list[int]:
        return [job.seq for job in self.claim(most, lease_ms=lease_ms)]

    def job(self, seq: int) -> LeasedJob:
        job = self.leases.jobs.get(seq)
        assert job is not None
        return job

    def delete(self, *seqs: int) -> None:
        self.index.seqs -= set(seqs)
        self.leases.forget(seqs)

    def evict(self, upto: int) -> None:
        self.index.seqs = {seq for seq in self.index.seqs if seq > upto}
        self.floors.raise_to(cap=upto)

    @property
    def counters(self) -> tuple[int, int, int]:
        """Ready, in flight, delayed."""
        ready, in_flight = self.leases.counters(self.now_ms)
        return ready, in_flight, self.leases.delayed


def test_jobs_are_handed_out_in_their_order_and_once() -> None:
    q = Queue()
    assert q.seqs(2) == [1, 2]
    assert q.counters == (3, 2, 0)
    assert q.seqs(10) == [3, 4, 5]
    assert q.seqs(10) == []
    assert q.counters == (0, 5, 0)


def test_lease_ids_count_up_and_deliveries_are_counted() -> None:
    q = Queue()
    assert [job.lease_id for job in q.claim(2)] == [1, 2]
    q.now_ms += 101
    assert [(job.seq, job.lease_id, job.deliveries) for job in q.claim(3)] == [(1, 3, 2), (2, 4, 2), (3, 5, 1)]


def test_jobs_that_came_back_go_before_those_that_never_were_leased() -> None:
    q = Queue()
    one, two, three = q.claim(3)
    q.leases.release(three)
    q.leases.release(one)
    assert q.seqs(3) == [1, 3, 4]
    assert q.counters == (1, 4, 0)
    assert two.state.name == "LEASED"


def test_a_lease_holds_up_to_its_deadline_and_no_longer() -> None:
    q = Queue(1)
    q.claim(lease_ms=100)
    q.now_ms += 100
    assert (q.seqs(), q.counters, q.leases.next_due()) == ([], (0, 1, 0), 1100)
    q.now_ms += 1
    assert q.counters == (1, 0, 0)
    assert q.leases.next_due() is None
    assert q.seqs() == [1]


def test_a_lease_that_was_extended_outlives_its_first_deadline() -> None:
    q = Queue(1)
    (job,) = q.claim(lease_ms=100)
    q.leases.extend(job, 1500)
    q.now_ms = 1500
    assert q.counters == (0, 1, 0)
    q.now_ms = 1501
    assert q.counters == (1, 0, 0)


def test_a_lease_that_was_made_shorter_ends_at_its_new_deadline() -> None:
    q = Queue(1)
    (job,) = q.claim(lease_ms=1000)
    q.leases.extend(job, 1100)
    q.now_ms = 1101
    assert q.seqs() == [1]


def test_a_delayed_job_is_neither_ready_nor_in_flight_until_its_time_has_passed() -> None:
    q = Queue(2)
    (job,) = q.claim()
    q.leases.delay(job, 1050)
    assert q.counters == (1, 0, 1)
    q.now_ms = 1050
    assert q.seqs(5) == [2]
    q.now_ms = 1051
    assert q.counters == (1, 1, 0)
    assert q.seqs(5) == [1]


def test_a_job_whose_ack_is_on_its_way_is_in_flight_past_its_deadline() -> None:
    q = Queue(1)
    (job,) = q.claim()
    q.leases.end_all([job])
    q.now_ms += 1000
    assert (q.seqs(), q.counters) == ([], (0, 1, 0))
    q.leases.release(job)
    assert q.seqs() == [1]


def test_nothing_is_left_of_a_finished_job() -> None:
    q = Queue(2)
    (job,) = q.claim()
    q.leases.end_all([job])
    q.index.seqs.discard(1)
    q.leases.finish(job)
    assert q.counters == (1, 0, 0)
    assert list(q.leases.jobs) == []
    q.now_ms += 1000
    assert q.seqs(5) == [2]


@pytest.mark.parametrize("how", ["one by one", "together"])
def test_jobs_may_be_finished_in_whatever_state_they_are(how: str) -> None:
    q, stream = Queue(6), Stream()
    jobs = [*q.claim(4), *q.claim(1, holder=stream)]
    q.leases.end_all([jobs[0], jobs[4]])
    q.leases.delay(jobs[1], 5000)
    q.delete(3)
    q.index.seqs -= {1, 2, 4, 5}
    if how == "together":
        q.leases.finish_all(jobs)
    else:
        for job in jobs:
            q.leases.finish(job)
    assert (q.counters, list(q.leases.jobs), stream.held) == ((1, 0, 0), [], [])


def test_a_job_that_was_taken_and_put_back_is_ready() -> None:
    q = Queue()
    jobs = q.leases.take(3, q.head, q.config).jobs
    q.leases.put_back(jobs[1])
    assert q.seqs(1) == [2]


# --- poison -----------------------------------------------------------------------------------------------------------
def test_a_job_delivered_as_often_as_allowed_is_poison_and_takes_no_place_in_a_claim() -> None:
    q = Queue(3, max_deliveries=2, dead_letter="dl")
    for _ in range(2):
        assert q.seqs(1) == [1]
        q.now_ms += 101
    q.leases.apply_time(q.now_ms)
    taken = q.leases.take(2, q.head, q.config)
    assert ([job.seq for job in taken.jobs], [job.seq for job in taken.poison]) == ([2, 3], [1])
    assert q.leases.take(2, q.head, q.config).poison == []
    q.leases.release(taken.poison[0])
    assert [job.seq for job in q.leases.take(1, q.head, q.config).poison] == [1]


def test_without_a_dead_letter_topic_no_job_is_poison() -> None:
    q = Queue(1, max_deliveries=1)
    for _ in range(5):
        assert q.seqs() == [1]
        q.now_ms += 101


# --- records that go --------------------------------------------------------------------------------------------------
def test_a_deleted_job_leaves_the_counters_and_its_lease_may_still_be_ended() -> None:
    q = Queue(3)
    jobs = q.claim(2)
    q.leases.delay(jobs[1], 5000)
    q.delete(1, 2, 3)
    assert q.counters == (0, 0, 0)
    assert list(q.leases.jobs) == [1]
    assert not jobs[0].live
    q.leases.finish(jobs[0])
    assert (q.counters, list(q.leases.jobs)) == ((0, 0, 0), [])


def test_a_lease_of_a_deleted_job_does_not_bring_it_back() -> None:
    q = Queue(1)
    (job,) = q.claim()
    q.delete(1)
    q.now_ms += 1000
    assert (q.seqs(), q.counters, list(q.leases.jobs)) == ([], (0, 0, 0), [])
    assert not job.live


def test_what_a_cap_evicts_is_found_out_by_the_next_look() -> None:
    q = Queue(5)
    jobs = q.claim(3)
    q.leases.release(jobs[0])
    q.evict(2)
    assert q.counters == (2, 1, 0)
    assert sorted(q.leases.jobs) == [2, 3]
    assert q.seqs(5) == [4, 5]


def test_many_deletes_are_found_out_at_once() -> None:
    q = Queue(5)
    q.claim(4)
    q.index.seqs = {2, 5}
    q.leases.forget_rows(1, np.array([True, False, True, True]))
    assert q.counters == (1, 1, 0)


@pytest.mark.usefixtures("no_old_garbage")
@pytest.mark.parametrize(("how", "most"), [("a floor", 2), ("a delete", 6)])
def test_leases_that_a_floor_or_a_delete_ends_are_taken_from_the_counters_by_few_calls_a_thousand(
    how: str, most: int
) -> None:
    """R-Q-13: of four million leases seven calls took 6 ms of a pass for a floor, and 36 for a delete."""
    blocks, steps = 256, list[Iterator[None]]()
    last = blocks * BLOCK_SEQS - 1
    q = Queue(last + 1)
    q.index.usage = SimpleNamespace(reclaim=SimpleNamespace(run=steps.append))
    held = q.leases
    jobs = [held.jobs.add(seq, held.jobs.block_of(seq)) for seq in (*range(1, last, 64), last + 1)]
    held.lease(jobs, 1, 5000, "node", None)
    held.delay(jobs[1], 5000)
    gone = [job for job in jobs if job.seq <= last]
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    if how == "a floor":
        q.floors.raise_to(cap=last)
    which = np.ones(last, np.bool_)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        if how == "a floor":
            held.apply_time(q.now_ms)
        else:
            held.forget_rows(1, which)
    finally:
        sys.setprofile(before)
    assert calls < most * blocks + 150
    assert (held.leased, held.delayed) == (len(jobs) - len(gone), 0)
    assert not any(job.live for job in gone)
    for work in steps:
        for _ in work:
            pass
    assert len(held.jobs) == len(jobs) - 1, "leases of the others may still be answered"
    held.check()


# --- those who hold ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["released", "delayed", "finished", "expired", "deleted and expired"])
def test_a_holder_is_told_of_each_lease_and_of_its_end(how: str) -> None:
    q, stream = Queue(2), Stream()
    job, _ = q.claim(2, holder=stream)
    assert stream.held == [1, 2]
    if how == "released":
        q.leases.release(job)
    elif how == "delayed":
        q.leases.delay(job, 5000)
    elif how == "finished":
        q.leases.finish(job)
    else:
        if how == "deleted and expired":
            q.delete(1)
        q.leases.extend(q.job(2), 9000)
        q.now_ms += 101
        q.leases.apply_time(q.now_ms)
    assert stream.held == [2]


# --- over a restart ---------------------------------------------------------------------------------------------------
def restarted(q: Queue, *, keep: bool = True) -> Leases:
    before, q.leases = q.leases, q.another()
    for row in before.image():
        q.leases.restore(row)
    q.leases.recovered(keep=keep)
    return q.leases


def test_leases_that_are_kept_hold_after_a_restart_with_their_deliveries() -> None:
    q = Queue(5)
    jobs = q.claim(3)
    q.leases.end_all([jobs[1]])
    q.leases.release(jobs[2])
    restarted(q)
    assert q.counters == (3, 2, 0), "an ack that was not logged was none"
    assert q.seqs(5) == [3, 4, 5]
    assert [q.job(seq).deliveries for seq in range(1, 6)] == [1, 1, 2, 1, 1]
    q.now_ms += 101
    assert q.seqs(5) == [1, 2, 3, 4, 5]


def test_leases_that_are_not_kept_are_forgotten() -> None:
    q = Queue(3)
    q.claim(2)
    restarted(q, keep=False)
    assert (q.counters, list(q.leases.jobs)) == ((3, 0, 0), [])
    assert [job.deliveries for job in q.claim(3)] == [1, 1, 1]


def test_of_several_leases_of_a_job_the_last_one_logged_counts() -> None:
    q = Queue(3)
    leases = q.leases
    leases.restore(LeaseRow(1, 7, 1100, 1, "a"))
    leases.restore(LeaseRow(2, 8, 1100, 1, "a"))
    leases.restore(LeaseRow(1, 9, 1900, 2, "b"))
    leases.restore_end(2)
    leases.restore_end(3)
    leases.recovered(keep=True)
    assert q.counters == (2, 1, 0)
    assert (q.job(1).lease_id, q.job(1).node) == (9, "b")
    q.now_ms = 1500
    assert q.seqs(5) == [2, 3]


def test_a_lease_on_a_record_that_is_gone_does_not_outlive_a_restart() -> None:
    q = Queue(3)
    q.claim(3)
    image = q.leases.image()
    q.index.seqs = {2}
    q.leases = q.another()
    for row in image:
        q.leases.restore(row)
    q.leases.recovered(keep=True)
    assert (q.counters, list(q.leases.jobs)) == ((0, 1, 0), [2])


# --- in an engine ------------------------------------------------------------------------------------------------
def test_untouched_jobs_cost_nothing() -> None:
    h = queue()
    for _ in range(20):
        h.append(*range(500), name="q")
    topic = h.engine._core.registry.by_name["q"]
    assert topic.queue is not None
    assert not topic.queue.jobs
    done = 0
    while seqs := claim(h, 700):
        assert len(topic.queue.jobs) == len(seqs)
        answer = start_ack(h, *seqs)
        h.settle()
        done += answer.get().done
    assert done == 10_000
    assert not topic.queue.jobs
    assert len(topic.queue._times) + len(topic.queue._old_times) < 5000


def test_heaps_of_jobs_long_gone_shrink() -> None:
    h = queue()
    topic = h.engine._core.registry.by_name["q"]
    assert topic.queue is not None
    h.append("stays", name="q")
    claim(h)
    for _ in range(30):
        h.append(*range(200), name="q")
        seqs = claim(h, 200)
        start_ack(h, *seqs)
        h.settle()
    assert len(topic.queue._times) < 2500
    assert len(topic.queue.jobs.blocks) <= 2
    for _ in range(3000):
        h.engine.extend(HeldJobs("q", "w", [1]), 3_600_000, Answer())
    assert len(topic.queue._times) < 2500
    assert counters(h) == (1, 0, 1)


def test_a_lease_ends_at_its_deadline_though_the_heap_was_replaced_meanwhile() -> None:
    h = queue(lease_ms=60_000)
    h.append("stays", name="q")
    claim(h)
    for _ in range(10):
        h.append(*range(200), name="q")
        start_ack(h, *claim(h, 200))
        h.settle()
    topic = h.engine._core.registry.by_name["q"]
    assert topic.queue is not None
    assert len(topic.queue._times) + len(topic.queue._old_times) < 2000
    h.advance_ms(60_001)
    assert counters(h) == (1, 1, 0)


def test_leases_of_jobs_long_gone_cost_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that vanish, with leases of a day: a cap takes their jobs, and the leases stay until they end."""
    made_anew: list[int] = []
    monkeypatch.setattr(leases, "heapify", lambda heap: (made_anew.append(len(heap)), heapify(heap)))
    h = queue(cap_records=100, lease_ms=86_400_000)
    for _ in range(30):
        h.append(*range(100), name="q")
        claim(h, 100)
    assert counters(h) == (100, 0, 100)
    made_anew.clear()
    for _ in range(50):
        h.append("new", name="q")
        assert len(claim(h)) == 1
    assert not made_anew


# --- jobs by the thousand ---------------------------------------------------------------------------------------------
class Many:
    """A queue of many jobs beside a plain model of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.h = queue(lease_ms=1000)
        self.tags: dict[int, int] = {}
        """The tag of each live job."""
        self.until: dict[int, int] = {}
        self.delayed: set[int] = set()
        self.returned: set[int] = set()
        self.fresh: list[int] = []

    @property
    def now_ms(self) -> int:
        return self.h.loop.clock.now_ms()

    def step(self) -> None:
        kind = self.rng.randrange(6)
        if kind == 0:
            self.write()
        elif kind == 1:
            self.claim(self.rng.choice((1, 300, 1000)))
        elif kind == 2:
            self.give_back()
        elif kind == 3:
            self.delete()
        elif kind == 4:
            self.h.advance_ms(self.rng.choice((1, 500, 1001)))
            self.h.state("q")
            while self.leases._times and self.leases._times[0][0] < self.now_ms:
                self.h.settle()
            for seq in [seq for seq, until in self.until.items() if until < self.now_ms]:
                del self.until[seq]
                self.delayed.discard(seq)
                self.returned.add(seq)
        else:
            self.h.settle()

    @property
    def leases(self) -> Leases:
        topic = self.h.engine._core.registry.by_name["q"]
        assert topic.queue is not None
        return topic.queue

    def write(self) -> None:
        tags = [self.rng.randrange(3) for _ in range(self.rng.choice((5, 2000)))]
        answer = self.h.start_append(pack_rows([RowRecord(b"0", tag=b"%d" % tag) for tag in tags]), "q")
        self.h.settle()
        first = answer.get().first_seq
        self.tags.update(enumerate(tags, first))
        self.fresh += range(first, first + len(tags))

    def claim(self, most: int) -> None:
        known = sorted(self.returned)[:most]
        wanted = known + self.fresh[: most - len(known)]
        del self.fresh[: most - len(known)]
        assert claim(self.h, most) == sorted(wanted)
        self.returned -= set(wanted)
        self.until.update(dict.fromkeys(wanted, self.now_ms + 1000))

    def give_back(self) -> None:
        held = [seq for seq in self.until if seq not in self.delayed]
        some = self.rng.sample(held, min(len(held), self.rng.choice((3, 700))))
        delay_ms = self.rng.choice((0, 0, 400))
        if self.rng.random() < 0.5:
            start_ack(self.h, *some)
            self.gone(set(some))
        else:
            self.h.engine.nack(HeldJobs("q", "w", some), delay_ms, "", Answer())
            for seq in some:
                self.until[seq] = self.now_ms + delay_ms - 1
            if delay_ms:
                self.delayed |= set(some)
            else:
                self.returned |= set(some)
                for seq in some:
                    del self.until[seq]
        self.h.settle()

    def delete(self) -> None:
        if self.rng.random() < 0.5:
            tag = self.rng.randrange(3)
            self.h.delete(match=f"{tag}", name="q")
            self.gone({seq for seq, its in self.tags.items() if its == tag})
        elif self.tags:
            before = self.rng.choice((1024, 2048, self.rng.choice(list(self.tags))))
            before = min(before, max(self.tags) + 1)
            self.h.delete(before, name="q")
            self.gone({seq for seq in self.tags if seq < before})

    def gone(self, seqs: set[int]) -> None:
        for seq in seqs:
            self.tags.pop(seq, None)
            self.until.pop(seq, None)
        self.delayed -= seqs
        self.returned -= seqs
        self.fresh = [seq for seq in self.fresh if seq not in seqs]

    def compare(self) -> None:
        in_flight = len(self.until) - len(self.delayed)
        count = len(self.tags)
        assert counters(self.h) == (count, count - len(self.until), in_flight)
        assert self.leases.delayed == len(self.delayed)
        self.leases.check()


@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_end_fail_and_go_by_the_thousand_are_counted_at_once(seed: int) -> None:
    """R-Q-13, R-Q-14: though their objects are dropped in later passes."""
    many = Many(seed)
    for _ in range(60):
        many.step()
        many.compare()
    many.h.delete(match="*", name="q")
    many.gone(set(many.tags))
    many.compare()
    for _ in range(100):
        many.h.settle()
    assert not any(job.live for seq in many.leases.jobs if (job := many.leases.jobs.get(seq)) is not None)


def test_of_very_many_leases_that_end_at_once_none_holds_and_all_are_ready_soon() -> None:
    """R-Q-2, R-Q-9."""
    h = queue(lease_ms=1000)
    h.append(*range(4000), name="q")
    for _ in range(4):
        claim(h, 1000)
    h.advance_ms(1001)
    answer = start_ack(h, *range(1, 4001))
    h.settle()
    assert len(answer.get().skipped) == 4000
    for _ in range(20):
        h.settle()
    assert counters(h) == (4000, 4000, 0)
    assert claim(h, 1000) == list(range(1, 1001))


def test_a_claim_after_a_start_skips_all_leases_that_survived_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-DUR-11: the jobs above the cursor of the new process."""
    h = queue(leases_durable=True, lease_ms=60_000)
    h.append(*range(3000), name="q")
    for _ in range(2):
        claim(h, 1000)
    start_ack(h, *range(500, 700))
    h.settle()
    h.restart()
    looks: list[int] = []
    live_seqs = Index.live_seqs
    monkeypatch.setattr(
        Index, "live_seqs", lambda index, after, *rest: (looks.append(after), live_seqs(index, after, *rest))[1]
    )
    assert claim(h, 2) == [2001, 2002]
    assert looks == [2000]


def test_a_job_changes_only_between_states_that_follow_each_other() -> None:
    q = Queue(3)
    ended, returned, held = q.claim(3)
    q.leases.end_all([ended])
    q.leases.release(returned)
    for change in (
        lambda: q.leases.end_all([returned]),
        lambda: q.leases.end_all([ended]),
        lambda: q.leases.delay(returned, 5000),
        lambda: q.leases.lease([held], 9, 5000, "n", None),
        lambda: q.leases.deal([held]),
    ):
        with pytest.raises(AssertionError, match="does not follow"):
            change()
