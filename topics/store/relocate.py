"""The copying part of a checkpoint: live records out of log files into segments and packs.

A topic with little to copy gets a run in a pack, unless it has segments of its own; a topic whose runs have become many
is merged into one. Frames are verified on the way. All files are synced together at the end (`sync`), before the
snapshot that lists them.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError
from topics.loop.tasks import Cancelled, Task
from topics.store.catalog import RowColumns
from topics.store.copying import SEQ_SPAN_MAX, Copying
from topics.store.filecalls import lacks_descriptors, sync_file
from topics.store.filetable import FileKind
from topics.store.gathering import Gathering
from topics.store.manifest import Segment
from topics.store.pack_copy import NO_RUNS, PackCopy, Runs, SmallCopy
from topics.store.row_columns import select
from topics.store.segment import cut_back, seal_segment
from topics.store.segment_copy import SegmentCopy
from topics.store.segment_format import index_path, topic_directory
from topics.store.turns import Turns

log = logging.getLogger(__name__)

RUNS_MAX = 8
"""A topic with so many runs in packs is merged into one run or into its first segment."""
_SYNCS_IN_FLIGHT = 64
_READS_PER_PASS = 512
_WINDOW_ROWS = 16_384


class Relocation:
    """One checkpoint's: decides what goes where."""

    def __init__(
        self,
        copying: Copying,
        *,
        turns: Turns,
        spawn: Callable[[Coroutine[Any, Any, None]], Task[None]],
        all_shared: bool = False,
    ) -> None:
        """all_shared: rows that share a frame are copied wherever that lies. Where not every shard goes on in another
        file, what says that they are there may be recycled before the frame is."""
        self.copying = copying
        self._files = copying.files
        self._table = copying.table
        self._catalog = copying.catalog
        self._manifest = copying.manifest
        self._config = copying.config
        self._directory = copying.directory
        self._turns = turns
        self._spawn = spawn
        self._budget = copying.config.checkpoint_bytes_per_pass
        self._topics_per_pass = max(1, copying.config.checkpoint_topics_per_pass)
        self._all_shared = all_shared
        self.packs = PackCopy(copying, turns)
        self._gathering = Gathering(copying)

    # --- what goes where ---------------------------------------------------------------------------------------------
    async def copy(self, topic_ids: Sequence[int], from_files: NDArray[np.uint32]) -> None:
        """Copies all live rows of these topics that lie in these files. Raises OSError, StorageError: what was not
        announced to the catalog by then is as if it had not been."""
        try:
            for number, topic_id in enumerate(topic_ids):
                if number % self._topics_per_pass == self._topics_per_pass - 1 or self._turns.over:
                    await self._turns.rest()
                await self._copy_topic(topic_id, from_files)
            await self.packs.flush()
            await self.packs.finish()
        except (Exception, Cancelled):
            await self.packs.abandon()
            raise

    async def _copy_topic(self, topic_id: int, from_files: NDArray[np.uint32]) -> None:
        catalog = self._catalog
        last_seq = catalog.last_in_files(topic_id, from_files)
        if self._all_shared:
            last_seq = max(last_seq, catalog.last_shared(topic_id))
        if not last_seq:
            return
        # What recovery skips is told by the highest seq copied, so nothing below it may stay in the log: a
        # copy by position may lie in an older file than a direct write before it.
        from_files = self._log_files()
        if topic_id in self._manifest.segments:
            await self._to_segments(topic_id, NO_RUNS, from_files, last_seq)
            return
        found = catalog.bytes_in_files(topic_id, from_files, last_seq=last_seq)
        before = self._runs_to_merge(topic_id, found.bytes, found.last_seq)
        size = found.bytes + _bytes_of(before.rows)
        wide = found.last_seq - found.first_seq >= SEQ_SPAN_MAX
        if wide or size >= self._config.pack_run_bytes:
            await self._to_segments(topic_id, before, from_files, found.last_seq)
            return
        small = catalog.rows_in_files(topic_id, from_files, last_seq=found.last_seq)
        self.packs.add(SmallCopy(topic_id, small, before), size)
        if self.packs.collected_bytes >= self._budget or self.packs.collected_reads >= _READS_PER_PASS:
            await self.packs.flush()

    def _runs_to_merge(self, topic_id: int, size: int, last_seq: int) -> Runs:
        """Its runs in packs, if they are too many or, with `size` bytes out of the log, enough for a segment."""
        runs = self._manifest.runs.get(topic_id, [])
        if not runs or (len(runs) + 1 < RUNS_MAX and size < self._config.pack_run_bytes):
            return NO_RUNS
        packs = sorted({pack.file_id for pack, _ in runs})
        rows = self._catalog.rows_in_files(topic_id, np.array(packs, np.uint32))
        if rows and last_seq - int(rows[0].seqs[0]) >= SEQ_SPAN_MAX:
            return NO_RUNS  # no file can hold them all; they stay below the segments
        return Runs(rows, {(pack.number, run.number) for pack, run in runs})

    def _log_files(self) -> NDArray[np.uint32]:
        return np.array([file.file_id for file in self._table if file.kind is FileKind.WAL], np.uint32)

    async def sync(self) -> None:
        """Everything written is durable, many files at a time, so that they share the journal's commits.

        Until then the catalog may already read copies that a crash would take: nobody is told that they are durable,
        and the log still has them. Raises OSError.
        """
        await self._in_parallel([sync_file(self._files, path) for path in self.copying.unsynced.files])
        await self._in_parallel([self._files.sync_directory(path) for path in self.copying.unsynced.directories])
        self.copying.unsynced.files.clear()
        self.copying.unsynced.directories.clear()

    async def _in_parallel(self, coros: list[Coroutine[Any, Any, None]]) -> None:
        """Raises an error, when all have ended; never as a full disk, for a failed sync is not tried again."""
        error: OSError | None = None
        for at in range(0, len(coros), _SYNCS_IN_FLIGHT):
            tasks = [self._spawn(coro) for coro in coros[at : at + _SYNCS_IN_FLIGHT]]
            for task in tasks:
                task.when_done(_nothing)  # it may end before its turn comes: its error is raised here, not reported
            for task in tasks:
                try:
                    await task
                except OSError as problem:
                    if error is None or lacks_descriptors(error):
                        error = problem
        if error is not None and lacks_descriptors(error):
            raise error
        if error is not None:
            raise OSError(errno.EIO, f"a sync failed: {error}") from error

    # --- segments ----------------------------------------------------------------------------------------------------
    async def _to_segments(self, topic_id: int, before: Runs, from_files: NDArray[np.uint32], last_seq: int) -> None:
        """Rows out of packs (`before`), then those in the log, a window at a time: a topic may have millions."""
        if before.merged:
            await self._merge(topic_id, before)
        writer = SegmentCopy(self.copying, self._gathering, topic_id)
        try:
            rows = self._window(topic_id, from_files, 0, last_seq)
            while rows:
                for part in rows:
                    if not await self._extend(writer, part):
                        return
                rows = self._window(topic_id, from_files, int(rows[-1].seqs[-1]) + 1, last_seq)
            writer.settle()
        finally:
            await writer.close()

    async def _merge(self, topic_id: int, before: Runs) -> None:
        """Runs into the topic's first segment: all of their rows, or none, and then the runs are gone.

        Were a part of a run in a segment, both would be listed, and what is deleted in the one would live in the other.
        A run with a record that is damaged stays where it is: nothing else waits for its merge.
        """
        writer = SegmentCopy(self.copying, self._gathering, topic_id)
        try:
            for rows in before.rows:
                chunks = _Chunks(rows, self._budget)
                at = 0
                while at < len(rows.seqs):
                    if not self._catalog.exists(topic_id):
                        return
                    await writer.open(int(rows.seqs[at]))
                    end = chunks.end(at)
                    await writer.append(select(rows, slice(at, end)))
                    at = end
            writer.settle()
            self.packs.drop_runs(topic_id, before.merged)
            if before.rows and writer.is_full():
                await self.seal(writer.segment)
        except CorruptError as error:
            log.error("merging runs of topic %d failed, they stay as they are: %s", topic_id, error)
        finally:
            await writer.close()

    def _window(self, topic_id: int, from_files: NDArray[np.uint32], first_seq: int, last_seq: int) -> list[RowColumns]:
        return self._catalog.rows_in_files(
            topic_id, from_files, first_seq=first_seq, last_seq=last_seq, rows_max=_WINDOW_ROWS
        )

    async def _extend(self, writer: SegmentCopy, rows: RowColumns) -> bool:
        """Rows into the topic's segments, sealing what is full; False when the topic is gone."""
        chunks = _Chunks(rows, self._budget)
        at = 0
        while at < len(rows.seqs):
            if not self._catalog.exists(writer.topic_id):
                return False
            await writer.open(int(rows.seqs[at]))
            end = chunks.end(at)
            taken = select(rows, slice(at, at + writer.room(rows.seqs[at:end], rows.lengths[at:end])))
            if len(taken.seqs):
                await writer.append(taken)
            at += len(taken.seqs)
            if not len(taken.seqs) or writer.is_full():
                writer.settle()
                await self.seal(writer.segment)
        return True

    async def seal(self, segment: Segment, *, is_open: bool = True) -> None:
        """Writes index and footer of a segment whose rows the catalog knows to be there.

        is_open: a SegmentCopy has it, which has zeroed what a checkpoint that failed left behind the frames.
        """
        if not is_open:
            await cut_back(self._files, self._directory, segment)
        if not self._catalog.exists(segment.topic_id):
            return
        before = self._manifest.segments[segment.topic_id]
        await seal_segment(
            self._files,
            self._directory,
            segment,
            self._catalog.rows_in_files(
                segment.topic_id,
                np.array([segment.file_id], np.uint32),
                first_seq=segment.first_seq,
                last_seq=segment.last_seq,
            ),
            total_records=sum(entry.records for entry in before),
            total_size=sum(entry.size for entry in before),
            now_ms=self.copying.now_ms,
            description=self._catalog.describe(segment.topic_id),
        )
        path = f"{self._directory}/{segment.path}"
        self.copying.unsynced.files.update({path: None, index_path(path): None})
        self.copying.unsynced.directories[f"{self._directory}/{topic_directory(segment.topic_id)}"] = None
        self._table[segment.file_id].size = self._files.file_size(f"{self._directory}/{segment.path}")


class _Chunks:
    """Where to divide rows of one file: at most the budget's bytes and a bounded number of reads, one row at least."""

    def __init__(self, rows: RowColumns, budget: int) -> None:
        self._budget = budget
        self._ends = np.cumsum(rows.lengths, dtype=np.int64)
        apart = rows.offsets[1:].astype(np.int64) != rows.offsets[:-1].astype(np.int64) + rows.lengths[:-1]
        self._reads = np.concatenate(([0], np.cumsum(apart)))

    def end(self, start: int) -> int:
        """Of the chunk that begins with row `start`."""
        before = int(self._ends[start - 1]) if start else 0
        end = int(np.searchsorted(self._ends, before + self._budget, side="right"))
        end = min(end, int(np.searchsorted(self._reads, int(self._reads[start]) + _READS_PER_PASS)))
        return max(start + 1, end)


def _nothing() -> None:
    pass


def _bytes_of(rows: list[RowColumns]) -> int:
    return sum(int(part.lengths.sum(dtype=np.int64)) for part in rows)
