"""A checkpoint on a full disk, or one with little space: it needs little and gives back as much as it can.

An ordinary one begins a new log file and copies all live records before anything is freed; one that ran out of space
half-way would leave nothing for its own snapshot, and none could follow. With no space for that, the log goes on in the
file it is in, and only so many of its oldest files are emptied as what lives in them can be copied: after deletes that
is nothing, and the files are free at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from topics.config import Config
from topics.store.format.catalog import Catalog
from topics.store.format.file_table import FileTable, StoredFile
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.format.segment_format import ROW_BYTES
from topics.store.segments.manifest import Manifest
from topics.store.wal.sharded_log import ShardedLog
from topics.store.wal.wal_files import place

_COPIES_PART = 75
"""Percent of the free space that copies may take at most; the rest is for the log."""
_PACK_BYTES = 3 * BLOCK_BYTES
"""Of a pack, beside its runs: header, footer, and a name in its directory."""
_RUN_BYTES = 512
"""Of a run, beside its rows: header, description of the topic, row of the table."""
_LOG_TIMES_AMPLE = 16
"""So many times of what the log holds is enough space, without a look at what lives in it."""


def live_rows(table: FileTable) -> int:
    """Of all files. On a full disk it only falls; a checkpoint is worth another attempt when it has."""
    return sum(file.live_rows for file in table)


class LowSpace:
    """Reckons what copies take."""

    def __init__(self, catalog: Catalog, manifest: Manifest, table: FileTable, log: ShardedLog, config: Config) -> None:
        self._catalog = catalog
        self._manifest = manifest
        self._table = table
        self._log = log
        self._segment_rows = config.segment_max_events
        self._run_bytes = config.pack_run_bytes
        self.lacking_bytes = 0
        """Of free space, to choose one more file than `affordable` did."""

    def is_tight(self, snapshot_bytes: int) -> bool:
        """Copies of all that lives in the log would take more than they may. snapshot_bytes: left to the next snapshot.

        Routers make several records of one frame, each of which is copied: what the log holds says little.
        """
        space = self._log.space
        if not space.lacks(_LOG_TIMES_AMPLE * self._log.held_bytes + snapshot_bytes):
            return False
        ids = self._log_files()
        copied_bytes = _PACK_BYTES
        for topic_id in self._catalog.topics_in_log():
            found = self._catalog.bytes_in_files(topic_id, ids)
            copied_bytes += self._copied_bytes(topic_id, found.rows, found.bytes)
        return space.lacks(max(copied_bytes * 100 // _COPIES_PART, copied_bytes + snapshot_bytes))

    def affordable_bytes(self, copied_part: float) -> int:
        """Of log: half of those whose copies there is space for, a file of each shard at least.

        copied_part: bytes of copies for each of them.

        With more than that in the log, a disk that gets full has no space to empty its files, whatever is deleted.
        """
        try:
            free = self._log.space.free_bytes()
        except OSError:
            return self._log.sizes.checkpoint
        sizes = self._log.sizes
        return max(sizes.shards * sizes.file, int(free * _COPIES_PART / 200 / max(1.0, copied_part)))

    def affordable(self, left: Iterable[StoredFile], snapshot_bytes: int) -> list[StoredFile]:
        """Of each shard's log files in `left`, oldest first, those whose live records there is space to copy.

        Always the first files of a shard: what is replayed begins with a file and goes on to the log's end. With
        several shards all records that share a frame are copied with the first file chosen: a frame that tells of some
        may lie in one shard, the frame they share in another, and those that refer to them in a third. Raises OSError.
        """
        free = self._log.space.free_bytes()
        budget = max(0, min(free * _COPIES_PART // 100, free - snapshot_bytes))
        files = sorted(left, key=lambda file: file.path)
        live, packed = self._costs(np.array(sorted(file.file_id for file in files), np.uint32))
        shared = self._cost_of_shared() if len(self._log.shards) > 1 else 0
        chosen: list[StoredFile] = []
        ended: set[int] = set()
        has_pack = False
        for file in files:
            shard, _ = place(file)
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

    def _costs(self, file_ids: NDArray[np.uint32]) -> tuple[Counter[int], set[int]]:
        """Of what lives in each file, and the files of which some goes into a pack."""
        live: Counter[int] = Counter()
        packed: set[int] = set()
        for topic_id in self._catalog.topics_in_log():
            for rows in self._catalog.rows_in_files(topic_id, file_ids):
                frame_bytes = int(rows.lengths.sum(dtype=np.int64))
                live[rows.file_id] += self._copied_bytes(topic_id, len(rows.seqs), frame_bytes)
                if self._is_small(topic_id, frame_bytes):
                    packed.add(rows.file_id)
        return live, packed

    def _cost_of_shared(self) -> int:
        cost, ids = 0, self._log_files()
        for topic_id in self._catalog.topics_in_log():
            if last_seq := self._catalog.last_shared(topic_id):
                found = self._catalog.bytes_in_files(topic_id, ids, last_seq=last_seq)
                cost += self._copied_bytes(topic_id, found.rows, found.bytes)
        return cost

    def _copied_bytes(self, topic_id: int, rows: int, frame_bytes: int) -> int:
        """On the disk, of some of a topic's rows: frames and index, as a run of a pack, or each segment's rounded up to
        blocks."""
        if not rows:
            return 0
        size = frame_bytes + rows * ROW_BYTES
        if self._is_small(topic_id, frame_bytes):
            return size + _RUN_BYTES
        segments = 1 + (rows // self._segment_rows if self._segment_rows else 0)
        return size + segments * 2 * BLOCK_BYTES

    def _is_small(self, topic_id: int, frame_bytes: int) -> bool:
        """So many bytes of a topic go into a pack."""
        return frame_bytes < self._run_bytes and topic_id not in self._manifest.segments

    def _log_files(self) -> NDArray[np.uint32]:
        return np.array([file.file_id for file in self._table.of_log()], np.uint32)
