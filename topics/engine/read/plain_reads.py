"""Reads from a cursor of only the index and bytes in memory, for many topics of a pass.

A read that needs more (a loss to report, records on the disk, a wait) is left to `Diff`, which
defines those cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.engine.index._index_reads import lib
from topics.engine.index.chunk_table import ChunkTable
from topics.engine.read.consumption import mark_read
from topics.engine.read.render_bulk import ROOM_BYTES, TOPIC, BulkRenderer
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.topic import Topic
from topics.engine.values.ports import ReaderPort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.results import DiffQuery, DiffResult
from topics.engine.write.retention import is_expired
from topics.store.in_memory.ephemeral import EphemeralFrames

_UNUSABLE = bytes(TOPIC.size)
_TAGS, _NO_META = lib.TP_READ_TAGS, lib.TP_READ_NO_META
_LIKELY_BYTES = ROOM_BYTES // 2
"""Accounted bytes that a read may be likely to find: without room its work would be in vain."""


class PlainReads(NamedTuple):
    """Result of many reads: `taken` were made; the first `size` bytes of `elements` are theirs.

    elements: valid until the next call. topics: a TOPIC row for each topic asked for.
    """

    elements: Any
    size: int
    topics: bytes
    taken: int


class PlainReadCore(Protocol):
    """The part of the core that plain reads need."""

    bounds: ReadBounds
    clock: Clock
    memory: EphemeralFrames
    reader: ReaderPort
    registry: Registry
    turns: ReadTurns


class PlainReader:
    """The plain reads of one engine."""

    def __init__(self, core: PlainReadCore) -> None:
        self._core = core
        self._renderer = BulkRenderer(core.bounds[:4])
        self._ephemeral = core.memory.ranges.packed

    def reads_plain(self, name: str) -> bool:
        """Return whether reads of this topic may be plain."""
        return _usable(self._core.registry.visible(name))

    def project(self, names: Sequence[str | None], reads: Any, count: int, long_bytes: int) -> PlainReads:
        """Complete `count` tp_read rows (index_reads.h), which name topics by index in `names`.

        names: None for a topic that must not be read. long_bytes: bytes of JSON that are too many
        for a read that has to be short. Topics that could be read are marked read (R-PRI-4).
        """
        now_ms = self._core.clock.now_ms()
        visible = self._core.registry.visible
        rows = []
        for name in names:
            topic = visible(name) if name is not None else None
            if topic is None or not _usable(topic) or (topic.config.ttl_ms and is_expired(topic, now_ms)):
                rows.append(_UNUSABLE)
                continue
            mark_read(topic, now_ms)
            rows.append(_packed(topic))
        topics = b"".join(rows)
        turns, reader = self._core.turns, self._core.reader
        room, prefetched = max(turns.left, 0), reader.prefetched_ranges()
        size, taken = self._renderer.project(
            reads, count, topics, reader.ranges(), prefetched, self._ephemeral, room, long_bytes
        )
        turns.spend(size)
        return PlainReads(self._renderer.out, size, topics, taken)

    def read_one(self, topic: Topic, query: DiffQuery) -> DiffResult | None:
        """Make one read, of a topic whose routers have caught up.

        query: bounded. No record of the topic is due to expire.
        Returns: None if the read is not plain, or is likely to be long.
        """
        from_seq, limit, nodes, include_tags, include_meta, include_data, _, budget, begin, apart, _, match = query
        if nodes or match is not None or begin is not None or apart or not include_data or topic.floors.gaps:
            return None
        index = topic.index
        if min(min(limit, topic.head - from_seq) * index.bytes, budget * index.live) > _LIKELY_BYTES * index.live:
            return None
        renderer = self._renderer
        renderer.ask_one(from_seq, limit, budget, (_TAGS if include_tags else 0) | (0 if include_meta else _NO_META))
        turns, reader = self._core.turns, self._core.reader
        size, taken = renderer.project(
            renderer.one, 1, _packed(topic), reader.ranges(), reader.prefetched_ranges(), self._ephemeral, ROOM_BYTES, 0
        )
        if not taken:
            return None
        turns.spend(size)
        held, _, count, following = renderer.found_one()
        result = (renderer.rendered(size), count, following, topic.head, topic.earliest, None, count, 0, held, ())
        return make_tuple(DiffResult, result)


def _usable(topic: Topic | None) -> bool:
    """Return whether a read has no gaps, and needs no work first unless `ttl_ms` asks for it."""
    return topic is not None and topic.expiries is None and not topic.feeders and not topic.floors.gaps


def _packed(topic: Topic) -> bytes:
    index = topic.index
    chunks = index.chunks
    address = count = rows = 0
    if chunks:
        table = index.table
        if table is None:
            table = index.table = ChunkTable()
        table.refresh(chunks)
        address, count, rows = table.address, table.count, chunks[-1].count
    return TOPIC.pack(topic.id, topic.head, topic.earliest, topic.floors.lost, address, count, rows, 1, 0)
