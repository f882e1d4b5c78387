"""Records of topics with little to copy, collected and written into packs, one run per topic."""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError
from topics.loop.tasks import Future
from topics.store.checkpoint.copy_context import CopyContext, Placed, joined_frames
from topics.store.checkpoint.few_frames import checked_runs, frames_of
from topics.store.disk.time_slices import TimeSlices
from topics.store.disk.whole_files import FileCalls, make_directories, unlink_if_there
from topics.store.format import codec
from topics.store.format.catalog import FewRows, RowColumns
from topics.store.format.file_table import FileKind
from topics.store.format.row_columns import contiguous
from topics.store.layouts.directory_names import PACK_DIRECTORY, pack_path
from topics.store.read.file_range import FileRange
from topics.store.segments.data_files import Pack, PackRun
from topics.store.segments.pack import ROWS_A_PACK, RUNS_A_PACK, PackWriter
from topics.store.segments.segment import check_copied

log = logging.getLogger(__name__)

_READS_A_STEP = 64
"""Pieces of files that are looked for, and read from memory, in one step."""


class Runs(NamedTuple):
    """Runs of one topic that are to be merged with its records from the log."""

    rows: list[RowColumns]
    merged: set[tuple[int, int]]
    """The runs by (pack number, run number)."""


NO_RUNS = Runs([], set())


class SmallCopy(NamedTuple):
    """A topic that is being copied into a pack."""

    topic_id: int
    rows: list[RowColumns]
    """Rows from the log."""
    before: Runs
    """Runs that the new run replaces."""

    @property
    def all_rows(self) -> list[RowColumns]:
        return [*self.before.rows, *self.rows]


class PackCopy:
    """The writer of what was added, one pack after the other.

    A pack is announced to the catalog when it is complete.
    """

    def __init__(self, context: CopyContext, turns: TimeSlices) -> None:
        self._context = context
        self._turns = turns
        self._small: list[SmallCopy] = []
        self.collected_bytes = 0
        self.collected_reads = 0
        self._file: _PackFile | None = None

    def add(self, entry: SmallCopy, size: int) -> None:
        """Collect a topic; `flush` reads and writes it. size: bytes of its rows."""
        self._small.append(entry)
        self.collected_bytes += size
        self.collected_reads += sum(len(part.seqs) for part in entry.all_rows)

    async def flush(self) -> None:
        """Read what was collected side by side, and add it to the pack, with rests."""
        small, self._small, self.collected_bytes, self.collected_reads = self._small, [], 0, 0
        counts: list[int] = []
        part: list[FileRange] = []
        begun: list[Future[list[memoryview]]] = []
        for entry in small:
            ranges = [
                FileRange(rows.file_id, *piece)
                for rows in entry.all_rows
                for piece in contiguous(rows.offsets, rows.lengths)
            ]
            counts.append(len(ranges))
            part += ranges
            if len(part) >= _READS_A_STEP:
                begun.append(self._context.begin_fetch(part))
                part = []
                if self._turns.over:
                    await self._turns.rest()
        begun.append(self._context.begin_fetch(part))
        views = [view for fetched in begun for view in await fetched]
        at = 0
        for entry, count in zip(small, counts, strict=True):
            mine = views[at : at + count]
            at += count
            if self._context.catalog.exists(entry.topic_id):
                await self._add_run(entry, mine)
            await self._turns.turn()

    async def _add_run(self, entry: SmallCopy, views: list[memoryview]) -> None:
        context = self._context
        description = await context.description_of(entry.topic_id, self._turns)
        merged = entry.before.merged
        try:
            with self._turns.working():
                data, seqs, scan = _checked(entry.topic_id, entry.all_rows, views)
        except CorruptError as error:
            if not merged:
                raise
            log.error("merging runs of topic %d failed, they stay as they are: %s", entry.topic_id, error)
            if not entry.rows:
                return
            merged = set()
            out_of_log = sum(len(contiguous(part.offsets, part.lengths)) for part in entry.rows)
            data, seqs, scan = _checked(entry.topic_id, entry.rows, views[len(views) - out_of_log :])
        pack = await self._begun_file()
        with self._turns.working():
            run, frames_at = pack.writer.add_run(scan, data, description)
            offsets = (scan.frames["offset"] + frames_at).astype(np.uint32)
            pack.rows += len(seqs)
            pack.placed.append(Placed(entry.topic_id, seqs, offsets, scan.frames["length"].copy()))
            pack.runs.append(run)
            pack.merged.append((entry.topic_id, merged))
        await self._end_if_full(pack)

    async def add_few(self, few: FewRows) -> None:
        """Read topics with few rows, and add them to the pack, in a few steps for many of them.

        Raises: StorageError.
        """
        for part in few.parts(self._context.config.checkpoint_bytes_per_pass):
            await self._add_part(part)

    async def _add_part(self, few: FewRows) -> None:
        frames = await frames_of(few, self._context, self._turns)
        await self._turns.turn()
        with self._turns.working():
            runs = checked_runs(few, frames)
        await self._turns.turn()
        pack = await self._begun_file()
        with self._turns.working():
            added, offsets = pack.writer.add_runs(runs)
            pack.rows += len(offsets)
            pack.few.append((few, offsets))
            pack.runs += added
        await self._end_if_full(pack)

    async def _begun_file(self) -> _PackFile:
        if self._file is None:
            self._file = await _PackFile.create(self._context)
        return self._file

    async def _end_if_full(self, pack: _PackFile) -> None:
        """Write what was added if it is much, and complete the pack if it is full."""
        config = self._context.config
        if pack.writer.pending_bytes >= config.checkpoint_bytes_per_pass:
            await pack.write(pack.writer.take())
        is_full = len(pack.runs) >= RUNS_A_PACK or pack.rows >= ROWS_A_PACK
        if is_full or pack.writer.position >= config.segment_max_bytes:
            await self.finish()

    async def finish(self) -> None:
        """Complete the begun pack, if there is one; its records count from then on."""
        context, pack = self._context, self._file
        if pack is None:
            return
        began_ns = context.clock.monotonic_ns()
        await self._turns.turn()
        with self._turns.working():
            rest = pack.writer.finish()
        await self._turns.turn()
        await pack.write(rest)
        context.unsynced.files[pack.path] = None
        context.unsynced.directories[f"{context.directory}/{PACK_DIRECTORY}"] = None
        self._file = None
        await context.files.close(pack.fd)
        context.counters.count_seal(context.clock.monotonic_ns() - began_ns, pack.writer.position)
        entry = Pack(
            pack.writer.number, pack.writer.epoch, pack.writer.position, {run.number: run for run in pack.runs}
        )
        stored = context.table.add(FileKind.PACK, pack.path, size=entry.size)
        entry.file_id = stored.file_id
        stored.pack_records = pack.rows
        context.manifest.add_pack(entry)
        for few, offsets in pack.few:
            with self._turns.working():
                context.announce_few(few, entry.file_id, offsets)
            await self._turns.turn()
        for placed, (topic_id, merged) in zip(pack.placed, pack.merged, strict=True):
            with self._turns.working():
                context.announce(placed, entry.file_id)
                self.drop_runs(topic_id, merged)
            await self._turns.turn()

    async def abandon(self) -> None:
        """Take back the begun pack after an error."""
        pack, self._file = self._file, None
        if pack is not None:
            await self._context.files.close(pack.fd)
            await unlink_if_there(self._context.files, pack.path)

    def drop_runs(self, topic_id: int, merged: set[tuple[int, int]]) -> None:
        """Remove runs, (pack number, run number), whose records were written elsewhere."""
        if merged:
            manifest = self._context.manifest
            packs = {number for number, _ in merged}
            manifest.drop_runs(topic_id, merged)
            emptied = [manifest.packs.pop(number) for number in packs if not manifest.packs[number].runs]
            self._context.given_up += [pack.file_id for pack in emptied]


def _checked(
    topic_id: int, rows: list[RowColumns], views: list[memoryview]
) -> tuple[bytes | memoryview, NDArray[np.uint64], codec.FrameScan]:
    """Return the joined frames of these rows, the rows' seqs, and the scan of the frames.

    Raises CorruptError.
    """
    data = joined_frames(views, topic_id, rows)
    seqs = rows[0].seqs if len(rows) == 1 else np.concatenate([part.seqs for part in rows])
    return data, seqs, check_copied(data, 0, topic_id, seqs, 0)


class _PackFile:
    """The pack being written."""

    def __init__(self, files: FileCalls, path: str, fd: int, writer: PackWriter) -> None:
        self._files = files
        self.path = path
        self.fd = fd
        self.writer = writer
        self.placed: list[Placed] = []
        """Topics that were added one by one; `merged` has the runs that each replaces."""
        self.rows = 0
        self.runs: list[PackRun] = []
        self.merged: list[tuple[int, set[tuple[int, int]]]] = []
        self.few: list[tuple[FewRows, NDArray[np.uint32]]] = []
        """Topics that were added together, and the offsets of their rows."""
        self._written = 0

    @classmethod
    async def create(cls, context: CopyContext) -> _PackFile:
        files, directory, manifest = context.files, context.directory, context.manifest
        make_directories(files, directory, PACK_DIRECTORY, context.unsynced.directories)
        writer = PackWriter(manifest.next_pack, context.new_epoch(), context.now_ms)
        manifest.next_pack += 1
        path = f"{directory}/{pack_path(writer.number)}"
        return cls(files, path, await files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), writer)

    async def write(self, data: bytes) -> None:
        await self._files.write_all(self.fd, data, self._written)
        self._written += len(data)
