"""Pairs of a seq and a time as the columns that `SeqTimes` takes."""

from __future__ import annotations

from collections.abc import Iterable


def columns(pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the seqs, and the time of each."""
    found = list(pairs)
    return [seq for seq, _time in found], [time for _seq, time in found]
