"""Tombstones: which lost seqs a read reports, and why.

Source: R-FLOOR, R-TOMB, R-REC, R-TRIM, R-DUR-6.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.engine.values.results import Tombstone
from topics.store.format.floors import TTL, Floors, NextLive


class ReadEntry(NamedTuple):
    """The bounds of a read: live records with cursor < seq <= stop, after a tombstone, if any."""

    tombstone: Tombstone | None
    cursor: int
    stop: int


def enter(floors: Floors, from_seq: int, head: int, earliest: int, next_live: NextLive) -> ReadEntry:
    """Return how a reader with the cursor `from_seq` enters the topic.

    head: highest readable seq; earliest: lowest readable seq, or head + 1. next_live: of its index.
    """
    tombstone: Tombstone | None = None
    cursor = from_seq
    if from_seq > head:
        tombstone = Tombstone(1, head, "recreated", max(head, 1), earliest, head)
        cursor = earliest - 1
    elif from_seq < floors.lost:
        tombstone = _lost(from_seq, floors.lost, floors.reason(from_seq + 1), head)
        cursor = floors.lost
    stop = head
    if not floors.gaps:
        return ReadEntry(tombstone, cursor, stop)
    if tombstone is None:
        hole = floors.hole_after(cursor, next_live)
        if hole:
            tombstone, cursor = _lost(cursor, hole, TTL, head), hole
    # The gap that is reported, if any, and the gap that ends the read.
    for gap in floors.gaps.ending_above(cursor, 2):
        if gap.first - 1 <= cursor < gap.last and tombstone is None:
            tombstone = _lost(cursor, gap.last, gap.reason, head)
            cursor = gap.last
        elif gap.first > cursor:
            stop = gap.first - 1
            break
    return ReadEntry(tombstone, cursor, stop)


def _lost(cursor: int, upto: int, reason: str, head: int) -> Tombstone:
    return Tombstone(cursor + 1, upto, reason, upto - cursor, upto + 1, head)
