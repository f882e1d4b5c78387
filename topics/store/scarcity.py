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

from topics.store.catalog import Catalog
from topics.store.filetable import FileKind, FileTable, StoredFile
from topics.store.format import BLOCK_BYTES
from topics.store.log import Log
from topics.store.segment_format import ROW_BYTES
from topics.store.walfile import place

_COPIES_PART = 75
"""Percent of the free space that copies may take at most; the rest is for the log."""
_LOG_TIMES_AMPLE = 16
"""So many times of what the log holds is enough space, without a look at what lives in it."""


def live_rows(table: FileTable) -> int:
    """Of all files. On a full disk it only falls; a checkpoint is worth another attempt when it has."""
    return sum(file.live_rows for file in table)


class Scarcity:
    """Reckons what copies take."""

    def __init__(self, catalog: Catalog, table: FileTable, log: Log, *, segment_rows: int) -> None:
        self._catalog = catalog
        self._table = table
        self._log = log
        self._segment_rows = segment_rows

    def is_tight(self, snapshot_bytes: int) -> bool:
        """Copies of all that lives in the log would take more than they may. snapshot_bytes: left to the next snapshot.

        Routers make several records of one frame, each of which is copied: what the log holds says little.
        """
        space = self._log.space
        if not space.lacks(_LOG_TIMES_AMPLE * self._log.held_bytes + snapshot_bytes):
            return False
        ids = self._log_files()
        found = [self._catalog.bytes_in_files(topic, ids) for topic in self._catalog.topics_in_log()]
        copied_bytes = sum(self._copied_bytes(part.rows, part.bytes) for part in found)
        return space.lacks(max(copied_bytes * 100 // _COPIES_PART, copied_bytes + snapshot_bytes))

    def affordable(self, left: Iterable[StoredFile], snapshot_bytes: int) -> list[StoredFile]:
        """Of each shard's log files in `left`, oldest first, those whose live records there is space to copy.

        Always the first files of a shard: what is replayed begins with a file and goes on to the log's end. With
        several shards all records that share a frame are copied with the first file chosen: a frame that tells of some
        may lie in one shard, the frame they share in another, and those that refer to them in a third. Raises OSError.
        """
        free = self._log.space.free_bytes()
        budget = max(0, min(free * _COPIES_PART // 100, free - snapshot_bytes))
        files = sorted(left, key=lambda file: file.path)
        live = self._costs(np.array(sorted(file.file_id for file in files), np.uint32))
        shared = self._cost_of_shared() if len(self._log.shards) > 1 else 0
        chosen: list[StoredFile] = []
        ended: set[int] = set()
        for file in files:
            shard, _ = place(file)
            cost = live[file.file_id] + (shared if not chosen else 0)
            if shard in ended or cost > budget:
                ended.add(shard)
                continue
            budget -= cost
            chosen.append(file)
        return chosen

    def _costs(self, file_ids: NDArray[np.uint32]) -> Counter[int]:
        """Of what lives in each file."""
        live: Counter[int] = Counter()
        for topic_id in self._catalog.topics_in_log():
            for rows in self._catalog.rows_in_files(topic_id, file_ids):
                live[rows.file_id] += self._copied_bytes(len(rows.seqs), int(rows.lengths.sum(dtype=np.int64)))
        return live

    def _cost_of_shared(self) -> int:
        cost, ids = 0, self._log_files()
        for topic_id in self._catalog.topics_in_log():
            if last_seq := self._catalog.last_shared(topic_id):
                found = self._catalog.bytes_in_files(topic_id, ids, last_seq=last_seq)
                cost += self._copied_bytes(found.rows, found.bytes)
        return cost

    def _copied_bytes(self, rows: int, frame_bytes: int) -> int:
        """On the disk, of some of a topic's rows: frames and index, each segment's rounded up to blocks."""
        if not rows:
            return 0
        segments = 1 + (rows // self._segment_rows if self._segment_rows else 0)
        return frame_bytes + rows * ROW_BYTES + segments * 2 * BLOCK_BYTES

    def _log_files(self) -> NDArray[np.uint32]:
        return np.array(sorted(file.file_id for file in self._table if file.kind is FileKind.WAL), np.uint32)
