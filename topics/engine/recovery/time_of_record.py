"""The time of all cores that a record ends, for a restore of their archive (R-CORE-18)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from topics.common.values.time_texts import time_text
from topics.engine.recovery.archived_seqs import HeadsOf, all_are_there, found_record, not_archived
from topics.engine.recovery.known_seqs import copied_seqs
from topics.engine.state.control_frames import RemovalPayload
from topics.errors import UsageError
from topics.loop.loop import Loop
from topics.store.archive.find_record import LaterInMs, later_in_ms
from topics.store.archive.joint_point import Joint, joint_at
from topics.store.archive.restore_point import RestorePoint, point_at
from topics.store.format.log_format import FrameType
from topics.store.recovery.verified_batches import VerifiedBatches

_REMOVING = (FrameType.DELETE_RECORDS, FrameType.CONSUME, FrameType.FLOORS)


async def time_of_record(
    loop: Loop,
    joints: list[Joint],
    topic: str,
    seq: int,
    heads_of: HeadsOf,
    *,
    bring: Callable[[str], None] = all_are_there,
) -> tuple[Joint, int]:
    """Return the time (Unix ms) of all cores at which a record was written, and the timeline of it.

    A time of all has what each core wrote in that millisecond. So there is none that the record
    ends if its topic got more then, except in the same commit, or lost it.
    bring: as of `point_of_record`.
    Raises: UsageError, it is in no timeline, or no time of all ends with it; CorruptError,
        FormatError, OSError.
    """
    for joint in reversed(joints):
        timelines = joint.cores[joint.stored.slots.core_of(topic)]
        found = await found_record(loop, timelines, topic, seq, heads_of, bring=bring)
        if found is not None:
            _check_time(joint, found.point, topic, seq)
            removing = partial(removing_frames, topic_id=found.topic_id, seq=seq)
            later = await later_in_ms(loop, found, copied_seqs, removing)
            _check_last(later, found.point.at_ms, topic, seq)
            return joint, found.point.at_ms
    raise not_archived(topic, seq, [times for joint in joints for times in joint.times])


def _check_time(joint: Joint, point: RestorePoint, topic: str, seq: int) -> None:
    """Raises: UsageError, the time of a record is not one of all cores."""
    try:
        _joint, at_ms = joint_at([joint], point.at_ms)
    except UsageError as error:
        written = f"is seq {seq} of topic {topic}, written at {error.said.removeprefix('is ')}"
        raise UsageError(written if error.argument else error.said, error.argument and "upto") from None
    timelines = joint.cores[joint.stored.slots.core_of(topic)]
    if point_at(timelines, at_ms).timeline.path != point.timeline.path:
        said = f"is seq {seq} of topic {topic}, written at {time_text(at_ms)}, a time that came twice: name another one"
        raise UsageError(said, "upto")


def _check_last(later: LaterInMs, at_ms: int, topic: str, seq: int) -> None:
    """Raises: UsageError, the topic has changed once more in the millisecond of a record."""
    before = f"a time before {time_text(at_ms)}"
    which, when = f"is seq {seq} of topic {topic}", "later in the same millisecond, the least that all cores share"
    if later.is_deleted:
        raise UsageError(f"{which}, which was deleted {when}: name {before} in its place", "upto")
    if later.last_seq > seq:
        last = f"name seq {later.last_seq}, which ends that, or {before} in its place"
        raise UsageError(f"{which}, and others were written {when}: {last}", "upto")
    if later.may_be_removed:
        raise UsageError(
            f"{which}, which may have been removed in the same millisecond: name {before}, or a later one", "upto"
        )


def removing_frames(batches: VerifiedBatches, topic_id: int, seq: int) -> list[int]:
    """Return the indexes of frames that have removed a record, or may have (a match)."""
    frames = batches.frames
    removing = (frames["topic_id"] == topic_id) & np.isin(frames["type"], _REMOVING)
    return [at for at in np.flatnonzero(removing).tolist() if _may_remove(batches, at, seq)]


def _may_remove(batches: VerifiedBatches, at: int, seq: int) -> bool:
    removal = msgspec.json.decode(batches.payload(at), type=RemovalPayload)
    if batches.frames["type"][at] == FrameType.DELETE_RECORDS:
        return seq <= removal.upto and (removal.before is None or seq < removal.before)
    runs = zip(removal.seqs[::2], removal.seqs[1::2], strict=True)
    return seq <= max(removal.evicted, removal.ttl) or any(first <= seq <= last for first, last in runs)
