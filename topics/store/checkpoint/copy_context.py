"""The context of one checkpoint's copying: sources of records, and the catalog to update."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.config import Config
from topics.errors import StorageError
from topics.loop.tasks import Future
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.disk.time_slices import TimeSlices
from topics.store.disk.whole_files import FileCalls, in_place
from topics.store.format.catalog import CheckpointCatalog, Deletions, FewRows, RowColumns
from topics.store.format.file_table import FileTable
from topics.store.layouts.segment_format import DescriptionPieces
from topics.store.read.file_range import FileRange
from topics.store.read.own_frames import own_frames, share_frames
from topics.store.read.reader import Fetched, Reader
from topics.store.segments.manifest import Manifest

log = logging.getLogger(__name__)

SEQ_SPAN_MAX = 1 << 32
"""Bound on a segment's seqs: index columns hold the distance from the first one in 32 bits."""


class Unsynced(NamedTuple):
    """Files and directories to sync before the next snapshot; outlives a checkpoint that failed."""

    files: dict[str, None]
    directories: dict[str, None]
    """Directories with new entries."""


class Placed(NamedTuple):
    """Records that were written, but not announced to the catalog yet."""

    topic_id: int
    seqs: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


class CopyContext:
    """The context of one checkpoint.

    Records that were deleted while they were copied are added to `dead`.

    given_up: ids of files that the manifest no longer lists.

    `unsynced`, `dead` and `given_up` outlive a checkpoint that fails, because the next one has to
    complete its work.
    """

    def __init__(
        self,
        files: FileCalls,
        reader: Reader,
        table: FileTable,
        catalog: CheckpointCatalog,
        *,
        manifest: Manifest,
        config: Config,
        unsynced: Unsynced,
        dead: list[Deletions],
        given_up: list[int],
        now_ms: int,
        random_bytes: Callable[[int], bytes],
        clock: Clock,
        counters: CheckpointCounters,
    ) -> None:
        self.files = files
        self._reader = reader
        self.table = table
        self.catalog = catalog
        self.manifest = manifest
        self.config = config
        self.directory = config.data_dir
        self.unsynced = unsynced
        self.dead = dead
        self.given_up = given_up
        self.now_ms = now_ms
        self._random_bytes = random_bytes
        self.clock = clock
        self.counters = counters
        self.copied_rows = 0
        self.copied_bytes = 0

    def announce(self, placed: Placed, file_id: int) -> None:
        """Announce copies to the catalog; records deleted meanwhile are added to `dead`."""
        self.copied_rows += len(placed.seqs)
        self.copied_bytes += int(np.add.reduce(placed.lengths, dtype=np.int64))
        self._announce(placed, file_id)

    def _announce(self, placed: Placed, file_id: int) -> None:
        died = self.catalog.moved(placed.topic_id, placed.seqs, file_id, placed.offsets, placed.lengths)
        if len(died):
            at = np.searchsorted(placed.seqs, died)
            self.dead.append(Deletions(placed.topic_id, file_id, died, placed.offsets[at], placed.lengths[at]))

    def announce_few(self, few: FewRows, file_id: int, offsets: NDArray[np.uint32]) -> None:
        """Announce copies of topics with few rows, which are at these offsets."""
        changed = self.catalog.moved_few(few, file_id, offsets)
        self.copied_rows += len(few.lengths)
        self.copied_bytes += int(np.add.reduce(few.lengths, dtype=np.int64))
        ends = np.cumsum(few.counts)
        for at in changed:
            rows = slice(int(ends[at] - few.counts[at]), int(ends[at]))
            placed = Placed(int(few.topic_ids[at]), few.seqs[rows], offsets[rows], few.lengths[rows])
            self._announce(placed, file_id)

    async def description_of(self, topic_id: int, turns: TimeSlices) -> bytes:
        """Return the description of a topic with few records; as `described`."""
        return b"".join((await self.described(topic_id, turns)).pieces)

    async def described(self, topic_id: int, turns: TimeSlices) -> DescriptionPieces:
        """Return the description of a topic that exists now; it may be deleted meanwhile."""
        steps = self.catalog.describe(topic_id)
        described = DescriptionPieces()
        while True:
            with turns.working():
                piece = next(steps, None)
                described.add(piece or b"")
            if piece is None:
                return described
            await turns.turn()

    def begin_fetch(self, pieces: list[FileRange], memory: memoryview | None = None) -> Future[list[memoryview]]:
        """Begin to read pieces; the future's bytes belong to the caller, or it has a StorageError.

        Bytes in memory are copied in this call. memory: where one piece may be read to.
        """
        future: Future[list[memoryview]] = Future()
        at_once = True

        def on_fetched(result: Fetched) -> None:
            if isinstance(result, StorageError):
                future.set_error(result)
            else:
                # Bytes that come at once are in the hot tail, which changes; bytes read from a file
                # are the caller's.
                future.set_result([_kept(view, memory) for view in result] if at_once else result)

        self._reader.fetch_once(pieces, on_fetched, memory)
        at_once = False
        return future

    async def sync(self, fd: int) -> None:
        """Sync a file. Raises OSError: see `in_place`."""
        await in_place(self.files.fsync(fd))

    def new_epoch(self) -> int:
        """Return a random number, never 0, that no earlier file of this name has."""
        return int.from_bytes(self._random_bytes(8), "little") | 1


def _kept(view: memoryview, memory: memoryview | None) -> memoryview:
    if memory is None:
        return memoryview(bytes(view))
    memory[: len(view)] = view
    return memory[: len(view)]


def joined_frames(views: list[memoryview], topic_id: int, rows: list[RowColumns]) -> bytes | memoryview:
    """Return the frames of these rows as frames of the topic's own.

    `views` has the rows' frames without gaps between them. Raises CorruptError.
    """
    data = views[0] if len(views) == 1 else b"".join(views)
    if not any(share_frames(part.flags) for part in rows):
        return data
    lengths = np.concatenate([part.lengths for part in rows])
    offsets = (np.cumsum(lengths, dtype=np.uint64) - lengths).astype(np.uint32)
    seqs, ts, flags = (np.concatenate([getattr(part, name) for part in rows]) for name in ("seqs", "ts", "flags"))
    joined = rows[0]._replace(seqs=seqs, offsets=offsets, lengths=lengths, ts=ts, flags=flags)
    return bytes(own_frames(topic_id, data, 0, joined).data)


@contextlib.contextmanager
def giving_up() -> Iterator[None]:
    """Log errors of the code inside, which takes back a copy after an error.

    The first error is raised.
    """
    try:
        yield
    except OSError as error:
        log.warning("a copy that was given up stays on the disk (%s): the next start removes it", error)
