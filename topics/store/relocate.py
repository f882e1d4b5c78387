"""The copying part of a checkpoint: live records out of log files into segments and packs.

A topic with little to copy gets a run in a pack, unless it has segments of its own; a topic whose runs have become many
is merged into one. Frames are verified on the way. All files are synced together at the end (`sync`), before the
snapshot that lists them.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.config import Config
from topics.errors import StorageError
from topics.loop.tasks import Future, Task
from topics.store import codec
from topics.store.catalog import Catalog, Deletions, RowColumns
from topics.store.filecalls import FileCalls, lacks_descriptors, make_directories, sync_file, unlink_if_there
from topics.store.filetable import FileKind, FileTable
from topics.store.format import FLAG_COPY
from topics.store.manifest import Manifest, Pack, Run, Segment
from topics.store.pack import PackWriter
from topics.store.reader import Fetched, Piece, Reader
from topics.store.row_columns import contiguous, select
from topics.store.segment import check_copied, create_segment, cut_back, extend, seal_segment
from topics.store.segment_format import PACK_DIRECTORY, index_path, pack_path, topic_directory

RUNS_MAX = 8
"""A topic with so many runs in packs is merged into one run or into its first segment."""
SEQ_SPAN_MAX = 1 << 32
"""Index columns hold a seq as a distance from the first one in 32 bits."""
_TOPICS_PER_PASS = 256
_SYNCS_IN_FLIGHT = 64
_READS_PER_PASS = 512
_WINDOW_ROWS = 16_384


class Unsynced(NamedTuple):
    """What was written and must be synced before the next snapshot; outlives a checkpoint that failed."""

    files: dict[str, None]
    directories: dict[str, None]
    """Those with new entries."""


class _SmallCopy(NamedTuple):
    """A topic on its way into a pack."""

    topic_id: int
    rows: list[RowColumns]
    merged: set[tuple[int, int]]
    """(pack number, run number) of the runs this one replaces."""


class _Placed(NamedTuple):
    """Records written, of which the catalog was not told yet."""

    topic_id: int
    seqs: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


class Relocation:
    """One checkpoint's copying. Records that were deleted while they were copied are added to `dead`."""

    def __init__(
        self,
        files: FileCalls,
        reader: Reader,
        table: FileTable,
        catalog: Catalog,
        *,
        manifest: Manifest,
        config: Config,
        unsynced: Unsynced,
        dead: list[Deletions],
        now_ms: int,
        random_bytes: Callable[[int], bytes],
        pause: Callable[[], Future[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], Task[None]],
        all_shared: bool = False,
    ) -> None:
        """all_shared: rows that share a frame are copied wherever that lies. Where not every shard goes on in another
        file, what says that they are there may be recycled before the frame is."""
        self._files = files
        self._reader = reader
        self._table = table
        self._catalog = catalog
        self._manifest = manifest
        self._config = config
        self._directory = config.data_dir
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._pause = pause
        self._spawn = spawn
        self._budget = config.checkpoint_bytes_per_pass
        self._all_shared = all_shared
        self.dead = dead
        self.emptied: list[Pack] = []
        """Packs whose last run was merged elsewhere."""
        self.unsynced = unsynced
        self.copied_rows = 0
        self.copied_bytes = 0
        self._small: list[_SmallCopy] = []
        self._small_bytes = 0
        self._small_reads = 0
        self._pack: _PackFile | None = None

    # --- what goes where ---------------------------------------------------------------------------------------------
    async def copy(self, topic_ids: Sequence[int], from_files: NDArray[np.uint32]) -> None:
        """Copies all live rows of these topics that lie in these files. Raises OSError, StorageError: what was not
        announced to the catalog by then is as if it had not been."""
        try:
            for number, topic_id in enumerate(topic_ids):
                if number % _TOPICS_PER_PASS == _TOPICS_PER_PASS - 1:
                    await self._pause()
                await self._copy_topic(topic_id, from_files)
            await self._flush_small()
            await self._finish_pack()
        except BaseException:
            await self._abandon_pack()
            raise

    async def _copy_topic(self, topic_id: int, from_files: NDArray[np.uint32]) -> None:
        catalog = self._catalog
        last_seq = catalog.bytes_in_files(topic_id, from_files).last_seq
        if self._all_shared:
            last_seq = max(last_seq, catalog.last_shared(topic_id))
        if not last_seq:
            return
        # What recovery skips is told by the highest seq copied, so nothing below it may stay in the log: a
        # copy by position may lie in an older file than a direct write before it.
        from_files = self._log_files()
        found = catalog.bytes_in_files(topic_id, from_files, last_seq=last_seq)
        size, first_seq = found.bytes, found.first_seq
        small: list[RowColumns] = []
        merged: set[tuple[int, int]] = set()
        has_segments = topic_id in self._manifest.segments
        runs = self._manifest.runs.get(topic_id, [])
        if not has_segments and runs and (len(runs) + 1 >= RUNS_MAX or size >= self._config.pack_run_bytes):
            packs = sorted({pack.file_id for pack, _ in runs})
            small = catalog.rows_in_files(topic_id, np.array(packs, np.uint32))
            merged = {(pack.number, run.number) for pack, run in runs}
            size += _bytes_of(small)
            first_seq = min([first_seq, *(int(part.seqs[0]) for part in small)])
        wide = found.last_seq - first_seq >= SEQ_SPAN_MAX
        if has_segments or wide or size >= self._config.pack_run_bytes:
            await self._to_segments(topic_id, small, from_files, found.last_seq)
            self._drop_runs(topic_id, merged)
            return
        small += catalog.rows_in_files(topic_id, from_files, last_seq=found.last_seq)
        self._small.append(_SmallCopy(topic_id, small, merged))
        self._small_bytes += size
        self._small_reads += sum(len(part.seqs) for part in small)
        if self._small_bytes >= self._budget or self._small_reads >= _READS_PER_PASS:
            await self._flush_small()

    def _log_files(self) -> NDArray[np.uint32]:
        return np.array([file.file_id for file in self._table if file.kind is FileKind.WAL], np.uint32)

    async def sync(self) -> None:
        """Everything written is durable, many files at a time, so that they share the journal's commits.

        Until then the catalog may already read copies that a crash would take: nobody is told that they are durable,
        and the log still has them. Raises OSError.
        """
        await self._in_parallel([sync_file(self._files, path) for path in self.unsynced.files])
        await self._in_parallel([self._files.sync_directory(path) for path in self.unsynced.directories])
        self.unsynced.files.clear()
        self.unsynced.directories.clear()

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

    def _drop_runs(self, topic_id: int, merged: set[tuple[int, int]]) -> None:
        if merged:
            packs = {number for number, _ in merged}
            self._manifest.drop_runs(topic_id, merged)
            self.emptied += [self._manifest.packs.pop(n) for n in packs if not self._manifest.packs[n].runs]

    # --- segments ----------------------------------------------------------------------------------------------------
    async def _to_segments(
        self, topic_id: int, before: list[RowColumns], from_files: NDArray[np.uint32], last_seq: int
    ) -> None:
        """Rows out of packs (`before`), then those in the log, a window at a time: a topic may have millions."""
        writer = _SegmentFile(self, topic_id)
        try:
            rows = before or self._window(topic_id, from_files, 0, last_seq)
            while rows:
                for part in rows:
                    for chunk in self._chunks(part):
                        if not await self._extend(writer, chunk):
                            return
                rows = self._window(topic_id, from_files, int(rows[-1].seqs[-1]) + 1, last_seq)
            writer.settle()
        finally:
            await writer.close()

    def _window(self, topic_id: int, from_files: NDArray[np.uint32], first_seq: int, last_seq: int) -> list[RowColumns]:
        return self._catalog.rows_in_files(
            topic_id, from_files, first_seq=first_seq, last_seq=last_seq, rows_max=_WINDOW_ROWS
        )

    async def _extend(self, writer: _SegmentFile, chunk: RowColumns) -> bool:
        """Rows into the topic's segments, sealing what is full; False when the topic is gone."""
        at = 0
        while at < len(chunk.seqs):
            if not self._catalog.exists(writer.topic_id):
                return False
            await writer.open(int(chunk.seqs[at]))
            taken = select(chunk, slice(at, at + writer.room(chunk.seqs[at:], chunk.lengths[at:])))
            if len(taken.seqs):
                await writer.append(taken)
            at += len(taken.seqs)
            if not len(taken.seqs) or writer.is_full():
                writer.settle()
                await self.seal(writer.segment)
        return True

    def _chunks(self, rows: RowColumns) -> Iterator[RowColumns]:
        """The rows in slices of at most the budget's bytes and a bounded number of reads (one row at least)."""
        ends = np.cumsum(rows.lengths, dtype=np.int64)
        apart = rows.offsets[1:].astype(np.int64) != rows.offsets[:-1].astype(np.int64) + rows.lengths[:-1]
        reads = np.concatenate(([0], np.cumsum(apart)))
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            end = int(np.searchsorted(ends, before + self._budget, side="right"))
            end = min(end, int(np.searchsorted(reads, int(reads[start]) + _READS_PER_PASS)))
            yield select(rows, slice(start, max(start + 1, end)))
            start = max(start + 1, end)

    async def seal(self, segment: Segment) -> None:
        """Writes index and footer of a segment whose rows the catalog knows to be there."""
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
            now_ms=self._now_ms,
            description=self._catalog.describe(segment.topic_id),
        )
        path = f"{self._directory}/{segment.path}"
        self.unsynced.files.update({path: None, index_path(path): None})
        self.unsynced.directories[f"{self._directory}/{topic_directory(segment.topic_id)}"] = None
        self._table[segment.file_id].size = self._files.file_size(f"{self._directory}/{segment.path}")

    # --- packs -------------------------------------------------------------------------------------------------------
    async def _flush_small(self) -> None:
        """Reads what was collected in one go and adds it to the pack, a run a topic."""
        small, self._small, self._small_bytes, self._small_reads = self._small, [], 0, 0
        ranges = [[(part.file_id, *piece) for part in entry.rows for piece in _pieces(part)] for entry in small]
        views = await self.fetch([Piece(*piece) for entry in ranges for piece in entry]) if small else []
        at = 0
        for entry, pieces in zip(small, ranges, strict=True):
            data = own_frames(b"".join(views[at : at + len(pieces)]), entry.topic_id, entry.rows)
            at += len(pieces)
            if self._catalog.exists(entry.topic_id):
                await self._add_run(entry, data)

    async def _add_run(self, entry: _SmallCopy, data: bytes) -> None:
        description = self._catalog.describe(entry.topic_id)  # it may be deleted while we wait
        seqs = np.concatenate([part.seqs for part in entry.rows])
        scan = check_copied(data, 0, entry.topic_id, seqs, 0)
        if self._pack is None:
            self._pack = await _PackFile.create(self)
        pack = self._pack
        run, frames_at = pack.writer.add_run(scan, data, description)
        offsets = (scan.frames["offset"] + frames_at).astype(np.uint32)
        pack.placed.append(_Placed(entry.topic_id, seqs, offsets, scan.frames["length"].copy()))
        pack.runs.append(run)
        pack.merged.append((entry.topic_id, entry.merged))
        if pack.writer.pending_bytes >= self._budget:
            await pack.write(pack.writer.take())
        if pack.writer.position >= self._config.segment_max_bytes:
            await self._finish_pack()

    async def _finish_pack(self) -> None:
        pack = self._pack
        if pack is None:
            return
        await pack.write(pack.writer.finish())
        self.unsynced.files[pack.path] = None
        self.unsynced.directories[f"{self._directory}/{PACK_DIRECTORY}"] = None
        self._pack = None
        await self._files.close(pack.fd)
        entry = Pack(
            pack.writer.number, pack.writer.epoch, pack.writer.position, {run.number: run for run in pack.runs}
        )
        stored = self._table.add(FileKind.PACK, pack.path, size=entry.size)
        entry.file_id = stored.file_id
        self._manifest.add_pack(entry)
        for placed in pack.placed:
            self.announce(placed, entry.file_id)
        for topic_id, merged in pack.merged:
            self._drop_runs(topic_id, merged)

    async def _abandon_pack(self) -> None:
        pack, self._pack = self._pack, None
        if pack is not None:
            await self._files.close(pack.fd)
            await unlink_if_there(self._files, pack.path)

    # --- shared ------------------------------------------------------------------------------------------------------
    def announce(self, placed: _Placed, file_id: int) -> None:
        """Tells the catalog, and keeps what died meanwhile for flagging."""
        died = self._catalog.moved(placed.topic_id, placed.seqs, file_id, placed.offsets, placed.lengths)
        self.copied_rows += len(placed.seqs)
        self.copied_bytes += int(placed.lengths.sum(dtype=np.int64))
        if len(died):
            at = np.searchsorted(placed.seqs, died)
            self.dead.append(Deletions(placed.topic_id, file_id, died, placed.offsets[at], placed.lengths[at]))

    async def fetch(self, pieces: list[Piece]) -> list[bytes]:
        """Copies of the pieces' bytes. Raises StorageError."""
        future: Future[list[bytes]] = Future()

        def on_fetched(result: Fetched) -> None:
            if isinstance(result, StorageError):
                future.set_error(result)
            else:
                future.set_result([bytes(view) for view in result])

        self._reader.fetch(pieces, on_fetched)
        return await future

    @property
    def context(self) -> tuple[FileCalls, str, FileTable, Manifest, Catalog, Config]:
        return self._files, self._directory, self._table, self._manifest, self._catalog, self._config

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def new_epoch(self) -> int:
        return int.from_bytes(self._random_bytes(8), "little") | 1


class _SegmentFile:
    """The growing segment of one topic while a checkpoint writes to it; `close` takes back what was not settled."""

    def __init__(self, relocation: Relocation, topic_id: int) -> None:
        self._relocation = relocation
        self._files, self._directory, self._table, self._manifest, self._catalog, self._config = relocation.context
        self.topic_id = topic_id
        self._segment: Segment | None = None
        self._settled: Segment | None = None
        self._fd = -1
        self._placed: list[_Placed] = []

    @property
    def segment(self) -> Segment:
        assert self._segment is not None, "open comes first"
        return self._segment

    async def open(self, first_seq: int) -> None:
        """Makes sure of a segment that takes a record of this seq: the topic's unsealed one, or a new one."""
        if self._segment is not None and not self._segment.sealed:
            return
        description = self._catalog.describe(self.topic_id)  # it may be deleted while we wait
        await self._close_file()
        segment = self._manifest.tail(self.topic_id)
        if segment is None:
            segment = await self._create(first_seq, description)
        else:
            await cut_back(self._files, self._directory, segment)
        self._fd = await self._files.open(f"{self._directory}/{segment.path}", os.O_RDWR)
        self._segment = segment
        self._settled = copy.copy(segment)

    async def _create(self, first_seq: int, description: bytes) -> Segment:
        directory = topic_directory(self.topic_id)
        changed = make_directories(self._files, self._directory, directory)
        segment = await create_segment(
            self._files,
            self._directory,
            topic_id=self.topic_id,
            first_seq=first_seq,
            epoch=self._relocation.new_epoch(),
            now_ms=self._relocation.now_ms,
            description=description,
        )
        for name in (*changed, f"{self._directory}/{directory}"):
            self._relocation.unsynced.directories[name] = None
        segment.last_seq = first_seq - 1
        path = f"{self._directory}/{segment.path}"
        segment.file_id = self._table.add(FileKind.SEGMENT, path, size=segment.frames_end).file_id
        self._manifest.add_segment(segment)
        return segment

    def room(self, seqs: NDArray[np.uint64], lengths: NDArray[np.uint32]) -> int:
        """How many of these records still go into the segment: one at least, unless their seqs are too far away."""
        segment = self.segment
        space = self._config.segment_max_bytes - segment.frames_end
        fitting = int(np.searchsorted(np.cumsum(lengths, dtype=np.int64), space, side="right"))
        near = int(np.searchsorted(seqs, np.uint64(segment.first_seq + SEQ_SPAN_MAX)))
        return min(near, max(1, min(fitting, self._config.segment_max_events - segment.records)))

    def is_full(self) -> bool:
        segment = self.segment
        return (
            segment.records >= self._config.segment_max_events or segment.frames_end >= self._config.segment_max_bytes
        )

    async def append(self, rows: RowColumns) -> None:
        """Copies and verifies; `settle` makes it count."""
        segment = self.segment
        pieces = await self._relocation.fetch([Piece(rows.file_id, *piece) for piece in _pieces(rows)])
        data = own_frames(b"".join(pieces), self.topic_id, [rows])
        scan = check_copied(data, segment.sum, self.topic_id, rows.seqs, segment.frames_end)
        offsets = scan.frames["offset"].astype(np.uint32)
        # scan_frames counts its position from the bytes given, so `frames_end` grows by it.
        await self._files.write_all(self._fd, data, segment.frames_end)
        extend(segment, scan)
        self._placed.append(_Placed(self.topic_id, rows.seqs, offsets, scan.frames["length"].copy()))

    def settle(self) -> None:
        """Tells the catalog where the records are now; `Relocation.sync` follows before the snapshot."""
        if not self._placed:
            return
        segment = self.segment
        self._relocation.unsynced.files[f"{self._directory}/{segment.path}"] = None
        self._table[segment.file_id].size = segment.frames_end
        placed, self._placed = self._placed, []
        self._settled = copy.copy(segment)
        for entry in placed:
            self._relocation.announce(entry, segment.file_id)

    async def close(self) -> None:
        """Ends; what was written but not settled (an error came) does not count."""
        await self._close_file()
        segment, settled = self._segment, self._settled
        if segment is None or settled is None or not self._placed:
            return
        segment.last_seq, segment.last_ts, segment.records = settled.last_seq, settled.last_ts, settled.records
        segment.size, segment.frames_end, segment.sum = settled.size, settled.frames_end, settled.sum
        if segment.records == 0:
            self._manifest.drop_segment(segment)
            self._table.remove(self._table[segment.file_id])
            await unlink_if_there(self._files, f"{self._directory}/{segment.path}")

    async def _close_file(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            await self._files.close(fd)


class _PackFile:
    """The pack being written."""

    def __init__(self, files: FileCalls, path: str, fd: int, writer: PackWriter) -> None:
        self._files = files
        self.path = path
        self.fd = fd
        self.writer = writer
        self.placed: list[_Placed] = []
        self.runs: list[Run] = []
        self.merged: list[tuple[int, set[tuple[int, int]]]] = []
        self._written = 0

    @classmethod
    async def create(cls, relocation: Relocation) -> _PackFile:
        files, directory, _table, manifest, _catalog, _config = relocation.context
        for changed in make_directories(files, directory, PACK_DIRECTORY):
            relocation.unsynced.directories[changed] = None
        writer = PackWriter(manifest.next_pack, relocation.new_epoch(), relocation.now_ms)
        manifest.next_pack += 1
        path = f"{directory}/{pack_path(writer.number)}"
        return cls(files, path, await files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), writer)

    async def write(self, data: bytes) -> None:
        await self._files.write_all(self.fd, data, self._written)
        self._written += len(data)


def _nothing() -> None:
    pass


def own_frames(data: bytes, topic_id: int, rows: list[RowColumns]) -> bytes:
    """The frames of these rows, back to back in `data`: those of copies made anew, as frames of the topic's own."""
    if not any((part.flags & FLAG_COPY).any() for part in rows):
        return data
    lengths = np.concatenate([part.lengths for part in rows])
    offsets = (np.cumsum(lengths, dtype=np.uint64) - lengths).astype(np.uint32)
    seqs, ts, flags = (np.concatenate([getattr(part, name) for part in rows]) for name in ("seqs", "ts", "flags"))
    return bytes(codec.reframe(data, 0, offsets, lengths, seqs, ts, flags, topic_id).data)


def _bytes_of(rows: list[RowColumns]) -> int:
    return sum(int(part.lengths.sum(dtype=np.int64)) for part in rows)


def _pieces(rows: RowColumns) -> list[tuple[int, int]]:
    return contiguous(rows.offsets, rows.lengths)
