"""Times of records by seq and in their order, against a plain dict."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from tests.engine.index.seq_columns import columns
from topics.engine.index import seq_times as module
from topics.engine.index.seq_times import SeqTimes

FOREVER = 1 << 60


@pytest.mark.parametrize("seed", range(20))
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
