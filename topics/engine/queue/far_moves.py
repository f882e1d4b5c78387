"""Moves of poison jobs to a dead-letter topic of another core, once whichever core ends.

    a note in the log of the queue, synced -> an order to the other core, until it has answered that
      the copies are durable -> the jobs are deleted

Source: R-CORE-15.

From the note on no claim gets the jobs, also after a start. An order without an answer, or one that
was refused, may be executed later all the same. Therefore it is sent again, with its number, and
the other core appends the copies of a number once (moved_part.py). A queue has one move at a time.
Of many queues some take their turns, so that what is held for other cores is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from topics.config import Config
from topics.engine.queue.alarm import tend
from topics.engine.queue.dead_letter import DeadLetterCore, DeadLetters, Move, Then
from topics.engine.queue.dead_messages import MoveOrder
from topics.engine.queue.dead_orders import DeadOrders
from topics.engine.queue.moved_part import mark_of
from topics.engine.queue.queue_results import AckResult
from topics.engine.state.control_frames import JobsMove, LeasesPayload, encode, to_runs
from topics.engine.state.leases import Leases
from topics.engine.state.staged_operations import Notice
from topics.engine.state.topic import Life, Topic
from topics.engine.values import incarnation
from topics.engine.values.job import LeasedJob
from topics.errors import StorageError, TopicsError
from topics.store.format.log_format import FrameType
from topics.store.format.rows import RowRecord

_MOVES_MAX = 4
"""Moves whose copies are read, or on their way, of all queues."""
_PAUSES_MAX = 32
"""The longest pause before a move is tried again, in units of the first, `router_retry_ms`."""


class FarMovesCore(DeadLetterCore, Protocol):
    """The part of the core that moves to other cores need."""

    closing: bool
    config: Config


class FarMoves:
    """The moves of this core's queues to other cores."""

    def __init__(self, core: FarMovesCore, orders: DeadOrders) -> None:
        self.core = core
        self.orders = orders
        self._begun = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def begin(self, moves: DeadLetters, topic: Topic, leases: Leases, jobs: list[LeasedJob], then: Then) -> None:
        """Begin a move, as `DeadLetters.move`. While another one is in progress, none begins."""
        if leases.move is None or not leases.move.seqs:
            FarMove(moves, topic, leases, jobs, then, owner=self).begin()
            return
        for job in jobs:
            leases.release(job)
        tend(self.core, topic, again=True)
        then(StorageError("jobs before these are on their way to another core"))

    def take_turn(self, begin: Callable[[], None]) -> None:
        """Call `begin` when its turn comes, which lasts until `end_turn`."""
        if self._begun < _MOVES_MAX:
            self._begun += 1
            begin()
        else:
            self._waiting.append(begin)

    def end_turn(self) -> None:
        self._begun -= 1
        if self._waiting:
            self._begun += 1
            self.core.loop.call_later(0, self._waiting.popleft())

    def resume(self, moves: DeadLetters, topic: Topic) -> None:
        """Continue the move that a start has found."""
        leases = topic.queue
        if leases is not None:
            move = FarMove(moves, topic, leases, leases.moving_jobs(), _ignore, owner=self)
            move.note, move.is_noted = leases.move, True
            move.begin()


class FarMove(Move):
    """One move to another core."""

    def __init__(
        self, moves: DeadLetters, topic: Topic, leases: Leases, jobs: list[LeasedJob], then: Then, *, owner: FarMoves
    ) -> None:
        super().__init__(moves, topic, leases, jobs, then)
        self._owner = owner
        self.note: JobsMove | None = None
        """Its note; None: it has none yet."""
        self.is_noted = False
        """Whether the note is on stable storage, so that the copies may be there."""
        self._pauses = 1
        """The next pause, in units of `router_retry_ms`."""

    def begin(self) -> None:
        if not self.is_noted or not self._owner.core.closing:
            self._owner.take_turn(super().begin)

    def _destination(self) -> str | None:
        return self._topic.config.dead_letter if self.note is None else self.note.dead_letter

    def _write(self, name: str, copies: list[RowRecord]) -> None:
        if self.is_noted:
            self._send(copies)
            return
        last = self._leases.move
        if last is not None and last.seqs:
            self._give_up(StorageError("other jobs have begun to move"))
            return
        token = last.token if last is not None else incarnation.draw(self._owner.core.loop.random_bytes)
        number = last.number + 1 if last is not None else 1
        note = self.note = self._leases.move = JobsMove(token, number, name, to_runs([job.seq for job in self._jobs]))

        def on_noted(error: TopicsError | None) -> None:
            if error is not None:
                self._give_up(error)
            else:
                self.is_noted = True
                self._send(copies)

        core, topic = self._core, self._topic
        try:
            if topic.stage_class == "ephemeral":  # its jobs end with the process, too
                Notice(core, topic, on_noted).stage_unlogged()
                return
            payload = encode(LeasesPayload(move=note))
            with core.log.use_reserve():
                core.log.stage_control(topic.id, FrameType.LEASES, topic.next_seq - 1, core.clock.now_ms(), payload)
            Notice(core, topic, on_noted).stage(synced=True)
        except TopicsError as error:
            self._give_up(error)

    def _send(self, copies: list[RowRecord]) -> None:
        note = self.note
        assert note is not None, "it is noted"
        order = MoveOrder(note.dead_letter, note.token, note.number, mark_of(note.seqs), copies)
        self._owner.orders.ask(self._topic.name, order, self._on_copied)

    def _give_up(self, error: TopicsError) -> None:
        """Try again later: the copies may be there. The claims that found the jobs continue."""
        self._owner.end_turn()
        if not self.is_noted:
            self._end_note()
            super()._give_up(error)
            return
        rest, self._rest = self._rest, []
        for job in rest:
            self._leases.release(job)
        then, self._then = self._then, _ignore
        if self._topic.life is not Life.GONE:
            tend(self._core, self._topic, again=True)
            pause_ms = self._pauses * self._owner.core.config.router_retry_ms
            self._pauses = min(2 * self._pauses, _PAUSES_MAX)
            self._core.loop.call_later(pause_ms * 1_000_000, self.begin)
        then(error)

    def _on_deleted(self, result: AckResult | TopicsError) -> None:
        if isinstance(result, TopicsError):  # they were released
            for job in self._jobs:
                self._leases.move_on(job)
            self._give_up(result)
        else:
            super()._on_deleted(result)

    def _end(self, error: TopicsError | None) -> None:
        self._owner.end_turn()
        self._end_note()
        super()._end(error)

    def _end_note(self) -> None:
        """Let the next move begin: the jobs of this one are gone, or it has sent nothing."""
        note = self.note
        if note is not None:
            self._leases.move = JobsMove(note.token, note.number, note.dead_letter, [])


def _ignore(_error: TopicsError | None) -> None:
    """Ignore the end: no claim waits for it."""
