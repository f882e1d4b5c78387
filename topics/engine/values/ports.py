"""The engine's view of the store and of the loop, as Protocols.

`topics.store` and `topics.loop` satisfy them, and so do the fakes of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.common.values.archive_state import ArchiveState
from topics.common.values.backup_result import BackupProgress, BackupResult
from topics.errors import StorageError, TopicsError
from topics.store.format.rows import Framed, Rows
from topics.store.format.topic_rows import TopicRows
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Fetched
from topics.store.wal.background_sync import Durable
from topics.store.wal.write_batch import CarriedFrames, Done, LoneWritten


class LogPort(Protocol):
    """The part of `topics.store.wal.sharded_log.ShardedLog` that the engine uses."""

    def stage_records(
        self,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        *,
        fsync: bool,
        node: bytes | None = None,
        extension: bytes = b"",
        counted: bool = True,
        routed: bool = False,
    ) -> Framed: ...
    @property
    def is_frozen(self) -> bool: ...
    @property
    def is_one_shard(self) -> bool: ...
    def stage_topics(self, rows: TopicRows, *, fsync: bool) -> Framed: ...
    def begin_batch(self, topic_id: int) -> None: ...
    def stage_prebuilt(
        self,
        topic_id: int,
        frames: PrebuiltFrames,
        first_seq: int,
        ts_ms: int,
        *,
        fsync: bool,
        synced: bool,
        done: Done,
    ) -> Framed: ...
    def latch(self, reason: str) -> None: ...

    def write_lone(
        self,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        node: bytes | None,
        *,
        fsync: bool,
        carried: CarriedFrames | None = None,
    ) -> LoneWritten | None: ...
    def sync_lone(self) -> bool: ...
    def stage_control(
        self, topic_id: int, kind: int, seq: int, ts_ms: int, payload: bytes, *, counted: bool = True
    ) -> None: ...
    def when_committed(self, topic_id: int, synced: bool, done: Done) -> None: ...
    def batch_number(self, topic_id: int) -> int: ...
    def when_durable(self, topic_id: int, done: Durable) -> None: ...
    def when_flushed(self, topic_id: int | None, done: Durable) -> None: ...
    def unsynced_from(self, topic_id: int) -> int | None: ...
    def note_shared(
        self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64], file_id: int
    ) -> None: ...
    @property
    def reserve_bytes(self) -> int: ...
    def use_reserve(self) -> AbstractContextManager[None]: ...
    def check_writable(self) -> None: ...
    def is_backlogged(self) -> bool: ...
    def append_retry_ms(self) -> int: ...
    def blocks(self, topic_id: int | None, size: int, promised: int) -> str: ...
    def begin_sync(self) -> None: ...
    @property
    def append_wait_ns(self) -> int: ...
    def set_commit_window(self, ns: int) -> None: ...


class ReaderPort(Protocol):
    """The part of `topics.store.read.reader.Reader` that the engine uses."""

    def fetch(self, pieces: Sequence[FileRange], done: Callable[[Fetched], None]) -> None: ...
    def ranges(self) -> bytearray: ...
    def prefetched_ranges(self) -> bytearray: ...
    def on_unsound(self, file_id: int, offset: int, size: int, what: str) -> None: ...


class RequestedPort(Protocol):
    """The part of `topics.store.checkpoint.requested_checkpoints.RequestedCheckpoints` in use."""

    @property
    def snapshot_number(self) -> int: ...
    @property
    def shown(self) -> int: ...
    def number(self, wished: int) -> int: ...
    def ask(self, number: int, done: Callable[[StorageError | None], None]) -> None: ...
    def begin(self, number: int) -> None: ...
    def leave(self, done: Callable[[StorageError | None], None]) -> None: ...


class BackupsPort(Protocol):
    """The part of `topics.store.backup.backups.Backups` that is used."""

    @property
    def progress(self) -> BackupProgress: ...
    def begin(self, root: str, done: Callable[[BackupResult | TopicsError], None]) -> int: ...


class ArchivePort(Protocol):
    """The part of `topics.store.archive.served_archive.ServedArchive` that is used."""

    @property
    def state(self) -> ArchiveState | None: ...
    def note_mirror(self, name: str, upto_ms: int) -> None: ...
    def mirror_lags_ms(self) -> list[tuple[str, int]]: ...
    def read(
        self, timeline: str, path: str, offset: int, most: int, done: Callable[[bytes | TopicsError], None]
    ) -> None: ...


class FormatPort(Protocol):
    """The part of `topics.store.disk.directory_format.DirectoryFormat` that the engine uses."""

    @property
    def number(self) -> int: ...
    @property
    def is_newest(self) -> bool: ...
    def when_raised(self, number: int, done: Callable[[StorageError | None], None]) -> None: ...


class StorePort(Protocol):
    """The opened data directory: the part of `topics.store.store.Store` that the engine uses."""

    @property
    def log(self) -> LogPort: ...
    @property
    def reader(self) -> ReaderPort: ...
    @property
    def requested(self) -> RequestedPort: ...
    @property
    def format(self) -> FormatPort: ...
    @property
    def backups(self) -> BackupsPort: ...
    @property
    def archive(self) -> ArchivePort: ...


class TimerPort(Protocol):
    def cancel(self) -> None: ...


class TimersPort(Protocol):
    """The clock and the timers of `topics.loop.Loop`."""

    @property
    def clock(self) -> Clock: ...
    @property
    def passes(self) -> int: ...
    def call_later(self, delay_ns: int, fn: Callable[[], None]) -> TimerPort: ...


class LoopPort(TimersPort, Protocol):
    """The part of `topics.loop.Loop` that the engine uses."""

    def random_bytes(self, count: int) -> bytes: ...
