"""The identity of dead letters that come from another core: they are appended once.

They are a part of a producer that is the queue, whose epochs are the numbers of its moves, so that
they were appended is stated in the frame of the copies and in snapshots, and follows the topic to
another core. A queue begins a move after it knows the one before appended. So an order with a lower
number than the newest one is late, or of a queue that was put back to an earlier time. In the place
of a checksum the part has the mark of the move, so such a queue does not take other jobs for its
own.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from topics.engine.state.known_producers import OF_QUEUES
from topics.engine.state.producer_part import Part, PartCore, PartTopic
from topics.errors import StorageError
from topics.store.format.log_format import ProducerPart, pack_producer_part
from topics.store.format.rows import Rows


class SupersededError(StorageError):
    """A move that is not appended, now or later, because its number is not its own any more."""


class NotAppendedError(StorageError):
    """A move that was called off before it was appended."""


class MovedPart(Part):
    """The identity of one move. See `Identity`."""

    __slots__ = ("_called_off", "_calls_off", "_last", "_mark", "_token")

    def __init__(
        self,
        token: str,
        number: int,
        mark: int,
        called_off: Container[str],
        last: Mapping[str, tuple[int, int]],
        *,
        calls_off: bool,
    ) -> None:
        """called_off: tokens of queues that have called a move off. calls_off: this one does.

        last: numbers and marks of the last moves of queues, by token, also to topics that were
        deleted since.
        """
        super().__init__(OF_QUEUES + token.encode(), number, 0)
        self._token, self._mark, self._called_off, self._calls_off = token, mark, called_off, calls_off
        self._last = last

    def was_appended(self, topic: PartTopic | None, now_ms: int) -> bool:
        """Return whether it was appended. Raises: SupersededError, NotAppendedError."""
        known = None if topic is None or topic.producers is None else topic.producers.find(self.producer, now_ms)
        entry = None if known is None else known.find(self.epoch, self.part)
        if entry is not None and entry.sum == self._mark:
            return True
        last = self._last.get(self._token, (-1, 0))
        if last == (self.epoch, self._mark):
            return True
        if self._token in self._called_off:
            raise SupersededError("the queue has called it off")
        if last[0] >= self.epoch or (known is not None and known.newest >= self.epoch):
            raise SupersededError(f"move {self.epoch} of a queue is not the last one, or has other jobs")
        if self._calls_off:
            raise NotAppendedError("it is called off")
        return False

    def begin(self, core: PartCore, topic: PartTopic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        """Begin it without a checksum, which would be one of 1 MiB for nothing."""
        return self.begin_whole(core, topic, rows.count, 0, now_ms)

    def begin_whole(self, core: PartCore, topic: PartTopic, count: int, sum: int, now_ms: int) -> bytes:
        """Begin it whatever the limits are, which refuse no dead letter (R-Q-25)."""
        self._told = ProducerPart(count, now_ms, self.epoch, self.part, self._mark, self.producer)
        return pack_producer_part(self._told)
