"""Redrives: dead letters become jobs of their queue again, and are deleted once these are durable.

Source: wire contract 8.8, R-Q-37 to -39.

As in a move to the dead letters, the two topics may be in different shards of the log, whose ends
differ after a power cut. Therefore the copies are on stable storage before the deletion is staged.
The dead-letter topic is asked by orders (dead_topic.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from topics.clock import Clock
from topics.config import Config
from topics.engine.queue.dead_messages import DeadFound, DeadReply, FindOrder, RemoveOrder
from topics.engine.queue.dead_orders import DeadOrders
from topics.engine.queue.dead_records import SLOTS_MAX, dead_letter_name
from topics.engine.queue.lookup import LookupCore, find_queue
from topics.engine.state import refusals
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import LoopPort
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.admission import cap_room, check_backlog
from topics.engine.write.retention import ExpiryCore, when_retained
from topics.errors import TopicsError
from topics.store.format.rows import Rows, pack_rows

AppendMoved = Callable[[Topic, Rows, Done[AppendResult]], None]
"""See `Appender.append_moved`."""


class RedriveCore(LookupCore, ExpiryCore, Protocol):
    """The part of the core that redrives need."""

    clock: Clock
    config: Config
    loop: LoopPort


class RedriveRequest(NamedTuple):
    """A redrive of dead letters. Source: wire contract, 8.8."""

    queue: str
    seqs: Sequence[int] | None
    """Seqs of the dead-letter topic; None: all above `from_seq`."""
    from_seq: int = 0
    most: int = 0
    """Most dead letters of a redrive of all; clamped, 0 is the most allowed."""


class RedriveTurn(NamedTuple):
    dead_letter: str | None
    """The name of the dead-letter topic; None: the queue has none."""
    redriven: int
    skipped: list[int]
    next_from_seq: int
    """The cursor of the next redrive of all; 0 after one of named seqs."""
    head_seq: int


class Redrives:
    """The redrives of an engine: those out of one topic one after another (R-Q-38).

    append: see `Appender.append_moved`.
    """

    def __init__(self, core: RedriveCore, orders: DeadOrders, append: AppendMoved) -> None:
        self.core = core
        self.orders = orders
        self.append = append
        self._lines: dict[str, deque[Callable[[], None]]] = {}
        """By name of the dead-letter topic that a redrive is in progress for, those that wait."""

    def redrive(self, request: RedriveRequest, done: Done[RedriveTurn]) -> None:
        """Redrive dead letters; see `Engine.redrive`."""
        core = self.core
        try:
            found = find_queue(core, request.queue, lambda: self.redrive(request, done))
            if found is None:
                return
            name = dead_letter_name(core, request.queue)
            if name is None or self.orders.is_absent(request.queue, name):
                done(RedriveTurn(name, 0, list(request.seqs or ()), 0, 0))
                return
            check_backlog(core.log)
        except TopicsError as error:
            done(error)
            return
        redrive = Redrive(self, found[0], name, request, self._ending(name, done))
        line = self._lines.get(name)
        if line is None:
            self._lines[name] = deque()
            redrive.begin()
        else:
            line.append(redrive.begin)

    def _ending(self, dead: str, done: Done[RedriveTurn]) -> Done[RedriveTurn]:
        """Return a `done` that lets the next redrive out of this topic begin."""

        def end(result: RedriveTurn | TopicsError) -> None:
            line = self._lines[dead]
            if line:
                self.core.loop.call_later(0, line.popleft())
            else:
                del self._lines[dead]
            done(result)

        return end


class Redrive:
    """One redrive, step by step: a pass of the loop each, at least."""

    def __init__(
        self, owner: Redrives, queue: Topic, dead: str, request: RedriveRequest, done: Done[RedriveTurn]
    ) -> None:
        self._owner = owner
        self._core = owner.core
        self._queue = queue
        self._dead = dead
        self._done = done
        most = owner.core.config.max_claim
        self._left = min(request.most or most, most)
        """Number of dead letters that a redrive of all may still take."""
        self._cursor = request.from_seq
        self._scanned = 0
        self._asked = None if request.seqs is None else list(request.seqs)
        """The seqs in the request's order; None: all."""
        self._todo = sorted(set(request.seqs or ()))
        """The seqs that no step has looked at."""
        self._redriven: list[int] = []
        self._part: list[int] = []
        """The dead letters of this step."""
        self._topic_id = self._head = 0
        """Id and head of the dead-letter topic, once a step has looked at it."""

    def begin(self) -> None:
        if self._queue.life is Life.GONE:
            self._done(refusals.topic_not_found(self._queue.name))
            return
        most, todo = min(SLOTS_MAX - self._scanned, self._left), None if self._asked is None else self._todo
        queue = self._queue
        order = FindOrder(queue.name, self._dead, self._topic_id, self._cursor, most, todo, cap_room(queue))
        self._owner.orders.find(queue.name, order, lambda: cap_room(queue), self._on_found)

    def _on_found(self, found: DeadReply | TopicsError) -> None:
        if isinstance(found, TopicsError):
            self._done(found)
            return
        assert isinstance(found, DeadFound), "the reply to its order"
        if not found.topic_id:
            if not self._topic_id:
                self._cursor = 0
            self._answer()
            return
        self._topic_id, self._head = found.topic_id, found.head
        if not found.last:
            if self._scanned < SLOTS_MAX and self._left:
                self._cursor = found.head
            self._answer()
            return
        self._scanned += found.looked
        self._cursor = found.last
        self._todo = [seq for seq in self._todo if seq > self._cursor]
        if not found.seqs:
            self._core.loop.call_later(0, self.begin)
            return
        self._part = found.seqs
        rows = pack_rows(found.jobs)

        def append(error: TopicsError | None) -> None:
            if error is not None:
                self._done(error)
            else:
                self._owner.append(self._queue, rows, self._on_copied)

        when_retained(self._core, self._queue, self._core.clock.now_ms(), append)

    def _on_copied(self, result: AppendResult | TopicsError) -> None:
        """Delete the dead letters whose jobs are durable by now."""
        if isinstance(result, TopicsError):
            self._done(result)
        else:
            order = RemoveOrder(self._dead, self._topic_id, self._part)
            self._owner.orders.ask(self._queue.name, order, self._on_deleted)

    def _on_deleted(self, result: DeadReply | TopicsError) -> None:
        if isinstance(result, TopicsError):
            self._done(result)
            return
        self._redriven += self._part
        self._left -= len(self._part)
        self._core.loop.call_later(0, self.begin)

    def _answer(self) -> None:
        done = set(self._redriven)
        skipped: list[int] = []
        for seq in self._asked or ():
            if seq in done:
                done.discard(seq)
            else:
                skipped.append(seq)
        cursor, head = (self._cursor, self._head) if self._asked is None else (0, 0)
        self._done(RedriveTurn(self._dead, len(self._redriven), skipped, cursor, head))
