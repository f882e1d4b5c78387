"""Lone writes to one topic, one after the other with nothing between: a streak.

Whether and how a lone write is committed in place depends on much, which only code can change that
runs between it and the next one. While the loop has handled nothing else, the next write repeats
what was decided for the one before: one call in C scans its body and frames it as the next batch,
within bounds that were set then (`tp_next_batch` in codec.h).

In the library, where every other call passes by the lock of those that drive, the appends of a
streak are quick (`QuickStreak`): one call in C frames and writes each, and all of them are
published together, before any other code drives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from topics.clock import Clock
from topics.common.histograms import Histogram
from topics.common.tuples import make_tuple
from topics.engine.bodies.write_columns import MakeFraming
from topics.engine.shared.core import OpenStreak
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.append_request import PLAIN, AppendRequest
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LoopPort
from topics.engine.values.results import AppendResult
from topics.engine.write.append import AppendCore, publish_lone
from topics.engine.write.format_wait import FormatWait
from topics.engine.write.lone_append import answer_and_publish
from topics.store.commits.next_batch import NextBatch
from topics.store.commits.quick_writes import QuickCaller, QuickLog, QuickWrites, Unpublished
from topics.store.commits.write_batch import WriteNext
from topics.store.format.rows import BYTES, TAG, TIMES

_PATIENCE = 2
_PATIENCE_MOST = 64
_SMALL_BYTES = 1 << 15
"""The most bytes of an append that lets a streak begin. It takes no batch of twice as many."""


class StreakCore(AppendCore, Protocol):
    """The part of the core that a streak needs."""

    clock: Clock
    loop: LoopPort
    registry: Registry
    streak: OpenStreak | None


class WriteStreak:
    """The streak of one kind of callers. `begin` after a lone write lets `write` take the next."""

    def __init__(self, core: StreakCore, framing: MakeFraming) -> None:
        """framing: makes the scan of the callers' writes, see `WriteColumns.framing`."""
        self._core = core
        self._next = NextBatch()
        self._frame = framing(self._next)
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
        core = self._core
        if core.streak is not None:
            core.streak.end()
        if last is not topic or topic.pending or topic.routers or not topic.needs_only_seqs:
            return
        fsync = topic.stage_class == "fsync"
        found = core.log.next_place(topic.id, fsync=fsync)
        if found is None:
            return
        place, syncs, self._write = found
        self._next.begin(place, topic.id, topic.next_seq, topic.ample, topic.last_ts, fsync=fsync, syncs=syncs)
        self._topic, self.fsync, self._interruptions = topic, fsync, core.loop.interruptions
        core.streak = self

    def end(self) -> None:
        """Let `write` take nothing until a streak has begun again."""
        self._topic = None

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


class QuickStreak:
    """The streak of a library: its lone appends to one topic, which `append` writes in C.

    The thread that drives calls `end` first, if `is_open`.
    """

    def __init__(
        self,
        core: StreakCore,
        format_wait: FormatWait,
        caller: QuickCaller,
        quiet_until_ns: Callable[[], int],
        times: Histogram,
    ) -> None:
        """quiet_until_ns: the time at which other work may be due. times: of each append."""
        self._core = core
        self._format_wait = format_wait
        self._quiet_until_ns = quiet_until_ns
        self._times = times
        self._writes = QuickWrites(caller, AppendResult, PLAIN)
        self.append: Callable[[AppendRequest, int], AppendResult | None] = self._writes.append
        """append(request, thread): None, and nothing was done, if it is none of a streak."""
        self.is_open = False
        self._topic: Topic | None = None
        """The topic of the streak."""
        self._name = ""
        """The topic of the last lone append."""
        self._appends = 0
        """Lone appends to it in a row."""
        self._patience = _PATIENCE
        """The number that begins a streak. It is larger after streaks without an append."""
        self._log: QuickLog | None = None
        self._interruptions = 0

    @property
    def bytes(self) -> int:
        """Bytes in the log that it does not know of yet. Any thread may ask."""
        return self._writes.bytes if self.is_open else 0

    def note(self, request: AppendRequest) -> None:
        """Note that a lone append was published, in a call that drives.

        So its topic is writable, and nothing waits for its records, or before them.
        """
        interruptions = self._core.loop.interruptions
        if request.topic != self._name or interruptions != self._interruptions:
            self._name, self._interruptions, self._appends = request.topic, interruptions, 1
            return
        self._appends += 1
        if self._appends >= self._patience and request.rows.size <= _SMALL_BYTES:
            self._begin()

    def _begin(self) -> None:
        core = self._core
        topic = core.registry.by_name.get(self._name)
        if topic is None or topic.has_caps or not topic.needs_only_seqs:
            return  # `retain_caps` evicts after each append
        until_ns, fsync = self._quiet_until_ns(), topic.stage_class == "fsync"
        found = core.log.next_quick(topic.id, fsync=fsync) if until_ns else None
        if found is None:
            return
        place, how, self._log = found
        first, last = topic.next_seq, topic.ample
        left = TAG | TIMES if self._format_wait.has_bytes else TAG | TIMES | BYTES
        numbers = topic.id, first, last, topic.last_ts
        self._writes.begin(topic.name, place, how, numbers, until_ns, fsync=fsync, left_flags=left)
        self._topic, self.is_open = topic, True

    def end(self) -> None:
        """End the streak, if there is one: publish what was written."""
        if not self.is_open:
            return
        self.is_open = False
        topic, log = self._topic, self._log
        unpublished, self._topic, self._log = self._writes.end(), None, None
        self._name = ""
        self._patience = _PATIENCE if unpublished is not None else min(2 * self._patience, _PATIENCE_MOST)
        if topic is None or log is None:
            return
        if unpublished is not None:
            self._publish(topic, log, unpublished)
        failed = self._writes.failed
        if failed is not None:
            log.take_back(*failed)

    def _publish(self, topic: Topic, log: QuickLog, unpublished: Unpublished) -> None:
        core = self._core
        try:
            commit = log.follow(unpublished)
            rows, size, placed, ts = unpublished.rows, unpublished.size, unpublished.placed, unpublished.ts_ms
            publish_lone(core, topic, rows, size, placed, None, ts, commit, commit.base)
            self._times.add_all(unpublished.appends)
        except BaseException as error:
            core.log.latch(f"committed appends to topic {topic.name} were not published: {error!r}")
            raise

    def stop(self) -> None:
        """Let `append` do nothing more, until the next streak."""
        self._writes.stop()

    def forbid(self) -> None:
        """Let `append` do nothing more, in a forked child: what was written is the parent's."""
        self.is_open = False
        self.stop()

    def close(self) -> None:
        """Give up what it refers to, once nothing drives any more."""
        self.is_open = False
        self._writes.forget()
