"""Dividing ranges of seqs into partitions: pure functions, so a batch planned again is equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from topics.spark.errors import OptionError
from topics.spark.options import PARTITIONS_MAX
from topics.spark.reading.offsets import RECREATED, LostRange, Position

if TYPE_CHECKING:
    from topics.files import Piece

SMALL_RANGE = 10_000
"""Seqs up to which small ranges share a partition.

A task costs as much as reading some thousand records.
"""


@dataclass(frozen=True, slots=True)
class Range:
    """Seqs first to end - 1 of a topic. of: its incarnation."""

    topic: str
    of: str
    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


class TopicLoss(NamedTuple):
    """A loss to report: seqs from_seq to to_seq of a topic, both included."""

    topic: str
    from_seq: int
    to_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Work:
    """One partition: losses to report, and pieces of files and ranges to read. Small, picklable."""

    losses: tuple[TopicLoss, ...] = ()
    pieces: tuple[Piece, ...] = ()
    ranges: tuple[Range, ...] = ()


def share(limit: int | None, backlogs: Mapping[str, int]) -> dict[str, int]:
    """Share a batch of `limit` seqs among topics, in proportion to their backlogs.

    Each topic with a backlog gets at least one seq. If `limit` is below the number of topics, the
    sum is therefore above it.
    """
    total = sum(backlogs.values())
    if limit is None or total <= limit:
        return dict(backlogs)
    shares = {name: max(1, size * limit // total) if size else 0 for name, size in backlogs.items()}
    # Ties are broken by name, so that equal arguments give equal results.
    rounded_down = [name for name, size in backlogs.items() if size * limit >= total]
    by_remainder = sorted(rounded_down, key=lambda name: (-(backlogs[name] * limit % total), name))
    for name in by_remainder[: max(0, limit - sum(shares.values()))]:
        shares[name] += 1
    for _ in range(sum(shares.values()) - limit):
        largest = max(shares, key=lambda name: (shares[name], name))
        shares[largest] -= shares[largest] > 1
    return shares


def without(first: int, end: int, losses: Iterable[LostRange]) -> list[tuple[int, int]]:
    """Return the parts of [first, end) outside of losses, as half-open ranges."""
    parts = []
    for lost in sorted(losses, key=lambda lost: lost.from_seq):
        if lost.from_seq > first:
            parts.append((first, min(lost.from_seq, end)))
        first = max(first, lost.to_seq + 1)
    parts.append((first, end))
    return [(low, high) for low, high in parts if low < high]


def stream_ranges(start: Mapping[str, Position], end: Mapping[str, Position]) -> tuple[list[Range], list[TopicLoss]]:
    """Return the ranges to read and the losses to report between two offsets, ordered by topic."""
    ranges: list[Range] = []
    losses: list[TopicLoss] = []
    for name in sorted(end):
        goal, begin = end[name], start.get(name)
        if goal == begin:
            continue
        if goal.first is not None:
            first = goal.first
        elif begin is not None and begin.of == goal.of:
            first = begin.next
        else:
            first = 1  # a topic that was created, or created again
        losses += [TopicLoss(name, lost.from_seq, lost.to_seq, lost.reason) for lost in goal.lost]
        here = [lost for lost in goal.lost if lost.reason != RECREATED]
        ranges += [Range(name, goal.of, low, high) for low, high in without(first, goal.next, here)]
    return ranges, losses


def partitions_of(
    ranges: Sequence[Range], losses: Sequence[TopicLoss], *, min_partitions: int = 1, max_records: int | None = None
) -> list[Work]:
    """Divide ranges into partitions: large ranges are split, small ones share a partition.

    The first partition reports the losses.
    Raises: OptionError if max_records makes more than PARTITIONS_MAX partitions.
    """
    _refuse_too_many((part.count for part in ranges), max_records)
    ranges = _split(ranges, min_partitions, max_records)
    room = min(SMALL_RANGE, max_records or SMALL_RANGE)
    groups: list[list[Range]] = []
    filled = 0
    left = len(ranges)
    for part in ranges:
        if groups and filled + part.count <= room and len(groups) + left > min_partitions:
            groups[-1].append(part)
            filled += part.count
        else:
            groups.append([part])
            filled = part.count
        left -= 1
    return _with_losses([Work(ranges=tuple(group)) for group in groups], losses)


def _split(ranges: Sequence[Range], min_partitions: int, max_records: int | None) -> list[Range]:
    """Split ranges into at least min_partitions (or one for each seq), none above max_records."""
    total = sum(part.count for part in ranges)
    wanted = min_partitions if len(ranges) < min_partitions else 0
    result = []
    for part in ranges:
        pieces = max(1, -(-part.count * wanted // total), -(-part.count // max_records) if max_records else 1)
        pieces = min(pieces, part.count)
        cuts = [part.first + part.count * i // pieces for i in range(pieces + 1)]
        result += [replace(part, first=low, end=high) for low, high in pairwise(cuts)]
    return result


def piece_partitions(
    pieces: Sequence[Piece],
    losses: Sequence[TopicLoss],
    *,
    target_bytes: int,
    min_partitions: int = 1,
    max_records: int | None = None,
) -> list[Work]:
    """Divide pieces of files into partitions of about target_bytes; larger pieces are split by seq.

    The first partition reports the losses.
    Raises: OptionError if max_records makes more than PARTITIONS_MAX partitions.
    """
    _refuse_too_many((piece.to_seq - piece.from_seq + 1 for piece in pieces), max_records)
    total = sum(piece.bytes for piece in pieces)
    room = max(1, min(target_bytes, -(-total // max(1, min_partitions))))
    parts: list[Piece] = []
    for piece in pieces:
        parts += _split_piece(piece, room, max_records)
    groups: list[list[Piece]] = []
    filled = records = 0
    for part in parts:
        seqs = part.to_seq - part.from_seq + 1
        if groups and filled + part.bytes <= room and (max_records is None or records + seqs <= max_records):
            groups[-1].append(part)
            filled, records = filled + part.bytes, records + seqs
        else:
            groups.append([part])
            filled, records = part.bytes, seqs
    return _with_losses([Work(pieces=tuple(group)) for group in groups], losses)


def _split_piece(piece: Piece, room: int, max_records: int | None) -> list[Piece]:
    seqs = piece.to_seq - piece.from_seq + 1
    count = max(-(-piece.bytes // room), -(-seqs // max_records) if max_records else 1)
    count = min(count, seqs)
    cuts = [piece.from_seq + seqs * i // count for i in range(count + 1)]
    parts = (piece.clip(low, high - 1) for low, high in pairwise(cuts))
    return [part for part in parts if part is not None]


def _refuse_too_many(counts: Iterable[int], max_records: int | None) -> None:
    if max_records is None:
        return
    least = -(-sum(counts) // max_records)
    if least > PARTITIONS_MAX:
        raise OptionError(
            f"maxRecordsPerPartition={max_records} makes {least} partitions, and {PARTITIONS_MAX} are the most: "
            "raise it, or read less at once"
        )


def _with_losses(works: list[Work], losses: Sequence[TopicLoss]) -> list[Work]:
    if not losses:
        return works
    if not works:
        return [Work(losses=tuple(losses))]
    return [replace(works[0], losses=tuple(losses)), *works[1:]]
