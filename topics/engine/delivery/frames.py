"""Frames of a read pass for lasting readers, with the bytes that the protocols made of them.

`members` is the frame's JSON without its braces, so that both `{...}` and `{"op":"record",...}` are
one copy away.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from topics.engine.values.results import DiffResult, Tombstone


class RecordsFrame(NamedTuple):
    """The records of one pass, all in one frame (R-WATCH-9)."""

    topic: str
    from_seq: int
    """Cursor before the pass."""
    cursor: int
    """Cursor after the pass, past skipped records too: `to_seq`."""
    head_seq: int
    records: bytes
    """The records as elements of a JSON array, joined by commas; at least one."""

    @property
    def members(self) -> bytes:
        shape = b'"topic":"%b","from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]'
        return shape % (self.topic.encode(), self.from_seq, self.cursor, self.head_seq, self.records)


class TombstoneFrame(NamedTuple):
    """Records lost before the following ones (R-WATCH-10)."""

    topic: str
    tombstone: Tombstone
    cursor: int
    """End of the gap; E - 1 of a recreated topic, so that resuming from here skips nothing."""

    @property
    def members(self) -> bytes:
        return self.members_with_reason(self.tombstone.reason)

    def members_with_reason(self, reason: str) -> bytes:
        """Return the members with another reason.

        That of a watch stream's first is `from_seq_too_old` (R-WATCH-11).
        """
        shape = b'"topic":"%b","reason":"%b","gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d'
        lost = self.tombstone
        numbers = (lost.gap_from, lost.gap_to, lost.earliest_seq, lost.head_seq)
        return shape % (self.topic.encode(), reason.encode(), *numbers)


class CaughtUpFrame(NamedTuple):
    """The end of a pass at the head, after a frame of another kind (R-WATCH-12)."""

    topic: str
    cursor: int
    head_seq: int

    @property
    def members(self) -> bytes:
        return b'"topic":"%b","head_seq":%d' % (self.topic.encode(), self.head_seq)


class DeletedFrame(NamedTuple):
    """The end of the topic, and so of the subscription (R-WATCH-13)."""

    topic: str
    cursor: int
    """Cursor of the reader."""

    @property
    def members(self) -> bytes:
        return b'"topic":"%b","head_seq":0,"reason":"deleted"' % self.topic.encode()


Frame = RecordsFrame | TombstoneFrame | CaughtUpFrame | DeletedFrame


class Burst:
    """The frames of one pass, in order, at least one, a tombstone first; shared by many readers.

    renderings: cache of the protocols for the bytes they made of these frames: key to anything.
    """

    __slots__ = ("at_ns", "cursor", "ends_topic", "frames", "has_tombstone", "renderings")

    def __init__(self, frames: tuple[Frame, ...], at_ns: int) -> None:
        self.frames = frames
        self.at_ns = at_ns
        """Monotonic time of the pass."""
        self.cursor = frames[-1].cursor
        """Cursor of a reader after it."""
        self.has_tombstone = type(frames[0]) is TombstoneFrame
        self.ends_topic = type(frames[0]) is DeletedFrame
        self.renderings: dict[Hashable, Any] = {}


def frames_of(topic: str, from_seq: int, result: DiffResult, *, reported_caught_up: bool) -> tuple[Frame, ...]:
    """Return the frames of a pass from `from_seq`.

    reported_caught_up: the reader's last frame of this topic was a caught-up.
    """
    frames: list[Frame] = []
    lost = result.tombstone
    if lost is not None:
        frames.append(TombstoneFrame(topic, lost, lost.next_cursor))
    if result.count:
        frames.append(RecordsFrame(topic, from_seq, result.next_from_seq, result.head_seq, result.records))
    if result.caught_up and (frames or not reported_caught_up):
        frames.append(CaughtUpFrame(topic, result.next_from_seq, result.head_seq))
    return tuple(frames)
