"""What lives where: live records and bytes over all topics, and the rows that point to each file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.engine.values.step_queue import StepQueue
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.in_memory.ephemeral import EphemeralFrames

_STEPS_A_PASS = 1
_STEPS_MAX = 8


class Usage:
    """Kept exact by every index: the quota, the metrics and the files' right to exist depend on it."""

    __slots__ = ("_files", "_memory", "bytes", "has_quota", "pending_bytes", "reclaim", "records")

    def __init__(self, *, has_quota: bool = False) -> None:
        self.has_quota = has_quota
        """Whether `max_total_bytes` bounds them, so that each write asks for what they are."""
        self.records = 0
        self.bytes = 0
        self.pending_bytes = 0
        """Staged, not yet live."""
        self.reclaim = StepQueue(_STEPS_A_PASS, _STEPS_MAX)
        """What is to be counted and freed of records that are gone already."""
        self._files = FileTable()
        self._memory: EphemeralFrames | None = None

    def use(self, files: FileTable, memory: EphemeralFrames | None = None) -> None:
        """The files that rows point to, told before the first row comes; `memory` comes after recovery."""
        self._files = files
        self._memory = memory

    def add_file(self) -> StoredFile:
        """For rows of nothing that lies anywhere, until `remove_file`."""
        return self._files.add(FileKind.WAL, "")

    def remove_file(self, file: StoredFile) -> None:
        self._files.remove(file)

    def is_sealed(self, file_id: int) -> bool:
        """A segment or pack: records deleted there are flagged in it at the next checkpoint."""
        file = self._files.get(file_id)
        return file is not None and file.kind in (FileKind.SEGMENT, FileKind.PACK)

    def is_log(self, file_id: int) -> bool:
        """A file of the log."""
        file = self._files.get(file_id)
        return file is not None and file.kind is FileKind.WAL

    def log_files(self) -> list[int]:
        """Numbers of the files of the log, those prepared included."""
        return [file.file_id for file in self._files.of_log()]

    def is_memory(self, file_id: int) -> bool:
        """Records of class `ephemeral`."""
        file = self._files.get(file_id)
        return file is not None and file.kind is FileKind.MEMORY

    def may_be_shared(self, file_id: int) -> bool:
        """A file of the log that is written to and stays so for now: copies may refer to frames in it."""
        file = self._files.get(file_id)
        return file is not None and file.kind is FileKind.WAL and file.active and not file.leaving

    def placed(self, file_id: int, rows: int) -> None:
        """Rows now point to this file; one in memory has counted them when it took them."""
        file = self._files[file_id]
        if file.kind is not FileKind.MEMORY:
            file.live_rows += rows

    def left(self, file_id: int, rows: int) -> None:
        """Rows no longer point to this file."""
        file = self._files[file_id]
        if file.kind is FileKind.MEMORY and self._memory is not None:
            self._memory.discard(file, rows)
        else:
            file.live_rows -= rows
            assert file.live_rows >= 0, "more rows left a file than pointed to it"

    def left_files(self, file_ids: NDArray[np.uint32]) -> None:
        """One row leaves for each element."""
        first = int(file_ids[0])
        if (file_ids == first).all():
            self.left(first, len(file_ids))
            return
        for file_id, rows in zip(*np.unique(file_ids, return_counts=True), strict=True):
            self.left(int(file_id), int(rows))
