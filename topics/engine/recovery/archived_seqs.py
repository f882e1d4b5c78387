"""Seqs in an archive: the write of a record, and the highest ones that clients may know.

A restore to a time gives out no seq again that the archive has, of whatever timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from topics.engine.recovery.known_seqs import IdAndHead, KnownSeqs, copied_seqs
from topics.errors import CorruptError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.find_record import WantedRecord, find_record
from topics.store.archive.restore_archive import scan_after, scan_after_base
from topics.store.archive.restore_point import RestorePoint
from topics.store.archive.timelines import Timeline, end_of, time_text
from topics.store.archive.unbroken_log import unbroken_parts

HeadsOf = Callable[[str], Mapping[str, IdAndHead]]
"""Returns the topics of a base, whose path is given, by their names."""
_SPANS_SHOWN = 3


async def point_of_record(
    loop: Loop, timelines: list[Timeline], topic: str, seq: int, heads_of: HeadsOf
) -> RestorePoint:
    """Return the point right after a record was written.

    Raises: UsageError, it is in no timeline; CorruptError, FormatError, OSError.
    """
    for timeline in reversed(timelines):
        for number, base in reversed(list(enumerate(timeline.bases))):
            head = heads_of(base.path).get(topic, IdAndHead(0, 0))
            # Above its head, or of a topic that was created again after the base.
            topic_id = head.topic_id if head.head < seq else 0
            wanted = WantedRecord(topic, topic_id, seq)
            point = await find_record(loop, timeline, number, wanted, copied_seqs)
            if point is not None:
                return point
    raise UsageError(
        f"is seq {seq} of topic {topic}, whose write is not in the archive; it is older than the first base, in a "
        f"hole, or was never made: {_bounds(timelines)}",
        "upto",
    )


def _bounds(timelines: list[Timeline]) -> str:
    """Return the newest times that a restore leads to, as the remedy where a record is missing."""
    spans = [
        f"{time_text(part.bases[0].manifest.taken_ms)} to "
        f"{time_text(end_of(timeline) if part.hole is None else part.hole.from_ms)}"
        for timeline in timelines
        for part in unbroken_parts(timeline)
        if part.bases
    ]
    return f"name a time in its place: {', or '.join(spans[-_SPANS_SHOWN:]) or 'the archive has none yet'}"


async def known_seqs(
    loop: Loop, timelines: list[Timeline], point: RestorePoint, heads_of: HeadsOf
) -> tuple[KnownSeqs, str]:
    """Return the seqs that the archive knows, and the damage in the log after the point.

    Other timelines count, too: clients may know the seqs of a log that was restored before.
    Raises: CorruptError, a base is damaged; FormatError, OSError.
    """
    known = KnownSeqs()
    damage = await _up_to_damage(scan_after(loop, point, known.take))
    for timeline in timelines:
        if not timeline.bases or timeline.bases[-1].path == point.base.path:
            continue
        newest = timeline.bases[-1]
        for name, head in heads_of(newest.path).items():
            known.name(head.topic_id, name)
            known.note(head.topic_id, head.head)
        found = await _up_to_damage(scan_after_base(loop, timeline, newest, known.take))
        if timeline.path == point.timeline.path:
            damage = found or (damage if not timeline.note.holes else "")
    return known, damage


async def _up_to_damage(scan: Coroutine[Any, Any, None]) -> str:
    """Scan the log up to damage; return that, "" for none."""
    try:
        await scan
    except CorruptError as error:
        return str(error)
    return ""
