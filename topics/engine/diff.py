"""Reading from a cursor, with or without waiting. Source: wire contract 7.6, R-TOMB, R-NODE.

One answer comes from one instant: head, E, tombstone and rows are taken before anything is read. Hot records answer
before `diff` returns; cold ones when their reads are back. A long poll is the same read done again after a change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.config import Config
from topics.engine import refusals
from topics.engine.core import Core
from topics.engine.floors import Entry, enter
from topics.engine.index import Selection
from topics.engine.pieces import Plan, plan_pieces
from topics.engine.ports import Timer
from topics.engine.results import DiffQuery, DiffResult, Done
from topics.engine.retention import when_retained
from topics.engine.topic import Life, Topic
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.format import FLAG_NODE
from topics.store.projection import Projection
from topics.store.reader import Fetched

SLOTS_MAX = 10_000
"""Slots one read with a node filter examines at most (R-NODE-3)."""
_ROUND_SLOTS = 1024
_ROUND_BYTES = 65_536
"""A round with a filter reads this much at least, however small the reader's budget."""


class Diff:
    """One read in progress. `cancel` may be called at any time."""

    def __init__(self, core: Core, topic: Topic, query: DiffQuery, done: Done[DiffResult]) -> None:
        self._core = core
        self._topic = topic
        self.query = query = _clamped(query, core.config)
        self._done: Done[DiffResult] | None = done
        self.answered: DiffResult | TopicsError | None = None
        self._timer: Timer | None = None
        self._expiry: Timer | None = None
        """While parked: when the first record that the filter hides becomes a tombstone."""
        self._final = not query.wait_ms
        """The next result is the answer, whatever it is."""
        self._seen = query.from_seq
        """A long poll has looked at everything up to here and found nothing deliverable to its filter."""
        # --- of the look in progress
        self._entry = Entry(None, 0, 0)
        self._head = 0
        self._earliest = 0
        self._cursor = 0
        self._scanned = 0
        self._deaths = 0
        """The index's when the round was planned."""
        self._projection: Projection | None = None
        self._in_round = False
        self._more = False

    def begin(self) -> None:
        """The first look; marks the topic read (R-PRI-4)."""
        topic = self._topic
        topic.last_read_ms = topic.consumed_ms = self._core.clock.now_ms()
        if self._core.closing:
            self._final = True
        if not self._final:
            delay_ns = self.query.wait_ms * 1_000_000
            self._timer = self._core.loop.call_later(delay_ns, self.on_deadline)
        self._core.catch_up(topic, self.look)

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self._done = None
        self._leave()

    def _leave(self) -> None:
        self._unpark()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answer(self, result: DiffResult | TopicsError) -> None:
        """Ends the read."""
        self.answered = result
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(result)

    # --- waiting -----------------------------------------------------------------------------------------------------
    def on_deadline(self) -> None:
        """The time is over, or the server stops: the next result is the answer."""
        self._final = True
        if self in self._topic.waiters:
            self.look()

    def on_topic_gone(self) -> None:
        self.answer(refusals.topic_not_found(self._topic.name))

    def _park(self) -> None:
        """Nothing deliverable: wait for a change, unless one came during the look."""
        self._seen = self._head
        if self._topic.head != self._head:
            self.look()
            return
        self._topic.waiters[self] = None
        ttl_ms = self._topic.config.ttl_ms
        hidden = self._topic.index.next_live(self.query.from_seq + 1) if ttl_ms else 0
        if hidden:  # nobody else need ask when it expires, and its reader is to hear of the loss
            left_ms = self._topic.index.ts_of(hidden) + ttl_ms + 1 - self._core.clock.now_ms()
            if left_ms < self.query.wait_ms:
                self._expiry = self._core.loop.call_later(max(left_ms, 1) * 1_000_000, self.look)

    def _unpark(self) -> None:
        self._topic.waiters.pop(self, None)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # --- looking -----------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Answers, or waits for the next change."""
        self._unpark()
        when_retained(self._core, self._topic, self._core.clock.now_ms(), self._on_retained)

    def _on_retained(self, error: TopicsError | None) -> None:
        topic = self._topic
        if self._done is None:
            return
        if topic.life is Life.GONE:
            self.on_topic_gone()
            return
        if error is not None:
            self.answer(error)
            return
        query = self.query
        self._head, self._earliest = topic.head, topic.earliest
        self._entry = enter(topic.floors, query.from_seq, self._head, self._earliest)
        seen = 0 if self._entry.tombstone or not topic.config.dedupe_node else self._seen
        self._cursor = max(self._entry.cursor, seen)
        self._scanned = 0
        self._projection = None
        self._read_on()

    def _read_on(self) -> None:
        """Rounds, until one waits for the disk or there is an answer. The hot tail answers at once: without nesting."""
        self._more = True
        if self._in_round:
            return
        self._in_round = True
        try:
            while self._more:
                self._more = False
                self._round()
        finally:
            self._in_round = False

    def _round(self) -> None:
        """The next round: rows that may be delivered, up to the limit; one is enough without a node filter."""
        query, topic, stop = self.query, self._topic, self._entry.stop
        if topic.floors.lost > self._cursor:
            self._finish()  # eviction overtook us between two rounds: the next read tells what was lost
            return
        filtered = bool(query.nodes) and topic.config.dedupe_node
        rows = topic.index.select(self._cursor, stop, _ROUND_SLOTS if filtered else query.limit)
        if not len(rows.seqs):
            self._cursor = max(self._cursor, stop)
            self._finish()
            return
        if filtered and not self._scanned and not (rows.flags & FLAG_NODE).any() and len(rows.seqs) < _ROUND_SLOTS:
            filtered = False
            rows = rows.rows(slice(query.limit))
        budget = query.max_batch_bytes
        if filtered:
            rows = rows.rows(slice(_fitting(rows.lengths, 2 * max(budget, _ROUND_BYTES))))
        elif len(rows.seqs) > 1:
            rows = rows.rows(slice(_fitting(rows.sizes, budget)))
        if self._projection is None:
            self._projection = Projection(
                topic.id,
                limit=query.limit,
                budget=budget,
                nodes=query.nodes if filtered else (),
                include_tags=query.include_tags,
                include_meta=query.include_meta,
                include_data=query.include_data,
            )
        plan = plan_pieces(rows)
        self._deaths = topic.index.deaths
        self._core.reader.fetch(plan.pieces, lambda fetched: self._on_fetched(plan, fetched, filtered))

    def _on_fetched(self, plan: Plan, fetched: Fetched, filtered: bool) -> None:
        topic, projection = self._topic, self._projection
        if self._done is None or projection is None:
            return
        if topic.life is Life.GONE:
            self.on_topic_gone()
            return
        if isinstance(fetched, StorageError):
            self.answer(fetched)
            return
        try:
            for piece, view, rows in zip(plan.pieces, fetched, plan.rows, strict=True):
                kept = self._not_deleted(rows)
                if len(kept.seqs):
                    examined = projection.add(view, piece.offset, kept.offsets, kept.lengths, kept.seqs)
                    self._scanned += examined
                    if examined:
                        self._cursor = int(kept.seqs[examined - 1])
                if projection.full:
                    break
                self._cursor = int(rows.seqs[-1])
        except CorruptError as error:
            detail = {**(error.detail or {}), "topic": topic.name}
            detail.pop("topic_id", None)
            self.answer(CorruptError(f"topic {topic.name}: {error}", detail))
            return
        if filtered and not projection.full and self._scanned < SLOTS_MAX:
            self._read_on()
        else:
            self._finish()

    def _not_deleted(self, rows: Selection) -> Selection:
        """Without what was deleted while the bytes were read (R-DEL-7); what was evicted meanwhile stays."""
        if self._topic.index.deaths == self._deaths:
            return rows
        alive = self._topic.index.alive(rows.seqs)
        if alive.all():
            return rows
        return rows.rows(alive | (rows.seqs <= np.uint64(self._topic.floors.lost)))

    def _finish(self) -> None:
        entry, projection = self._entry, self._projection
        count = projection.count if projection is not None else 0
        if self._cursor < entry.stop and self._topic.floors.lost <= self._cursor:
            following = self._topic.index.next_live(self._cursor + 1)
            if not following or following > entry.stop:
                self._cursor = entry.stop  # only deleted ones are left
        caught_up = self._cursor == self._head
        final = self._final or self._core.closing
        if not (count or entry.tombstone or final) and caught_up:
            self._park()
            return
        self.answer(
            DiffResult(
                projection.records() if projection is not None else b"",
                count,
                self._cursor,
                self._head,
                self._earliest,
                entry.tombstone,
                self._scanned,
                0,
            )
        )


def _fitting(sizes: NDArray[np.uint32], budget: int) -> int:
    """How many of the first rows fit the budget, at least one."""
    sums = np.cumsum(sizes, dtype=np.uint64)
    return len(sums) if sums[-1] <= budget else max(1, int(np.searchsorted(sums, np.uint64(budget), "right")))


def look_again(topic: Topic) -> None:
    """The topic changed: its long polls look again. Those that asked the same get the same answer, rendered once."""
    answers: dict[DiffQuery, DiffResult] = {}
    for waiter in list(topic.waiters):
        shared = answers.get(waiter.query)
        if shared is not None:
            waiter.answer(shared)
            continue
        waiter.look()
        if isinstance(waiter.answered, DiffResult):
            answers[waiter.query] = waiter.answered


def _clamped(query: DiffQuery, config: Config) -> DiffQuery:
    """The bounds of 5.2; 0 is the default."""
    return query._replace(
        limit=min(query.limit or config.default_limit, config.max_limit),
        max_batch_bytes=min(query.max_batch_bytes or config.default_batch_bytes, config.max_batch_bytes),
        wait_ms=min(query.wait_ms, config.max_wait_ms),
    )
