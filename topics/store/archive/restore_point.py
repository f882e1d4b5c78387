"""The point that a restore of an archive leads to: which base, and which part of the log."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from topics.common.values.time_texts import time_text
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import Hole
from topics.store.archive.timelines import Base, Timeline, end_of
from topics.store.archive.unbroken_log import part_at

END = 1 << 62
"""The time of a restore to the end of the archive."""


class RestoredEnd(NamedTuple):
    """The end of the part of a shard that is restored."""

    file_no: int
    offset: int
    is_record: bool = False
    """Whether it is the end of a record, and not a time."""


class RestorePoint(NamedTuple):
    """The base of a restore, and the time that it leads to."""

    timeline: Timeline
    base: Base
    at_ms: int
    ends: Mapping[int, RestoredEnd] = MappingProxyType({})
    """By shard. Those that a time decides are there once `with_ends` has looked for them."""
    is_once: bool = False
    """Whether no batch before the ends may have a later time, since other cores have the same."""


def point_at(timelines: list[Timeline], at_ms: int) -> RestorePoint:
    """Return the base and the timeline for a restore to a time; END is the newest one.

    Raises: UsageError, there is none, with the times that there are, or it is not clear which one
    is the newest; CorruptError, the bases of the newest one are damaged.
    """
    with_bases = [timeline for timeline in timelines if timeline.bases]
    if at_ms == END or not with_bases:
        _check_sound(timelines)
    if not with_bases:
        raise UsageError("the archive has no base yet: the server makes one after its start, if it can")
    if at_ms == END:
        _check_newest(with_bases)
    later_ms = None
    for timeline in reversed(with_bases):
        begins_ms, end_ms = _begin_of(timeline), end_of(timeline)
        wanted_ms = end_ms if at_ms == END else at_ms
        if begins_ms <= wanted_ms <= end_ms:
            for hole in timeline.note.holes:
                check_outside(hole, wanted_ms)
            base = part_at(timeline, wanted_ms).base_at(wanted_ms)
            if base is None:
                raise _no_base(timeline, wanted_ms)
            # To the end: with what was written in the very ms in which the log was closed.
            is_whole = at_ms == END and timeline.note.open_hole is None
            return RestorePoint(timeline, base, END if is_whole else wanted_ms)
        if end_ms < wanted_ms:
            check_outside(Hole(end_ms, later_ms), wanted_ms)
        later_ms = begins_ms
    begins = time_text(_begin_of(with_bases[0]))
    raise UsageError(f"is {time_text(at_ms)}, and the archive begins at {begins}: name a later time", "at")


def _begin_of(timeline: Timeline) -> int:
    """Return the earliest time: not that of the first base, if a clock was set back."""
    return min(base.manifest.taken_ms for base in timeline.bases)


def _check_sound(timelines: list[Timeline]) -> None:
    """Raises: CorruptError, no base is left of a timeline that may be the newest."""
    end_ms = max((end_of(timeline) for timeline in timelines if timeline.bases), default=0)
    for timeline in timelines:
        if timeline.findings and not timeline.bases and end_of(timeline) >= end_ms:
            message = f"{timeline.path} is the newest, and its bases are damaged: {timeline.findings[0]}"
            raise CorruptError(message, {"path": timeline.path})


def _check_newest(timelines: list[Timeline]) -> None:
    """Check that the timeline that was begun last has the latest times, too.

    It has not if an earlier one is still written, or was written while the clock was ahead.
    Raises: UsageError.
    """
    newest = timelines[-1]
    for other in timelines[:-1]:
        if end_of(other) > end_of(newest):
            raise UsageError(
                f"{newest.path} was begun last (up to {time_text(end_of(newest))}), and {other.path} has later times "
                f"(up to {time_text(end_of(other))}), so it is not clear which is the newest: name one of them"
            )


def _no_base(timeline: Timeline, at_ms: int) -> UsageError:
    """Return the error for a time whose base is damaged, where none before it is of use."""
    later = [base.manifest.taken_ms for base in part_at(timeline, at_ms).bases]
    ends = [hole.from_ms for hole in timeline.note.holes if hole.from_ms < at_ms]
    other = f"name {time_text(later[0])} or later" if later else f"name {time_text(ends[-1])} or earlier"
    return UsageError(f"is {time_text(at_ms)}, and the archive has no base for it: {other}", "at")


def check_outside(hole: Hole, at_ms: int) -> None:
    """Check that a time is not in a hole. Raises: UsageError."""
    if hole.from_ms < at_ms and (hole.to_ms is None or at_ms < hole.to_ms):
        before = f"is {time_text(at_ms)}, which is not in the archive: name {time_text(hole.from_ms)} or earlier"
        raise UsageError(before if hole.to_ms is None else f"{before}, or {time_text(hole.to_ms)} or later", "at")
