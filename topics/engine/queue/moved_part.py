"""The identity of dead letters that come from another core: they are appended once.

They are a part of a producer that is the queue, whose epochs are the numbers of its moves, so that
they were appended is stated in the frame of the copies and in snapshots, and follows the topic to
another core. A queue begins a move after it knows the one before appended. So an order with a lower
number than the newest one is late, or of a queue that was put back to an earlier time, whose jobs
stay. The number of the part is a mark of the jobs, so such a queue does not take other jobs for its
own.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from topics.engine.state.producer_part import Part, PartCore, PartTopic
from topics.errors import StorageError
from topics.store.format.log_format import ProducerPart, pack_producer_part

_MARKS = 1 << 16
_PREFIX = b"\xff"
"""No producer of a client begins so: it is no UTF-8."""


class MovedPart(Part):
    """The identity of one move. See `Identity`."""

    __slots__ = ()

    def __init__(self, token: str, number: int, mark: int) -> None:
        super().__init__(_PREFIX + token.encode(), number, mark)

    def was_appended(self, topic: PartTopic, now_ms: int) -> bool:
        """Return whether it was appended. Raises: StorageError, it cannot be known any more."""
        known = None if topic.producers is None else topic.producers.find(self.producer, now_ms)
        if known is None or known.newest < self.epoch:
            return False
        is_newest = known.newest == self.epoch
        # after a long silence only the number is known
        if is_newest and (not known.rows or known.find(self.epoch, self.part) is not None):
            return True
        raise StorageError(f"move {self.epoch} of a queue to {topic.name} is not the last one: {known.newest}")

    def begin_whole(self, core: PartCore, topic: PartTopic, count: int, sum: int, now_ms: int) -> bytes:
        """Begin it whatever the limits are, which refuse no dead letter (R-Q-25)."""
        self._told = ProducerPart(count, now_ms, self.epoch, self.part, sum, self.producer)
        return pack_producer_part(self._told)


def mark_of(runs: list[int]) -> int:
    """Return a number of 16 bits for the jobs of a move, by their seqs, as runs."""
    return crc32(msgspec.json.encode(runs)) % _MARKS
