"""The log as the engine uses it: several shards with one interface.

Everything about one topic is in one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from topics.config import Config
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.commits.next_batch import NextPlace
from topics.store.commits.quick_writes import QuickLog, WritePlace
from topics.store.commits.write_batch import CarriedFrames, Done, LoneWritten, WriteNext
from topics.store.disk.disk_space import DiskSpace
from topics.store.disk.log_sizes import LogSizes
from topics.store.disk.side_by_side import all_of
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import shard_directory
from topics.store.format.rows import Framed, Rows, TopicRows
from topics.store.in_memory.hot_tail import HotTail
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.wal.background_sync import OnDurable
from topics.store.wal.counters import LogCounters
from topics.store.wal.in_place_commits import InPlaceCommits
from topics.store.wal.log_bound import LogBound
from topics.store.wal.shard import Shard
from topics.store.wal.shard_state import ShardSettings, SharedParts
from topics.store.wal.wal_files import WalDirectory, shard_and_number
from topics.store.wal.write_latch import WriteLatch

_OPENS_AT_A_TIME = 8


class ShardStart(NamedTuple):
    """The point where one shard continues after recovery; a new shard starts as `ShardStart()`."""

    next_file_no: int = 1
    last_batch_no: int = 0
    spares: tuple[str, ...] = ()
    """Paths of files that may be reused: `spare-*`, and prepared ones never taken into use."""


class ShardedLog:
    """The shards of a log.

    Requests are staged into a shard's filling batch; `flush` at the end of each pass commits the
    batches.
    """

    def __init__(self, loop: Loop, config: Config, table: FileTable) -> None:
        self._loop = loop
        self._config = config
        self._table = table
        self.counters = LogCounters()
        self.is_frozen = False
        """Whether the directory was opened to be read: nothing is ever written."""
        self.write_latch = WriteLatch()
        self.tail = HotTail(config.hot_tail_bytes)
        self.sizes = LogSizes(config, loop.ring.volume_bytes(config.data_dir))
        self.bound = LogBound(
            loop.clock,
            max_bytes=self.sizes.log_max,
            max_wait_ns=config.max_log_wait_ms * 1_000_000,
            on_room=self._on_room,
        )
        self.space = DiskSpace(loop, config.data_dir, self.sizes)
        self._shards: list[Shard] = []
        self._in_place: list[InPlaceCommits] = []
        """The commits in place of each shard."""
        self._directories: list[WalDirectory] = []
        self.releases: list[Callable[[StoredFile], bool]] = []
        """Asked by a log with an archive whether a file that is not needed may be reused: one of
        them is enough. Until then it waits to be archived.
        """

    async def open(self, starts: list[ShardStart]) -> None:
        """Open config.wal_shards shards, each in a file of its own; `starts[i]` is shard i's.

        Missing directories of shards are created.

        Raises: OSError; a full disk is no error, see `disk_full`.
        """
        config, loop = self._config, self._loop
        self.space.on_change.append(self._on_space_change)
        self.write_latch.on_latch.append(self._on_latch)
        for path in chain.from_iterable(start.spares for start in starts):
            self.sizes.on_found(loop.ring.file_size(path))
        loop.ring.make_directory(f"{config.data_dir}/wal")
        for number in range(self.sizes.shards):
            loop.ring.make_directory(f"{config.data_dir}/{shard_directory(number)}")
        self._make_shards(starts)
        # Also if they existed: the process that created them may have been killed before it synced
        # them.
        syncs = (loop.files.sync_directory(path) for path in (f"{config.data_dir}/wal", config.data_dir))
        opens = (shard.open() for shard in self._shards)
        await self.space.open()  # without space for a reserve, log files are small
        await all_of(loop.spawn, chain(syncs, opens), _OPENS_AT_A_TIME)

    def freeze(self) -> None:
        """Open the shards without a file to write to: every write is refused from here on."""
        self.is_frozen = True
        self.write_latch.latch("the directory was opened with read_only")
        self._make_shards([])
        self.bound.on_emptied(self.held_bytes)

    def _make_shards(self, starts: list[ShardStart]) -> None:
        config, loop = self._config, self._loop
        parts = SharedParts(self.tail, self.write_latch, self.space, self.counters, self.bound, self.sizes)
        settings = ShardSettings.of(config, self.sizes.shards)
        for number in range(self.sizes.shards):
            path = f"{config.data_dir}/{shard_directory(number)}"
            start = starts[number] if number < len(starts) else ShardStart()
            directory = WalDirectory(
                loop,
                self._table,
                path,
                shard=number,
                next_file_no=start.next_file_no,
                sizes=self.sizes,
                spares=list(start.spares),
            )
            shard = Shard(loop, directory, parts, settings, last_batch_no=start.last_batch_no)
            self._directories.append(directory)
            self._shards.append(shard)
            self._in_place.append(shard.in_place)

    def shard_of(self, topic_id: int) -> int:
        shards = self._shards
        if len(shards) == 1:
            return 0
        return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % len(shards)

    # --- staging -----------------------------------------------------------------------------------------------------
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
        """Frame rows into the topic's shard; row i gets seq first_seq + i.

        node: for rows without one.
        counted: False leaves them out of the metric of frames (copies that routers make, R-RTR-17).
        routed: they get FLAG_ROUTED.
        Raises: LogReadOnlyError or DiskFullError; nothing was staged then.
        """
        return self._shards[self.shard_of(topic_id)].staging.stage_records(
            topic_id,
            first_seq,
            ts_ms,
            rows,
            fsync=fsync,
            node=node,
            extension=extension,
            counted=counted,
            routed=routed,
        )

    def begin_batch(self, topic_id: int) -> None:
        """Have the topic's shard fill another batch, before what `stage_prebuilt` will end.

        Raises: like `stage_records`.
        """
        self._shards[self.shard_of(topic_id)].staging.begin_batch()

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
        """Stage prebuilt frames as a batch; `Framed` counts from the commit's base.

        The control frames that the shard has taken since `begin_batch` are in the same batch, after
        the records. A replay applies a creation before the records of its batch.

        done: called with the batch's end, as by `when_committed`.
        Raises: like `stage_records`.
        """
        staging = self._shards[self.shard_of(topic_id)].staging
        framed = frames.number(topic_id, first_seq, ts_ms, fsync=fsync)
        staging.stage_prebuilt(frames, synced, done)
        return framed

    @property
    def is_one_shard(self) -> bool:
        """Whether all topics are in one shard; `stage_topics` requires it."""
        return len(self._shards) == 1

    def stage_topics(self, rows: TopicRows, *, fsync: bool) -> Framed:
        """Frame rows of several topics, all in the only shard. Raises like `stage_records`."""
        return self._shards[0].staging.stage_topics(rows, fsync=fsync)

    def latch(self, reason: str) -> None:
        """Accept no write until a restart: what readers see is not what the log holds."""
        self.write_latch.latch(reason)

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
    ) -> LoneWritten | None:
        """Stage and commit rows in this call, synced with `fsync`, if one write is all it takes.

        For a caller with exclusive use of the loop: after `commit_in_place`, or while its
        connection is the only sender (`Loop.has_one_sender`) or, without `fsync`, one of two by
        turns (`Loop.has_few_senders`), and the pass received nothing but this request.

        carried: frames of a topic of the same shard for the same batch. They begin in the log right
        after the rows, so no crash leaves them without these.

        Return None if one write is not enough, and nothing was done.
        """
        all_shards = self._in_place
        in_place = all_shards[0] if len(all_shards) == 1 else all_shards[self.shard_of(topic_id)]
        return in_place.write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync, carried=carried)

    def next_place(self, topic_id: int, *, fsync: bool) -> tuple[NextPlace, bool, WriteNext] | None:
        """Return the place of a topic's next lone write, and the function that commits it there.

        The bool: whether it is synced then. See `InPlaceCommits.next_place`.
        """
        in_place = self._in_place[self.shard_of(topic_id)]
        found = in_place.next_place(fsync=fsync)
        return None if found is None else (*found, in_place.write_next)

    def next_quick(self, topic_id: int, *, fsync: bool) -> tuple[NextPlace, WritePlace, QuickLog] | None:
        """Return where and how the next writes to a topic may be made that are counted later.

        Also what counts them then: see `InPlaceCommits.next_quick`.
        """
        in_place = self._in_place[self.shard_of(topic_id)]
        found = in_place.next_quick(fsync=fsync)
        return None if found is None else (*found, in_place)

    def sync_lone(self) -> bool:
        """Bring all there is to stable storage in this call, if one sync in place is all it takes.

        For a caller with exclusive use of the loop. Return False if it takes more, or failed.
        """
        all_shards = self._in_place
        return len(all_shards) == 1 and all_shards[0].sync_lone()

    def stage_control(
        self, topic_id: int, kind: int, seq: int, ts_ms: int, payload: bytes, *, counted: bool = True
    ) -> None:
        """Stage one control frame in the topic's shard; payload is compact JSON.

        Raises like `stage_records`.
        """
        self._shards[self.shard_of(topic_id)].staging.stage_control(
            topic_id, kind, seq, ts_ms, payload, counted=counted
        )

    def when_committed(self, topic_id: int, synced: bool, done: Done, parts: int = 1) -> None:
        """Call `done(Commit)` once the batch that the topic's shard is filling has ended.

        Callbacks run in the order in which they were attached. An empty batch ends when the batches
        before it have; with `synced`, when those are on stable storage.
        parts: callbacks that `done` counts as where they take turns.
        """
        self._shards[self.shard_of(topic_id)].staging.when_committed(synced, done, parts)

    def batch_number(self, topic_id: int) -> int:
        """Return a number that changes whenever the topic's shard fills another batch."""
        return self._shards[self.shard_of(topic_id)].staging.batch_number

    def when_durable(self, topic_id: int, done: OnDurable) -> None:
        """Call `done` once all that the topic's shard has committed is on stable storage.

        No commit waits for that. It gets the error if the log is latched first.
        """
        self._shards[self.shard_of(topic_id)].when_durable(done)

    def when_flushed(self, topic_id: int | None, done: OnDurable) -> None:
        """Call `done` once all staged so far in the topic's shard is on stable storage.

        topic_id: None for all shards. Callers share syncs; commits wait only for one that is made
        in place (`allow_in_place`). It gets the error if the log is latched first. Frames in other
        shards that the topic's records share are included.
        """
        shards = self._shards
        if topic_id is None or len(shards) == 1:
            _when_all([shard.when_flushed for shard in shards], done)
            return
        own = shards[self.shard_of(topic_id)]

        def on_settled() -> None:
            shared = [shard for shard in shards if shard is own or shard.unsynced_from(topic_id) is not None]
            _when_all([partial(shard.when_durable, waited=True) for shard in shared], done)

        own.when_settled(on_settled)

    def unsynced_from(self, topic_id: int) -> int | None:
        """Return the first visible seq of a topic that is not on stable storage; None: all are."""
        shards = self._shards
        if len(shards) == 1:
            return shards[0].unsynced_from(topic_id)
        found = [first for shard in shards if (first := shard.unsynced_from(topic_id)) is not None]
        return min(found, default=None)

    def note_shared(
        self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64], file_id: int
    ) -> None:
        """Note a topic's copies by position, of a source's records whose frames are in one file.

        In the topic's own shard the frame of their step comes after them, and is synced after them.
        """
        if len(self._shards) > 1:
            number, _ = shard_and_number(self._table[file_id])
            if number != self.shard_of(topic_id):
                self._shards[number].note_shared(topic_id, first_seq, source_id, seqs)

    def use_reserve(self) -> AbstractContextManager[None]:
        """Accept what is staged inside on a full disk, too, because it frees space."""
        return self.write_latch.use_reserve()

    def check_writable(self) -> None:
        """Check that the log takes writes.

        Raises LogReadOnlyError if not; a full disk is no reason.
        """
        if self.write_latch.read_only:
            raise self.write_latch.read_only_error()

    def flush(self) -> None:
        """Start a commit for every idle shard with something to write; a pass-end hook."""
        for shard in self._shards:
            shard.flush()

    # --- state -------------------------------------------------------------------------------------------------------
    @property
    def shards(self) -> list[Shard]:
        return self._shards

    @property
    def backlog_bytes(self) -> int:
        """Bytes staged or in flight, over all shards."""
        shards = self._shards
        return shards[0].backlog_bytes if len(shards) == 1 else sum([shard.backlog_bytes for shard in shards])

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of the log that are written and not on stable storage, over all shards."""
        return sum(shard.state.unsynced_bytes for shard in self._shards)

    def is_backlogged(self) -> bool:
        """Return whether a write should be refused for now; count the refusal."""
        if self.backlog_bytes <= self._config.max_backlog_bytes:
            return False
        self.counters.submit_full += 1
        return True

    def append_retry_ms(self) -> int:
        """Return the time after which a refused append may be tried again; the log is at its bound.

        0: the log is shorter, or no append finds space on the disk anyway, which has its own
        refusal.
        """
        bound = self.bound
        if not bound.is_reached(self.backlog_bytes) or self.write_latch.closed:
            return 0
        return bound.retry_after_ms

    def blocks(self, topic_id: int | None, size: int, promised: int) -> str:
        """Return why an append of `size` bytes would not be written at once; "" if it would be.

        The reason: "backlog", "log" (its length), "unsynced", or "file" (none is ready).
        topic_id: None if it is not known. promised: bytes of appends that come before it. Any
        thread may ask.
        """
        if self.write_latch.closed:
            return ""  # it fails at once
        before = self.backlog_bytes + promised
        if before and before + size > self._config.max_backlog_bytes:
            return "backlog"
        if self.bound.is_reached(before):
            return "log"
        shards = self._shards if topic_id is None else [self._shards[self.shard_of(topic_id)]]
        return next(filter(None, (shard.blocks(size, promised) for shard in shards)), "")

    def begin_sync(self) -> None:
        """Begin a sync of what is written and not synced."""
        for shard in self._shards:
            shard.begin_sync()

    @property
    def append_wait_ns(self) -> int:
        """Return the current delay of commits by the length of the log."""
        return self.bound.wait_ns

    def commit_in_place(self) -> None:
        """Let a commit that needs one write block the thread from here on.

        Otherwise it takes a turn through the ring.

        For a caller that waits for nothing else. Callbacks run inside `flush`, which has the
        pass-end hooks run again.
        """
        for shard in self._shards:
            shard.state.commit_in_place()

    def allow_in_place(self, has_no_waiters: Callable[[], bool] | None) -> None:
        """Let commits block the thread, and small syncs that a caller waits for, from here on.

        has_no_waiters: returns whether no other call waits for the thread; None: nothing may.
        """
        for shard in self._shards:
            shard.state.set_exclusive(has_no_waiters)

    def set_commit_window(self, ns: int) -> None:
        """Set the delay of a commit after the previous one, to gather more.

        It grows under pressure.
        """
        for shard in self._shards:
            shard.state.set_commit_window(ns)

    @property
    def queue_depth(self) -> int:
        """Number of submissions not yet committed."""
        return sum(shard.queue_depth for shard in self._shards)

    @property
    def read_only(self) -> str:
        """The reason why the log takes no writes any more; "" while it does."""
        return self.write_latch.read_only

    @property
    def reserve_bytes(self) -> int:
        """Bytes reserved for deletes on a full disk."""
        return self.space.reserve_bytes

    @property
    def disk_full(self) -> bool:
        return self.write_latch.disk_full

    def _on_space_change(self) -> None:
        self.write_latch.set_disk_full(self.space.full)
        if not self.space.full:
            for shard in self._shards:
                shard.on_space()

    def _on_room(self) -> None:
        for shard in self._shards:
            shard.preallocation.on_room()

    def _on_latch(self) -> None:
        for shard in self._shards:
            shard.on_latch()

    # --- files -------------------------------------------------------------------------------------------------------
    def request_rotation(self) -> None:
        """Have every shard open another file with its next batch."""
        for shard in self._shards:
            shard.request_rotation()

    def left_files(self) -> list[StoredFile]:
        """Return the non-empty WAL files no longer written to, oldest first, for a checkpoint."""
        return [file for file in self._table.of_log() if not file.active and file.size]

    def files_to_ends(self) -> list[tuple[StoredFile, int]]:
        """Return all files with frames, oldest first, each with the end of its commits."""
        ends = [(file, file.size) for file in self.left_files()]
        return ends + [end for shard in self._shards if (end := shard.current) is not None]

    @property
    def held_bytes(self) -> int:
        """Return the bytes of frames, dead or alive, that a checkpoint has not taken yet."""
        return sum(file.size for file in self.left_files()) + sum(shard.end_bytes for shard in self._shards)

    async def retire(self, file: StoredFile) -> None:
        """Recycle a left file after its rows were moved durably. Readers that hold it read on."""
        assert file.kind is FileKind.WAL, "only files of the log are recycled"
        self.tail.forget(file.file_id)
        number, _ = shard_and_number(file)
        # any directory, if its shard is no longer used
        directory = self._directories[number if number < len(self._directories) else 0]
        for shard in self._shards:
            await shard.when_synced(file)
        if not self._config.archive_dir or any(releases(file) for releases in self.releases):
            await directory.retire(file, keep=not self.disk_full)
        else:
            await directory.set_aside(file)

    async def drop_spares(self) -> None:
        """Remove the files kept for reuse, because the disk is full."""
        for directory in self._directories:
            await directory.drop_spares()

    # --- ending ------------------------------------------------------------------------------------------------------
    async def drain(self) -> None:
        """Return when all that was staged is on stable storage, or the log is read-only."""
        for shard in self._shards:
            await shard.drain()

    async def close(self) -> None:
        """Drain and end; nothing may be staged any more."""
        self.bound.let_go()
        self.space.close()
        for shard in self._shards:
            await shard.close()


def _when_all(waits: Sequence[Callable[[OnDurable], None]], done: OnDurable) -> None:
    """Call `done` once all of these have called theirs, with an error that one of them got."""
    left, failure = len(waits), None

    def on_one(error: StorageError | None) -> None:
        nonlocal left, failure
        left -= 1
        failure = failure or error
        if not left:
            done(failure)

    for wait in waits:
        wait(on_one)
