"""Moves of poison jobs to a dead-letter topic of another core, once whichever core ends.

    a note in the log of the queue, synced -> an order to the other core, until it has answered that
      the copies are durable -> the jobs are deleted

Source: R-CORE-15.

From the note on no claim gets the jobs, also after a start, and those that found them wait a while
at most. An order without an answer, or one that was refused, may be executed later all the same.
Therefore it is sent again, with its number, and the other core appends the copies of a number once
(moved_part.py). Moves take turns (move_turns.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from topics.config import Config
from topics.engine.queue.dead_letter import CLAIM_WAIT_NS, DeadLetterCore, DeadLetters, Move, PoisonJobs, Then
from topics.engine.queue.dead_messages import MoveOrder, NotAppended, Superseded
from topics.engine.queue.dead_orders import DeadOrders
from topics.engine.queue.move_turns import MoveLine, MoveReads, MoveTurns
from topics.engine.queue.queue_results import AckResult
from topics.engine.state.control_frames import NO_MOVE, JobsMove, LeasesPayload, encode, to_runs
from topics.engine.state.staged_operations import Notice
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import wake
from topics.engine.values import incarnation
from topics.engine.values.ports import TimerPort
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.format.log_format import Frame, FrameType
from topics.store.format.rows import RowRecord

_log = logging.getLogger(__name__)
_PAUSES_MAX = 32
"""The longest pause before a move is tried again, in units of the first, `router_retry_ms`."""
_PAUSE_MAX_MS = 60_000
"""Likewise, unless the first one is longer."""
_MARK_BYTES = 7
_RESUMED_A_PASS = 16
"""Queues whose moves continue in one pass after a start, 256 jobs each at most: some 5 ms."""


class FarMovesCore(DeadLetterCore, Protocol):
    """The part of the core that moves to other cores need."""

    closing: bool
    config: Config


class FarMoves:
    """The moves of this core's queues to other cores."""

    def __init__(self, core: FarMovesCore, orders: DeadOrders) -> None:
        self.core = core
        self.orders = orders
        self.reads = MoveReads(core.loop)
        self.has_stopped = False
        """Whether the log takes nothing any more: replies and timers do nothing."""
        self._turns: dict[int, MoveTurns] = {}
        """By core."""
        self._lines: dict[Topic, MoveLine[FarMove]] = {}
        """By queue with a move in progress."""

    def begin(self, moves: DeadLetters, poison: PoisonJobs) -> None:
        """Begin a move, as `DeadLetters.move`, once the one in progress has ended.

        The claims continue at `until_ns` if it has not ended before, with an error.
        """
        topic, now_ns = poison.topic, self.core.clock.monotonic_ns()
        move = FarMove(moves, poison, owner=self)
        line, note = self._lines.get(topic), poison.leases.move
        if line is None and (note is None or not note.seqs):
            self._lines[topic] = MoveLine(now_ns, CLAIM_WAIT_NS)
            move.wait(poison.until_ns - now_ns)
            move.begin()
        elif line is not None and line.takes(now_ns):
            line.add(move)
            move.wait(poison.until_ns - now_ns)
        else:
            move.refuse()

    def stop(self) -> None:
        """Note, send and delete nothing any more, and take no copies: the store is closed next."""
        self.has_stopped = self.orders.has_stopped = True

    def has_left(self, topic: Topic, move: FarMove) -> bool:
        """Take a move out, and return True, if it has not begun."""
        line = self._lines.get(topic)
        return line is not None and line.has_left(move)

    def begin_next(self, topic: Topic) -> None:
        """Begin the next move of a queue, in another pass: the one in progress has ended."""
        following = self._lines[topic].next(self.core.clock.monotonic_ns())
        if following is None:
            del self._lines[topic]
        else:
            self.core.loop.call_later(0, following.begin)

    def fail(self, topic: Topic) -> None:
        """Let claims continue that wait for jobs which are to be moved again, one a pass."""
        line = self._lines[topic]
        if not line.has_failed:
            line.has_failed = True
            self._refuse_next(line)

    def _refuse_next(self, line: MoveLine[FarMove]) -> None:
        move = line.pop() if line.has_failed else None
        if move is not None:
            move.refuse()
            self.core.loop.call_later(0, partial(self._refuse_next, line))

    def turns_at(self, name: str) -> MoveTurns:
        """Return the turns at the core of a topic."""
        core = self.core
        return self._turns.setdefault(core.registry.core_of(name), MoveTurns(core.loop))

    def resume(self, moves: DeadLetters, queues: list[Topic]) -> None:
        """Continue the moves that a start has found, of some queues a pass."""
        for _ in range(min(len(queues), _RESUMED_A_PASS)):
            topic = queues.pop()
            leases = topic.queue
            if leases is not None and leases.move is not None:
                self._lines[topic] = MoveLine(self.core.clock.monotonic_ns(), CLAIM_WAIT_NS)
                move = FarMove(moves, PoisonJobs(topic, leases, leases.moving_jobs(), _ignore), owner=self)
                move.note, move.is_noted = leases.move, True
                move.begin()
        if queues:
            self.core.loop.call_later(0, partial(self.resume, moves, queues))


class FarMove(Move):
    """One move to another core."""

    def __init__(self, moves: DeadLetters, poison: PoisonJobs, *, owner: FarMoves) -> None:
        super().__init__(moves, poison)
        self._owner = owner
        self.note: JobsMove | None = None
        """Its note; None: it has none yet."""
        self.is_noted = False
        """Whether a note is on stable storage, so that the copies may be there."""
        self._turns: MoveTurns | None = None
        """Where it has a turn; None: it has none."""
        self._is_reading = False
        """Whether it has a turn to read."""
        self._timer: TimerPort | None = None
        """Ends the wait of the claims that found the jobs."""
        self._pauses = 1
        """The next pause, in units of `router_retry_ms`."""
        self._tries = 0
        self._has_called_off = False
        """Whether an order has called it off."""

    def wait(self, ns: int) -> None:
        """Let the claims that found the jobs wait so long at most."""
        self._timer = self._core.loop.call_later(ns, self._on_late)

    def _on_late(self) -> None:
        self._timer = None
        if self._owner.has_stopped:
            return
        if self._owner.has_left(self._topic, self):
            self.refuse()
        else:
            self._let_claims_go(StorageError("the other core has not answered yet"))

    def refuse(self) -> None:
        """End it: jobs before these are on their way, and take long."""
        self._stop_timer()
        super()._give_up(StorageError("jobs before these are on their way to another core"))

    def begin(self) -> None:
        """Begin it, or continue with what is noted."""
        note = self.note
        if self._owner.has_stopped:
            return
        if not self.is_noted:
            self._owner.reads.take(self._read)
        elif note is not None and not self._owner.core.closing:
            turns = self._owner.turns_at(note.dead_letter)
            turns.take(partial(self._on_turn, turns))

    def _read(self) -> None:
        self._is_reading = True
        super().begin()

    def _on_turn(self, turns: MoveTurns) -> None:
        note, topic = self.note, self._topic
        assert note is not None, "it is noted"
        self._turns = turns
        self._leases.apply_time(self._core.clock.now_ms())
        self._jobs = [job for job in self._jobs if self._is_ours(job)]
        if self._jobs and topic.life is Life.LIVE and topic.config.dead_letter != note.dead_letter:
            self._ask(note, [])
        else:
            self._owner.reads.take(self._read)

    def _most(self) -> int:
        return len(self._jobs) if self.is_noted else super()._most()

    def _destination(self) -> str | None:
        return self._topic.config.dead_letter if self.note is None else self.note.dead_letter

    def _on_read(self, frames: Sequence[Frame | CorruptError] | StorageError) -> None:
        """Move jobs that can be read; of those that are noted, all together or none.

        Without one of them, their number would be used up, and it perhaps not moved.
        """
        self._end_reading()
        if self._owner.has_stopped:
            return
        if self.is_noted and not isinstance(frames, StorageError):
            for job, frame in zip(self._jobs, frames, strict=True):
                if isinstance(frame, CorruptError) and self._is_ours(job):
                    self._give_up(frame)
                    return
        super()._on_read(frames)

    def _write(self, name: str, copies: list[RowRecord]) -> None:
        note = self.note
        if note is not None:
            self._ask(note, copies)
            return
        last, turns = self._leases.move, self._owner.turns_at(name)
        if turns.has_taken():
            self._turns = turns
        else:
            copies = []  # they are read again then

        def on_noted(error: TopicsError | None) -> None:
            if self._owner.has_stopped:
                return
            if error is not None:
                self._give_up(error)
                return
            self.is_noted = True
            if copies and self.note is not None:
                self._ask(self.note, copies)
            else:
                self._let_claims_go(None)
                self.begin()

        if last is not None:
            self._state(last.token, last.number + 1, name, on_noted)
        else:
            self._state(self._draw(), 1, name, on_noted)

    def _draw(self) -> str:
        return incarnation.draw(self._owner.core.loop.random_bytes)

    def _state(self, token: str, number: int, name: str, then: Then) -> None:
        """Note the move, durably."""
        core, topic = self._core, self._topic
        mark = int.from_bytes(self._owner.core.loop.random_bytes(_MARK_BYTES), "little")
        note = JobsMove(token, number, mark, name, to_runs([job.seq for job in self._jobs]))
        self.note = self._leases.move = note
        try:
            if topic.stage_class == "ephemeral":  # its jobs end with the process, too
                Notice(core, topic, then).stage_unlogged()
            else:
                self._log(note)
                Notice(core, topic, then).stage(synced=True)
        except TopicsError as error:
            then(error)

    def _log(self, move: JobsMove) -> None:
        core, topic = self._core, self._topic
        payload = encode(LeasesPayload(move=move))
        with core.log.use_reserve():
            core.log.stage_control(topic.id, FrameType.LEASES, topic.next_seq - 1, core.clock.now_ms(), payload)

    def _ask(self, note: JobsMove, copies: list[RowRecord]) -> None:
        """Send the order. copies: none call the move off."""
        self._has_called_off |= not copies
        order = MoveOrder(note.dead_letter, note.token, note.number, note.mark, copies)
        self._owner.orders.ask(self._topic.name, order, self._on_copied)

    def _on_copied(self, result: object) -> None:
        self._end_turn()  # what is left may wait for routers out of the queue
        note, topic = self.note, self._topic
        if self._owner.has_stopped:
            return
        if topic.life is Life.GONE:
            self._end(None)
        elif isinstance(result, NotAppended) or (
            isinstance(result, Superseded) and note is not None and topic.config.dead_letter != note.dead_letter
        ):
            self._take_back()
        elif isinstance(result, Superseded):
            self._name_anew()
        else:
            super()._on_copied(result)

    def _name_anew(self) -> None:
        """Note the move with another token, and send it: the queue was put back to an earlier time.

        Its jobs may have been copied by what it was. Without their copies they would be lost. Or it
        was called off, and the queue names that topic again.
        """
        note = self.note
        assert note is not None, "it was sent"
        if not self._has_called_off:
            _log.warning(
                "queue %s was put back to an earlier time: jobs that are moved to %s may be there already",
                *(self._topic.name, note.dead_letter),
            )

        def on_noted(error: TopicsError | None) -> None:
            if error is not None:
                self.note = self._leases.move = note
                self._give_up(error)
            else:
                self._end_turn()
                self.begin()

        self._state(self._draw(), 1, note.dead_letter, on_noted)

    def _take_back(self) -> None:
        """Make them ordinary jobs again, which may go to another topic: none of them was copied."""
        topic = self._topic
        if topic.stage_class != "ephemeral":
            try:
                self._log(NO_MOVE)
                Notice(self._core, topic, _ignore).stage(synced=False)
            except TopicsError as error:
                self._give_up(error)
                return
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self._leases.release(job)
        self.note = self._leases.move = None  # the next one has another token
        self._end(None)

    def _let_claims_go(self, error: TopicsError | None) -> None:
        """Let the claims continue that found the jobs, without those that are not noted."""
        rest, self._rest = self._rest, []
        for job in rest:
            self._leases.release(job)
        self._stop_timer()
        then, self._then = self._then, _ignore
        then(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, error: TopicsError) -> None:
        """Try again later: the copies may be there."""
        self._end_turn()
        if not self.is_noted:
            self._end_note()
            self._stop_timer()
            super()._give_up(error)
            return
        if self._topic.life is Life.GONE:
            self._end(None)
            return
        self._let_claims_go(error)
        self._owner.fail(self._topic)
        pauses = min(self._pauses, _PAUSES_MAX)
        self._pauses = 2 * pauses
        self._tries += 1
        if not self._tries & (self._tries - 1) and self.note is not None:  # ever more rarely
            _log.warning(
                "%d jobs of queue %s are not moved to its dead-letter topic %s yet, after try %d: %s",
                *(len(self._jobs), self._topic.name, self.note.dead_letter, self._tries, error),
            )
        retry_ms = self._owner.core.config.router_retry_ms
        pause_ms = min(pauses * retry_ms, max(retry_ms, _PAUSE_MAX_MS))
        self._core.loop.call_later(pause_ms * 1_000_000, self.begin)

    def _delete(self) -> None:
        if not self._owner.has_stopped:
            super()._delete()

    def _on_deleted(self, result: AckResult | TopicsError) -> None:
        if isinstance(result, TopicsError):  # they were released
            for job in self._jobs:
                self._leases.move_on(job)
            self._give_up(result)
        else:
            super()._on_deleted(result)

    def _end(self, error: TopicsError | None) -> None:
        self._end_reading()
        self._end_turn()
        self._end_note()
        self._stop_timer()
        super()._end(error)
        if self.is_noted and self._topic.life is not Life.GONE:
            wake(self._core, self._topic)  # claims may find jobs that are moved next

    def _end_turn(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.end()

    def _end_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._owner.reads.end()

    def _end_note(self) -> None:
        """Let the next move begin: the jobs of this one are gone, or it has sent nothing."""
        note = self.note
        if note is not None:
            self._leases.move = JobsMove(note.token, note.number, note.mark, note.dead_letter, [])
        self._owner.begin_next(self._topic)


def _ignore(_error: TopicsError | None) -> None:
    """Ignore the end: no claim waits for it."""
