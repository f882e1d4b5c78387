"""A side that is called in this process: the library, SQLite, LMDB, a file.

One thread calls it, one call after the other, or at a rate. A call's latency counts from when it
was due; making the records is not counted. The rate of a closed loop is records divided by the
time within calls. Calls that were due and had not begun at the end count with their wait until
then.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topics.bench.load.latency_histogram import SLOTS, LatencyHistogram, highest_of, slot_of
from topics.bench.load.load_plan import numbered_json
from topics.bench.outcome import ANSWER, BenchCheck, LoadOutcome, RoundOutcome, UsageSample
from topics.bench.processes import usage_of
from topics.bench.round_checks import unsent_warnings
from topics.bench.sides import HERE, LOOK_SECONDS, Progress
from topics.bench.workload import Case, LoadSpec


@dataclass(frozen=True, slots=True)
class Calls:
    """One opened store. prepare: makes records with these numbers, and returns the call that writes
    them; checks: after the load, with how many were written.
    """

    prepare: Callable[[range], Callable[[], object]]
    checks: Callable[[int], list[BenchCheck]]


class InProcessSide:
    """The shared loop of these sides. Subclasses open their store."""

    name = ""

    def missing(self) -> str:
        return ""

    def at_hand(self) -> str:
        return self.missing() or HERE

    def refuses(self, case: Case) -> str:
        if case.workload.kinds != {"append"}:
            return "it is called in a process and has no server, so only workloads of kind append suit it"
        return ""

    def version(self) -> str:
        return self.name

    def opened(self, case: Case, scratch: Path) -> AbstractContextManager[Calls]:
        raise NotImplementedError

    def measure(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        spec = case.workload.loads[0]
        with self.opened(case, scratch) as calls:
            outcome, written = _measure(case, spec, calls, progress)
            progress("reading back", 0)
            outcome.checks += calls.checks(written)
        return outcome


def _measure(case: Case, spec: LoadSpec, calls: Calls, progress: Progress) -> tuple[RoundOutcome, int]:
    """Call for the time of a round. Returns the outcome and how many records were written."""
    run = case.workload.run
    clock = time.perf_counter_ns
    counts = array("Q", bytes(8 * SLOTS))
    began = clock()
    measured, end = began + int(run.warmup * 1e9), began + int((run.warmup + run.seconds) * 1e9)
    shown = 0
    number = requests = inside = 0
    usage: list[UsageSample] = []
    rows: list[list[int]] = [[0, 0, 0] for _ in range(int((run.warmup + run.seconds) / LOOK_SECONDS) + 1)]
    due = began
    issued = 0
    before = usage_of(os.getpid())
    while (now := clock()) < end:
        if spec.rate:
            due = began + int(issued * 1e9 / spec.rate)
            if due >= end:
                break
            if due > now:
                time.sleep((due - now) / 1e9)
            issued += 1
        numbers = range(number, number + spec.batch)
        number += spec.batch
        append = calls.prepare(numbers)
        start = clock()
        append()
        done = clock()
        took = done - (due if spec.rate else start)
        if (due if spec.rate else start) >= measured:
            counts[slot_of(took)] += 1
        if start >= measured:
            requests += 1
            inside += done - start
        slot = int((done - began) / (LOOK_SECONDS * 1e9))
        if slot < len(rows):
            rows[slot][0] += 1
            rows[slot][2] = max(rows[slot][2], took)
        if done - shown > LOOK_SECONDS * 1e9:
            shown = done
            sample = usage_of(os.getpid())
            usage.append(UsageSample((done - began) / 1e9, sample.cpu_seconds, sample.rss_bytes))
            progress("running", number // spec.batch)
    seconds = (clock() - measured) / 1e9
    unsent, waits = _unsent(spec.rate, issued, (began, measured, end, clock()))
    rate = requests * spec.batch / (seconds if spec.rate else max(inside, 1) / 1e9)
    histogram = LatencyHistogram(np.array(counts, np.uint64) + waits)
    series = [(row[0], row[1], row[2]) for row in rows]
    records = requests * spec.batch
    load = LoadOutcome(
        spec.name, spec.kind, rate, "records/s", requests, records, 0, unsent, {ANSWER: histogram}, series
    )
    outcome = RoundOutcome([load], seconds, LOOK_SECONDS, usage, rss_before=before.rss_bytes)
    outcome.warnings += unsent_warnings(spec.name, unsent, issued, "each call waited for the one before it")
    return outcome, number


def _unsent(rate: float, issued: int, times: tuple[int, int, int, int]) -> tuple[int, NDArray[np.uint64]]:
    """Return how many calls of an open loop were due by its end and never began, and a histogram of
    the waits of those that were due in the measured time.

    issued: calls that began. times: when the load began, was measured from, ended, and now, ns.
    """
    began, measured, end, now = times
    count = math.ceil((end - began) * rate / 1e9)
    if count <= issued:
        return 0, np.zeros(SLOTS, np.uint64)
    first = min(count, max(issued, math.ceil((measured - began) * rate / 1e9)))
    longest = np.array([highest_of(slot) for slot in range(SLOTS)], np.float64)
    longest[-1] = np.inf
    # a call waited for at most so long if it was due so long ago, or later: calls are due in order
    up_to = count - np.clip(np.ceil((now - began - longest) * rate / 1e9), first, count)
    return count - issued, np.diff(up_to, prepend=0).astype(np.uint64)


def record_texts(spec: LoadSpec, numbers: range) -> list[bytes]:
    """Return records as JSON texts with their numbers."""
    return [numbered_json(spec.bytes, number) for number in numbers]


def count_check(found: int, written: int) -> BenchCheck:
    """Compare the number of records that are stored with the number that was acknowledged."""
    return BenchCheck("as many records as were acknowledged", found == written, f"{found:,} of {written:,}")
