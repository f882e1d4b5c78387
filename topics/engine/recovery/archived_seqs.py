"""Seqs in an archive: the write of a record, and the highest ones that clients may know.

A restore to a time gives out no seq again that the archive has, of whatever timeline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from topics.common.values.time_texts import time_text
from topics.engine.recovery.known_seqs import IdAndHead, KnownSeqs, copied_seqs
from topics.errors import CorruptError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.find_record import FoundRecord, WantedRecord, find_record
from topics.store.archive.restore_archive import scan_after, scan_without_base
from topics.store.archive.restore_point import RestorePoint
from topics.store.archive.timelines import Timeline, end_of, line_of, of_other_lines
from topics.store.archive.unbroken_log import log_spans, unbroken_parts

HeadsOf = Callable[[str], Mapping[str, IdAndHead]]
"""Returns the topics of a base, whose path is given, by their names."""
WholeOf = Callable[[Timeline], Awaitable[Timeline]]
"""Returns a timeline with its log and bases, of which only the first one was there."""
_SPANS_SHOWN = 3


async def as_it_is(timeline: Timeline) -> Timeline:
    """Return a timeline of an archive that is there as a whole."""
    return timeline


def all_are_there(base: str) -> None:
    """Do nothing: the bases of an archive are there with the log."""


async def point_of_record(
    loop: Loop,
    timelines: list[Timeline],
    topic: str,
    seq: int,
    heads_of: HeadsOf,
    *,
    bring: Callable[[str], None] = all_are_there,
) -> RestorePoint:
    """Return the point right after a record was written. The newest part of the log comes first.

    bring: called with the path of a base before that base, and the log after it, are read.
    Raises: UsageError, it is in no timeline; CorruptError, FormatError, OSError.
    """
    found = await found_record(loop, timelines, topic, seq, heads_of, bring=bring)
    if found is not None:
        return found.point
    raise not_archived(
        topic,
        seq,
        [
            (part.bases[0].manifest.taken_ms, end_of(timeline) if part.hole is None else part.hole.from_ms)
            for timeline in timelines
            for part in unbroken_parts(timeline)
            if part.bases
        ],
    )


async def found_record(
    loop: Loop,
    timelines: list[Timeline],
    topic: str,
    seq: int,
    heads_of: HeadsOf,
    *,
    bring: Callable[[str], None],
) -> FoundRecord | None:
    """Return a record in the log of some timelines; None if its write is in none.

    bring: as of `point_of_record`. Raises: as that.
    """
    for timeline in reversed(timelines):
        for span in reversed(log_spans(timeline)):
            bring(span.base.path)
            head = heads_of(span.base.path).get(topic, IdAndHead(0, 0))
            # Above its head, or of a topic that was created again after the base.
            topic_id = head.topic_id if head.head < seq else 0
            wanted = WantedRecord(topic, topic_id, seq)
            found = await find_record(loop, timeline, span, wanted, copied_seqs)
            if found is not None:
                return found
    return None


def not_archived(topic: str, seq: int, times: list[tuple[int, int]]) -> UsageError:
    """Return the error for a record that is not in the log.

    times: the first and the last of each range that a restore leads to, as the remedy.
    """
    spans = [f"{time_text(begin)} to {time_text(end)}" for begin, end in times]
    remedy = f"name a time in its place: {', or '.join(spans[-_SPANS_SHOWN:]) or 'the archive has none yet'}"
    return UsageError(
        f"is seq {seq} of topic {topic}, whose write is not in the archive; it is older than the first base, in a "
        f"hole, or was never made: {remedy}",
        "upto",
    )


async def known_seqs(
    loop: Loop,
    timelines: list[Timeline],
    points: Sequence[RestorePoint],
    heads_of: HeadsOf,
    whole_of: WholeOf = as_it_is,
) -> tuple[KnownSeqs, str]:
    """Return the seqs that the archive knows, and the damage in the log after the points.

    Other timelines of the line of the first point count, too, from their first base on: clients may
    know the seqs of a log that was restored before, also those of topics that were deleted in it.
    So do those of other lines that have a topic in common with them: a data directory was copied.
    The logs of other servers are not read.

    points: one, or that of each core, with their ends. whole_of: called before the log of another
    line is read.
    Raises: CorruptError, a base is damaged; FormatError, OSError.
    """
    known, damage = KnownSeqs(), list[str]()
    others = of_other_lines(timelines, line_of(points[0].timeline))
    for timeline in timelines:
        if timeline not in others:
            damage += await _take_timeline(loop, timeline, points, heads_of, known)
    if others:
        for point in points:
            _name_topics(known, heads_of(point.base.path))
    first_heads = {each.path: _first_heads(each, heads_of) for each in others}
    while related := [each for each in others if _is_related(known, first_heads[each.path])]:
        for timeline in related:
            await _take_timeline(loop, await whole_of(timeline), points, heads_of, known)
        others = [each for each in others if each not in related]
    return known, "; ".join(damage)


async def _take_timeline(
    loop: Loop, timeline: Timeline, points: Sequence[RestorePoint], heads_of: HeadsOf, known: KnownSeqs
) -> list[str]:
    """Note the seqs that a timeline knows, from the point on if it is that of one.

    Returns: the damage in its log then.
    """
    spans, damage = log_spans(timeline), list[str]()
    point = next((point for point in points if point.timeline.path == timeline.path), None)
    if not spans:
        await scan_without_base(loop, timeline, known.take)
    if point is not None:  # what is before the point and not in it was deleted by then
        bases = [span.base.path for span in spans]
        spans = spans[bases.index(point.base.path) :]
    for span in spans:
        is_restored = point is not None and span is spans[0]
        if span.base is span.part.bases[0] or span.later is None:
            _take_heads(known, {} if is_restored else heads_of(span.base.path))
        ends = point.ends if point is not None and is_restored else {}
        damage += await _up_to_damage(scan_after(loop, timeline, span, known.take, ends))
    return damage if point is not None else []


def _first_heads(timeline: Timeline, heads_of: HeadsOf) -> Mapping[str, IdAndHead] | None:
    """Return the topics that a log began with; None: it is not known."""
    if not timeline.bases:
        return None
    with suppress(CorruptError):
        return heads_of(timeline.bases[0].path)
    return None


def _is_related(known: KnownSeqs, heads: Mapping[str, IdAndHead] | None) -> bool:
    """Return whether a log may be a copy of one of those that are known."""
    return heads is None or any(known.has(head.topic_id, name) for name, head in heads.items())


def _name_topics(known: KnownSeqs, heads: Mapping[str, IdAndHead]) -> None:
    for name, head in heads.items():
        known.name(head.topic_id, name)


def _take_heads(known: KnownSeqs, heads: Mapping[str, IdAndHead]) -> None:
    """Note the topics of a base: those of before its part of the log, and those after damage."""
    _name_topics(known, heads)
    for head in heads.values():
        known.note(head.topic_id, head.head)


async def _up_to_damage(scan: Coroutine[Any, Any, None]) -> list[str]:
    """Scan the log up to damage; return that."""
    try:
        await scan
    except CorruptError as error:
        return [str(error)]
    return []
