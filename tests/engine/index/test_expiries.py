"""Records that expire by themselves, against a plain dict of their ends."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.amount import seeds
from tests.engine.fake_store import usage_of
from tests.engine.index.seq_columns import columns
from topics.engine.index import expiries as module
from topics.engine.index import seq_times
from topics.engine.index.expiries import Expiries
from topics.engine.index.index import Index
from topics.store.format.file_table import FileKind, FileTable

NEVER = 1 << 64


def new_index() -> Index:
    files = FileTable()
    files.add(FileKind.WAL, "")
    return Index(usage_of(files))


def add(index: Index, count: int) -> list[int]:
    """Add records to an index; return their seqs."""
    first = index.last_seq + 1
    for seq in range(first, first + count):
        index.append_row(seq, 1, 0, 61, 1, 0, 0, None)
    return list(range(first, first + count))


@pytest.mark.parametrize("seed", seeds(20))
def test_records_expire_in_the_order_of_their_ends_each_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-RTTL-1, R-RTTL-8: whatever dies otherwise, is held, or is put back."""
    monkeypatch.setattr(module, "A_LOOK", 7)
    monkeypatch.setattr(seq_times, "_BITS", 2)
    monkeypatch.setattr(seq_times, "_MASK", 3)
    monkeypatch.setattr(module, "_STALE_MIN", 5)
    rng = random.Random(seed)
    index = new_index()
    expiries, ends, now, held = Expiries(index), dict[int, int](), 0, NEVER
    for _ in range(300):
        now += rng.randrange(4)
        step = rng.random()
        if step < 0.4:
            new = [(seq, now + rng.choice((0, 1, 5, 40))) for seq in add(index, rng.randrange(1, 5))]
            new = [each for each in new if rng.random() < 0.8]
            expiries.add(*columns(new))
            ends |= new
            assert len(expiries.ends) <= 2 * index.live + 5 + 4
        elif step < 0.55 and index.live:
            dead = rng.sample(sorted(ends), min(len(ends), 3))
            index.kill_seqs(np.array(sorted(dead), np.uint64))
            ends = {seq: end for seq, end in ends.items() if seq not in dead}
        elif step < 0.6:
            held = rng.choice((NEVER, index.last_seq // 2, index.last_seq))
        else:
            due = {seq for seq, end in ends.items() if end < now and seq <= held}
            taken = expiries.take_due(now, held)
            assert taken == sorted(taken)
            assert set(taken) <= due
            assert len(taken) == len(due) or expiries.is_due(now, held) or not due - set(taken)
            if rng.random() < 0.3:
                expiries.put_back(taken)
                continue
            index.lose_seqs(np.array(taken, np.uint64))
            expiries.forget(taken)
            ends = {seq: end for seq, end in ends.items() if seq not in taken}
            seqs = np.array(sorted(ends), np.uint64)
            assert expiries.of(seqs).tolist() == [ends[seq] for seq in seqs.tolist()]
    while expiries.is_due(NEVER, NEVER):
        taken = expiries.take_due(NEVER, NEVER)
        assert set(taken) <= ends.keys()
        expiries.forget(taken)
        ends = {seq: end for seq, end in ends.items() if seq not in taken}
    assert not ends
    assert expiries.next_end() is None


def test_a_look_takes_a_bounded_number_of_ends() -> None:
    """R-RTTL-1: those that ended first."""
    index = new_index()
    expiries = Expiries(index)
    seqs = add(index, 3000)
    expiries.add(*columns([(seq, 10_000 - seq) for seq in seqs]))
    assert expiries.take_due(20_000, NEVER) == seqs[-module.A_LOOK :]
    assert expiries.is_due(20_000, NEVER)
    assert not expiries.is_due(7000, NEVER)
