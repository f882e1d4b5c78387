"""The parts of a timeline between its holes: which bases and which files of the log are of one.

The numbers of log files say so, since each is given out once. Times may come again, since a
clock may be set back, and so may the numbers of batches, since a start numbers some of them again.
Only what the note states counts: a server may have been killed after it had copied more.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

from topics.errors import CorruptError
from topics.store.archive.archive_note import ArchiveNote, Hole, ShardEnd
from topics.store.archive.timelines import Base, Timeline
from topics.store.recovery.missing_batches import LogFile


class Unbroken(NamedTuple):
    """A part without a hole."""

    note: ArchiveNote
    bases: list[Base]
    """In the order of the log."""
    hole: Hole | None
    """The hole after it; None: it is the last part."""

    def last_batch_no(self, shard: int) -> int:
        """Return the number of the last batch of a shard; HOLE: any."""
        if self.hole is not None:
            return self.hole.batch_nos.get(shard, 0)
        end = self.note.shards.get(shard)
        return 0 if end is None else end.batch_no

    def last_file_no(self, shard: int) -> int | None:
        """Return the number of the last file of a shard; None: it is not known."""
        if self.hole is not None:
            return None if self.hole.last_files is None else self.hole.last_files.get(shard, 0)
        end = self.note.shards.get(shard)
        return None if end is None else end.file_no

    def files(self, shard: int, used: list[LogFile]) -> list[LogFile]:
        """Return those files of a shard that are of this part, the last one up to its noted end.

        used: from a base of this part on.
        """
        if self.hole is not None:
            return files_before_hole(used, shard, self.hole) or used[:1]
        return noted_files(used, self.note.shards.get(shard))

    def is_after_hole(self, shard: int, file_no: int, batch_no: int) -> bool:
        """Return whether a batch was written after the hole, in the last file before it."""
        if self.hole is None or self.hole.last_files is None or file_no < self.hole.last_files.get(shard, 0):
            return False
        return 0 < self.last_batch_no(shard) < batch_no

    def base_at(self, at_ms: int) -> Base | None:
        """Return the last base that is not later than a time; None: there is none."""
        return next((base for base in reversed(self.bases) if base.manifest.taken_ms <= at_ms), None)


def unbroken_parts(timeline: Timeline) -> list[Unbroken]:
    """Return the parts of a timeline, one more than it has holes. Some may have no base."""
    note = timeline.note
    parts = [Unbroken(note, [], hole) for hole in (*note.holes, None)]
    for base in timeline.bases:
        at = max((number for number, hole in enumerate(note.holes, 1) if _is_after(base, hole)), default=0)
        hole = parts[at].hole
        if hole is None or _is_before(base, hole):  # else it was made in the hole
            parts[at].bases.append(base)
    for part in parts:
        part.bases.sort(key=lambda base: list(base.first_log_files.values()))
    return parts


def restorable_ranges(timeline: Timeline) -> list[tuple[int, int]]:
    """Return the first and the last time (Unix ms) of each range that a restore can lead to."""
    ranges = []
    for part in unbroken_parts(timeline):
        if part.bases:
            begin_ms = min(base.manifest.taken_ms for base in part.bases)
            ranges.append((begin_ms, max(begin_ms, timeline.note.upto_ms if part.hole is None else part.hole.from_ms)))
    return ranges


class LogSpan(NamedTuple):
    """The log from a base up to the one after it."""

    part: Unbroken
    base: Base
    later: Base | None
    """The next base, also of another part; None: it is the last one."""

    def up_to_later(self, shard: int, used: list[LogFile]) -> list[LogFile]:
        """Return those files of a shard of which the next base does not know all.

        used: from this base on.
        """
        last_no = None if self.later is None else self.later.manifest.last_log_files.get(shard)
        return used if last_no is None else [file for file in used if file.number <= last_no]


def log_spans(timeline: Timeline) -> list[LogSpan]:
    """Return the spans of a timeline in the order of the log.

    The times of the bases may have another order, since a clock may be set back.
    """
    bases = [(part, base) for part in unbroken_parts(timeline) for base in part.bases]
    later = [base for _part, base in bases[1:]]
    return [LogSpan(part, base, after) for (part, base), after in zip_longest(bases, later)]


def part_at(timeline: Timeline, at_ms: int) -> Unbroken:
    """Return the part that has a time, which is not in a hole."""
    parts = unbroken_parts(timeline)
    return next((part for part in parts if part.hole is not None and at_ms <= part.hole.from_ms), parts[-1])


def part_of(timeline: Timeline, base: Base) -> Unbroken:
    """Return the part that a base is of. Raises: CorruptError, it is of none."""
    for part in unbroken_parts(timeline):
        if base in part.bases:
            return part
    message = f"{base.path} was made in a hole of the archive: restore to another time (`topics restore --at`)"
    raise CorruptError(message, {"path": base.path})


def noted_files(used: list[LogFile], end: ShardEnd | None) -> list[LogFile]:
    """Return those files of a shard up to the noted end; all of them if there is none."""
    if end is None:
        return used
    whole = [file for file in used if file.number < end.file_no]
    last = [file._replace(size=min(file.size, end.size)) for file in used if file.number == end.file_no]
    return [*whole, *last]


def files_before_hole(used: list[LogFile], shard: int, hole: Hole) -> list[LogFile]:
    """Return those files of a shard that are before a hole."""
    if hole.last_files is not None:
        last_no = hole.last_files.get(shard, 0)
        return [file for file in used if file.number <= last_no]
    last_batch_no = hole.batch_nos.get(shard, 0)  # an older build has noted it
    return [file for file in used if file.header.first_batch_no <= last_batch_no]


def _is_after(base: Base, hole: Hole) -> bool:
    pairs = _pairs(base, hole.next_files)
    if pairs:
        return all(first >= number for first, number in pairs)
    return hole.to_ms is not None and base.manifest.taken_ms >= hole.to_ms


def _is_before(base: Base, hole: Hole) -> bool:
    pairs = _pairs(base, hole.last_files or {})
    if pairs:
        return all(first <= number for first, number in pairs)
    return base.manifest.taken_ms <= hole.from_ms


def _pairs(base: Base, numbers: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return, of each shard that both have, the first log file of a base and a number."""
    first = base.first_log_files
    return [(first[shard], number) for shard, number in numbers.items() if shard in first]
