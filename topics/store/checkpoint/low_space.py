"""A checkpoint with little or no free space: it needs little space and frees as much as it can.

An ordinary one begins a new log file and copies all live records before anything is freed. One that
ran out of space half-way would leave none for its own snapshot, and none could follow. Without
space for that, the log stays in its current file, and only those of its oldest files are emptied
whose live records can be copied. After deletes there are none, and the files are free at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from topics.config import Config
from topics.store.disk.time_slices import TimeSlices
from topics.store.format.catalog import SEQ_MAX, CheckpointCatalog
from topics.store.format.file_table import FileTable, StoredFile
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.layouts.index_format import INDEX_ROW_BYTES
from topics.store.segments.manifest import Manifest
from topics.store.wal.sharded_log import ShardedLog
from topics.store.wal.wal_files import shard_and_number

_COPIES_PART = 75
"""Percent of the free space that copies may take at most; the rest is for the log."""
_PACK_BYTES = 3 * BLOCK_BYTES
"""Bytes of a pack beside its runs: header, footer, and a name in its directory."""
_RUN_BYTES = 512
"""Bytes of a run beside its rows: header, description of the topic, row of the table."""
_ROWS_A_LOOK = 65_536
"""Rows per step, half a millisecond."""
_LOG_TIMES_AMPLE = 16
"""Factor by which free space that exceeds the log is enough, without a look at its live records."""


def live_rows(table: FileTable) -> int:
    """Return the live rows of all files.

    On a full disk the number only falls, and another attempt is worthwhile once it has.
    """
    return sum(file.live_rows for file in table)


class LowSpace:
    """The estimate of what copies take.

    It looks at all live records of the log, in turns with other work.
    """

    def __init__(  # noqa: PLR0917 - called in one place
        self,
        catalog: CheckpointCatalog,
        manifest: Manifest,
        table: FileTable,
        log: ShardedLog,
        config: Config,
        turns: TimeSlices,
    ) -> None:
        self._catalog = catalog
        self._manifest = manifest
        self._table = table
        self._log = log
        self._segment_rows = config.segment_max_events
        self._run_bytes = config.pack_run_bytes
        self._turns = turns
        self._topics_per_pass = max(1, config.checkpoint_topics_per_pass)
        self._looks = 0
        """Calls of the catalog since the last rest."""
        self.lacking_bytes = 0
        """Free space that `affordable` lacked to choose one more file."""

    async def is_tight(self, snapshot_bytes: int) -> bool:
        """Return whether copies of all live records in the log would take more space than they may.

        snapshot_bytes: left to the next snapshot.

        Routers make several records of one frame, each of which is copied, so the bytes of the log
        are no measure.
        """
        space = self._log.space
        if not space.lacks(_LOG_TIMES_AMPLE * self._log.held_bytes + snapshot_bytes):
            return False
        ids = self._table.log_ids()
        copied_bytes = _PACK_BYTES
        for topic_id in self._catalog.topics_in_log():
            rows, frame_bytes = await self._bytes_in(topic_id, ids)
            copied_bytes += self._copied_bytes(topic_id, rows, frame_bytes)
        return space.lacks(max(copied_bytes * 100 // _COPIES_PART, copied_bytes + snapshot_bytes))

    def affordable_bytes(self, copied_part: float) -> int:
        """Return the bytes of log whose copies take half the space for copies.

        It is at least a file of each shard.

        copied_part: bytes of copies per byte of log.

        With more than that in the log, a disk that becomes full has no space to empty its files,
        whatever is deleted.
        """
        try:
            free = self._log.space.free_bytes()
        except OSError:
            return self._log.sizes.checkpoint
        sizes = self._log.sizes
        return max(sizes.shards * sizes.file, int(free * _COPIES_PART / 200 / max(1.0, copied_part)))

    async def affordable(self, left: Iterable[StoredFile], snapshot_bytes: int) -> list[StoredFile]:
        """Return the log files of `left` whose live records there is space to copy, oldest first.

        They are always the first files of a shard, because replay begins with a file and continues
        to the log's end. With several shards all records that share a frame are copied with the
        first file chosen: a frame that records some may be in one shard, the frame they share in
        another, and records that refer to them in a third.

        Raises: OSError.
        """
        files = sorted(left, key=lambda file: file.path)
        live, packed = await self._costs(np.array(sorted(file.file_id for file in files), np.uint32))
        shared = await self._cost_of_shared() if len(self._log.shards) > 1 else 0
        free = self._log.space.free_bytes()  # now, since others wrote meanwhile
        budget = max(0, min(free * _COPIES_PART // 100, free - snapshot_bytes))
        chosen: list[StoredFile] = []
        ended: set[int] = set()
        has_pack = False
        for file in files:
            shard, _ = shard_and_number(file)
            cost = live[file.file_id] + (shared if not chosen else 0)
            begins_pack = file.file_id in packed and not has_pack
            cost += _PACK_BYTES if begins_pack else 0
            if shard in ended or cost > budget:
                if not ended:
                    self.lacking_bytes = (cost - budget) * 100 // _COPIES_PART
                ended.add(shard)
                continue
            budget -= cost
            has_pack |= begins_pack
            chosen.append(file)
        return chosen

    async def _costs(self, file_ids: NDArray[np.uint32]) -> tuple[Counter[int], set[int]]:
        """Return the bytes of copies by file, and the files with records to copy into a pack."""
        live: Counter[int] = Counter()
        packed: set[int] = set()
        for topic_id in self._catalog.topics_in_log():
            left, _ = await self._bytes_in(topic_id, file_ids)
            for file_id in file_ids.tolist():
                if left <= 0:
                    break  # most topics have rows in few files
                rows, frame_bytes = await self._bytes_in(topic_id, np.array([file_id], np.uint32))
                left -= rows
                live[file_id] += self._copied_bytes(topic_id, rows, frame_bytes)
                if rows and self._is_small(topic_id, frame_bytes):
                    packed.add(file_id)
        return live, packed

    async def _cost_of_shared(self) -> int:
        cost, ids = 0, self._table.log_ids()
        for topic_id in self._catalog.topics_in_log():
            if last_seq := self._catalog.last_shared(topic_id):
                rows, frame_bytes = await self._bytes_in(topic_id, ids, last_seq)
                cost += self._copied_bytes(topic_id, rows, frame_bytes)
        return cost

    async def _bytes_in(self, topic_id: int, file_ids: NDArray[np.uint32], last_seq: int = SEQ_MAX) -> tuple[int, int]:
        """Return how many rows of the topic are live in the files, and their bytes of frames."""
        rows = frame_bytes = first_seq = 0
        while True:
            self._looks += 1
            if self._turns.over or self._looks >= self._topics_per_pass:
                await self._turns.rest()
                self._looks = 0
            found = self._catalog.bytes_in_files(
                topic_id, file_ids, first_seq=first_seq, last_seq=last_seq, rows_max=_ROWS_A_LOOK
            )
            rows, frame_bytes, first_seq = rows + found.rows, frame_bytes + found.bytes, found.last_seq + 1
            if found.rows < _ROWS_A_LOOK:
                return rows, frame_bytes

    def _copied_bytes(self, topic_id: int, rows: int, frame_bytes: int) -> int:
        """Return the bytes on the disk of copies of a topic's rows: frames and index.

        They are in a run of a pack, or in segments, each rounded up to blocks.
        """
        if not rows:
            return 0
        size = frame_bytes + rows * INDEX_ROW_BYTES
        if self._is_small(topic_id, frame_bytes):
            return size + _RUN_BYTES
        segments = 1 + (rows // self._segment_rows if self._segment_rows else 0)
        return size + segments * 2 * BLOCK_BYTES

    def _is_small(self, topic_id: int, frame_bytes: int) -> bool:
        """Return whether this many bytes of a topic are copied into a pack."""
        return frame_bytes < self._run_bytes and topic_id not in self._manifest.segments
