"""Recovery: the newest snapshot, the rows of the segments it lists, then the log from the cut on.

Every shard directory found is replayed, whatever the current count. Everything about one topic is
in one shard, in order. Creations, configs and deletions of topics carry an order number and are
applied by it over all shards, so a piece of one shard may have to wait for another's. Within a
piece ordered controls come first, then records (each topic's in bulk), then the other controls,
which carry their bounds.

Only zeros after unsealed segments and lost indexes are written here, and files that no snapshot
lists are removed, so a killed recovery is simply begun again. In a frozen directory none of that is
done: nothing reads these bytes and files.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np

from topics.errors import CorruptError
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.store.disk.data_directory import no_log_in
from topics.store.disk.disk_space import is_full
from topics.store.disk.side_by_side import all_of, side_by_side
from topics.store.disk.time_slices import a_step_a_pass
from topics.store.disk.uncached_reads import UncachedReads, is_direct
from topics.store.disk.whole_files import FileCalls, ReadCalls, list_if_there, sync_file, unlink_if_there
from topics.store.format.catalog import Catalog, RowColumns
from topics.store.format.codec import Frames
from topics.store.format.compressed_segment import CODEC_PLAIN, require_zstd
from topics.store.format.file_table import FileKind, FileTable
from topics.store.format.log_format import (
    FLAG_EXT,
    FRAME_HEADER_BYTES,
    ORDERED_TYPES,
    FrameType,
    Idempotency,
    ProducerPart,
    shard_directory,
    unpack_extension,
    wal_file_name,
)
from topics.store.format.row_columns import by_topic, select
from topics.store.layouts.directory_names import COLD, HOT, PACK_DIRECTORY, SNAPSHOT_DIRECTORY, index_path
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.log_replay import Cut, ShardReplay
from topics.store.recovery.log_survey import Survey, shards_of, survey_shard
from topics.store.recovery.missing_batches import REMEDY
from topics.store.recovery.verified_batches import VerifiedBatches
from topics.store.segments.data_files import Pack, Segment
from topics.store.segments.manifest import Manifest
from topics.store.segments.pack import PackIndex, read_pack
from topics.store.segments.segment import cut_back, read_rows, rewrite_index
from topics.store.segments.snapshot_files import Loaded, load_snapshot
from topics.store.segments.store_part import ReplayStart
from topics.store.segments.tiers import Tiers, claim_cold

log = logging.getLogger(__name__)

_LOADS_AT_A_TIME = 16
"""Indexes of segments and packs that are read side by side; this many are in memory twice."""
_MANY_RUNS = 2000
"""A pack with more runs is loaded by itself, since its index takes milliseconds of a pass."""
_UNLINKS_AT_A_TIME = 16
APPLIED_A_PASS = 64
"""Controls, and runs of a topic's records, that a replay applies in a pass: 10 to 60 us each."""
_WHOLE = ReplayStart(0, marked=False)
Progress = Callable[[float], None]
"""Callback with the share that is done, 0 to 1."""


class Recovered(NamedTuple):
    """The result of recovery, except what the catalog has."""

    loaded: Loaded | None
    """The newest snapshot; None: the directory was empty."""
    manifest: Manifest
    surveys: dict[int, Survey]
    shards: dict[int, ShardReplay]
    """The replays by shard, at their ends."""
    replay: dict[int, ReplayStart]
    batches: int

    @property
    def frames(self) -> int:
        """Number of frames that were read from the log."""
        return sum(replay.frames for replay in self.shards.values())

    @property
    def cuts(self) -> list[Cut]:
        """The parts of the log that were left out."""
        return [cut for replay in self.shards.values() for cut in replay.cuts]


async def recover(
    loop: Loop,
    tiers: Tiers,
    catalog: Catalog,
    *,
    file_bytes: int,
    progress: Progress,
    lost_writes: bool = False,
    is_frozen: bool = False,
) -> Recovered:
    """Fill the catalog.

    is_frozen: the directory is only read.
    lost_writes: a write or sync failed since the machine was started, so the page cache may show
        what the disk does not have, for example deletes that a power cut would undo. Reads bypass
        it then.
    Raises: CorruptError or FormatError naming the place; StorageError for a cold directory that is
        not the data directory's own; OSError.
    """
    files, directory, table = loop.files, tiers.hot, catalog.files
    loaded = await load_snapshot(files, directory, loop.next_pass)
    if loaded is None:
        _refuse_orphaned(loop, directory)
        if is_frozen:
            raise no_log_in(directory)
        await claim_cold(loop, tiers, listed=False)
        await a_step_a_pass(loop.next_pass, catalog.restore(None))
        return Recovered(None, Manifest(), {}, {}, {}, 0)
    # A process killed between a snapshot's rename and the directory's sync left a name that a power
    # cut may still remove. Files that the snapshot makes unneeded are reused from here on, so the
    # name has to stay.
    if not is_frozen:
        await files.sync_directory(f"{directory}/{SNAPSHOT_DIRECTORY}")
    store = loaded.store
    manifest = await a_step_a_pass(loop.next_pass, Manifest.of_steps(store))
    has_cold = any(segment.tier == COLD for segment in manifest.all_segments())
    await claim_cold(loop, tiers, listed=has_cold, is_frozen=is_frozen)
    if any(segment.codec != CODEC_PLAIN for segment in manifest.all_segments()):
        require_zstd(f"cold directory {tiers.cold} has compressed segments, and reading them")
    await _restore(loop, catalog, loaded)
    flagging = set(store.flagging)
    if not is_frozen:
        await _sync_flags(files, tiers, manifest, flagging)
    doubtful = None if lost_writes else flagging
    await _load_rows(loop, tiers, catalog, table, manifest, doubtful=doubtful, mends=not is_frozen)

    reader = DirectReader(files, direct=is_direct(files.direct_block_bytes(directory)))
    surveys = await _survey(loop, reader, directory, store.replay, file_bytes)
    on_bytes = _in_shares(progress, sum(file.size for survey in surveys.values() for file in survey.used))
    shards = {
        shard: ShardReplay(
            files, reader, table, survey, whole=shard not in store.replay, pause=loop.next_pass, on_bytes=on_bytes
        )
        for shard, survey in surveys.items()
    }
    await _Replay(catalog, manifest, loop.next_pass).run(list(shards.values()))
    batches = sum(shard.batches for shard in shards.values())
    if (batches or not store.clean) and not is_frozen:
        await sweep(loop, tiers, manifest)
    return Recovered(loaded, manifest, surveys, shards, store.replay, batches)


def _in_shares(progress: Progress, total: int) -> Callable[[int], None]:
    """Return a callback with further bytes that are done, of so many."""
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(min(1.0, done / (total or 1)))

    return on_bytes


async def _restore(loop: Loop, catalog: Catalog, loaded: Loaded) -> None:
    """Fill the catalog from the snapshot, or, in a rebuilt directory, from descriptions."""
    store = loaded.store
    if not store.rebuilt:
        await a_step_a_pass(loop.next_pass, catalog.restore(loaded.catalog, log_cut=store.log_cut))
        return
    await a_step_a_pass(loop.next_pass, catalog.restore(None, log_cut=store.log_cut))
    described = msgspec.json.decode(loaded.catalog, type=list[tuple[int, msgspec.Raw]])
    times = store.described_ms or [0] * len(described)  # an earlier version has stated none
    for (topic_id, description), described_ms in zip(described, times, strict=True):
        catalog.adopt(topic_id, bytes(description), described_ms)
    for topic_id, seq, ext in store.extensions:
        _apply_extension(catalog, topic_id, seq, ext)


async def _survey(
    loop: Loop, reader: DirectReader, directory: str, replay: dict[int, ReplayStart], file_bytes: int
) -> dict[int, Survey]:
    """Return the files of each shard's log. Raises: CorruptError, its first file is missing."""
    surveys: dict[int, Survey] = {}
    for shard in shards_of(loop.files, directory, replay):
        start = replay.get(shard, _WHOLE)
        path = f"{directory}/{shard_directory(shard)}"
        survey = surveys[shard] = await survey_shard(loop, reader, path, start.file_no, file_bytes)
        if start.marked and (not survey.used or survey.used[0].number != start.file_no):
            missing = f"{path}/{wal_file_name(start.file_no)}"
            raise CorruptError(f"{missing}: the log begins in this file, and it is missing. {REMEDY}")
    return surveys


def _refuse_orphaned(loop: Loop, directory: str) -> None:
    """Check that a directory without a snapshot is empty; otherwise a snapshot was lost."""
    for name in ("wal", "topics", PACK_DIRECTORY):
        for entry in list_if_there(loop.files, f"{directory}/{name}"):
            if name != "wal" or any(
                file.startswith("wal-") for file in list_if_there(loop.files, f"{directory}/wal/{entry}")
            ):
                raise CorruptError(
                    f"{directory}: there are records but no snapshot. Run `topics fsck --rebuild` to restore from "
                    "segments",
                    {"path": directory},
                )


# --- segments and packs ----------------------------------------------------------------------------------------------


async def _sync_flags(files: FileCalls, tiers: Tiers, manifest: Manifest, about: set[str]) -> None:
    """Make durable the flags that a killed process left in the page cache.

    A power cut would remove them.

    The flags are read soon, so they have to stay: the next checkpoint may drop the log's record of
    the deletes. They are read past the page cache, because the killed process's sync may have
    failed, and then this one reports success.
    """
    segments = [segment for segment in manifest.all_segments() if segment.path in about]
    paths = [tiers.path(segment) for segment in segments]
    paths += [index_path(tiers.path(segment)) for segment in segments if segment.sealed]
    paths += [f"{tiers.hot}/{pack.path}" for pack in manifest.packs.values() if pack.path in about]
    for path in paths:
        # an index is derived again, and a missing segment is found soon
        with contextlib.suppress(FileNotFoundError):
            await sync_file(files, path)


async def _load_rows(
    loop: Loop,
    tiers: Tiers,
    catalog: Catalog,
    table: FileTable,
    manifest: Manifest,
    *,
    doubtful: set[str] | None,
    mends: bool,
) -> None:
    """Register every file that the snapshot lists and add its live rows to the catalog.

    Packs come first, and each topic's rows come in order.

    doubtful: paths for which the page cache may show what the disk does not have; None: all.
    mends: what a crash left after a segment's frames is zeroed, and a lost index written again.
    """
    files, directory = loop.files, tiers.hot
    past_cache: dict[int, ReadCalls] = {}
    if doubtful is None or doubtful:
        for tier, root in tiers.roots():
            past_cache[tier] = UncachedReads(files) if is_direct(files.direct_block_bytes(root)) else files

    def is_doubtful(path: str) -> bool:
        return doubtful is None or path in doubtful

    def reads(tier: int, path: str) -> ReadCalls:
        return past_cache[tier] if is_doubtful(path) else files

    def packs(some: Iterable[Pack]) -> Iterator[Coroutine[Any, Any, tuple[Pack, PackIndex]]]:
        for pack in some:
            pack.file_id = table.add(FileKind.PACK, f"{directory}/{pack.path}", size=pack.size).file_id
            yield _load_pack(reads(HOT, pack.path), directory, pack)

    def take_pack(found: tuple[Pack, PackIndex]) -> None:
        pack, index = found
        table[pack.file_id].pack_records = int(index.table["records"].sum(dtype=np.int64))
        catalog.add_pack(index.live(pack.runs, pack.file_id))

    def segments() -> Iterator[Coroutine[Any, Any, tuple[Segment, RowColumns]]]:
        for segment in manifest.all_segments():
            path = tiers.path(segment)
            stored = table.add(FileKind.SEGMENT, path, size=segment.frames_end)
            stored.cold = segment.tier == COLD
            stored.compressed = segment.codec != CODEC_PLAIN
            segment.file_id = stored.file_id
            found, lost_writes = reads(segment.tier, segment.path), is_doubtful(segment.path)
            yield _load_segment(files, found, directory, path, segment, lost_writes=lost_writes, mends=mends)

    def take_segment(found: tuple[Segment, RowColumns]) -> None:
        segment, rows = found
        if len(rows.seqs):
            catalog.add_rows(segment.topic_id, rows)

    by_number = [manifest.packs[number] for number in sorted(manifest.packs)]
    for are_large, some in groupby(by_number, key=lambda pack: len(pack.runs) > _MANY_RUNS):
        await side_by_side(loop.spawn, packs(some), 1 if are_large else _LOADS_AT_A_TIME, take_pack)
    await side_by_side(loop.spawn, segments(), _LOADS_AT_A_TIME, take_segment)


async def _load_pack(files: ReadCalls, directory: str, pack: Pack) -> tuple[Pack, PackIndex]:
    try:
        return pack, await read_pack(files, directory, pack)
    except FileNotFoundError:
        path = f"{directory}/{pack.path}"
        raise CorruptError(f"{path}: the snapshot lists it, and it is missing. {REMEDY}", {"path": path}) from None


async def _load_segment(
    files: FileCalls, reads: ReadCalls, directory: str, path: str, segment: Segment, *, lost_writes: bool, mends: bool
) -> tuple[Segment, RowColumns]:
    try:
        files.file_size(path)
    except FileNotFoundError:
        detail = {"path": path, "topic_id": segment.topic_id}
        raise CorruptError(f"{path}: the snapshot lists it, and it is missing. {REMEDY}", detail) from None
    if not segment.sealed and mends:
        await cut_back(files, directory, segment, lost_writes=lost_writes)
    found = await read_rows(reads, path, segment)
    if found.derived and mends:
        await rewrite_index(files, path, segment, found.rows)
    return segment, found.rows


async def sweep(loop: Loop, tiers: Tiers, manifest: Manifest) -> None:
    """Unlink segments and packs that the snapshot does not list.

    An interrupted checkpoint left them. Directories of topics without segments are removed, too:
    otherwise those of deleted topics would stay.
    """
    files, directory = loop.files, tiers.hot
    unlisted: list[str] = []
    unused: list[str] = []
    for tier, root in tiers.roots():
        keep = manifest.paths(tier)
        keep |= {index_path(path) for path in keep if path.startswith("topics/")}
        used = {path.rpartition("/")[0] for path in keep}
        for topic in list_if_there(files, f"{root}/topics"):
            if f"topics/{topic}" not in used:
                unused.append(f"{root}/topics/{topic}")
            for name in list_if_there(files, f"{root}/topics/{topic}"):
                path = f"topics/{topic}/{name}"
                if path not in keep:
                    unlisted.append(f"{root}/{path}")
    keep = manifest.paths(HOT)
    for name in list_if_there(files, f"{directory}/{PACK_DIRECTORY}"):
        path = f"{PACK_DIRECTORY}/{name}"
        if path not in keep:
            unlisted.append(f"{directory}/{path}")
    await unlink_all(loop, unlisted)
    for path in unused:
        with contextlib.suppress(OSError):  # the directory is not empty
            files.remove_directory(path)


async def unlink_all(loop: Loop, paths: Sequence[str]) -> None:
    """Unlink files that are no longer listed, side by side; a missing one is no error.

    A full file system may lack the space to remove one. The file does no harm, and the next start
    tries again.

    Raises: OSError.
    """

    async def unlink(path: str) -> None:
        try:
            await unlink_if_there(loop.files, path)
        except OSError as error:
            if not is_full(error):
                raise
            log.warning("removing %s failed, the next start tries again: %s", path, error)

    await all_of(loop.spawn, (unlink(path) for path in paths), _UNLINKS_AT_A_TIME)


# --- the log ---------------------------------------------------------------------------------------------------------


def _apply_extension(catalog: Catalog, topic_id: int, seq: int, ext: bytes) -> None:
    """Note the identities of the write whose first record this is."""
    for entry in unpack_extension(ext):
        if isinstance(entry, Idempotency):
            catalog.add_idempotency(topic_id, entry.key, seq, entry.records, entry.started_ms)
        elif isinstance(entry, ProducerPart):
            catalog.add_part(topic_id, seq, entry)
        else:
            catalog.add_piece(topic_id, seq, entry)


class _Pending(NamedTuple):
    """A shard's piece with ordered controls that are not applied yet."""

    shard: ShardReplay
    chunk: VerifiedBatches
    controls: deque[tuple[int, int]]
    """(order number, index into chunk.frames)."""


class _Replay:
    """The replay of all shards, applied to the catalog.

    Some controls and runs of records are applied in a pass of the loop, because a piece of the log
    may create a hundred thousand topics, while probes are answered.
    """

    def __init__(self, catalog: Catalog, manifest: Manifest, pause: Callable[[], Future[None]]) -> None:
        """pause: returns a future that is resolved in the next pass."""
        self._catalog = catalog
        self._pause = pause
        self._applied = 0
        """Controls, and runs of a topic's records, that were applied."""
        self._manifest = manifest

    async def run(self, shards: list[ShardReplay]) -> None:
        self._catalog.log_begins(self._manifest.all_copied)
        pending: list[_Pending] = []
        for shard in shards:
            await self._advance(shard, pending)
        while pending:
            entry = min(pending, key=lambda entry: entry.controls[0][0])
            _, at = entry.controls.popleft()
            self._apply_control(entry.chunk, at)
            await self._count()
            if not entry.controls:
                pending.remove(entry)
                await self._apply(entry.chunk)
                await self._advance(entry.shard, pending)

    async def _count(self) -> None:
        """Count what was applied; let the loop make a pass after some of it."""
        self._applied += 1
        if self._applied % APPLIED_A_PASS == 0:
            await self._pause()

    async def _advance(self, shard: ShardReplay, pending: list[_Pending]) -> None:
        """Apply the shard's pieces up to one with ordered controls, which then waits its turn."""
        while (chunk := await shard.next()) is not None:
            types = chunk.frames["type"]
            if (types == FrameType.RECORD).all():
                await self._apply(chunk)
                continue
            ordered = np.flatnonzero(np.isin(types, list(ORDERED_TYPES)))
            if not len(ordered):
                await self._apply(chunk)
                continue
            numbers = chunk.frames["seq"][ordered].tolist()
            pending.append(_Pending(shard, chunk, deque(zip(numbers, ordered.tolist(), strict=True))))
            return

    async def _apply(self, chunk: VerifiedBatches) -> None:
        """Apply the records, then the controls that are not ordered."""
        frames = chunk.frames
        is_record = frames["type"] == FrameType.RECORD
        records = frames if is_record.all() else frames[is_record]
        for topic_id, rows in by_topic(records, chunk.data, chunk.base, chunk.file_id):
            self._catalog.see_rows(topic_id, rows)
            upto = self._manifest.copied_upto(topic_id)
            if upto and int(rows.seqs[0]) <= upto:
                rows = select(rows, rows.seqs > upto)
            if len(rows.seqs):
                self._catalog.add_rows(topic_id, rows)
            await self._count()
        self._apply_extensions(chunk, records)
        for at in np.flatnonzero(~is_record).tolist():
            if int(frames["type"][at]) not in ORDERED_TYPES:
                self._apply_control(chunk, at)
                await self._count()

    def _apply_extensions(self, chunk: VerifiedBatches, records: Frames) -> None:
        """Note the identities of writes, also of records that were deleted since."""
        extended = records[(records["flags"] & FLAG_EXT) != 0]
        for topic_id, seq, offset, length in zip(
            *(extended[name].tolist() for name in ("topic_id", "seq", "offset", "ext_len")), strict=True
        ):
            start = offset - chunk.base + FRAME_HEADER_BYTES
            _apply_extension(self._catalog, topic_id, seq, bytes(chunk.data[start : start + length]))

    def _apply_control(self, chunk: VerifiedBatches, at: int) -> None:
        frame = chunk.frames[at]
        kind = int(frame["type"])
        if kind == FrameType.CHECKPOINT:
            return
        self._catalog.apply_control(
            kind, int(frame["topic_id"]), int(frame["seq"]), int(frame["ts_ms"]), chunk.payload(at)
        )
