"""Shared reads: the results of a loop pass, rendered once for many readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from topics.engine.read.read_pass import ReadCore, ReadPass
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.topic import Life, Topic
from topics.engine.values.node_set import NO_NODES, node_count, node_names
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.engine.write.retention import is_expired
from topics.errors import TopicsError

T = TypeVar("T")
State = tuple[object, ...]
PlainRead = Callable[[Topic, DiffQuery], DiffResult | None]

_MANY_WAITERS = 4
"""Number of waiters from which one read without a node filter serves those with one."""
_FEW_NODES = 4
"""Most nodes of a filter, for each of which the records are searched."""
_PLAIN_NODE = re.compile(rb"[A-Za-z0-9._:@/ -]*")
"""Node names that JSON does not escape."""
_BYTES_A_READ, _NAMES_BYTES = 12_288, 16
"""Part of the loop's budget for reads that a read takes which is not shared.

It takes some 40 us, as much as rendering this many bytes, and one more for so many bytes of names.
"""
_KEPT_BYTES, _KEPT_RESULTS = 16 << 20, 64
"""Bounds of the results held between passes for waiting readers; the last used ones are held."""
_BEGIN, _BETWEEN = b'{"$seq":', b',{"$seq":'
_NODE = b'"$node":"'


class SharedReads:
    """Results shared by readers at the same cursor of a topic with equal queries, rendered once.

    Readers whose queries differ only in the node filter share, too: in a room where all readers
    leave out their own records, most get the same, and the filtered frames are cut from it. The
    loop's pass ends with `clear`, or with `trim` while readers wait for their turn.
    """

    def __init__(self, core: ReadCore, plain: PlainRead) -> None:
        """plain: returns the result of a read that needs only the index and memory, or None."""
        self._core = core
        self._plain = plain
        self._results: dict[tuple[object, ...], DiffResult] = {}
        self._derived: dict[tuple[int, Hashable], tuple[DiffResult, Any]] = {}

    @property
    def turns(self) -> ReadTurns:
        """The budget of the pass, of which each read takes its part."""
        return self._core.turns

    def read(self, topic: Topic, query: DiffQuery, done: Done[DiffResult], seen: int = 0) -> ReadPass | None:
        """Read as `ReadPass`. Return None if `done` was called with a shared result."""
        # A read sees changes of a topic only if one of these values changes.
        state = (topic.head, topic.index.deaths, topic.floors.lost, topic.config.dedupe_node)
        key = (topic, query, *state)
        found = self._results.get(key)
        if topic.life is Life.GONE or is_expired(topic, self._core.clock.now_ms()):
            found = None
        elif found is not None:
            self._results[key] = self._results.pop(key)  # moved to the end of the order of use
            self._core.turns.spend(found.held_bytes)
        else:
            found = self._plain(topic, query)
            if found is None and _may_share(topic, query, len(self._core.turns)):
                found = self._from_unfiltered(topic, query, state)
                if found is not None:
                    self._core.turns.spend(found.held_bytes)
            if found is not None:
                self._results[key] = found
        if found is not None:
            done(found)
            return None

        def keep(result: DiffResult | TopicsError) -> None:
            self._keep(key, state, result)
            done(result)

        self._core.turns.spend(_BYTES_A_READ + len(query.nodes) // _NAMES_BYTES)
        reading = ReadPass(self._core, topic, query, keep, seen)
        reading.begin()
        return reading

    def read_apart(self, topic: Topic, query: DiffQuery) -> DiffResult | None:
        """Return the result of a read that no other reader shares; None if it is not plain."""
        if topic.life is Life.GONE or is_expired(topic, self._core.clock.now_ms()):
            return None
        return self._plain(topic, query)

    def _keep(self, key: State, state: State, result: DiffResult | TopicsError) -> None:
        if isinstance(result, DiffResult) and result.head_seq == state[0]:
            self._results[key] = result

    def _from_unfiltered(self, topic: Topic, query: DiffQuery, state: State) -> DiffResult | None:
        """Return the result for a node filter, cut from the one without it; or None."""
        plain = query._replace(nodes=NO_NODES)
        key = (topic, plain, *state)
        found = self._results.get(key)
        if found is not None:
            self._results[key] = self._results.pop(key)
        else:
            ReadPass(self._core, topic, plain, lambda result: self._keep(key, state, result)).begin()
            found = self._results.get(key)  # None if it waits for the disk
        if found is None or not topic.config.dedupe_node:
            return found
        nodes = node_names(query.nodes)
        if not all(map(_PLAIN_NODE.fullmatch, nodes)):
            return None
        if not any(_NODE + node + b'"' in found.records for node in nodes):
            # If it met its budget of bytes, left-out records may have used some of it (R-NODE-3).
            return found if found.caught_up or found.count == query.limit else None
        result = found
        rows = self.derive(result, "rows", lambda: _rows(result))
        # If it ended before the head, it might have read further instead of the left-out records.
        return _without(result, rows, nodes) if rows is not None and result.caught_up else None

    def derive(self, result: DiffResult, kind: Hashable, make: Callable[[], T]) -> T:
        """Return `make()`, called once for a result and a kind in this pass."""
        key = id(result), kind
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = result, make()  # the held result keeps its id unique
        made: T = found[1]
        return made

    def trim(self) -> None:
        """Hold the results used last, up to a bound, for equal reads in the next pass."""
        self._derived.clear()
        room = _KEPT_BYTES
        for number, (key, result) in enumerate(reversed(list(self._results.items()))):
            room -= result.held_bytes
            if number and (room < 0 or number >= _KEPT_RESULTS):
                del self._results[key]

    def clear(self) -> None:
        if self._results or self._derived:
            self._results.clear()
            self._derived.clear()


def _may_share(topic: Topic, query: DiffQuery, queued: int) -> bool:
    """Return whether a reader with a node filter is near the head, as others probably are.

    queued: reads that wait for their turn; those that this topic has woken wait for it no longer.
    """
    if query.bytes_apart or query.only_nodes or query.match is not None:
        return False  # the payloads would have to be cut, too; most records would be
    is_near = 0 <= topic.head - query.from_seq <= query.limit
    return is_near and 0 < node_count(query.nodes) <= _FEW_NODES and len(topic.waiters) + queued >= _MANY_WAITERS


def _rows(result: DiffResult) -> list[tuple[bytes, bytes]] | None:
    """Return each record's node (as JSON spells it) and text without its first bytes.

    None if the data of a record looks like the start of another.
    """
    parts = result.records[len(_BEGIN) :].split(_BETWEEN)
    if len(parts) != result.count:
        return None
    rows = []
    for part in parts:
        third = part.split(b",", 2)[-1]  # after $seq and $ts, if there are more fields
        node = third[len(_NODE) : third.index(b'"', len(_NODE))] if third.startswith(_NODE) else b"\0"
        rows.append((node, part))
    return rows


def _without(result: DiffResult, rows: list[tuple[bytes, bytes]], nodes: tuple[bytes, ...]) -> DiffResult:
    kept = [part for node, part in rows if node not in nodes]
    records = _BEGIN + _BETWEEN.join(kept) if kept else b""
    return result._replace(records=records, count=len(kept))
