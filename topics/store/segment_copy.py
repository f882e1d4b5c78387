"""Records copied into the growing segment of one topic. Source of the format: segment_format.py."""

from __future__ import annotations

import copy
import os

import numpy as np
from numpy.typing import NDArray

from topics.store.catalog import RowColumns
from topics.store.copying import SEQ_SPAN_MAX, Copying, Placed
from topics.store.filecalls import make_directories, unlink_if_there
from topics.store.filetable import FileKind
from topics.store.gathering import Gathering
from topics.store.manifest import Segment
from topics.store.segment import create_segment, cut_back, extend
from topics.store.segment_format import topic_directory


class SegmentCopy:
    """The growing segment of one topic while a checkpoint writes to it; `close` takes back what was not settled."""

    def __init__(self, copying: Copying, gathering: Gathering, topic_id: int) -> None:
        self._copying = copying
        self._gathering = gathering
        self._files = copying.files
        self._directory = copying.directory
        self._table = copying.table
        self._manifest = copying.manifest
        self._config = copying.config
        self.topic_id = topic_id
        self._segment: Segment | None = None
        self._settled: Segment | None = None
        self._fd = -1
        self._placed: list[Placed] = []
        self._is_new = False
        """The segment is not listed yet."""

    @property
    def segment(self) -> Segment:
        assert self._segment is not None, "open comes first"
        return self._segment

    async def open(self, first_seq: int) -> None:
        """Makes sure of a segment that takes a record of this seq: the topic's unsealed one, or a new one."""
        if self._segment is not None and not self._segment.sealed:
            return
        description = self._copying.catalog.describe(self.topic_id)  # it may be deleted while we wait
        await self._close_file()
        segment = self._manifest.tail(self.topic_id)
        if segment is None:
            self._segment = segment = await self._create(first_seq, description)
            self._is_new = True
        else:
            await cut_back(self._files, self._directory, segment)
        self._fd = await self._files.open(f"{self._directory}/{segment.path}", os.O_RDWR)
        self._segment = segment
        self._settled = copy.copy(segment)

    async def _create(self, first_seq: int, description: bytes) -> Segment:
        directory = topic_directory(self.topic_id)
        unsynced = self._copying.unsynced.directories
        make_directories(self._files, self._directory, directory, unsynced)
        unsynced[f"{self._directory}/{directory}"] = None
        segment = await create_segment(
            self._files,
            self._directory,
            topic_id=self.topic_id,
            first_seq=first_seq,
            epoch=self._copying.new_epoch(),
            now_ms=self._copying.now_ms,
            description=description,
        )
        segment.last_seq = first_seq - 1
        path = f"{self._directory}/{segment.path}"
        segment.file_id = self._table.add(FileKind.SEGMENT, path, size=segment.frames_end).file_id
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
        gathered = await self._gathering.gather(rows, self.topic_id, segment.sum)
        lengths = gathered.lengths
        ends = np.cumsum(lengths, dtype=np.uint64) + np.uint64(segment.frames_end)
        await self._files.write_all(self._fd, gathered.data, segment.frames_end)
        extend(segment, gathered.extension)
        self._placed.append(Placed(self.topic_id, rows.seqs, (ends - lengths).astype(np.uint32), lengths))

    def settle(self) -> None:
        """Tells the catalog where the records are now; `Relocation.sync` follows before the snapshot."""
        if not self._placed:
            return
        segment = self.segment
        self._copying.unsynced.files[f"{self._directory}/{segment.path}"] = None
        self._table[segment.file_id].size = segment.frames_end
        if self._is_new:  # never listed while it is empty: no snapshot may miss it when it is given up again
            self._manifest.add_segment(segment)
            self._is_new = False
        placed, self._placed = self._placed, []
        self._settled = copy.copy(segment)
        for entry in placed:
            self._copying.announce(entry, segment.file_id)

    async def close(self) -> None:
        """Ends; what was written but not settled (an error came) does not count."""
        await self._close_file()
        segment, settled = self._segment, self._settled
        if self._is_new and segment is not None:
            self._table.remove(self._table[segment.file_id])
            await unlink_if_there(self._files, f"{self._directory}/{segment.path}")
        elif segment is not None and settled is not None and self._placed:
            segment.last_seq, segment.last_ts, segment.records = settled.last_seq, settled.last_ts, settled.records
            segment.size, segment.frames_end, segment.sum = settled.size, settled.frames_end, settled.sum

    async def _close_file(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            await self._files.close(fd)
