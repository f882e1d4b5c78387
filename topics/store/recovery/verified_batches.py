"""A piece of the log as recovery hands it on: frames of whole batches, which are verified."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from topics.store.format import codec
from topics.store.format.log_format import FRAME_HEADER_BYTES, FrameType


class NameOfTopic(msgspec.Struct):
    """The name in the payload of a TOPIC_CREATE, or in another description of a topic."""

    name: str


class VerifiedBatches(NamedTuple):
    """A verified piece of log: frames of whole batches.

    `data` is valid until the next piece is requested.
    """

    frames: codec.Frames
    data: memoryview
    base: int
    """File offset of data[0]."""
    file_id: int

    def payload(self, at: int) -> bytes:
        """Return the payload of the control frame in row `at` of `frames`."""
        frame = self.frames[at]
        texts = int(frame["ext_len"]) + int(frame["node_len"]) + int(frame["tag_len"])
        start = int(frame["offset"]) - self.base + FRAME_HEADER_BYTES + texts
        return bytes(self.data[start : start + int(frame["data_len"])])


def created_topics(batches: VerifiedBatches) -> list[tuple[int, str]]:
    """Return id and name of each topic that was created in a piece of the log."""
    found = np.flatnonzero(batches.frames["type"] == FrameType.TOPIC_CREATE).tolist()
    decode, ids = msgspec.json.decode, batches.frames["topic_id"]
    return [(int(ids[at]), decode(batches.payload(at), type=NameOfTopic).name) for at in found]
