"""The write of one record in the archived log, as the end of a restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from topics.errors import CorruptError
from topics.loop.loop import Loop
from topics.store.archive.archived_log import batches_in, scan, survey
from topics.store.archive.restore_archive import with_ends
from topics.store.archive.restore_point import RestoredEnd, RestorePoint
from topics.store.archive.timelines import Timeline
from topics.store.archive.unbroken_log import LogSpan, part_of
from topics.store.disk.whole_files import read_file
from topics.store.format.log_format import BATCH_HEADER_BYTES, FrameType, wal_file_no
from topics.store.recovery.missing_batches import LogFile
from topics.store.recovery.verified_batches import VerifiedBatches, created_topics


class WantedRecord(NamedTuple):
    """The last record of a restore."""

    topic: str
    topic_id: int
    """The id of the topic in the base; 0 if only one that was created later counts."""
    seq: int


class FoundRecord(NamedTuple):
    """A record in the log."""

    point: RestorePoint
    """Right after the batch with it was written; it has the end of its shard."""
    topic_id: int


class LaterInMs(NamedTuple):
    """The changes of a topic after a record, in the same millisecond."""

    last_seq: int
    """The highest seq; 0: there are no records."""
    is_deleted: bool
    """Whether the topic was."""
    may_be_removed: bool
    """Whether a frame may have removed the record."""


class _FoundFrame(NamedTuple):
    """A frame that has the record."""

    topic_id: int
    path: str
    offset: int


class Copied(Protocol):
    """Seqs that one frame states beside its own, such as `CopiedSeqs` of known_seqs.py."""

    @property
    def frame(self) -> int: ...
    @property
    def topic_id(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


async def find_record(
    loop: Loop,
    timeline: Timeline,
    span: LogSpan,
    wanted: WantedRecord,
    copied_seqs: Callable[[VerifiedBatches], Sequence[Copied]],
) -> FoundRecord | None:
    """Return a record, and the point right after its write; None: a span of the log has it not.

    Of a topic that was deleted and created again it is the newest record with this seq. Each file
    is looked through by itself: a start may have joined the last batches of one in the file after
    it, as a batch that ends later.

    copied_seqs: returns the seqs of records that have no frame of their own, since a router copied
    them.

    Raises: CorruptError, FormatError, OSError.
    """
    part, base, _later = span
    ids = {wanted.topic_id} - {0}
    found: list[_FoundFrame] = []
    newest: FoundRecord | None = None
    damage: CorruptError | None = None

    def take(path: str, batches: VerifiedBatches) -> None:
        frames = batches.frames
        ids.update(topic_id for topic_id, name in created_topics(batches) if name == wanted.topic)
        is_it = (
            (frames["type"] == FrameType.RECORD)
            & (frames["seq"] == wanted.seq)
            & np.isin(frames["topic_id"], list(ids))
        )
        for copied in copied_seqs(batches):
            is_it[copied.frame] |= copied.topic_id in ids and copied.first <= wanted.seq <= copied.last
        for at in np.flatnonzero(is_it).tolist():
            found.append(_FoundFrame(int(frames["topic_id"][at]), path, int(frames["offset"][at])))

    for shard, first_no in base.first_log_files.items():
        found.clear()
        used = span.up_to_later(shard, part.files(shard, await survey(loop, timeline.path, shard, first_no)))
        flaw = await _scan_each(loop, used, take)
        damage = damage or flaw
        if not found:
            continue
        # The first place of the newest topic: ids grow. The one of before may be in another shard.
        place = max(found, key=lambda place: place.topic_id)
        file = next(file for file in used if file.path == place.path)
        data = await read_file(loop.files, place.path)
        begin, header = [batch for batch in batches_in(data, file) if batch[0] <= place.offset][-1]
        if part.is_after_hole(shard, file.number, header.batch_no):
            continue
        if newest is None or place.topic_id > newest.topic_id:
            end = RestoredEnd(file.number, begin + BATCH_HEADER_BYTES + header.body_bytes, is_record=True)
            newest = FoundRecord(RestorePoint(timeline, base, header.written_ms, {shard: end}), place.topic_id)
    if newest is None and damage is not None:
        raise damage
    return newest


async def later_in_ms(
    loop: Loop,
    found: FoundRecord,
    copied_seqs: Callable[[VerifiedBatches], Sequence[Copied]],
    removing_frames: Callable[[VerifiedBatches], Sequence[int]],
) -> LaterInMs:
    """Return what batches after that of a record, of the same millisecond, have of its topic.

    All that a topic has is in one shard. copied_seqs: as of `find_record`. removing_frames: returns
    the indexes of frames that may have removed the record; one in its own batch counts, too.
    Raises: CorruptError, FormatError, OSError.
    """
    point = found.point
    ((shard, end),) = point.ends.items()
    last = (await with_ends(loop, point._replace(ends={}))).ends[shard]
    part = part_of(point.timeline, point.base)
    used = part.files(shard, await survey(loop, point.timeline.path, shard, end.file_no))
    last_seq, is_deleted, may_be_removed = 0, False, False

    def take(path: str, batches: VerifiedBatches) -> None:
        nonlocal last_seq, is_deleted, may_be_removed
        number, frames = wal_file_no(os.path.basename(path)), batches.frames
        within = np.ones(len(frames), bool)
        if number == last.file_no:
            within &= frames["offset"] < last.offset
        may_be_removed |= any(within[at] for at in removing_frames(batches))
        later = within & (frames["offset"] >= end.offset) if number == end.file_no else within
        is_topic = later & (frames["topic_id"] == found.topic_id)
        seqs = frames["seq"][is_topic & (frames["type"] == FrameType.RECORD)].tolist()
        seqs += [each.last for each in copied_seqs(batches) if later[each.frame] and each.topic_id == found.topic_id]
        last_seq = max([last_seq, *seqs])
        is_deleted |= bool((is_topic & (frames["type"] == FrameType.TOPIC_DELETE)).any())

    for file in used:
        if file.number <= last.file_no:
            await scan(loop, [file], take)
    return LaterInMs(last_seq, is_deleted, may_be_removed)


async def _scan_each(
    loop: Loop, used: list[LogFile], take: Callable[[str, VerifiedBatches], None]
) -> CorruptError | None:
    """Scan files, each by itself; return the first damage."""
    damage: CorruptError | None = None
    for file in used:
        try:
            await scan(loop, [file], take)
        except CorruptError as error:
            damage = damage or error
    return damage
