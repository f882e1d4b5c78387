"""Orders about a dead-letter topic: for the core that owns it, which may be another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from topics.errors import TopicsError
from topics.store.format.rows import RowRecord

Room = tuple[int, int] | None
"""The records and bytes that a queue has room for; None: any number."""


class MoveOrder(msgspec.Struct, array_like=True, tag=True):
    """Append dead letters, once: see `JobsMove`. Answer: `Executed`, once they are durable.

    Or it is `Superseded`; or `NotAppended`, if the order has no copies: it calls a move off.
    """

    dead_letter: str
    token: str
    number: int
    mark: int
    copies: list[RowRecord]


class ListOrder(msgspec.Struct, array_like=True, tag=True):
    """List dead letters of a queue. Answer: `DeadListed`."""

    queue: str
    dead_letter: str
    after: int
    limit: int
    max_batch_bytes: int


class DeadListed(msgspec.Struct, array_like=True, tag=True):
    """A page of dead letters: the fields of `DiffResult`."""

    records: bytes
    count: int
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    scanned: int
    size: int


class FindOrder(msgspec.Struct, array_like=True, tag=True):
    """Find the next dead letters of a queue, as the jobs that they were. Answer: `DeadFound`."""

    queue: str
    dead_letter: str
    topic_id: int
    """The id of the dead-letter topic; 0 in the first order, to which routers are caught up."""
    after: int
    """The seq after which all are looked at."""
    most: int
    """Most of them that are looked at."""
    seqs: list[int] | None
    """The seqs that are looked at, ascending; None: all."""
    room: Room
    """The most that is found; the first one is found in any case."""


class DeadFound(msgspec.Struct, array_like=True, tag=True):
    """Dead letters, which no router needs any more (R-RTR-18)."""

    topic_id: int = 0
    """0: there is no such topic."""
    head: int = 0
    last: int = 0
    """The last seq that was looked at, or the one before the first without room; 0: none was
    left.
    """
    looked: int = 0
    seqs: list[int] = []
    jobs: list[RowRecord] = []


class RemoveOrder(msgspec.Struct, array_like=True, tag=True):
    """Delete dead letters whose jobs are durable. Answer: `Executed`."""

    dead_letter: str
    topic_id: int
    seqs: list[int]


class Executed(msgspec.Struct, array_like=True, tag=True):
    """It was done, durably."""


class Superseded(msgspec.Struct, array_like=True, tag=True):
    """The number is not that of this move any more: a queue was put back to an earlier time.

    Nothing is appended for it, now or later.
    """


class NotAppended(msgspec.Struct, array_like=True, tag=True):
    """The move is called off: nothing was appended for it, nor will be while the core runs."""


DeadOrder = MoveOrder | ListOrder | FindOrder | RemoveOrder
DeadReply = DeadListed | DeadFound | Executed | Superseded | NotAppended
DeadReplied = Callable[[DeadReply | TopicsError], None]


class OtherQueues(Protocol):
    """The other cores, which have dead-letter topics of queues of this one."""

    def ask(self, topic: str, order: DeadOrder, done: DeadReplied) -> None:
        """Have the core that owns a topic execute an order. An error: perhaps it has."""
