"""Orders about a dead-letter topic, executed here or by the core that owns the topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topics.engine.queue.dead_messages import (
    DeadListed,
    DeadOrder,
    DeadReplied,
    DeadReply,
    Executed,
    FindOrder,
    ListOrder,
    MoveOrder,
    NotAppended,
    OtherQueues,
    RemoveOrder,
    Room,
    Superseded,
)
from topics.engine.queue.dead_records import NOTHING, DeadPage, dead_letter_name, list_dead
from topics.engine.queue.dead_topic import DeadTopics
from topics.engine.queue.moved_part import MovedPart, NotAppendedError, SupersededError
from topics.engine.state.known_producers import QUEUES_MAX
from topics.engine.values.ports import FormatPort
from topics.engine.values.results import AppendResult, DiffQuery, DiffResult, Done
from topics.errors import StorageError, TopicsError
from topics.store.format.rows import Rows, pack_rows
from topics.store.layouts.directory_names import DIRECTORY_FORMAT

AppendCopies = Callable[[str, Rows, Done[AppendResult], MovedPart | None], None]
"""See `Appender.append_copies`."""
_CALLED_OFF_MAX = 1024
"""Most queues of which it is known that they called a move off."""


class DeadOrders:
    """The orders of an engine. Each is answered once.

    append_copies: see `Appender`. others: the other cores; None if there are none.
    """

    def __init__(
        self,
        topics: DeadTopics,
        append_copies: AppendCopies,
        directory_format: FormatPort,
        others: OtherQueues | None,
    ) -> None:
        self._topics = topics
        self._others = others
        self._format = directory_format
        self._append_copies = append_copies
        self._called_off: dict[str, None] = {}
        """The tokens of queues that have called a move off, which use others from then on."""
        self._last: dict[str, tuple[int, int]] = {}
        """Numbers and marks of moves, as in `MovedPart`: else one that comes late would create
        a topic again that was deleted.
        """
        self.has_stopped = False
        """Whether the log takes no copies any more."""

    def are_apart(self, queue: str, dead_letter: str) -> bool:
        """Return whether another core than that of the queue owns a topic."""
        return self._topics.core.registry.are_apart(queue, dead_letter)

    def is_absent(self, queue: str, dead_letter: str) -> bool:
        """Return whether this core knows that there is no such topic."""
        return not self.are_apart(queue, dead_letter) and self._topics.core.registry.visible(dead_letter) is None

    def ask(self, queue: str, order: DeadOrder, done: DeadReplied) -> None:
        """Have an order about the dead-letter topic of a queue executed, on whichever core."""
        if self.are_apart(queue, order.dead_letter):
            assert self._others is not None, "a topic of another core, where there is none"
            self._others.ask(order.dead_letter, order, done)
        else:
            self.execute(order, done)

    def find(self, queue: str, order: FindOrder, room: Callable[[], Room], done: DeadReplied) -> None:
        """Have dead letters found; on this core, `room` is asked once they are read."""
        if self.are_apart(queue, order.dead_letter):
            self.ask(queue, order, done)
        else:
            self._topics.find(order, room, done)

    def execute(self, order: DeadOrder, done: DeadReplied) -> None:
        """Execute an order about a topic of this core."""
        match order:
            case MoveOrder() if order.copies:
                # An older build would misread records of bytes, and give ids of queues to clients.
                self._format.when_raised(DIRECTORY_FORMAT, partial(self._move, order, done))
            case MoveOrder():
                self._move(order, done, None)
            case ListOrder():
                self._list(order, done)
            case FindOrder():
                self._topics.find(order, lambda: order.room, done)
            case RemoveOrder():
                self._topics.remove(order, done)

    def _move(self, order: MoveOrder, done: DeadReplied, error: StorageError | None) -> None:
        if error is None and self.has_stopped:
            error = StorageError("the core stops")
        if error is not None:
            done(error)
            return
        known = self._called_off, self._last
        part = MovedPart(order.token, order.number, order.mark, *known, calls_off=not order.copies)
        self._append_copies(order.dead_letter, pack_rows(order.copies), self._moved(order, done), part)

    def _moved(self, order: MoveOrder, done: DeadReplied) -> Done[AppendResult]:
        def moved(result: AppendResult | TopicsError) -> None:
            match result:
                case SupersededError():
                    done(Superseded())
                case NotAppendedError():
                    self._called_off[order.token] = None
                    if len(self._called_off) > _CALLED_OFF_MAX:
                        del self._called_off[next(iter(self._called_off))]
                    done(NotAppended())
                case TopicsError():
                    done(result)
                case _:
                    self._last.pop(order.token, None)
                    self._last[order.token] = order.number, order.mark
                    if len(self._last) > QUEUES_MAX:
                        del self._last[next(iter(self._last))]
                    done(Executed())

        return moved

    def list(self, queue: str, query: DiffQuery, done: Done[DeadPage]) -> None:
        """List the dead letters of a queue; see `Engine.dead`."""
        topics = self._topics
        try:
            name = dead_letter_name(topics.core, queue)
        except TopicsError as error:
            done(error)
            return
        if name is None:
            done(DeadPage(None, NOTHING))
        elif self._others is None or not self.are_apart(queue, name):
            list_dead(topics.core, topics.catch_up, queue, name, query=query, done=done)
        else:
            order = ListOrder(queue, name, query.from_seq, query.limit, query.max_batch_bytes)
            self._others.ask(name, order, partial(_listed, name, done))

    def _list(self, order: ListOrder, done: DeadReplied) -> None:
        topics, query = self._topics, DiffQuery(order.after, order.limit, max_batch_bytes=order.max_batch_bytes)

        def listed(result: DeadPage | TopicsError) -> None:
            if isinstance(result, TopicsError):
                done(result)
                return
            page = result.page
            place = page.next_from_seq, page.head_seq, page.earliest_seq
            done(DeadListed(page.records, page.count, *place, page.scanned, page.size))

        list_dead(topics.core, topics.catch_up, order.queue, order.dead_letter, query=query, done=listed)


def _listed(name: str, done: Done[DeadPage], reply: DeadReply | TopicsError) -> None:
    if isinstance(reply, TopicsError):
        done(reply)
        return
    assert isinstance(reply, DeadListed), "the reply to its order"
    place = reply.next_from_seq, reply.head_seq, reply.earliest_seq
    done(DeadPage(name, DiffResult(reply.records, reply.count, *place, None, reply.scanned, 0, reply.size)))
