"""Times of records by seq and in their order, against a plain dict."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from tests.amount import seeds
from tests.engine.index.seq_columns import columns
from topics.engine.index import seq_times as module
from topics.engine.index.seq_times import SeqTimes

FOREVER = 1 << 60


@pytest.mark.parametrize("seed", seeds(20))
def test_each_time_is_taken_once_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-DELAY-1, R-RTTL-1: whatever is discarded, or added again, meanwhile."""
    bits = seed % 3 + 1
    monkeypatch.setattr(module, "_BITS", bits)
    monkeypatch.setattr(module, "_MASK", (1 << bits) - 1)
    monkeypatch.setattr(module, "_STALE_MIN", seed % 4)
    rng = random.Random(seed)
    times, known, waiting = SeqTimes(), dict[int, int](), dict[int, int]()
    now = head = 0
    for _ in range(400):
        now += rng.randrange(3)
        step = rng.random()
        if step < 0.4:
            new = []
            for _ in range(rng.randrange(6)):
                head += rng.choice((1, 1, 1, 9))
                new.append((head, now + rng.choice((1, 2, 30))))
            times.add(*columns(new))
            known |= new
            waiting |= new
        elif step < 0.5 and known.keys() - waiting.keys():
            seq = min(known.keys() - waiting.keys())
            times.add(*columns([(seq, known[seq])]))
            waiting[seq] = known[seq]
        elif step < 0.65:
            gone = [seq for seq in known if rng.random() < 0.2]
            times.discard([*gone, head + 1])
            known = {seq: time for seq, time in known.items() if seq not in gone}
        elif step < 0.7:
            last = rng.randrange(head // 2, head + 1) if rng.random() < 0.9 else head
            times.discard_through(last)
            known = {seq: time for seq, time in known.items() if seq > last}
        else:
            most = rng.choice((1, 4, 1000))
            taken = times.take(now, most)
            due = sorted((time, seq) for seq, time in waiting.items() if time <= now and seq in known)
            assert [known[seq] for seq in taken] == [time for time, _seq in due[: len(taken)]]
            assert len(set(taken)) == len(taken) <= most
            assert set(taken) <= {seq for _time, seq in due}
            assert most < 1000 or len(taken) == len(due)
            waiting = {seq: time for seq, time in waiting.items() if seq not in taken}
        waiting = {seq: time for seq, time in waiting.items() if seq in known}
        first = times.first()
        assert not waiting or (first is not None and first <= min(waiting.values()))
        assert len(times) == len(known)
        assert all(seq in times and times.get(seq) == time for seq, time in known.items())
        seqs = np.arange(head + 2, dtype=np.uint64)
        assert times.of(seqs).tolist() == [known.get(seq, 0) for seq in range(head + 2)]
        assert dict(each for part in times.parts() for each in part) == known
    times.discard(known)
    assert times.take(FOREVER, FOREVER) == []
    assert (len(times), times.first(), dict(times._chunks)) == (0, None, {})


@pytest.mark.parametrize("seed", seeds(12))
def test_times_of_rows_that_are_gone_are_gone_before_the_steps_that_free_them(seed: int) -> None:
    """R-DELAY-4: their number, too."""
    rng = random.Random(seed)
    times, known, steps = SeqTimes(), dict[int, int](), list[Iterator[None]]()
    taken: set[int] = set()
    head = 0
    for now in range(30):
        new = []
        for _ in range(rng.choice((1, 3, 3000))):
            head += rng.choice((1, 1, 1, seed + 1))
            new.append((head, now + rng.choice((1, 2, 30))))
        times.add(*columns(new))
        known |= new
        first = rng.randrange(1, head + 1)
        which = np.array([rng.random() < seed % 3 / 2 for _ in range(first, head + 1)])
        steps.append(times.discard_rows(first, which))
        known = {seq: time for seq, time in known.items() if seq < first or not which[seq - first]}
        found = times.take(now, 10_000)
        assert set(found) == {seq for seq, time in known.items() if time <= now} - taken
        taken.update(found)
        times.discard(range(rng.randrange(head), head, 7))
        known = {seq: time for seq, time in known.items() if seq in times}
        seqs = np.arange(head + 2, dtype=np.uint64)
        assert times.of(seqs).tolist() == [known.get(seq, 0) for seq in range(head + 2)]
        assert len(times) == len(known)
        if rng.random() < 0.5:
            for each in steps:
                next(each, None)
        if rng.random() < 0.1:
            assert times.seqs() == sorted(known)
    for each in steps:
        for _ in each:
            pass
    assert {seq for chunk in times._chunks.values() for seq in chunk.times} == set(known)
    assert len(times) == len(known)


def test_rows_that_are_gone_by_the_thousand_are_freed_a_chunk_a_step() -> None:
    times = SeqTimes()
    times.add(*columns([(seq, FOREVER) for seq in range(1, 100_001)]))
    which = np.arange(100_000) % 2 == 0
    steps = times.discard_rows(1, which)
    assert len(times) == 50_000
    left = [sum(len(chunk.times) for chunk in times._chunks.values())]
    for _ in steps:
        left.append(sum(len(chunk.times) for chunk in times._chunks.values()))
    assert left[0] == 100_000
    assert left[-1] == 50_000
    assert max(before - after for before, after in pairwise(left)) <= 2048


def test_no_part_of_very_many_times_is_large() -> None:
    """R-DELAY-1: one dict of 2,800,000 delays copied itself for 140 ms, in the request that added to it."""
    times, count = SeqTimes(), 100_000
    for first in range(1, count, 10_000):
        times.add(*columns([(seq, FOREVER + seq % 7) for seq in range(first, first + 10_000)]))
        assert max(sys.getsizeof(chunk.times) for chunk in times._chunks.values()) < 300_000
        assert max(len(chunk.order) for chunk in times._chunks.values()) <= 4096
        assert len(times._order) < 200
    gone = times.discard_through(count - 1)
    assert (len(times), len(gone), times.first()) == (1, 24, FOREVER)
