"""The copying part of a checkpoint: live records out of log files into segments and packs.

A topic with little to copy gets a run in a pack, unless it has segments of its own; the runs of a
topic that has many are merged into one. Frames are verified when they are copied. All files are
synced together at the end (`sync`), before the snapshot that lists them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, StorageError
from topics.loop.files import SyncFailedError
from topics.loop.loop import Loop
from topics.loop.tasks import Cancelled
from topics.store.checkpoint.copy_context import SEQ_SPAN_MAX, CopyContext, giving_up
from topics.store.checkpoint.live_frames import LiveFrameReaders
from topics.store.checkpoint.pack_copy import NO_RUNS, PackCopy, Runs, SmallCopy
from topics.store.checkpoint.segment_copy import READS_A_CHUNK, SegmentCopy, Share, Shares
from topics.store.disk.side_by_side import Line, gravest
from topics.store.disk.time_slices import TimeSlices
from topics.store.disk.whole_files import failed_sync, sync_file
from topics.store.format.catalog import RowColumns
from topics.store.segments.data_files import Pack, Segment

log = logging.getLogger(__name__)

RUNS_MAX = 8
"""A topic with this many runs in packs has them merged into one run or into its first segment."""
_FEW_BYTES = 16_384
"""Topics with fewer bytes of frames to copy are copied together."""
_TOPIC_BYTES = 4096
"""Bytes of frames that a step expects of a topic."""
_SYNCS_IN_FLIGHT = 64
_WINDOW_ROWS = 16_384


class Evacuation:
    """The copying of one checkpoint: decides which records are written where."""

    def __init__(
        self,
        context: CopyContext,
        *,
        turns: TimeSlices,
        loop: Loop,
        segments_at_a_time: Callable[[], int],
        all_shared: bool = False,
    ) -> None:
        """segments_at_a_time: how many are filled side by side, by the urgency of the moment.

        all_shared: rows that share a frame are copied from wherever the frame is.

        If not every shard begins another file, the frames that record these rows may be recycled
        before the shared frame is.
        """
        self.context = context
        self._files = context.files
        self._table = context.table
        self._catalog = context.catalog
        self._manifest = context.manifest
        self._config = context.config
        self._directory = context.directory
        self._turns = turns
        self._loop = loop
        self._budget = context.config.checkpoint_bytes_per_pass
        self._topics_a_step = max(1, min(context.config.checkpoint_topics_per_pass, self._budget // _TOPIC_BYTES))
        self._all_shared = all_shared
        self.packs = PackCopy(context, turns)
        self._readers = LiveFrameReaders(context, turns)
        self._begun: deque[SegmentCopy] = deque()
        """Copies that are not settled yet, in their order."""
        self._copies = Line(loop.spawn, segments_at_a_time, partial(_settle, self._begun, turns))

    # --- what goes where ---------------------------------------------------------------------------------------------
    async def copy(self, topic_ids: Iterable[int], from_files: NDArray[np.uint32]) -> None:
        """Copy all live rows of these topics in these files.

        After OSError or StorageError, records not announced to the catalog by then count as not
        copied.
        """
        self._turns.resume()
        try:
            left = iter(topic_ids)
            while some := list(islice(left, self._topics_a_step)):
                for topic_id in await self._copy_few(some, from_files):
                    await self._copy_topic(topic_id, from_files)
                    if self._turns.over:
                        await self._turns.rest()
                if len(some) == self._topics_a_step:
                    await self._turns.rest()
            await self._end()
            await self.packs.flush()
            await self.packs.finish()
        except Exception as error:
            raise gravest(await self._give_up(error)) from error
        except Cancelled:
            await self._give_up()
            raise

    async def _copy_few(self, topic_ids: list[int], from_files: NDArray[np.uint32]) -> list[int]:
        """Copy topics with few rows and without segments into packs; return the other ones."""
        if self._all_shared:
            return topic_ids
        segments, runs = self._manifest.segments, self._manifest.runs
        await self._turns.turn()
        with self._turns.working():
            fit = [each for each in topic_ids if each not in segments and len(runs.get(each, ())) + 1 < RUNS_MAX]
            few = self._catalog.few_rows(fit, from_files, min(_FEW_BYTES, self._config.pack_run_bytes))
        if len(few.topic_ids):
            await self.packs.add_few(few)
        copied = set(few.topic_ids.tolist())
        return [each for each in topic_ids if each not in copied]

    async def _copy_topic(self, topic_id: int, from_files: NDArray[np.uint32]) -> None:
        catalog = self._catalog
        last_seq = catalog.last_in_files(topic_id, from_files)
        if self._all_shared:
            last_seq = max(last_seq, catalog.last_shared(topic_id))
        if not last_seq:
            return
        # Recovery skips records up to the highest seq copied, so nothing below it may stay in the
        # log: a copy by position may be in an older file than a direct write before it.
        from_files = self._table.log_ids()
        if topic_id in self._manifest.segments:
            await self._to_segments(topic_id, NO_RUNS, from_files, last_seq)
            return
        rows = self._window(topic_id, from_files, 0, last_seq)
        if sum([len(part.seqs) for part in rows]) < _WINDOW_ROWS:  # they are all
            first_seq, last_seq, size = int(rows[0].seqs[0]), int(rows[-1].seqs[-1]), _bytes_of(rows)
        else:
            first_seq, last_seq, _count, size = catalog.bytes_in_files(topic_id, from_files, last_seq=last_seq)
            rows = []
        before = self._runs_to_merge(topic_id, size, last_seq)
        total = size + _bytes_of(before.rows)
        wide = last_seq - first_seq >= SEQ_SPAN_MAX
        if wide or total >= self._config.pack_run_bytes:
            await self._to_segments(topic_id, before, from_files, last_seq)
            return
        rows = rows or catalog.rows_in_files(topic_id, from_files, last_seq=last_seq)
        self.packs.add(SmallCopy(topic_id, rows, before), total)
        if self.packs.collected_bytes >= self._budget or self.packs.collected_reads >= READS_A_CHUNK:
            await self.packs.flush()

    def _runs_to_merge(self, topic_id: int, size: int, last_seq: int) -> Runs:
        """Return the topic's runs in packs that are to be merged.

        They are if they are too many or, with `size` bytes from the log, enough for a segment.
        """
        count = len(self._manifest.runs.get(topic_id, ()))
        if not count or (count + 1 < RUNS_MAX and size < self._config.pack_run_bytes):
            return NO_RUNS
        runs = self._runs_of(topic_id)
        if runs.rows and last_seq - int(runs.rows[0].seqs[0]) >= SEQ_SPAN_MAX:
            return NO_RUNS  # no file can hold them all; they stay below the segments
        return runs

    def _runs_of(self, topic_id: int) -> Runs:
        """Return all runs of a topic in packs, and their live rows."""
        runs = self._manifest.runs.get(topic_id, [])
        packs = sorted({pack.file_id for pack, _ in runs})
        rows = self._catalog.rows_in_files(topic_id, np.array(packs, np.uint32))
        return Runs(rows, {(pack.number, run.number) for pack, run in runs})

    async def sync(self) -> None:
        """Make everything written durable, with many files at a time sharing the journal's commits.

        Until then the catalog may already read copies that a crash would remove. None is reported
        as durable, and the log still has the records.

        Raises: OSError.
        """
        unsynced = self.context.unsynced
        await self._in_parallel(partial(sync_file, self._files), unsynced.files)
        await self._in_parallel(self._files.sync_directory, unsynced.directories)
        unsynced.files.clear()
        unsynced.directories.clear()

    async def _in_parallel(self, sync: Callable[[str], Coroutine[Any, Any, None]], paths: Mapping[str, None]) -> None:
        """Sync files, some at a time, since there may be one a topic; raise an error at the end.

        A failed sync is never raised as a full disk, because it is not tried again.
        """
        error: OSError | None = None
        left = iter(list(paths))
        while some := list(islice(left, _SYNCS_IN_FLIGHT)):
            tasks = [self._loop.spawn(sync(path)) for path in some]
            for task in tasks:
                task.observe()  # it may end before it is awaited
            for task in tasks:
                try:
                    await task
                except OSError as problem:
                    if not isinstance(error, SyncFailedError):
                        error = problem
        if error is not None:
            raise failed_sync(error) if isinstance(error, SyncFailedError) else error

    # --- segments ----------------------------------------------------------------------------------------------------
    async def _to_segments(self, topic_id: int, before: Runs, from_files: NDArray[np.uint32], last_seq: int) -> None:
        """Copy rows of packs (`before`), then those in the log.

        It is done a window at a time: a topic may have millions.
        """
        if before.merged:
            await self._merge(topic_id, before)
        if not self._catalog.exists(topic_id):
            return
        shares = Shares(self.context, topic_id)
        first_seq = 0
        while rows := self._window(topic_id, from_files, first_seq, last_seq):
            first_seq = int(rows[-1].seqs[-1]) + 1
            for part in rows:
                for share in shares.add(part):
                    await self._begin(topic_id, share)
            if self._turns.over:
                await self._turns.rest()
        rest = shares.last()
        if rest is not None:
            await self._begin(topic_id, rest)

    async def _begin(self, topic_id: int, share: Share) -> None:
        """Wait for room, then begin to copy this topic's rows beside other copies."""
        if not self._catalog.exists(topic_id):
            return
        writer = SegmentCopy(self.context, self._readers, topic_id, share)
        while self._copies.is_full:
            await self._settle_next()
        self._begun.append(writer)
        await self._copies.begin(writer.fill())
        self._turns.resume()

    async def _end(self) -> None:
        """Settle all copies in progress, one at a time, with rests. Raises the first error."""
        while not self._copies.is_empty:
            await self._settle_next()
        await self._copies.end()

    async def _settle_next(self) -> None:
        if self._turns.over:
            await self._turns.rest()
        await self._copies.next()

    async def _give_up(self, *errors: Exception) -> list[Exception]:
        """Take back the copies that are not settled.

        Return these errors and one of those that came meanwhile.
        """
        try:
            await self._copies.end()
        except Exception as other:
            errors = (*errors, other)
        while self._begun:
            with giving_up():
                await self._begun.popleft().give_up()
        with giving_up():
            await self.packs.abandon()
        return list(errors)

    async def _merge(self, topic_id: int, before: Runs) -> None:
        """Merge runs into the topic's first segment: all of their rows, or none.

        If a part of a run were in a segment, both would be listed, and a record deleted in one
        would be live in the other. A run with a damaged record stays where it is: nothing else
        depends on its merge.
        """
        if not self._catalog.exists(topic_id):
            return
        if before.rows:
            writer = SegmentCopy(self.context, self._readers, topic_id, Share(None, before.rows, ends=False))
            try:
                await writer.fill()
            except CorruptError as error:
                log.error("merging runs of topic %d failed, they stay as they are: %s", topic_id, error)
                return
            if not writer.settle():
                return
        self.packs.drop_runs(topic_id, before.merged)

    # --- anew --------------------------------------------------------------------------------------------------------
    async def write_anew(self, segments: Sequence[Segment]) -> bool:
        """Write the live records of adjacent sealed segments to one that takes their place.

        Return whether it did: segments that cannot be read stay as they are, since nothing depends
        on it. Raises OSError.
        """
        topic_id, last_seq = segments[0].topic_id, segments[-1].last_seq
        here = np.array(sorted(segment.file_id for segment in segments), np.uint32)
        rows: list[RowColumns] = []
        self._turns.resume()
        first_seq = segments[0].first_seq
        while part := self._window(topic_id, here, first_seq, last_seq):
            rows += part
            first_seq = int(part[-1].seqs[-1]) + 1
            if self._turns.over:
                await self._turns.rest()
        if not rows or not self._catalog.exists(topic_id):
            return False  # the next checkpoint drops them
        before = self._manifest.sealed_totals(topic_id, segments[0].first_seq)
        share = Share(None, rows, ends=True, before=before, replaced=tuple(segments))
        writer = SegmentCopy(self.context, self._readers, topic_id, share)
        try:
            await writer.fill()
        except StorageError as error:
            log.error("writing a segment of topic %d anew failed, it stays as it is: %s", topic_id, error)
            return False
        return writer.settle()

    async def write_pack_anew(self, pack: Pack) -> bool:
        """Write the live records of a pack to another one; return whether it could be read.

        A topic's runs have an order, so all of them, in other packs, too, become one run of the new
        pack. Raises OSError.
        """
        self._turns.resume()
        try:
            for topic_id in sorted({run.topic_id for run in pack.runs.values()}):
                if self._turns.over:
                    await self._turns.rest()
                runs = self._runs_of(topic_id)
                if not runs.rows:
                    self.packs.drop_runs(topic_id, runs.merged)
                    continue
                if int(runs.rows[-1].seqs[-1]) - int(runs.rows[0].seqs[0]) >= SEQ_SPAN_MAX:
                    continue  # no run can hold them all
                self.packs.add(SmallCopy(topic_id, [], runs), _bytes_of(runs.rows))
                if self.packs.collected_bytes >= self._budget or self.packs.collected_reads >= READS_A_CHUNK:
                    await self.packs.flush()
            await self.packs.flush()
            await self.packs.finish()
        except StorageError as error:
            log.error("writing pack %d anew failed, it stays as it is: %s", pack.number, error)
            with giving_up():
                await self.packs.abandon()
            return False
        except BaseException:
            with giving_up():
                await self.packs.abandon()
            raise
        return True

    def _window(self, topic_id: int, from_files: NDArray[np.uint32], first_seq: int, last_seq: int) -> list[RowColumns]:
        return self._catalog.rows_in_files(
            topic_id, from_files, first_seq=first_seq, last_seq=last_seq, rows_max=_WINDOW_ROWS
        )

    async def seal(self, tails: Iterable[Segment]) -> None:
        """Seal segments that are not full. Raises OSError or StorageError."""
        try:
            for tail in tails:
                before = self._manifest.sealed_totals(tail.topic_id)
                await self._begin(tail.topic_id, Share(tail, [], ends=True, before=before))
            await self._end()
        except Exception as error:
            raise gravest(await self._give_up(error)) from error


def _settle(begun: deque[SegmentCopy], turns: TimeSlices, writer: SegmentCopy) -> None:
    assert begun[0] is writer, "the order in which they were begun"
    begun.popleft()
    with turns.working():
        writer.settle()


def _bytes_of(rows: list[RowColumns]) -> int:
    return sum(int(np.add.reduce(part.lengths, dtype=np.int64)) for part in rows)
