"""Snapshots of a checkpoint, and captures of its end: the catalog and the files of one instant.

The log is synced up to that instant first, so that a snapshot never has anything that a power cut
removes. It is written twice (snapshot_files.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from topics.loop.tasks import Future
from topics.store.checkpoint.capture import Capture, Captures, HeldFile, SharedInstant
from topics.store.checkpoint.checkpoint_parts import CheckpointParts
from topics.store.checkpoint.files_to_empty import is_before
from topics.store.commits.write_batch import Commit
from topics.store.disk.time_slices import TimeSlices, a_step_a_pass
from topics.store.layouts.directory_names import HOT, snapshot_path
from topics.store.layouts.snapshot_format import sum_in_steps
from topics.store.segments.data_files import Segment
from topics.store.segments.snapshot_files import COPIES, snapshot_numbers, write_snapshot
from topics.store.segments.store_part import PackedFiles, ReplayStart, StorePart
from topics.store.segments.tiers import Tiers
from topics.store.wal.ends_by_time import FileEnds, ends_by_time


class FoundSnapshot(NamedTuple):
    """The snapshot with which a start continues, and what the log after it needs."""

    number: int
    replay: dict[int, ReplayStart]
    replay_shards: int
    """Number of shards that the log had from the replay's start on.

    It differs from the current one until a checkpoint has copied that log.
    """
    retired_shards: dict[int, ReplayStart]
    """Shards of an earlier count, and where their replay begins after a checkpoint."""
    doubtful: Collection[str]
    """Paths of files whose flags the page cache may show and the disk lack (StorePart)."""


class SnapshotTaker:
    """The snapshots of a store, each after the other, and what only they state of it."""

    def __init__(self, parts: CheckpointParts, turns: TimeSlices, captures: Captures, found: FoundSnapshot) -> None:
        self._loop = parts.loop
        self._config = parts.config
        self._log = parts.wal
        self._table = parts.table
        self._catalog = parts.catalog
        self._manifest = parts.manifest
        self._format = parts.directory_format
        self._turns = turns
        self._captures = captures
        self.number = found.number
        """Number of the newest snapshot."""
        self.replay = found.replay
        """Where the replay of each shard begins."""
        self._replay_shards = found.replay_shards
        self._retired_shards = found.retired_shards
        self.doubtful = frozenset(found.doubtful)
        """Paths that each snapshot names, in case this process is killed.

        They are named until the deletes that the log has of them are flagged.
        """
        self._last_bytes = self._found_bytes()
        """Bytes of the last snapshot that was taken, or that found no space."""

    def begin_replay(self, replay: dict[int, ReplayStart]) -> None:
        """Have the next snapshots begin the replay here: the log before it was copied."""
        self.replay = {**self._retired_shards, **replay}
        self._replay_shards = len(self._log.shards)

    @property
    def next_bytes(self) -> int:
        """Estimated bytes of the next snapshot, by the last one.

        An older pair is removed only once it is written.
        """
        return COPIES * self._last_bytes

    @property
    def least_bytes(self) -> int:
        """Estimated bytes of the next snapshot on a full disk.

        That is one copy, which may be somewhat larger; a second copy of the last one gives its
        space.
        """
        numbers = snapshot_numbers(self._loop.files, self._config.data_dir)
        return self._last_bytes // 4 + (self._last_bytes if len(numbers) < COPIES else 0)

    def _found_bytes(self) -> int:
        """Return the bytes of the snapshot that the start has found."""
        try:
            return self._loop.files.file_size(f"{self._config.data_dir}/{snapshot_path(self.number)}")
        except OSError:
            return 0

    async def take(self, *, clean: bool, flagging: Collection[str] = ()) -> None:
        """Write a snapshot of the catalog and the files in use, of one instant.

        flagging: see StorePart.
        Raises: OSError.
        """
        files = await self._pack_files(self._manifest.segments.values())
        await self._prepare()
        store = self._store_part(files, clean=clean, flagging=flagging)
        catalog = self._catalog.snapshot()
        self._last_bytes = sum(map(len, store)) + sum(map(len, catalog))
        await self.sync_log()
        self.number = await write_snapshot(
            self._loop.files,
            self._config.data_dir,
            after=self.number,
            now_ms=self._loop.clock.now_ms(),
            store=store,
            catalog=catalog,
            body_sum=await a_step_a_pass(self._loop.next_pass, sum_in_steps(store, catalog)),
        )

    async def _prepare(self) -> None:
        """Let the catalog prepare its part; the snapshot has to be taken before the next await."""
        self._turns.resume()
        for _ in self._catalog.prepare_snapshot(self._config.checkpoint_topics_per_pass):
            await self._turns.rest()

    async def _pack_files(self, segments: Iterable[Sequence[Segment]]) -> PackedFiles:
        """Encode these segments and all packs. Nothing else changes them during a checkpoint."""
        turns, files = self._turns, PackedFiles()
        turns.resume()
        for some in segments:
            files.add_segments(some)
            if turns.over:
                await turns.rest()
        for pack in list(self._manifest.packs.values()):
            files.add_pack(pack)
            if turns.over:
                await turns.rest()
        return files

    def _store_part(self, files: PackedFiles, *, clean: bool, flagging: Collection[str]) -> list[bytes]:
        """Return the store's part of a snapshot of this instant, packed, in pieces."""
        part = StorePart(
            replay=self.replay,
            segments=[],
            packs=[],
            boot=self._loop.ring.boot_id(),
            shards=self._replay_shards,
            clean=clean,
            flagging=sorted({*flagging, *self.doubtful}),
        )
        return files.packed_with(part)

    async def capture(self, instant: SharedInstant | None = None) -> Capture | None:
        """Return a capture of the end of a checkpoint, while nothing else changes or removes files.

        In a copy of it, the segments of the cold directory are in the same directory as all others.
        instant: that of the capture, which is later; None: now. It is waited for.
        Returns: None if the instant is given up.
        """
        capture = self._captures.begin(self._format.number, self.number + 1)
        try:
            files = await self._pack_files([await self._hold_sealed(capture)])
            await self._prepare()
            capture.store = self._store_part(files, clean=False, flagging=())
            capture.catalog = self._catalog.snapshot()
            await self.sync_log()
            taken_ms, ends = self._loop.clock.now_ms(), self._ends()
            if instant is not None:
                agreed_ms = await instant.agreed_ms()
                await self.sync_log()
                now = self._ends()
                if agreed_ms is None or not instant.is_kept():
                    capture.release()
                    return None
                taken_ms, ends = agreed_ms, await ends_by_time(self._loop.files, now, ends, agreed_ms)
                capture.format_number = self._format.number
        except BaseException:
            capture.release()
            raise
        capture.taken_ms = taken_ms
        root = f"{self._config.data_dir}/"
        for file, end in ends:
            capture.hold(capture.log, HeldFile(file, file.path, file.path.removeprefix(root), end))
        return capture

    def _ends(self) -> FileEnds:
        """Return the files of the log that continue the snapshot, each with its end."""
        return [(file, end) for file, end in self._log.files_to_ends() if not is_before(file, self.replay)]

    async def _hold_sealed(self, capture: Capture) -> list[Segment]:
        """Hold all segments and packs; return the segments as the copy lists them."""
        turns, tiers, listed = self._turns, Tiers.of(self._config), list[Segment]()
        turns.resume()
        for segment in self._manifest.all_segments():
            if turns.over:
                await turns.rest()
            stored, size = self._table[segment.file_id], -1 if segment.sealed else segment.frames_end
            # Where it is listed: reads may use a file of before a move, which gets no delete flags.
            path = tiers.path(segment)
            held = HeldFile(stored, path, segment.path, size, is_sealed=segment.sealed, has_index=True)
            capture.hold(capture.sealed, held)
            listed.append(segment if segment.tier == HOT else msgspec.structs.replace(segment, tier=HOT))
        for pack in self._manifest.packs.values():
            stored = self._table[pack.file_id]
            capture.hold(capture.sealed, HeldFile(stored, stored.path, pack.path, -1, is_sealed=True))
        return listed

    async def sync_log(self) -> None:
        """Make everything committed so far durable."""
        waits: list[Future[Commit]] = []
        for wal in self._log.shards:
            future: Future[Commit] = Future()
            wal.staging.when_committed(True, future.set_result)
            waits.append(future)
        self._log.bound.let_go()
        for future in waits:
            error = (await future).error
            if error is not None:
                raise error
