"""Seqs of records as numbers, and the holes between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Seqs = NDArray[np.int64]
Span = tuple[int, int]
"""A range of seqs, from and to, both included."""


def seqs_of(batch: Any) -> Seqs:
    """Return the column `seq` of a record batch as numbers, without a copy."""
    return numbers_of(batch.column("seq"))


def numbers_of(column: Any) -> Seqs:
    """Return a column of 64-bit numbers or times without nulls as numbers, without a copy."""
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def holes(span: Span, present: Seqs, taken: Iterable[Span] = ()) -> list[Span]:
    """Return the parts of a span that have no seq of `present` and no span of `taken`; ascending.

    Both may be in any order, and spans may overlap.
    """
    spans = np.array(list(taken), np.int64).reshape(-1, 2)
    starts = np.concatenate([[span[0] - 1], present, spans[:, 0], [span[1] + 1]])
    ends = np.concatenate([[span[0] - 1], present, spans[:, 1], [span[1] + 1]])
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    at = np.flatnonzero(starts[1:] > reached[:-1] + 1)
    lows, highs = np.maximum(reached[at] + 1, span[0]).tolist(), np.minimum(starts[at + 1] - 1, span[1]).tolist()
    return [(low, high) for low, high in zip(lows, highs, strict=True) if low <= high]
