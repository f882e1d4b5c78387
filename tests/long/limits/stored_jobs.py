"""Measure the longest step of the engine over a queue whose jobs were leased, and of what else a topic may have stored.

    python -m tests.long.limits.stored_jobs [--jobs 10000,100000,1000000] [--only PATTERN]

The engine runs on a store in memory. Each case makes a queue in which all jobs are leased, have failed or were deleted,
and does one thing with it; printed is the CPU time of the longest step, in ms, by number of jobs. A step is what a pass
of the loop cannot interrupt: one call of the engine, one flush, one step of a snapshot. The exit code is 1 if a step of
the largest number is longer than 20 ms (TOPICS_LIMITS_MS) and `KNOWN` does not say why.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy.ma  # noqa: F401 - as a server does: the first call of np.unique would

from tests.engine.harness import Answer, Harness
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.state.idempotency import KeyEntry
from topics.engine.state.leases import Leases
from topics.engine.state.topic import Topic
from topics.engine.values.topic_config import make_config
from topics.store.disk.whole_files import joined
from topics.store.format.floors import Gap, Gaps
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.layouts.segment_format import DescriptionPieces, SegmentHeader

T = TypeVar("T")
_AT_ONCE = 1000
_START = "a start"
_LEASE_MS = 60_000


class Steps:
    """The longest of some steps."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    def run(self, step: Callable[[], T]) -> T:
        began = time.thread_time()
        try:
            return step()
        finally:
            self.longest_ms = max(self.longest_ms, (time.thread_time() - began) * 1000)

    def all(self, steps: Iterator[object]) -> None:
        while self.run(lambda: next(steps, self)) is not self:
            pass

    def passes(self, h: Harness, count: int) -> None:
        """Run passes of the loop, with commits, of which what follows them counts."""
        log = h.store.log
        for _ in range(count):
            self.run(h.engine.flush)
            if log.filling.waiters or log.filling.body:
                waiters = log.filling.waiters
                log.filling.waiters = [lambda commit: self.run(lambda: [done(commit) for done in waiters])]  # noqa: B023
                log.commit()


class Queue:
    """A queue with jobs, and calls of its clients."""

    def __init__(self, jobs: int, *, max_topics: int = 0, data: bytes = b"0", **config: object) -> None:
        self.jobs = jobs
        self.h = Harness(max_topics=max_topics)
        self.h.put("q", type="queue", lease_ms=_LEASE_MS, **config)
        count = min(jobs, 10_000)
        rows = pack_rows([RowRecord(data, tag=b"a" if at % 2 else b"b") for at in range(count)])
        for _ in range(jobs // count):
            answer = self.h.start_append(rows, "q")
            self.h.settle()
            answer.get()
        self.steps = Steps()
        self._config = make_config(type="queue")

    @property
    def topic(self) -> Topic:
        return self.h.engine._core.registry.by_name["q"]

    @property
    def leases(self) -> Leases:
        assert self.topic.queue is not None
        return self.topic.queue

    def lease(self, *, failed: int = 0) -> Queue:
        """Lease all jobs, which have failed so often before."""
        clock = self.h.loop.clock
        for turn in range(failed + 1):
            for first in range(1, self.jobs + 1, _AT_ONCE):
                jobs = self.steps.run(lambda: self.leases.take(_AT_ONCE, self.jobs, self._config)).jobs
                assert len(jobs) == _AT_ONCE
                number, until_ms = turn * self.jobs + first, clock.now_ms() + _LEASE_MS
                self.steps.run(lambda: self.leases.lease(jobs, number, until_ms, "worker", None))  # noqa: B023
                if turn < failed:
                    self.steps.run(lambda: self._fail(jobs))  # noqa: B023
        return self

    def _fail(self, jobs: list[object]) -> None:
        for job in jobs:
            self.leases.note(job, "nacked", self.h.loop.clock.now_ms(), "no luck")  # type: ignore[arg-type]
            self.leases.release(job)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Count from here on."""
        gc.collect()
        self.steps.longest_ms = 0.0

    def claim(self) -> None:
        answer = Answer()
        self.steps.run(lambda: self.h.engine.claim(ClaimRequest("q", "w", 1, None), answer))
        self.steps.passes(self.h, 4)

    def claims(self, claims: int, most: int) -> int:
        """Make claims, which a window collects if the queue has one; return how many jobs they got."""
        answers = [Answer() for _ in range(claims)]
        for answer in answers:
            self.steps.run(lambda: self.h.engine.claim(ClaimRequest("q", "w", most, None), answer))  # noqa: B023
        self.steps.run(lambda: self.h.advance_ms(50))
        while not all(answer.given for answer in answers):
            self.steps.run(lambda: self.h.advance_ms(0))
            self.steps.passes(self.h, 1)
        return sum(answer.get().count for answer in answers)

    def state(self) -> None:
        self.steps.run(lambda: self.h.engine.state("q", touch=False, done=Answer()))


def grows(jobs: int) -> float:
    """Claims and nacks of a thousand jobs each, while the queue fills."""
    return Queue(jobs).lease(failed=1).steps.longest_ms


def snapshot(jobs: int, failed: int) -> float:
    q = Queue(jobs, leases_durable=True).lease(failed=failed)
    q.begin()
    checkpoints = q.h.catalog.checkpoints
    q.steps.all(checkpoints.prepare_snapshot(64))
    q.steps.run(checkpoints.snapshot)
    return q.steps.longest_ms


def kept_from_now_on(jobs: int) -> float:
    q = Queue(jobs).lease(failed=1)
    q.begin()
    answer = Answer()
    config = make_config(type="queue", lease_ms=_LEASE_MS, leases_durable=True)
    q.steps.run(lambda: q.h.engine.put_topic("q", config, answer))
    while not answer.given:
        q.steps.passes(q.h, 1)
    return q.steps.longest_ms


def deleted(jobs: int, *, before_seq: int | None = None, match: str | None = None, fail: bool = True) -> float:
    q = Queue(jobs).lease(failed=1)
    if fail:
        q.h.advance_ms(_LEASE_MS + 1)
        for _ in range(jobs // 1000):
            q.state()
            q.steps.passes(q.h, 1)
    q.begin()
    answer = q.h.start_delete(before_seq, match, "q")
    while not answer.given:
        q.steps.passes(q.h, 1)
    q.state()
    q.claim()
    q.steps.passes(q.h, jobs // 1000)
    return q.steps.longest_ms


def delayed_deleted(jobs: int, match: str) -> float:
    """A delete of many jobs that their records delay."""
    q = Queue(jobs)
    for first in range(1, jobs, _AT_ONCE):
        seqs = range(first, first + _AT_ONCE)
        q.leases.hold_back(list(seqs), [seq + (1 << 50) for seq in seqs])
    q.begin()
    answer = q.h.start_delete(None, match, "q")
    while not answer.given:
        q.steps.passes(q.h, 1)
    q.steps.passes(q.h, jobs // 1000)
    return q.steps.longest_ms


def queue_deleted(jobs: int) -> float:
    q = Queue(jobs).lease(failed=1)
    q.begin()
    answer = Answer()
    q.steps.run(lambda: q.h.engine.delete_topic("q", if_empty=False, done=answer))
    q.steps.passes(q.h, jobs // 1000)
    assert answer.given
    return q.steps.longest_ms


def expired(jobs: int) -> float:
    q = Queue(jobs).lease()
    q.h.advance_ms(_LEASE_MS + 1)
    q.begin()
    q.state()
    q.claim()
    q.steps.passes(q.h, jobs // 1000)
    return q.steps.longest_ms


def poison(jobs: int, *, max_topics: int = 0) -> float:
    """A claim of a job after as many that are to be moved, or that cannot be."""
    q = Queue(jobs, max_topics=max_topics, max_deliveries=1, dead_letter="dead").lease()
    q.h.append(1, name="q")
    q.h.advance_ms(_LEASE_MS + 1)
    for _ in range(jobs // 1000 + 1):
        q.state()
        q.steps.passes(q.h, 1)
    q.begin()
    answer = Answer()
    q.steps.run(lambda: q.h.engine.claim(ClaimRequest("q", "w", 1, None), answer))
    while not answer.given:
        q.steps.run(lambda: q.h.advance_ms(0))
        q.steps.passes(q.h, 1)
    assert answer.get().count == 1
    q.steps.passes(q.h, jobs // 1000 + 1)
    assert q.h.state("q").count == (jobs + 1 if max_topics else 1)
    return q.steps.longest_ms


def apart(jobs: int, size: int) -> float:
    """A claim of a thousand large jobs at most, whose neighbours were deleted."""
    q = Queue(min(jobs // 5, 2000), data=b'"%b"' % (b"x" * size))
    q.h.delete(match="a", name="q")
    q.begin()
    assert q.claims(1, _AT_ONCE) > 1
    return q.steps.longest_ms


def window(jobs: int, *, claims: int, most: int, size: int = 1) -> float:
    """One window of claims."""
    q = Queue(min(jobs, 200_000 if size == 1 else 2000), data=b'"%b"' % (b"x" * size), claim_jitter_ms=50)
    q.begin()
    assert q.claims(claims, most) > 1
    return q.steps.longest_ms


def delayed_apart(jobs: int) -> float:
    """A claim after as many delayed jobs, between which the others were deleted."""
    q = Queue(jobs)
    for first in range(2, jobs, _AT_ONCE):
        seqs = range(first, first + _AT_ONCE, 2)
        q.leases.hold_back(seqs, [1 << 50] * len(seqs))
    q.h.delete(match="b", name="q")
    q.h.append(0, name="q")
    q.begin()
    assert q.claims(1, 1) == 1
    return q.steps.longest_ms


def large_poison(jobs: int) -> float:
    """A claim after jobs of 60 KB that are to be moved, 256 at most."""
    count = min(jobs, 256)
    q = Queue(count, data=b'"%b"' % (b"x" * 60_000), max_deliveries=1, dead_letter="dead")
    assert q.claims(1, count) > 1
    q.h.advance_ms(_LEASE_MS + 1)
    q.begin()
    q.claims(1, count)
    return q.steps.longest_ms


def extended(jobs: int) -> float:
    """Extensions of all jobs until their old deadlines are most of what is stored."""
    q = Queue(jobs).lease()
    q.begin()
    for _ in range(3):
        q.h.advance_ms(1)
        for first in range(1, jobs, _AT_ONCE):
            held = HeldJobs("q", "worker", range(first, first + _AT_ONCE))
            q.steps.run(lambda: q.h.engine.extend(held, _LEASE_MS, Answer()))  # noqa: B023
    return q.steps.longest_ms


def start(jobs: int) -> float:
    q = Queue(jobs, leases_durable=True).lease(failed=1)
    h = q.h
    h.snapshot = b"".join(h.catalog.checkpoints.snapshot())
    h.cut = 0
    q.begin()
    q.steps.run(h.restart)
    return q.steps.longest_ms


def holes(jobs: int, *, header: bool) -> float:
    """A topic with as many holes: its description, and the header of a segment with that."""
    h, steps = Harness(), Steps()
    h.append(1)
    topic = h.engine._core.registry.by_name["t"]
    topic.floors.gaps = Gaps([Gap(2 * number, 2 * number, "ttl") for number in range(5, jobs)])
    pieces = h.catalog.checkpoints.describe(topic.id)
    if not header:
        steps.all(pieces)
        return steps.longest_ms
    described = DescriptionPieces()
    for piece in pieces:
        steps.run(lambda: described.add(piece))  # noqa: B023
    steps.all(joined(steps.run(lambda: SegmentHeader(topic.id, 1, 1, 0, b"").pieces_with(described))))
    return steps.longest_ms


def keys(count: int) -> float:
    """A topic with as many idempotency keys: each one stored, and the snapshot."""
    h, steps = Harness(), Steps()
    h.append(1)
    topic, now_ms = h.engine._core.registry.by_name["t"], h.loop.clock.now_ms()
    store = topic.key_store()
    for number in range(count):
        steps.run(lambda: store.store(b"%d" % number, KeyEntry(1, 1, now_ms), now_ms, 1000))  # noqa: B023
    checkpoints = h.catalog.checkpoints
    steps.all(checkpoints.prepare_snapshot(64))
    steps.run(checkpoints.snapshot)
    return steps.longest_ms


CASES: dict[str, Callable[[int], float]] = {
    "claims and nacks while the queue fills": grows,
    "snapshot of leases": lambda jobs: snapshot(jobs, 0),
    "snapshot of leases, each job failed once": lambda jobs: snapshot(jobs, 1),
    "leases kept from now on": kept_from_now_on,
    "a claim of jobs of 8 KB that do not adjoin, of 1000 at most": lambda jobs: apart(jobs, 8000),
    "a claim of jobs of 60 KB that do not adjoin, of 1000 at most": lambda jobs: apart(jobs, 60_000),
    "a window of 200 claims of 1000 jobs": lambda jobs: window(jobs, claims=200, most=1000),
    "a window of 5000 claims of a job": lambda jobs: window(jobs, claims=5000, most=1),
    "a window of 20 claims of jobs of 20 KB": lambda jobs: window(jobs, claims=20, most=1000, size=20_000),
    "a claim after delayed jobs that do not adjoin": delayed_apart,
    "all expired at once": expired,
    "all extended": extended,
    "all moved to the dead letters, of 100,000 at most": lambda jobs: poison(min(jobs, 100_000)),
    "no dead letter can be written, of 100,000 at most": lambda jobs: poison(min(jobs, 100_000), max_topics=1),
    "large jobs moved to the dead letters, of 256 at most": large_poison,
    "leased, half deleted by tag": lambda jobs: deleted(jobs, match="a", fail=False),
    "leased, all deleted by tag": lambda jobs: deleted(jobs, match="*", fail=False),
    "returned, all deleted by tag": lambda jobs: deleted(jobs, match="*"),
    "leased, deleted before a seq": lambda jobs: deleted(jobs, before_seq=jobs - 5, fail=False),
    "delayed, half deleted by tag": lambda jobs: delayed_deleted(jobs, "a"),
    "delayed, all deleted by tag": lambda jobs: delayed_deleted(jobs, "*"),
    "the queue deleted": queue_deleted,
    _START: start,
    "snapshot of a topic with idempotency keys": keys,
    "description of a topic with holes": lambda jobs: holes(jobs, header=False),
    "header of a segment with holes": lambda jobs: holes(jobs, header=True),
}

KNOWN = {
    _START: "it serves no client",
}
"""Steps that may be longer, each with the reason."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="10000,100000,1000000")
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    limit_ms = float(os.environ.get("TOPICS_LIMITS_MS", "20"))
    sizes = [int(size) for size in options.jobs.split(",")]
    gc.disable()
    over = 0
    print(f"| longest step, ms of CPU | {' | '.join(f'{size:,}' for size in sizes)} |\n|---|{'---|' * len(sizes)}")
    for name, case in CASES.items():
        if fnmatchcase(name, options.only):
            found = [case(size) for size in sizes]
            over += name not in KNOWN and found[-1] > limit_ms
            print(f"| {name} | {' | '.join(f'{ms:.1f}' for ms in found)} |", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
