"""Which seqs a log has given out, for a restore to a time before its end."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from topics.engine.state.router_frames import ForwardPayload
from topics.store.format.log_format import FrameType
from topics.store.recovery.verified_batches import VerifiedBatches, created_topics


class IdAndHead(NamedTuple):
    """A topic, and its highest seq."""

    topic_id: int
    head: int


class CopiedSeqs(NamedTuple):
    """The seqs that one step of a router has given out without a frame of their own."""

    frame: int
    """Index of the step's frame."""
    topic_id: int
    first: int
    """The seq of the first copy, after the holes."""
    last: int
    """The last seq; one below the first if there are no copies."""


def copied_seqs(batches: VerifiedBatches) -> list[CopiedSeqs]:
    """Return the seqs that routers have given out in a piece of the log."""
    frames, found = batches.frames, []
    for at in np.flatnonzero(frames["type"] == FrameType.FORWARD).tolist():
        step = msgspec.json.decode(batches.payload(at), type=ForwardPayload)
        copies = sum(last - first + 1 for first, last in step.refs)
        first = int(frames["seq"][at]) + step.holes
        found.append(CopiedSeqs(at, int(frames["topic_id"][at]), first, first + copies - 1))
    return found


class KnownSeqs:
    """The highest seqs that logs state as given out or reserved, by topic.

    A topic that was deleted and created again has another id, and those of both count: a client
    knows it by its name.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, int] = {}
        self._ids_of: dict[str, set[int]] = {}

    def of(self, topic_id: int, name: str) -> int:
        """Return the highest seq of a topic; 0: none is known."""
        return max(self.by_id.get(one, 0) for one in {topic_id, *self._ids_of.get(name, ())})

    def take(self, _path: str, batches: VerifiedBatches) -> None:
        """Note a piece of the log."""
        frames = batches.frames
        for topic_id, name in created_topics(batches):
            self.name(topic_id, name)
        states = np.isin(frames["type"], (FrameType.RECORD, FrameType.HEAD_RESERVATION))
        topic_ids, rows = np.unique(frames["topic_id"][states], return_inverse=True)
        highest = np.zeros(len(topic_ids), np.uint64)
        np.maximum.at(highest, rows, frames["seq"][states])
        for topic_id, seq in zip(topic_ids.tolist(), highest.tolist(), strict=True):
            self.note(topic_id, seq)
        for copied in copied_seqs(batches):
            self.note(copied.topic_id, copied.last)

    def has(self, topic_id: int, name: str) -> bool:
        """Return whether a topic of this name had this id."""
        return topic_id in self._ids_of.get(name, ())

    def name(self, topic_id: int, name: str) -> None:
        """Note the name of a topic."""
        self._ids_of.setdefault(name, set()).add(topic_id)

    def note(self, topic_id: int, seq: int) -> None:
        """Note a seq that was given out."""
        self.by_id[topic_id] = max(seq, self.by_id.get(topic_id, 0))
