"""What a read pass tells a reader that stays, as values, and what the protocols made of them, kept for the next reader.

`members` is the frame's JSON without its braces, so that both `{...}` and `{"op":"record",...}` are one copy away.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from topics.engine.values.results import DiffResult, Tombstone


class RecordsFrame(NamedTuple):
    """A pass that yielded records, all of them in one frame (R-WATCH-9)."""

    topic: str
    from_seq: int
    """The cursor before the pass."""
    cursor: int
    """After it, past skipped records too: `to_seq`."""
    head_seq: int
    records: bytes
    """Elements of a JSON array, joined by commas; never empty."""

    @property
    def members(self) -> bytes:
        shape = b'"topic":"%b","from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]'
        return shape % (self.topic.encode(), self.from_seq, self.cursor, self.head_seq, self.records)


class TombstoneFrame(NamedTuple):
    """Records were lost before the ones that follow (R-WATCH-10)."""

    topic: str
    tombstone: Tombstone
    cursor: int
    """The end of the gap; E - 1 of a recreated topic, so that resuming from here skips nothing."""

    @property
    def members(self) -> bytes:
        return self.members_with_reason(self.tombstone.reason)

    def members_with_reason(self, reason: str) -> bytes:
        """With another reason: the first of a watch stream is `from_seq_too_old` (R-WATCH-11)."""
        shape = b'"topic":"%b","reason":"%b","gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d'
        lost = self.tombstone
        numbers = (lost.gap_from, lost.gap_to, lost.earliest_seq, lost.head_seq)
        return shape % (self.topic.encode(), reason.encode(), *numbers)


class CaughtUpFrame(NamedTuple):
    """The pass ended at the head, and the frame before was another one (R-WATCH-12)."""

    topic: str
    cursor: int
    head_seq: int

    @property
    def members(self) -> bytes:
        return b'"topic":"%b","head_seq":%d' % (self.topic.encode(), self.head_seq)


class DeletedFrame(NamedTuple):
    """The topic is gone; the subscription with it (R-WATCH-13)."""

    topic: str
    cursor: int
    """Where the reader stood."""

    @property
    def members(self) -> bytes:
        return b'"topic":"%b","head_seq":0,"reason":"deleted"' % self.topic.encode()


Frame = RecordsFrame | TombstoneFrame | CaughtUpFrame | DeletedFrame


class Burst:
    """The frames of one pass, in order, to be written at once; never empty. The same object goes to many readers.

    renderings: for the protocols, to keep the bytes they made of these frames: key to anything.
    """

    __slots__ = ("at_ns", "cursor", "frames", "has_tombstone", "renderings")

    def __init__(self, frames: tuple[Frame, ...], at_ns: int) -> None:
        self.frames = frames
        self.at_ns = at_ns
        """Monotonic time of the pass."""
        self.cursor = frames[-1].cursor
        """Where a reader stands after it."""
        self.has_tombstone = any(isinstance(frame, TombstoneFrame) for frame in frames)
        self.renderings: dict[Hashable, Any] = {}


def frames_of(topic: str, from_seq: int, result: DiffResult, *, told_caught_up: bool) -> tuple[Frame, ...]:
    """What a pass from `from_seq` tells; told_caught_up: the reader's last frame of this topic was a caught-up."""
    frames: list[Frame] = []
    lost = result.tombstone
    if lost is not None:
        frames.append(TombstoneFrame(topic, lost, lost.earliest_seq - 1 if lost.reason == "recreated" else lost.gap_to))
    if result.count:
        frames.append(RecordsFrame(topic, from_seq, result.next_from_seq, result.head_seq, result.records))
    if result.caught_up and (frames or not told_caught_up):
        frames.append(CaughtUpFrame(topic, result.next_from_seq, result.head_seq))
    return tuple(frames)
