"""Counts of live records and bytes over all topics, and of the rows that point to each file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.engine.values.ports import TimersPort
from topics.engine.values.step_queue import StepQueue
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.in_memory.ephemeral import EphemeralFrames

_STEPS_A_PASS = 1
_STEPS_MAX = 8
_MEMORY = FileKind.MEMORY
"""A module name, since access to an Enum's member through its class takes ten times as long."""


class Usage:
    """Exact counts, which every index maintains.

    The quota, the metrics and the decision to remove a file depend on them.
    """

    __slots__ = (
        "_files",
        "_memory",
        "appended_bytes",
        "appended_records",
        "bytes",
        "has_quota",
        "max_attempts",
        "pending_bytes",
        "reclaim",
        "records",
    )

    def __init__(
        self,
        timers: TimersPort,
        files: FileTable,
        memory: EphemeralFrames,
        *,
        has_quota: bool = False,
        max_attempts: int = 8,
    ) -> None:
        """files: those that rows point to. memory: the frames of class `ephemeral`."""
        self.has_quota = has_quota
        """Whether `max_total_bytes` bounds the bytes, so that each write checks them."""
        self.max_attempts = max_attempts
        """Most attempts (ended leases) that are kept per job."""
        self.records = 0
        self.bytes = 0
        self.appended_records = self.appended_bytes = 0
        """Records that became visible since the start, copies of routers included, and their bytes.
        """
        self.pending_bytes = 0
        """Bytes that are staged and not live yet."""
        self.reclaim = StepQueue(timers, _STEPS_A_PASS, _STEPS_MAX, at_once=True)
        """Steps that count and free what dropped records leave."""
        self._files = files
        self._memory = memory

    def add_file(self) -> StoredFile:
        """Add a file for rows that are stored nowhere, until `remove_file`."""
        return self._files.add(FileKind.WAL, "")

    def remove_file(self, file: StoredFile) -> None:
        self._files.remove(file)

    def is_sealed(self, file_id: int) -> bool:
        """Return whether it is a segment or pack: checkpoints flag its deleted records."""
        file = self._files.get(file_id)
        return file is not None and file.kind in (FileKind.SEGMENT, FileKind.PACK)

    def is_log(self, file_id: int) -> bool:
        """Return whether it is a file of the log."""
        file = self._files.get(file_id)
        return file is not None and file.kind is FileKind.WAL

    def log_files(self) -> list[int]:
        """Return the numbers of the log's files, including the prepared ones."""
        return [file.file_id for file in self._files.of_log()]

    def is_memory(self, file_id: int) -> bool:
        """Return whether it holds records of class `ephemeral`."""
        file = self._files.get(file_id)
        return file is not None and file.kind is FileKind.MEMORY

    def may_be_shared(self, file_id: int) -> bool:
        """Return whether it is an active log file, so that copies may refer to its frames."""
        file = self._files.get(file_id)
        return file is not None and file.kind is FileKind.WAL and file.active and not file.leaving

    def added(self, file_id: int, rows: int, size: int) -> None:
        """Count rows that live from now on, and their bytes."""
        self.records += rows
        self.bytes += size
        file = self._files[file_id]
        if file.kind is not _MEMORY:
            file.live_rows += rows

    def placed(self, file_id: int, rows: int) -> None:
        """Count rows that now point to this file, except in memory: those are counted already."""
        file = self._files[file_id]
        if file.kind is not _MEMORY:
            file.live_rows += rows

    def left(self, file_id: int, rows: int) -> None:
        """Count rows that no longer point to this file."""
        file = self._files[file_id]
        if file.kind is FileKind.MEMORY:
            self._memory.discard(file, rows)
        else:
            file.live_rows -= rows
            assert file.live_rows >= 0, "more rows left a file than pointed to it"

    def left_files(self, file_ids: NDArray[np.uint32]) -> None:
        """Count one row that leaves for each element."""
        first = int(file_ids[0])
        if (file_ids == first).all():
            self.left(first, len(file_ids))
            return
        for file_id, rows in zip(*np.unique(file_ids, return_counts=True), strict=True):
            self.left(int(file_id), int(rows))
