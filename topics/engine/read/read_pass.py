"""One read from a cursor: up to a limit of records, at one instant.

Source: wire contract 7.6, R-TOMB, R-NODE, R-MATCH.

Head, E, tombstone and rows are taken before any bytes are read. Hot records answer before `begin`
returns; cold ones when their reads complete. Long polls and streams repeat such reads after a
change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.config import Config
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.index.tagged_rows import tagged_rows
from topics.engine.read.begin_cursor import begin_cursor
from topics.engine.read.frame_read import FrameRead, with_topic
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state import refusals
from topics.engine.state.tombstones import ReadEntry, enter
from topics.engine.state.topic import Life, Topic
from topics.engine.values.node_set import NO_NODES
from topics.engine.values.ports import ReaderPort
from topics.engine.values.read_bounds import fitting
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.engine.write.retention import ExpiryCore, when_retained
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.format.file_table import FileTable
from topics.store.format.log_format import FLAG_NODE
from topics.store.read.render_json import JsonRenderer

_RECORD_COST = 100
"""Cost of a record that a filter by nodes reads, in records whose tags are looked at."""
_LOOK_COST = 4
"""Bytes whose rendering takes as long as to look whether one record has a node."""
_ROUND_SLOTS = 1024
_ROUND_BYTES = 65_536
"""Least bytes read in a round with a filter, even with a smaller budget of the reader."""
_LONG_BYTES = 1 << 20
"""Most bytes of frames in a round without a filter, one record at least: some 2 ms."""


class ReadCore(ExpiryCore, Protocol):
    """The part of the core that a read needs."""

    clock: Clock
    config: Config
    files: FileTable
    reader: ReaderPort
    turns: ReadTurns


class Renderer(Protocol):
    """The collector of the rows that a read delivers."""

    @property
    def count(self) -> int:
        """Number of records delivered so far."""

    @property
    def size(self) -> int: ...

    @property
    def full(self) -> bool:
        """Whether a bound was reached; rows not examined by the last `add` are left for later."""

    def add(
        self,
        data: memoryview,
        base: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        seqs: NDArray[np.uint64],
    ) -> int:
        """Add rows, see `JsonRenderer.add`. Return how many were examined."""

    def records(self) -> bytes: ...


class ReadPass:
    """One pass over a topic.

    query: clamped. seen: seq up to which an earlier pass found no record that passes the reader's
    filter. done: called once, unless cancelled; gets topic_not_found when the topic is gone.
    """

    _frames: Callable[[ReaderPort, Topic, SelectedRows], FrameRead] = FrameRead

    def __init__(self, core: ReadCore, topic: Topic, query: DiffQuery, done: Done[DiffResult], seen: int = 0) -> None:
        self._core = core
        self._topic = topic
        self._query = query
        self._done: Done[DiffResult] | None = done
        self._seen = seen
        self._entry = ReadEntry(None, 0, 0)
        self._head = 0
        self._earliest = 0
        self._cursor = 0
        self._scanned = 0
        self._room = core.config.max_filter_records
        """The cost that filters may still cause."""
        self._through = 0
        """The seq up to which this round has decided which records come."""
        self.from_seq = 0
        """The cursor that the read began at."""
        self._most = 0
        """The last seq that is delivered; 0: up to the head."""
        self._renderer: Renderer | None = None
        self._cold: set[int] = set()
        """Files of the cold directory that were read."""
        self._in_round = False
        self._more = False
        self._held = 0
        """The bytes of the answer, if it is read in several turns (`ReadTurns.hold`)."""

    def into(self, renderer: Renderer) -> ReadPass:
        """Collect the records, as columns for instance, instead of rendering JSON.

        Only for a query without nodes, whose bounds are then the only ones.
        """
        assert not self._query.nodes, "only JSON is filtered"
        self._renderer = renderer
        return self

    def upto(self, seq: int) -> ReadPass:
        """Deliver no record above `seq`."""
        self._most = seq
        return self

    def begin(self) -> None:
        when_retained(self._core, self._topic, self._core.clock.now_ms(), self._on_retained)

    @property
    def is_over(self) -> bool:
        """Whether `done` was called, or will not be."""
        return self._done is None

    def cancel(self) -> None:
        """Give up the result."""
        self._done = None
        self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held, 0
        if held:
            self._core.turns.let_go(held)

    def _answer(self, result: DiffResult | TopicsError) -> None:
        done, self._done = self._done, None
        self._let_go()
        if done is not None:
            done(result)

    # --- the instant -------------------------------------------------------------------------------------------------
    def _on_retained(self, error: TopicsError | None) -> None:
        topic, query = self._topic, self._query
        if self._done is None:
            return
        if topic.life is Life.GONE:
            self._answer(refusals.topic_not_found(topic.name))
            return
        if error is not None:
            self._answer(error)
            return
        self._head, self._earliest = topic.head, topic.earliest
        begin = query.begin
        self.from_seq = query.from_seq if begin is None else begin_cursor(self._core.turns, topic, begin)
        entry = self._entry = enter(topic.floors, self.from_seq, self._head, self._earliest, topic.index.next_live)
        if 0 < self._most < entry.stop:
            self._entry = entry._replace(stop=self._most)
        seen = 0 if self._entry.tombstone or not topic.config.dedupe_node else self._seen
        self._cursor = max(self._entry.cursor, seen)
        self._read_on()

    # --- rounds ------------------------------------------------------------------------------------------------------
    def _read_on(self) -> None:
        """Make rounds, in a loop without nesting, until one waits for the disk or all is read."""
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
        """Make the next round: rows to deliver, up to the limit.

        Without a node filter it is the only one, unless the records are long.
        """
        query, topic = self._query, self._topic
        if topic.floors.lost > self._cursor:
            # evicted past the cursor between two rounds: the next read reports the loss
            self._finish()
            return
        filtered = bool(query.nodes) and (query.only_nodes or topic.config.dedupe_node)
        count, size = self._delivered
        rows = self._next_rows(_ROUND_SLOTS if filtered else query.limit - count)
        if filtered and query.only_nodes:
            self._room -= len(rows.seqs)
            self._core.turns.spend(_LOOK_COST * len(rows.seqs))
            rows = rows.rows((rows.flags & FLAG_NODE) != 0)
        if not len(rows.seqs):
            self._cursor = max(self._cursor, self._through)
            self._end_round(filtered)
            return
        is_first = self._renderer is None
        if filtered and is_first and not (rows.flags & FLAG_NODE).any() and len(rows.seqs) < _ROUND_SLOTS:
            filtered = False
            rows = self._cut(rows, query.limit)
        if filtered:
            rows = self._cut(rows, fitting(rows.lengths, 2 * max(query.max_batch_bytes, _ROUND_BYTES)))
            cost = _RECORD_COST * len(rows.seqs)
            self._room -= cost
            self._core.turns.spend(cost)  # as if it rendered so many bytes
        elif len(rows.seqs) > 1:
            rows = self._cut(rows, fitting(rows.sizes, max(query.max_batch_bytes - size, 0)))
        whole = rows
        if not query.nodes and query.match is None and (is_first or isinstance(self._renderer, JsonRenderer)):
            rows = self._cut(rows, fitting(rows.lengths, _LONG_BYTES))
        if is_first:
            if not self._has_room(query.max_batch_bytes if filtered else int(whole.lengths.sum(dtype=np.uint64))):
                return
            self._renderer = self._json(query.nodes if filtered else NO_NODES, whole)
        self._fetch(rows, filtered or len(rows.seqs) < len(whole.seqs))

    def _has_room(self, size: int) -> bool:
        """Return whether there is room for an answer of so many bytes; else it begins later."""
        if size <= _LONG_BYTES or self._held:
            return True
        if not self._core.turns.hold(size, partial(self._on_room, size)):
            return False
        self._held = size
        return True

    def _on_room(self, size: int) -> None:
        """Begin anew: much may have changed meanwhile."""
        self._held = size
        if self._done is None:
            self._let_go()
        else:
            self._scanned, self._room = 0, self._core.config.max_filter_records
            self.begin()

    @property
    def _delivered(self) -> tuple[int, int]:
        """Records of earlier rounds, and their bytes as the budget counts them."""
        renderer = self._renderer
        return (renderer.count, renderer.size) if isinstance(renderer, JsonRenderer) else (0, 0)

    def _json(self, nodes: bytes, rows: SelectedRows) -> JsonRenderer:
        """Return the renderer of a read that begins with these rows."""
        query = self._query
        renderer = JsonRenderer(
            self._topic.id,
            limit=query.limit,
            budget=query.max_batch_bytes,
            nodes=nodes,
            only_nodes=query.only_nodes,
            include_tags=query.include_tags,
            include_meta=query.include_meta,
            include_data=query.include_data,
            bytes_apart=query.bytes_apart,
        )
        renderer.expect(int(rows.lengths.sum(dtype=np.uint64)))
        return renderer

    def _fetch(self, rows: SelectedRows, goes_on: bool) -> None:
        """Fetch the rows of a round. goes_on: another one may come after it."""
        read = self._frames(self._core.reader, self._topic, rows)
        self._core.turns.spend(read.size)
        if self._core.config.cold_dir:
            files, prefetched = self._core.files, self._core.reader.is_prefetched
            cold = [piece for piece in read.pieces if files[piece.file_id].cold]
            self._cold.update(piece.file_id for piece in cold if not prefetched(piece))
        read.begin(lambda fetched: self._on_fetched(fetched, goes_on))

    def _next_rows(self, most: int) -> SelectedRows:
        """Return the next rows whose tags match; note how far the search came."""
        query, topic, stop = self._query, self._topic, self._entry.stop
        if query.match is None:
            rows = topic.index.select(self._cursor, stop, most)
            self._through = int(rows.seqs[-1]) if len(rows.seqs) == most else stop
            return rows
        rows, self._through, looked, cost = tagged_rows(
            topic.index, query.match, self._cursor, stop, limit=most, room=self._room
        )
        self._scanned += looked
        self._room -= cost
        self._core.turns.spend(cost)  # as if it rendered so many bytes, which takes as long
        return rows

    def _cut(self, rows: SelectedRows, most: int) -> SelectedRows:
        """Return the first `most` rows; the others come in a later round or read."""
        if len(rows.seqs) <= most:
            return rows
        self._through = int(rows.seqs[most - 1])
        return rows.rows(slice(most))

    def _end_round(self, goes_on: bool) -> None:
        """Make another round if there may be more to deliver, and the filter may cost more."""
        is_full = self._renderer is not None and self._renderer.full
        if goes_on and not is_full and self._room > 0 and self._cursor < self._entry.stop:
            self._core.turns.take(self._on_turn)
        else:
            self._finish()

    def _on_turn(self) -> None:
        if self._done is None:
            return
        if self._topic.life is Life.GONE:
            self._answer(refusals.topic_not_found(self._topic.name))
        else:
            self._read_on()

    def _on_fetched(self, read: FrameRead | StorageError, goes_on: bool) -> None:
        topic, renderer = self._topic, self._renderer
        if self._done is None or renderer is None:
            return
        if topic.life is Life.GONE:
            self._answer(refusals.topic_not_found(topic.name))
            return
        if isinstance(read, StorageError):
            self._answer(read)
            return
        if read.is_doubtful():
            self._begin_again()
            return
        try:
            for (data, base, rows), last in read.surviving():
                if len(rows.seqs):
                    examined = renderer.add(data, base, rows.offsets, rows.lengths, rows.seqs)
                    self._scanned += examined if self._query.match is None else 0
                    if examined:
                        self._cursor = int(rows.seqs[examined - 1])
                if renderer.full:
                    break
                self._cursor = last
            else:
                self._cursor = max(self._cursor, self._through)
        except CorruptError as error:
            self._answer(with_topic(topic, error, read))
            return
        self._end_round(goes_on)

    def _begin_again(self) -> None:
        """Repeat the read as of now: losses are reported, and deleted records are left out."""
        if isinstance(self._renderer, JsonRenderer):
            self._renderer, self._scanned = None, 0
            self._room = self._core.config.max_filter_records
        self._on_retained(None)

    def _finish(self) -> None:
        entry, renderer = self._entry, self._renderer
        if self._cursor < entry.stop and self._topic.floors.lost <= self._cursor:
            following = self._topic.index.next_live(self._cursor + 1)
            if not following or following > entry.stop:
                self._cursor = entry.stop  # only deleted records are left
        self._answer(
            DiffResult(
                renderer.records() if renderer is not None else b"",
                renderer.count if renderer is not None else 0,
                self._cursor,
                self._head,
                self._earliest,
                entry.tombstone,
                self._scanned,
                len(self._cold),
                renderer.size if renderer is not None else 0,
                renderer.payloads if isinstance(renderer, JsonRenderer) else (),
            )
        )
