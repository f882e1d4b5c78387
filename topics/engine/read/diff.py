"""Reads from a cursor, with or without waiting. Source: wire contract 7.6.

A long poll is one read repeated after every change, until it has records to deliver or its time has
passed.
"""

from __future__ import annotations

from typing import Protocol

from topics.engine.read.chosen_read import ChoosingPass
from topics.engine.read.consumption import mark_read
from topics.engine.read.read_pass import ReadCore, ReadPass
from topics.engine.read.shared_reads import PlaceAtRead, SharedReads
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import CatchUpFirst
from topics.engine.values.ports import LoopPort, TimerPort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.errors import TopicsError
from topics.store.read.lender import Lender

_BYTES_A_LOOK = 12_288
"""Share of a pass's budget for reads that a woken reader's check and answer cost, besides records.

They take some 30 us, as much time as rendering this many bytes.
"""


class DiffCore(ReadCore, Protocol):
    """The part of the core that a diff needs."""

    bounds: ReadBounds
    closing: bool
    loop: LoopPort


class Diff:
    """One diff in progress. `cancel` may be called at any time."""

    def __init__(  # noqa: PLR0917 - one call a request
        self,
        core: DiffCore,
        reads: SharedReads,
        catch_up: CatchUpFirst,
        topic: Topic,
        query: DiffQuery,
        done: Done[DiffResult],
        lender: Lender | None = None,
    ) -> None:
        """lender: the answer is a `ChosenResult`; only for a query without a filter by nodes."""
        self._core = core
        self._lender = lender
        self._reads = reads
        self._catch_up = catch_up
        self._topic = topic
        self._wait_ms = core.bounds.wait_ms(query.wait_ms)
        self._query = core.bounds.one_pass(query)
        self._done: Done[DiffResult] | None = done
        self._reading: ReadPass | PlaceAtRead | None = None
        self._timer: TimerPort | None = None
        self._expiry: TimerPort | None = None
        """Timer, while parked, of the first hidden record's expiry, which is a tombstone."""
        self._final = not self._wait_ms
        """Whether the next result is the answer, even without records."""
        self._seen = query.from_seq
        """Seq up to which a long poll has found no record that passes its filter."""

    def begin(self) -> None:
        """Read for the first time; mark the topic read (R-PRI-4)."""
        topic = self._topic
        mark_read(topic, self._core.clock.now_ms())
        if self._core.closing:
            self._final = True
        if not self._final:
            self._timer = self._core.loop.call_later(self._wait_ms * 1_000_000, self._on_deadline)
        self._catch_up(topic, self._take_turn)

    def _take_turn(self) -> None:
        self._core.turns.take(self._look)

    def _look(self) -> None:
        if self._done is None:
            return
        lender = self._lender
        if lender is not None:
            self._reading = ChoosingPass(lender, self._core, self._topic, self._query, self._on_read)
            self._reading.begin()
        elif (found := self._reads.read_apart(self._topic, self._query)) is not None:
            self._on_read(found)
        else:
            self._reading = ReadPass(self._core, self._topic, self._query, self._on_read)
            self._reading.begin()

    def cancel(self) -> None:
        """Give up the answer."""
        self._done = None
        if self._reading is not None:
            self._reading.cancel()
        self._leave()

    def _leave(self) -> None:
        self._unpark()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer(self, result: DiffResult | TopicsError) -> None:
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(result)

    # --- waiting -----------------------------------------------------------------------------------------------------
    def look_again(self) -> None:
        """Read again, in a turn of the pass's reads.

        Thousands may wait for one topic, for large answers.
        """
        self._unpark()
        self._core.turns.take(self._look_among_others)

    def _look_among_others(self) -> None:
        if self._lender is not None:
            self._look()
        elif self._done is not None:
            self._core.turns.spend(_BYTES_A_LOOK)
            self._reading = self._reads.read(self._topic, self._query, self._on_read, self._seen)

    def on_topic_gone(self) -> None:
        """Answer in a turn, too: a look at a topic that is gone finds that."""
        self.look_again()

    def on_shutdown(self) -> None:
        self._on_deadline()

    def _on_deadline(self) -> None:
        """Answer with the next result."""
        self._final = True
        if self in self._topic.waiters:
            self.look_again()

    def _park(self, head: int) -> None:
        """Wait for a change after `head`, unless one (perhaps a loss) came during the read."""
        self._seen = head
        topic = self._topic
        # a read from a time gets the losses after its first record
        hears_of_losses = self._query.begin is None
        if topic.head != head or (hears_of_losses and _has_lost(topic, self._query.from_seq)):
            self.look_again()
            return
        topic.waiters[self] = None
        hidden = topic.index.next_live(self._query.from_seq + 1) if hears_of_losses and topic.expires else 0
        # no other reader may ask when it expires, and this one has to get the loss
        if 0 < hidden <= topic.held:
            end_ms = _next_end_ms(topic, hidden)
            left_ms = self._wait_ms if end_ms is None else end_ms + 1 - self._core.clock.now_ms()
            if left_ms < self._wait_ms:
                self._expiry = self._core.loop.call_later(max(left_ms, 1) * 1_000_000, self.look_again)

    def _unpark(self) -> None:
        self._topic.waiters.pop(self, None)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _on_read(self, result: DiffResult | TopicsError) -> None:
        if self._done is None:
            return
        final = self._final or self._core.closing
        if final or not isinstance(result, DiffResult) or result.count or result.tombstone or not result.caught_up:
            self._answer(result)
        else:
            self._settle_beginning()
            self._park(result.head_seq)

    def _settle_beginning(self) -> None:
        """Wait from the cursor that the first look found; a time is found again at each look."""
        query, first = self._query, self._reading
        if query.begin is not None and query.begin.kind != "time":
            assert first is not None, "a look made this result"
            self._query = query._replace(from_seq=first.from_seq, begin=None)


def _next_end_ms(topic: Topic, seq: int) -> int | None:
    """Return a time (ms) up to which no live record from `seq` on expires; None: none does."""
    own = None if topic.expiries is None else topic.expiries.next_end()
    if not topic.config.ttl_ms:
        return own
    end = topic.index.ts_of(seq) + topic.config.ttl_ms
    return end if own is None else min(end, own)


def _has_lost(topic: Topic, cursor: int) -> bool:
    """Return whether records above the cursor were lost: a floor, or a gap."""
    floors = topic.floors
    last = floors.gaps.last
    return floors.lost > cursor or (last is not None and last.last > cursor)
