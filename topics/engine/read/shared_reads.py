"""One rendering for many readers: the results of a loop pass, and what is cut from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from topics.engine.read.read_pass import ReadPass
from topics.engine.state.topic import Life, Topic
from topics.engine.values.node_set import NO_NODES, node_count, node_names
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.engine.write.retention import expired_through
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.engine.shared.core import Core

T = TypeVar("T")
State = tuple[object, ...]

_MANY_WAITERS = 4
"""From so many on it pays to read once without a node filter for those with one."""
_FEW_NODES = 4
"""Of a filter: what was read is looked through for each of them. A client may name a thousand."""
_PLAIN_NODE = re.compile(rb"[A-Za-z0-9._:@/ -]*")
"""Spelled alike in JSON."""
_KEPT_BYTES, _KEPT_RESULTS = 16 << 20, 64
"""Of results, between passes, for those whose turn is still to come: the ones that were used last."""
_BEGIN, _BETWEEN = b'{"$seq":', b',{"$seq":'
_NODE = b'"$node":"'


class SharedReads:
    """Readers that stand at the same cursor of a topic and ask the same get the same bytes, rendered once.

    So do those that ask the same but for a node filter: in a room where everybody leaves out his own records, most hear
    the same, and the others' frames are cut from it. The loop's pass ends with `clear`, or with `trim` while readers
    wait for their turn.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._results: dict[tuple[object, ...], DiffResult] = {}
        self._derived: dict[tuple[int, Hashable], tuple[DiffResult, Any]] = {}

    def read(self, topic: Topic, query: DiffQuery, done: Done[DiffResult], seen: int = 0) -> ReadPass | None:
        """As `ReadPass`; None when `done` was called with a result that was there."""
        # What a read sees of a topic changes with these alone.
        state = (topic.head, topic.index.deaths, topic.floors.lost, topic.config.dedupe_node)
        key = (topic, query, *state)
        found = self._results.get(key)
        if topic.life is Life.GONE or expired_through(topic, self._core.clock.now_ms()):
            found = None
        elif found is None and _may_share(topic, query):
            found = self._from_unfiltered(topic, query, state)
            if found is not None:
                self._results[key] = found
        if found is not None:
            self._results[key] = self._results.pop(key)  # the last in the order of use
            self._core.turns.spend(len(found.records))
            done(found)
            return None

        def keep(result: DiffResult | TopicsError) -> None:
            self._keep(key, state, result)
            done(result)

        reading = ReadPass(self._core, topic, query, keep, seen)
        reading.begin()
        return reading

    def _keep(self, key: State, state: State, result: DiffResult | TopicsError) -> None:
        if isinstance(result, DiffResult) and result.head_seq == state[0]:
            self._results[key] = result

    def _from_unfiltered(self, topic: Topic, query: DiffQuery, state: State) -> DiffResult | None:
        """The result without the node filter, read once for all, less what the filter leaves out."""
        plain = query._replace(nodes=NO_NODES)
        key = (topic, plain, *state)
        found = self._results.get(key)
        if found is None:
            ReadPass(self._core, topic, plain, lambda result: self._keep(key, state, result)).begin()
            found = self._results.get(key)  # unless it waits for the disk
        if found is None or not topic.config.dedupe_node:
            return found
        nodes = node_names(query.nodes)
        if not all(map(_PLAIN_NODE.fullmatch, nodes)):
            return None
        if not any(_NODE + node + b'"' in found.records for node in nodes):
            # One that met its budget of bytes may have met it in what is left out (R-NODE-3).
            return found if found.caught_up or found.count == query.limit else None
        result = found
        rows = self.derive(result, "rows", lambda: _rows(result))
        # One that ended before the head might have gone on to others instead of what is left out.
        return _without(result, rows, nodes) if rows is not None and result.caught_up else None

    def derive(self, result: DiffResult, kind: Hashable, make: Callable[[], T]) -> T:
        """`make()`, once for a result and a kind in this pass."""
        key = id(result), kind
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = result, make()  # holding the result keeps its id its own
        made: T = found[1]
        return made

    def trim(self) -> None:
        """Keeps the results that were used last, up to a bound, for readers that ask the same in the next pass."""
        self._derived.clear()
        room = _KEPT_BYTES
        for number, (key, result) in enumerate(reversed(list(self._results.items()))):
            room -= len(result.records)
            if number and (room < 0 or number >= _KEPT_RESULTS):
                del self._results[key]

    def clear(self) -> None:
        if self._results or self._derived:
            self._results.clear()
            self._derived.clear()


def _may_share(topic: Topic, query: DiffQuery) -> bool:
    """A reader with a node filter that has nearly caught up: others probably stand there, too."""
    is_near = 0 <= topic.head - query.from_seq <= query.limit
    return is_near and 0 < node_count(query.nodes) <= _FEW_NODES and len(topic.waiters) >= _MANY_WAITERS


def _rows(result: DiffResult) -> list[tuple[bytes, bytes]] | None:
    """(node as JSON spells it, the record without its first bytes) of each; None when data looks like records."""
    parts = result.records[len(_BEGIN) :].split(_BETWEEN)
    if len(parts) != result.count:
        return None
    rows = []
    for part in parts:
        third = part.split(b",", 2)[-1]  # behind $seq and $ts, where there is more than those
        node = third[len(_NODE) : third.index(b'"', len(_NODE))] if third.startswith(_NODE) else b"\0"
        rows.append((node, part))
    return rows


def _without(result: DiffResult, rows: list[tuple[bytes, bytes]], nodes: tuple[bytes, ...]) -> DiffResult:
    kept = [part for node, part in rows if node not in nodes]
    records = _BEGIN + _BETWEEN.join(kept) if kept else b""
    return result._replace(records=records, count=len(kept))
