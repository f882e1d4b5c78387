"""Pairs of a seq and a time as the columns that `SeqTimes` takes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def columns(pairs: Iterable[tuple[int, int]]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the seqs, and the time of each."""
    found = np.array(list(pairs), np.uint64).reshape(-1, 2)
    return found[:, 0], found[:, 1]
