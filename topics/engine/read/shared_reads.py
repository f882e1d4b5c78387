"""Shared reads: the results of a loop pass, rendered once for many readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from topics.engine.read.read_pass import ReadCore, ReadPass
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.topic import Life, Topic
from topics.engine.values.node_set import NO_NODES, has_node, node_count, node_names
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.engine.write.retention import is_expired
from topics.errors import TopicsError

T = TypeVar("T")
State = tuple[object, ...]
PlainRead = Callable[[Topic, DiffQuery], DiffResult | None]

_MANY_WAITERS = 4
"""Number of waiters from which one read without a node filter is made for those with one.

Reads that wait for their turn count, because those that this topic has woken wait for it no longer.
"""
_FEW_NODES, _MOST_PRESENT = 4, 16
"""Most nodes of a filter whose records are cut out of a result, and of a result that is searched
for those of a filter.
"""
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
        self._nodes: dict[int, tuple[DiffResult, frozenset[bytes] | None]] = {}
        """The nodes in results, which stay as long as these."""
        self._coming: dict[State, ReadForMany] = {}
        """Reads that wait for the disk or for a turn, by their keys."""

    @property
    def turns(self) -> ReadTurns:
        """The budget of the pass, of which each read takes its part."""
        return self._core.turns

    def read(
        self, topic: Topic, query: DiffQuery, done: Done[DiffResult], seen: int = 0
    ) -> ReadPass | PlaceAtRead | None:
        """Read as `ReadPass`. Return None if `done` was called with a shared result."""
        state = self.state_of(topic)
        key = (topic, query, *state)
        found = self._results.get(key)
        if topic.life is Life.GONE or is_expired(topic, self._core.clock.now_ms()):
            return self._begin(topic, query, done, seen)
        if found is not None:
            self._results[key] = self._results.pop(key)  # moved to the end of the order of use
            self._core.turns.spend(found.held_bytes)
        else:
            found = self._plain(topic, query)
            if found is None and _may_share(topic, query):
                part = self._from_unfiltered(topic, query, state)
                if isinstance(part, ReadForMany):
                    return part.enter(PartOfRead(self, AskedRead(topic, query, done, seen, state)))
                if part is not None:
                    self._core.turns.spend(part.held_bytes)
                found = part
            if found is not None:
                self._results[key] = found
        if found is not None:
            done(found)
            return None
        return self.read_own(AskedRead(topic, query, done, seen, state))

    def read_own(self, wanted: AskedRead) -> PlaceAtRead | None:
        """Read, unless the same read is in progress; keep the result for those who ask for it.

        Return None if `done` was called.
        """
        topic, query, done, seen, state = wanted
        key = (topic, query, *state)
        coming = self._coming.get(key)
        if coming is not None:
            return coming.enter(PlaceAtRead(self, wanted))

        def keep(result: DiffResult | TopicsError) -> None:
            self._keep(key, state, result)
            if coming is None:
                done(result)
            else:
                coming.end(result)

        reading = self._begin(topic, query, keep, seen)
        if reading.is_over:
            return None
        coming = self._coming[key] = ReadForMany(self._coming, key, reading, self._core.turns)
        return coming.enter(PlaceAtRead(self, wanted), is_first=True)

    def _begin(self, topic: Topic, query: DiffQuery, done: Done[DiffResult], seen: int) -> ReadPass:
        self._core.turns.spend(_BYTES_A_READ + len(query.nodes) // _NAMES_BYTES)
        reading = ReadPass(self._core, topic, query, done, seen)
        reading.begin()
        return reading

    @staticmethod
    def state_of(topic: Topic) -> tuple[int, int, int, bool]:
        """Return values of which one changes if a read would see a change of the topic."""
        return topic.head, topic.index.deaths, topic.floors.lost, topic.config.dedupe_node

    def read_apart(self, topic: Topic, query: DiffQuery) -> DiffResult | None:
        """Return the result of a read that no other reader shares; None if it is not plain."""
        if topic.life is Life.GONE or is_expired(topic, self._core.clock.now_ms()):
            return None
        return self._plain(topic, query)

    def _keep(self, key: State, state: State, result: DiffResult | TopicsError) -> None:
        if isinstance(result, DiffResult) and result.head_seq == state[0]:
            self._results[key] = result

    def _from_unfiltered(self, topic: Topic, query: DiffQuery, state: State) -> DiffResult | ReadForMany | None:
        """Return the result for a node filter, cut from the one without it; or None."""
        plain = query._replace(nodes=NO_NODES)
        key = (topic, plain, *state)
        found = self._results.get(key)
        if found is not None:
            self._results[key] = self._results.pop(key)
        elif key not in self._coming:
            if len(topic.waiters) + len(self._core.turns) < _MANY_WAITERS:
                return None
            coming: ReadForMany | None = None

            def keep(result: DiffResult | TopicsError) -> None:
                self._keep(key, state, result)
                if coming is not None:
                    coming.end(result)

            reading = ReadPass(self._core, topic, plain, keep)
            reading.begin()
            if not reading.is_over:
                coming = self._coming[key] = ReadForMany(self._coming, key, reading, self._core.turns)
            found = self._results.get(key)
        if found is None:
            return self._coming.get(key)  # if it waits for the disk
        return self.cut(topic, query, found)

    def cut(self, topic: Topic, query: DiffQuery, found: DiffResult) -> DiffResult | None:
        """Return the result for a node filter, cut from the one without it; or None."""
        if not topic.config.dedupe_node:
            return found
        present = self._nodes_of(found)
        if node_count(query.nodes) > _FEW_NODES:
            if present is None or not all(map(_PLAIN_NODE.fullmatch, present)):
                return None
            is_any, nodes = any(has_node(query.nodes, node) for node in present), None
        else:
            nodes = node_names(query.nodes)
            if not all(map(_PLAIN_NODE.fullmatch, nodes)):
                return None
            if present is None:
                is_any = any(_NODE + node + b'"' in found.records for node in nodes)
            else:
                is_any = not present.isdisjoint(nodes)
        if not is_any:
            # If it met its budget of bytes, left-out records may have used some of it (R-NODE-3).
            return found if found.caught_up or found.count == query.limit else None
        if nodes is None:
            return None
        result = found
        rows = self.derive(result, "rows", lambda: _rows(result))
        # If it ended before the head, it might have read further instead of the left-out records.
        return _without(result, rows, nodes) if rows is not None and result.caught_up else None

    def _nodes_of(self, result: DiffResult) -> frozenset[bytes] | None:
        """Return the nodes of a result's records, as JSON spells them; None: too many."""
        held = self._nodes.get(id(result))
        if held is None:
            held = self._nodes[id(result)] = result, _nodes_in(result.records)
        return held[1]

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
        if self._nodes:
            kept = set(map(id, self._results.values()))
            self._nodes = {number: held for number, held in self._nodes.items() if number in kept}

    def clear(self) -> None:
        if self._results or self._derived:
            self._results.clear()
            self._derived.clear()
            self._nodes.clear()


class AskedRead(NamedTuple):
    """A read, and the state of its topic when it was asked for."""

    topic: Topic
    query: DiffQuery
    done: Done[DiffResult]
    seen: int
    state: State


class PlaceAtRead:
    """A reader that waits for a read in progress, which asks for the same."""

    __slots__ = ("_coming", "_done", "_reading", "_reads", "_wanted", "from_seq")

    def __init__(self, reads: SharedReads, wanted: AskedRead) -> None:
        self._reads = reads
        self._wanted = wanted
        self._done: Done[DiffResult] | None = wanted.done
        self._coming: ReadForMany | None = None
        self._reading: ReadPass | PlaceAtRead | None = None
        self.from_seq = wanted.query.from_seq

    def enter(self, coming: ReadForMany) -> None:
        self._coming = coming

    def cancel(self) -> None:
        """Give up the result."""
        self._done = None
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.leave(self)
        if self._reading is not None:
            self._reading.cancel()

    def give(self, result: DiffResult | TopicsError) -> None:
        self._coming = None
        done, self._done = self._done, None
        if done is not None:
            done(result)

    def take(self, result: DiffResult | TopicsError) -> None:
        """Take the result, unless records were deleted or lost since it was asked for (R-DEL-7)."""
        self._coming = None
        if self._done is None:
            return
        wanted, reads = self._wanted, self._reads
        topic, state, found = wanted.topic, reads.state_of(wanted.topic), None
        if topic.life is not Life.GONE and state[1:] == wanted.state[1:]:
            found = self._part_of(result)
        if found is None:
            self._reading = self._read(wanted._replace(state=state))
            return
        if isinstance(found, DiffResult):
            reads.turns.spend(found.held_bytes)
        self.give(found)

    def _part_of(self, result: DiffResult | TopicsError) -> DiffResult | TopicsError | None:
        """Return this reader's part of the result; None: it has to read by itself."""
        return result

    def _read(self, wanted: AskedRead) -> ReadPass | PlaceAtRead | None:
        return self._reads.read(wanted.topic, wanted.query, wanted.done, wanted.seen)


class PartOfRead(PlaceAtRead):
    """A reader with a node filter, which waits for a read without one."""

    __slots__ = ()

    def _part_of(self, result: DiffResult | TopicsError) -> DiffResult | TopicsError | None:
        wanted = self._wanted
        return self._reads.cut(wanted.topic, wanted.query, result) if isinstance(result, DiffResult) else None

    def _read(self, wanted: AskedRead) -> ReadPass | PlaceAtRead | None:
        return self._reads.read_own(wanted)


class ReadForMany:
    """A read in progress, and the readers that wait for it."""

    __slots__ = ("_coming", "_first", "_key", "_places", "_reading", "_turns")

    def __init__(self, coming: dict[State, ReadForMany], key: State, reading: ReadPass, turns: ReadTurns) -> None:
        """coming: those in progress by key, which it leaves at its end."""
        self._coming = coming
        self._key = key
        self._reading = reading
        self._turns = turns
        self._places: dict[PlaceAtRead, None] = {}
        self._first: PlaceAtRead | None = None
        """The one for whom it was begun, if that is one who asks for just this."""

    def enter(self, place: PlaceAtRead, *, is_first: bool = False) -> PlaceAtRead:
        place.enter(self)
        self._places[place] = None
        if is_first:
            self._first = place
        return place

    def leave(self, place: PlaceAtRead) -> None:
        """Give up a place, and the read if it was the last one."""
        if self._places.pop(place, self) is None and not self._places:
            del self._coming[self._key]
            self._reading.cancel()

    def end(self, result: DiffResult | TopicsError) -> None:
        """Give the result to the first reader at once, and to each other in a turn."""
        del self._coming[self._key]
        places, self._places = self._places, {}
        first, self._first = self._first, None
        for place in places:
            if place is first:
                place.give(result)
            else:
                self._turns.take(partial(place.take, result))


def _may_share(topic: Topic, query: DiffQuery) -> bool:
    """Return whether a reader with a node filter is near the head, as others probably are."""
    if query.bytes_apart or query.only_nodes or query.match is not None:
        return False  # the payloads would have to be cut, too; most records would be
    return 0 <= topic.head - query.from_seq <= query.limit and node_count(query.nodes) > 0


def _nodes_in(records: bytes) -> frozenset[bytes] | None:
    """Return the nodes of rendered records, and what looks like one; None: more than a few."""
    nodes: set[bytes] = set()
    at = records.find(_NODE)
    while at >= 0:
        begin = at + len(_NODE)
        end = records.index(b'"', begin)
        nodes.add(records[begin:end])
        if len(nodes) > _MOST_PRESENT:
            return None
        at = records.find(_NODE, end)
    return frozenset(nodes)


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
