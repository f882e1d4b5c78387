"""A store in memory whose commits end when the test says so: the seam of topics/engine/values/ports.py.

Frames are the real ones; a file is a StoredFile with memory, so the real Reader serves it. `restart` replays what was
committed into another engine, in the order real recovery does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tests.store.format.frames_by_hand import frame_control
from topics.clock import ManualClock
from topics.common.values.backup_result import BackupProgress, BackupResult
from topics.config import Config
from topics.engine.index.usage import Usage
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.errors import DiskFullError, LogReadOnlyError, StorageError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format import codec
from topics.store.format.catalog import NO_TAG, RowColumns
from topics.store.format.codec import Frames
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import (
    BATCH_HEADER_BYTES,
    ORDERED_TYPES,
    FrameType,
    Idempotency,
    ProducerPart,
    unpack_extension,
)
from topics.store.format.rows import ROW, Framed, Rows, TopicRows
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.in_memory.hot_tail import HotTail
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.layouts.directory_names import DIRECTORY_FORMAT, FIRST_DIRECTORY_FORMAT
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Fetched, Reader

Done = Callable[[Commit], None]


class Batch:
    def __init__(self) -> None:
        self.body = bytearray()
        self.waiters: list[Done] = []
        self.synced = False


class FakeLog:
    """One shard. `commit` ends what is staged; `synced_bytes` is what a power cut would leave."""

    def __init__(self, files: FileTable) -> None:
        self.file = files.add(FileKind.WAL, "wal")
        self.file.memory = bytearray()
        self.filling = Batch()
        self.synced_bytes = 0
        self.owed: list[Callable[[StorageError | None], None]] = []
        self.record_frames = 0
        self.read_only = False
        self.disk_full = False
        self.reserve_bytes = 64 * 1024
        self.backlogged = False
        self.retry_ms = 0
        """Not 0: the log is as long as it may be."""
        self.commit_window_ns = 0
        self.batches = 0
        self._reserve_users = 0

    def _check(self) -> None:
        if self.read_only:
            raise LogReadOnlyError("the log is read-only")
        if self.disk_full and not self._reserve_users:
            raise DiskFullError("no space left")

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
    ) -> Framed:
        self._check()
        start = len(self.filling.body)
        frames, framed = codec.frame_rows(
            rows,
            topic_id=topic_id,
            first_seq=first_seq,
            ts_ms=ts_ms,
            fsync=fsync,
            node=node,
            extension=extension,
            start=start,
            routed=routed,
        )
        self.filling.body += frames
        self.record_frames += rows.count
        return framed

    def begin_batch(self, topic_id: int) -> None:
        self._check()

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
    ) -> Framed:
        self._check()
        framed = frames.number(topic_id, first_seq, ts_ms, fsync=fsync)
        start = len(self.filling.body)
        self.filling.body += memoryview(frames.memory)[BATCH_HEADER_BYTES : frames.used]
        self.record_frames += frames.count
        self.when_committed(topic_id, synced, lambda commit: done(commit._replace(base=commit.base + start)))
        return framed

    def latch(self, reason: str) -> None:
        raise AssertionError(reason)

    def write_lone(self, *_of_a_write: object, fsync: bool, carried: object = None) -> None:
        return None

    def sync_lone(self) -> bool:
        return False

    is_frozen = False
    is_one_shard = True

    def stage_topics(self, rows: TopicRows, *, fsync: bool) -> Framed:
        start, placed = -1, b""
        columns = rows.ids, rows.first_seqs, rows.stamps, rows.first_rows, rows.counts
        for topic_id, first_seq, ts_ms, row, count in zip(*columns, strict=True):
            part = Rows(rows.buffer, rows.spans[row * ROW.size : (row + count) * ROW.size], count, 0)
            framed = self.stage_records(topic_id, first_seq, ts_ms, part, fsync=fsync)
            start = framed.start if start < 0 else start
            placed += framed.placed
        return Framed(start, placed)

    def stage_control(
        self, topic_id: int, kind: int, seq: int, ts_ms: int, payload: bytes, *, counted: bool = True
    ) -> None:
        self._check()
        self.filling.body += frame_control(kind, topic_id=topic_id, seq=seq, ts_ms=ts_ms, payload=payload)

    def when_committed(self, topic_id: int, synced: bool, done: Done, parts: int = 1) -> None:
        self.filling.waiters.append(done)
        self.filling.synced |= synced

    def batch_number(self, topic_id: int) -> int:
        return self.batches

    def when_durable(self, topic_id: int, done: Callable[[StorageError | None], None]) -> None:
        self.owed.append(done)

    def when_flushed(self, topic_id: int | None, done: Callable[[StorageError | None], None]) -> None:
        self.owed.append(done)

    def note_shared(
        self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64], file_id: int
    ) -> None:
        """A fake log has one shard."""

    def unsynced_from(self, topic_id: int) -> int | None:
        return None

    @contextmanager
    def use_reserve(self) -> Iterator[None]:
        self._reserve_users += 1
        try:
            yield
        finally:
            self._reserve_users -= 1

    def check_writable(self) -> None:
        if self.read_only:
            raise LogReadOnlyError("the log is read-only")

    def set_commit_window(self, ns: int) -> None:
        self.commit_window_ns = ns

    def is_backlogged(self) -> bool:
        return self.backlogged

    def append_retry_ms(self) -> int:
        return self.retry_ms

    def blocks(self, topic_id: int | None, size: int, promised: int) -> str:
        return ""

    def begin_sync(self) -> None:
        pass

    append_wait_ns = 0

    def commit(self, error: StorageError | None = None) -> None:
        """Write what is staged (and sync it where asked for), or fail."""
        batch, self.filling = self.filling, Batch()
        self.batches += 1
        memory = self.file.memory
        assert memory is not None
        base = len(memory)
        if error is None:
            # A new object: views that a reader holds keep the old one alive.
            self.file.memory = memory + batch.body
            self.file.size = base + len(batch.body)
            if batch.synced:
                self.sync()
        commit = Commit(error) if error else Commit(None, self.file.file_id, base, 1000, 2000 if batch.synced else 0)
        for done in batch.waiters:
            done(commit)

    def sync(self) -> None:
        self.synced_bytes = self.file.size
        owed, self.owed = self.owed, []
        for done in owed:
            done(None)


class SlowReader:
    """Answers when `release` is called, while `slow`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.slow = False
        self.held: list[tuple[Sequence[FileRange], Callable[[Fetched], None]]] = []
        self.fetched = 0
        self.pieces = 0

    def fetch(self, pieces: Sequence[FileRange], done: Callable[[Fetched], None]) -> None:
        self.fetched += sum(piece.length for piece in pieces)
        self.pieces += len(pieces)
        if self.slow:
            self.held.append((pieces, done))
        else:
            self._reader.fetch(pieces, done)

    def on_unsound(self, file_id: int, offset: int, size: int, what: str) -> None:
        self._reader.on_unsound(file_id, offset, size, what)

    def ranges(self) -> bytearray:
        return self._reader.ranges()

    def is_prefetched(self, piece: FileRange) -> bool:
        return self._reader.is_prefetched(piece)

    def prefetched_ranges(self) -> bytearray:
        return self._reader.prefetched_ranges()

    def release(self) -> None:
        held, self.held = self.held, []
        for pieces, done in held:
            self._reader.fetch(pieces, done)


class FakeBackups:
    """Backups, of which no test makes one."""

    progress = BackupProgress(0, "none")

    def begin(self, root: str, done: Callable[[BackupResult | TopicsError], None]) -> int:
        raise AssertionError("no test of the engine makes a backup")

    def leave_cores(self) -> None:
        pass


class FakeRequested:
    """Requests for a checkpoint, which `end` answers."""

    def __init__(self) -> None:
        self.snapshot_number = 7
        self.asked: dict[Callable[[StorageError | None], None], None] = {}
        self.begun = 0
        self.shown = 0

    def number(self, wished: int) -> int:
        return wished or self.begun + 1

    def ask(self, number: int, done: Callable[[StorageError | None], None]) -> None:
        self.asked[done] = None

    def begin(self, number: int) -> None:
        self.begun = number

    def leave(self, done: Callable[[StorageError | None], None]) -> None:
        self.asked.pop(done, None)

    def end(self, error: StorageError | None = None) -> None:
        self.snapshot_number += 2
        for done in list(self.asked):
            done(error)


class FakeFormat:
    """A marker whose raise waits until `end` is called."""

    def __init__(self) -> None:
        self.number = FIRST_DIRECTORY_FORMAT
        self.takes_all = False
        self.waiting: list[Callable[[StorageError | None], None]] = []

    def when_raised(self, number: int, done: Callable[[StorageError | None], None]) -> None:
        self.waiting.append(done)

    def end(self, error: StorageError | None = None) -> None:
        if error is None:
            self.number, self.takes_all = DIRECTORY_FORMAT, True
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(error)


class FakeArchive:
    """No test of the engine by itself serves an archive."""


class FakeStore:
    def __init__(self, files: FileTable) -> None:
        self.format = FakeFormat()
        self.requested = FakeRequested()
        self.backups = FakeBackups()
        self.archive = FakeArchive()
        self.files = files
        self.log = FakeLog(self.files)
        self.reader = SlowReader(Reader(None, self.files, HotTail(0)))  # type: ignore[arg-type]

    def new_file(self, kind: FileKind) -> StoredFile:
        file = self.files.add(kind, "file")
        file.memory = bytearray()
        return file


class FakeTimer:
    def __init__(self, due_ns: int, fn: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.fn: Callable[[], None] | None = fn

    def cancel(self) -> None:
        self.fn = None


class FakeLoop:
    """Timers that run when the clock is moved."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.clock = ManualClock()
        self.timers: list[FakeTimer] = []
        self.random_bytes = (rng or random.Random(0)).randbytes
        self._passes = 0

    @property
    def passes(self) -> int:
        """Another number each time: each end of a pass is that of another one."""
        self._passes += 1
        return self._passes

    def call_later(self, delay_ns: int, fn: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.clock.monotonic_ns() + delay_ns, fn)
        self.timers.append(timer)
        return timer

    def another_pass(self, after_ns: int = 0) -> None:
        self.call_later(after_ns, lambda: None)

    def has_one_sender(self) -> bool:
        return False

    def has_few_senders(self) -> bool:
        return False

    def again(self) -> None: ...

    def advance_ms(self, ms: int) -> None:
        self.clock.advance_ns(ms * 1_000_000)
        due = [timer for timer in self.timers if timer.due_ns <= self.clock.monotonic_ns()]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if timer.fn is not None:
                timer.fn()

    def next_due_ms(self) -> int:
        """Until the next timer."""
        due_ns = min(timer.due_ns for timer in self.timers if timer.fn is not None)
        return max(0, due_ns - self.clock.monotonic_ns()) // 1_000_000

    @property
    def waiting(self) -> int:
        return sum(timer.fn is not None for timer in self.timers)


def usage_of(files: FileTable) -> Usage:
    """The counts of rows in these files, without passes."""
    return Usage(FakeLoop(), files, EphemeralFrames(files))


def replay(catalog: EngineCatalog, log: bytes, file: StoredFile) -> None:
    """Do what recovery does with one chunk of log, whose bytes are those of `file`."""
    scan = codec.scan_frames(log)
    assert scan.position == len(log), "the fake log holds whole frames"
    frames = scan.frames
    controls = frames[frames["type"] != FrameType.RECORD]
    for frame in controls:
        if int(frame["type"]) in ORDERED_TYPES:
            _apply(catalog, frame, log)
    records = frames[frames["type"] == FrameType.RECORD]
    for topic_id in np.unique(records["topic_id"]):
        its = records[records["topic_id"] == topic_id]
        catalog.add_rows(int(topic_id), columns_of(its, log, file.file_id))
        for frame in its[its["ext_len"] > 0]:
            at = int(frame["offset"]) + 52
            seq = int(frame["seq"])
            for entry in unpack_extension(log[at : at + int(frame["ext_len"])]):
                if isinstance(entry, Idempotency):
                    catalog.add_idempotency(int(topic_id), entry.key, seq, entry.records, entry.started_ms)
                elif isinstance(entry, ProducerPart):
                    catalog.add_part(int(topic_id), seq, entry)
                else:
                    catalog.add_piece(int(topic_id), seq, entry)
    for frame in controls:
        if int(frame["type"]) not in ORDERED_TYPES:
            _apply(catalog, frame, log)


def _apply(catalog: EngineCatalog, frame: np.void, log: bytes) -> None:
    at = int(frame["offset"]) + 52
    payload = log[at : at + int(frame["data_len"])]
    catalog.apply_control(int(frame["type"]), int(frame["topic_id"]), int(frame["seq"]), int(frame["ts_ms"]), payload)


def columns_of(frames: Frames, log: bytes, file_id: int) -> RowColumns:
    """Record frames of one topic as the columns recovery hands over."""
    table: list[bytes] = []
    tags = []
    for frame in frames:
        if not int(frame["flags"]) & 1:
            tags.append(NO_TAG)
            continue
        at = int(frame["offset"]) + 52 + int(frame["ext_len"]) + int(frame["node_len"])
        tag = log[at : at + int(frame["tag_len"])]
        if tag not in table:
            table.append(tag)
        tags.append(table.index(tag))
    return RowColumns(
        file_id,
        frames["seq"].astype(np.uint64),
        frames["offset"].astype(np.uint32),
        frames["length"].astype(np.uint32),
        frames["size"].astype(np.uint32),
        frames["ts_ms"].astype(np.uint64),
        frames["flags"].astype(np.uint8),
        np.array(tags, np.uint32),
        table,
    )


def small_config(**values: object) -> Config:
    return Config(data_dir="", **values)  # type: ignore[arg-type]
