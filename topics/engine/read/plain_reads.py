"""Reads from a cursor that need nothing but the index and bytes in memory, of a whole pass and many topics at once.

What is asked for like any `diff` and turns out to be more (a loss to tell, records on the disk, copies, a wait) is left
to `Diff`, which alone says what such a thing means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from topics.engine.index.chunk_table import ChunkTable
from topics.engine.read.consumption import mark_read
from topics.engine.read.render_bulk import TOPIC, BulkRenderer
from topics.engine.state.topic import Topic

if TYPE_CHECKING:
    from topics.engine.shared.core import Core

_UNUSABLE = bytes(TOPIC.size)


class PlainReads(NamedTuple):
    """What became of many reads: `taken` of them were, and `size` bytes of `elements` are theirs until the next ones.

    topics: a TOPIC row for each topic asked for.
    """

    elements: Any
    size: int
    topics: bytes
    taken: int


class BulkReads:
    """One engine's."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._projection = BulkRenderer(core.bounds[:4])

    def reads_plain(self, name: str) -> bool:
        """Reads of this topic may be plain."""
        return _usable(self._core.registry.visible(name))

    def project(self, names: Sequence[str | None], reads: Any, count: int, long_bytes: int) -> PlainReads:
        """Completes `count` tp_read rows (index_reads.h), which name their topic by its place in `names`.

        None: nothing of it is to be taken. long_bytes: of JSON, too many for a read that has to be short. Topics that
        could be read were (R-PRI-4).
        """
        now_ms = self._core.clock.now_ms()
        visible = self._core.registry.visible
        rows = []
        for name in names:
            topic = visible(name) if name is not None else None
            if topic is None or not _usable(topic):
                rows.append(_UNUSABLE)
                continue
            mark_read(topic, now_ms)
            rows.append(_packed(topic))
        topics = b"".join(rows)
        turns = self._core.turns
        size, taken = self._projection.project(
            reads, count, topics, self._core.reader.ranges(), max(turns.left, 0), long_bytes
        )
        turns.spend(size)
        return PlainReads(self._projection.out, size, topics, taken)


def _usable(topic: Topic | None) -> bool:
    """Nothing has to happen before a read, and nothing is missing between its records."""
    return topic is not None and not topic.config.ttl_ms and not topic.feeders and not topic.floors.gaps


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
