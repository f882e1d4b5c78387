"""Lone writes to one topic, one after the other with nothing between: a streak.

Whether and how a lone write is committed in place depends on much, which only code can change that
runs between it and the next one. While the loop has handled nothing else, the next write repeats
what was decided for the one before: one call in C scans its body and frames it as the next batch,
within bounds that were set then (`tp_next_batch` in codec.h).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LoopPort
from topics.engine.values.results import AppendResult
from topics.engine.write.append import AppendCore
from topics.engine.write.appender import answer_and_publish
from topics.engine.write.write_columns import WriteColumns
from topics.store.wal.next_batch import NextBatch
from topics.store.wal.write_batch import WriteNext


class StreakCore(AppendCore, Protocol):
    """The part of the core that a streak needs."""

    clock: Clock
    loop: LoopPort


class WriteStreak:
    """The streak of one kind of callers. `begin` after a lone write lets `write` take the next."""

    def __init__(self, core: StreakCore, columns: WriteColumns, request: Any) -> None:
        """columns, request: scan and request of the callers, see `WriteColumns.single`."""
        self._core = core
        self._next = NextBatch()
        self._frame = columns.framing(request, self._next)
        self._write: WriteNext | None = None
        self._topic: Topic | None = None
        """The topic of the streak; None while there is none."""
        self._last: Topic | None = None
        """The topic of the last lone write. The second in a row begins a streak."""
        self._interruptions = 0
        self.fsync = False
        """Whether its writes wait for a sync."""

    def begin(self, topic: Topic) -> None:
        """Note that a lone write was committed, published and delivered to its readers."""
        last, self._last = self._last, topic
        self._topic = None
        if last is not topic or topic.pending or topic.routers or not topic.writable:
            return
        core, fsync = self._core, topic.stage_class == "fsync"
        found = core.log.next_place(topic.id, fsync=fsync)
        if found is None:
            return
        place, syncs, self._write = found
        self._next.begin(place, topic.id, topic.next_seq, topic.ample, topic.last_ts, fsync=fsync, syncs=syncs)
        self._topic, self.fsync, self._interruptions = topic, fsync, core.loop.interruptions

    def write(
        self, name: str, data: Any, size: int, on_committed: Callable[[AppendResult], None]
    ) -> AppendResult | None:
        """Commit the write that was scanned as the one before: as `Engine.append_rows_lone`.

        name: of its topic. data, size: the buffer of its request.
        Returns: None, and nothing was done, also if it is none of a streak.
        """
        topic, core = self._topic, self._core
        if topic is None or topic.name != name or core.loop.interruptions != self._interruptions:
            return None
        self._topic = None
        used = self._frame(data, size, core.clock.now_ms())
        if used <= 0:
            return None
        at, first, count, size_of_records, ts, checksum = self._next.framed()
        if first != topic.next_seq or topic.pending or self._write is None:
            return None
        written = self._write(at, used, count, checksum)
        if written is None:
            return None
        commit, move_on = written
        last = first + count - 1
        sync_ns = commit.sync_ns if self.fsync else 0
        result = make_tuple(AppendResult, (first, last, last, count, False, False, commit.write_ns, sync_ns))
        lone = self._next.placed_rows(count), commit, move_on, None
        answer_and_publish(core, topic, result, lone, (size_of_records, None, ts), on_committed=on_committed)
        self._topic = topic
        return result
