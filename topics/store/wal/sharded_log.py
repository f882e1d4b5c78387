"""The log as the engine sees it: shards behind one face. What concerns one topic lies in one shard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import chain
from typing import NamedTuple

import xxhash

from topics.config import Config
from topics.loop.loop import Loop
from topics.loop.tasks import Event
from topics.store.disk.disk_space import DiskSpace
from topics.store.disk.log_sizes import LogSizes
from topics.store.disk.side_by_side import all_of
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import FrameType, shard_directory
from topics.store.format.rows import Framed, Rows
from topics.store.format.topic_rows import TopicRows
from topics.store.in_memory.hot_tail import HotTail
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.wal.commit import Commit, Done
from topics.store.wal.counters import LogCounters
from topics.store.wal.log_bound import LogBound
from topics.store.wal.shard import Shard
from topics.store.wal.wal_files import WalDirectory, place
from topics.store.wal.write_latch import WriteLatch

_OPENS_AT_A_TIME = 8


class ShardStart(NamedTuple):
    """Where one shard goes on after recovery; a new shard starts as `ShardStart()`."""

    next_file_no: int = 1
    last_batch_no: int = 0
    spares: tuple[str, ...] = ()
    """Paths of files that may be used again: `spare-*`, and prepared ones never taken into use."""


class ShardedLog:
    """Stages into a shard's filling batch; `flush` at the end of each pass sends the batches off."""

    def __init__(self, loop: Loop, config: Config, table: FileTable) -> None:
        self._loop = loop
        self._config = config
        self._table = table
        self.counters = LogCounters()
        self.admission = WriteLatch()
        self.tail = HotTail(config.hot_tail_bytes)
        self.sizes = LogSizes(config, loop.ring.volume_bytes(config.data_dir))
        self.bound = LogBound(loop.clock, max_bytes=self.sizes.log_max, max_wait_ns=config.max_log_wait_ms * 1_000_000)
        self.space = DiskSpace(loop, config.data_dir, self.sizes)
        self._wals: list[Shard] = []
        self._directories: list[WalDirectory] = []

    async def open(self, starts: list[ShardStart]) -> None:
        """Opens config.wal_shards shards, each in a file of its own; `starts[i]` is shard i's.

        Raises OSError; a full disk is no error, see `disk_full`. Missing directories of shards are made.
        """
        config, loop = self._config, self._loop
        self.space.on_change.append(self._on_space_change)
        self.admission.on_latch.append(self._on_latch)
        for path in chain.from_iterable(start.spares for start in starts):
            self.sizes.on_found(loop.ring.file_size(path))
        loop.ring.make_directory(f"{config.data_dir}/wal")
        for shard in range(self.sizes.shards):
            path = f"{config.data_dir}/{shard_directory(shard)}"
            loop.ring.make_directory(path)
            start = starts[shard] if shard < len(starts) else ShardStart()
            directory = WalDirectory(
                loop,
                self._table,
                path,
                shard=shard,
                next_file_no=start.next_file_no,
                sizes=self.sizes,
                spares=list(start.spares),
            )
            wal = Shard(
                loop,
                directory,
                tail=self.tail,
                admission=self.admission,
                space=self.space,
                counters=self.counters,
                bound=self.bound,
                last_batch_no=start.last_batch_no,
                commit=config.commit,
                sync_every_ns=config.sync_every_ms * 1_000_000,
                window_ns=config.commit_window_us * 1000,
                gather_ns=config.commit_gather_us * 1000,
                in_place_max_ns=config.commit_in_place_max_us * 1000,
                sizes=self.sizes,
                prepared_files=config.wal_spare_files,
            )
            self._directories.append(directory)
            self._wals.append(wal)
        # Also when they were there: whoever made them may have been killed before it synced them.
        syncs = (loop.files.sync_directory(path) for path in (f"{config.data_dir}/wal", config.data_dir))
        opens = (wal.open() for wal in self._wals)
        await self.space.open()  # where there is no space for a reserve, log files are small
        await all_of(loop.spawn, chain(syncs, opens), _OPENS_AT_A_TIME)

    def shard_of(self, topic_id: int) -> int:
        wals = self._wals
        if len(wals) == 1:
            return 0
        return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % len(wals)

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
        """Frames rows into the topic's shard; row i gets seq first_seq + i. `node` is for rows without one.

        counted: False leaves them out of the metric of frames (copies that routers make, R-RTR-17). routed: they get
        FLAG_ROUTED.
        Raises LogReadOnlyError or DiskFullError, and then nothing was staged.
        """
        return self._wals[self.shard_of(topic_id)].staging.stage_records(
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

    def stage_gathered(
        self,
        topic_id: int,
        frames: PrebuiltFrames,
        first_seq: int,
        ts_ms: int,
        *,
        fsync: bool,
        synced: bool,
        done: Done,
        floors: bytes = b"",
    ) -> Framed:
        """Stages frames that were put together before, as a batch of its own whose end `done` is told, like
        `when_committed`; `Framed` counts from the commit's base.

        floors: payload of a FLOORS frame that comes with them. Raises like `stage_records`.
        """
        staging = self._wals[self.shard_of(topic_id)].staging
        framed = frames.number(topic_id, first_seq, ts_ms, fsync=fsync)
        if floors:
            frames.add_control(FrameType.FLOORS, topic_id, first_seq - 1, ts_ms, floors)
        staging.stage_gathered(frames, synced, done)
        return framed

    @property
    def is_one_shard(self) -> bool:
        """All topics lie in one: only then there is `stage_topics`."""
        return len(self._wals) == 1

    def stage_topics(self, rows: TopicRows, *, fsync: bool) -> Framed:
        """Frames rows of several topics, which all lie in the one shard there is. Raises like `stage_records`."""
        return self._wals[0].staging.stage_topics(rows, fsync=fsync)

    def write_alone(
        self, topic_id: int, first_seq: int, ts_ms: int, rows: Rows, node: bytes | None, *, fsync: bool
    ) -> tuple[Framed, Commit] | None:
        """Stages and commits rows in this call, synced with `fsync`, if one write is all it takes.

        For who has the loop to himself: after `commit_in_place`, or while one connection is alone (`Loop.is_alone`) and
        nothing but this request was received in the pass.
        None: it is not, and nothing was done. `Framed` counts from the commit's base.
        """
        wals = self._wals
        wal = wals[0] if len(wals) == 1 else wals[self.shard_of(topic_id)]
        return wal.write_alone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)

    def stage_control(
        self, topic_id: int, kind: int, seq: int, ts_ms: int, payload: bytes, *, counted: bool = True
    ) -> None:
        """One control frame into the topic's shard; payload is compact JSON. Raises like `stage_records`."""
        self._wals[self.shard_of(topic_id)].staging.stage_control(topic_id, kind, seq, ts_ms, payload, counted=counted)

    def when_committed(self, topic_id: int, synced: bool, done: Done) -> None:
        """Calls `done(Commit)` once the batch that the topic's shard is filling has ended, in order of attaching.

        Without anything staged it ends when what was staged before has; with `synced`, when that is on stable storage.
        """
        self._wals[self.shard_of(topic_id)].staging.when_committed(synced, done)

    def when_durable(self, topic_id: int, done: Callable[[], None]) -> None:
        """Calls `done` once all that the topic's shard has committed is on stable storage; no commit waits for that.

        Never when the log is latched before.
        """
        self._wals[self.shard_of(topic_id)].when_durable(done)

    def use_reserve(self) -> AbstractContextManager[None]:
        """What is staged inside frees space: it is taken when the disk is full, too."""
        return self.admission.use_reserve()

    def check_writable(self) -> None:
        """Raises LogReadOnlyError once the log takes nothing any more; a full disk is no reason."""
        if self.admission.read_only:
            raise self.admission.read_only_error()

    def flush(self) -> None:
        """Pass-end hook: a commit for every idle shard with something to write."""
        for wal in self._wals:
            wal.flush()

    # --- state -------------------------------------------------------------------------------------------------------
    @property
    def shards(self) -> list[Shard]:
        return self._wals

    @property
    def backlog_bytes(self) -> int:
        """Staged or in flight, over all shards."""
        return sum(wal.backlog_bytes for wal in self._wals)

    def is_backlogged(self) -> bool:
        """A write should be refused for now; counts the refusal."""
        if self.backlog_bytes <= self._config.max_backlog_bytes:
            return False
        self.counters.submit_full += 1
        return True

    def append_retry_ms(self) -> int:
        """The log is as long as it may be: after how long a refused append may be tried again.

        0: it is not, or no append finds space on the disk anyway, which its own refusal says.
        """
        bound = self.bound
        if not bound.is_reached(self.backlog_bytes) or self.admission.closed:
            return 0
        return bound.retry_after_ms

    @property
    def append_wait_ns(self) -> int:
        """How long commits are held back just now because the log gets long."""
        return self.bound.wait_ns

    def commit_in_place(self) -> None:
        """From here on a commit that needs one write blocks the thread for it, instead of a turn through the ring.

        For a caller that waits for nothing else. Callbacks run inside `flush`, which has the pass' hooks run again.
        """
        for wal in self._wals:
            wal.commit_in_place()

    def set_commit_window(self, ns: int) -> None:
        """How long after a commit the next one may be held back to gather more: widened under pressure."""
        for wal in self._wals:
            wal.window_ns = ns

    @property
    def queue_depth(self) -> int:
        """Submissions not yet committed."""
        return sum(wal.queue_depth for wal in self._wals)

    @property
    def read_only(self) -> str:
        """Why the log takes no writes any more; "" while it does."""
        return self.admission.read_only

    @property
    def reserve_bytes(self) -> int:
        """Kept for deletes on a full disk."""
        return self.space.reserve_bytes

    @property
    def disk_full(self) -> bool:
        return self.admission.disk_full

    def _on_space_change(self) -> None:
        self.admission.set_disk_full(self.space.full)
        if not self.space.full:
            for wal in self._wals:
                wal.on_space()

    def _on_latch(self) -> None:
        for wal in self._wals:
            wal.on_latch()

    # --- files -------------------------------------------------------------------------------------------------------
    def request_rotation(self) -> None:
        """Every shard opens another file with its next batch."""
        for wal in self._wals:
            wal.request_rotation()

    def left_files(self) -> list[StoredFile]:
        """WAL files that are not written to any more and not empty: what a checkpoint copies from, oldest first."""
        return [file for file in self._table.of_log() if not file.active and file.size]

    @property
    def held_bytes(self) -> int:
        """Of frames, dead or alive, which a checkpoint has not taken yet."""
        return sum(file.size for file in self.left_files()) + sum(wal.end_bytes for wal in self._wals)

    async def retire(self, file: StoredFile) -> None:
        """Recycles a left file: its rows were moved and that is durable. Readers that are in it finish first."""
        assert file.kind is FileKind.WAL, "only files of the log are recycled"
        self.tail.forget(file.file_id)
        shard, _ = place(file)
        directory = self._directories[shard if shard < len(self._directories) else 0]  # any, where it is used no more
        for wal in self._wals:
            await wal.when_synced(file)
        unread = Event()
        file.when_unread(unread.set)
        await unread.wait()
        await directory.retire(file, keep=not self.disk_full)

    async def drop_spares(self) -> None:
        """Files kept for reuse go: the disk is full."""
        for directory in self._directories:
            await directory.drop_spares()

    # --- ending ------------------------------------------------------------------------------------------------------
    async def drain(self) -> None:
        """Returns when all that was staged is on stable storage, or the log is read-only."""
        for wal in self._wals:
            await wal.drain()

    async def close(self) -> None:
        """Drains and ends; nothing may be staged any more."""
        self.bound.let_go()
        self.space.close()
        for wal in self._wals:
            await wal.close()
