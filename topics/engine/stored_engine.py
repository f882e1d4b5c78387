"""The engine over the store of a data directory, for the server and the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topics.common.histograms import Distribution, Histogram
from topics.config import Config
from topics.engine.engine import Engine
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.engine.recovery.known_seqs import IdAndHead
from topics.engine.shared.outside import NOTHING_OUTSIDE, Outside
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_registry import Registry
from topics.loop.loop import Loop, PassEnd
from topics.loop.tasks import Future
from topics.store.archive.archiver import NO_ARCHIVE, ArchiveStats
from topics.store.backup.backup_counters import BackupCounters
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.disk.data_directory import LockedDirectory
from topics.store.recovery.recovery_counters import RecoveryCounters
from topics.store.store import Store
from topics.store.wal.sharded_log import ShardedLog


class LogStats(NamedTuple):
    """Numbers of one opened log: counters since it was opened, gauges, and distributions."""

    records: int
    """Records that were appended, copies of routers included."""
    bytes: int
    """Their bytes: `data` and `meta` as they are stored."""
    commits: int
    syncs: int
    """Syncs of the log."""
    rotations: int
    """Log files begun after the first."""
    seals: int
    """Segments and packs that were completed."""
    checkpoints: int
    checkpoint_failures: int
    refusals: dict[str, int]
    """Refused appends by reason: "backlog" (too much is not committed), "log_length" (too much is
    not in segments), "load" (deliveries lag). Those that were refused before they reached the
    engine: "admission" and "rollover", as in `WouldBlockError.reason`.
    """
    checksum_failures: int
    recovery_ms: int
    """How long opening took."""
    recovery_frames: int
    """Frames that it read from the log."""
    recovery_cut_bytes: int
    """Bytes at the end of the log that it cut off, because a batch was not whole."""
    live_records: int
    live_bytes: int
    log_bytes: int
    """Bytes of the log that are not in segments yet."""
    unsynced_bytes: int
    """Bytes of the log that are written and not on stable storage."""
    pendings: int
    """Calls without a waiting caller that have no answer yet."""
    append: Distribution
    """ns from the beginning of an append to its answer."""
    commit: Distribution
    """ns of the write of a batch, with its sync if one was asked for."""
    sync: Distribution
    """ns of a sync of the log."""
    seal: Distribution
    """ns in which a segment or pack was completed."""
    segment_bytes: Distribution
    """Bytes of each segment and pack that was completed."""


class StoredEngine:
    """An engine and its store, both open."""

    def __init__(self, engine: Engine, store: Store, registry: Registry) -> None:
        self.engine = engine
        self.store = store
        self._registry = registry

    def heads(self) -> dict[str, IdAndHead]:
        """Return the id and the highest seq of each topic, by name."""
        for _ in self._registry.make_all():
            pass
        return {topic.name: IdAndHead(topic.id, topic.head) for topic in self._registry.all_but_staging()}

    @classmethod
    async def open(
        cls,
        loop: Loop,
        config: Config,
        on_progress: Callable[[float], None] = lambda _share: None,
        outside: Outside = NOTHING_OUTSIDE,
        *,
        directory: LockedDirectory | None = None,
        skipped_seqs: int = 0,
        known_seq: Callable[[int, str], int] = lambda _topic_id, _name: 0,
    ) -> StoredEngine:
        """Recover the data directory; return an engine that accepts requests, with its hooks set.

        directory, on_progress: as in `Store.open`. outside: see `Engine`. skipped_seqs,
        known_seq: for a restored backup, see `EngineCatalog`. Raises: as `Store.open`.
        """
        cores, number = outside.cores, 0 if directory is None else directory.number
        owners = () if cores is None else (cores.core_of, cores.own)
        stored = StoredState(loop, config, number, *owners)
        catalog = EngineCatalog(loop, stored, skipped_seqs=skipped_seqs, known_seq=known_seq)
        store = await Store.open(loop, config, catalog, directory=directory, on_progress=on_progress, cores=cores)
        engine = Engine(loop, config, stored, store, outside)
        if store.log.is_frozen:
            engine.freeze()
        loop.on_pass_end(engine.flush, PassEnd.WAITERS)
        loop.on_pass_end(engine.look_again, PassEnd.LOOK)
        return cls(engine, store, stored.registry)

    @property
    def log(self) -> ShardedLog:
        return self.store.log

    @property
    def checkpoints(self) -> CheckpointCounters:
        return self.store.checkpointer.counters

    @property
    def archive(self) -> ArchiveStats:
        archiver = self.store.archiver
        return NO_ARCHIVE if archiver is None else archiver.stats

    @property
    def backups(self) -> BackupCounters:
        return self.store.backups.counters

    @property
    def recovery(self) -> RecoveryCounters:
        return self.store.recovery

    @property
    def checksum_failures(self) -> int:
        """Reads that found bytes that are not what was written."""
        return self.store.reader.checksum_failures

    def stats(self, append: Histogram, pendings: int, refused: dict[str, int]) -> LogStats:
        """Return the numbers of one instant.

        append, pendings, refused (by reason): those of the caller.
        """
        engine, log, checkpoints = self.engine.stats(), self.log.counters, self.checkpoints
        return LogStats(
            records=engine.appended_records,
            bytes=engine.appended_bytes,
            commits=log.batches,
            syncs=log.fsyncs,
            rotations=log.rotations,
            seals=checkpoints.seal.count,
            checkpoints=checkpoints.done,
            checkpoint_failures=checkpoints.failed,
            refusals={
                "backlog": log.submit_full,
                "log_length": engine.log_refusals,
                "load": self.engine.load().refused,
                **refused,
            },
            checksum_failures=self.checksum_failures,
            recovery_ms=self.recovery.ms,
            recovery_frames=self.recovery.frames,
            recovery_cut_bytes=self.recovery.cut_bytes,
            live_records=engine.records_live,
            live_bytes=engine.bytes_live,
            log_bytes=self.log.bound.bytes,
            unsynced_bytes=self.log.unsynced_bytes,
            pendings=pendings,
            append=append.distribution(),
            commit=log.commit.distribution(),
            sync=log.sync.distribution(),
            seal=checkpoints.seal.distribution(),
            segment_bytes=checkpoints.sealed_bytes.distribution(),
        )

    async def close(self) -> None:
        """End routers, write a checkpoint, and close the store, which releases the directory.

        With TOPICS_VERIFY, the counters are compared first, when nothing is staged any more. On
        return, all acknowledged writes are durable and checkpointed, unless the log is read-only.
        """
        ended: Future[None] = Future()
        self.engine.end_routers(lambda: ended.set_result(None))
        await ended
        self.engine.verify()
        await self.store.close(checkpoint=True)


async def recover_store(loop: Loop, config: Config, directory: LockedDirectory) -> Store:
    """Recover a directory without an engine: nothing in it changes but by checkpoints.

    Raises: as `Store.open`.
    """
    catalog = EngineCatalog(loop, StoredState(loop, config, directory.number))
    return await Store.open(loop, config, catalog, directory=directory)


async def recover_and_close(loop: Loop, config: Config, directory: LockedDirectory) -> None:
    """Recover a directory and close it, without an engine: its log has nothing that its files lack.

    Raises: as `Store.open`; OSError or StorageError, everything is closed, and something may be
    only in the log.
    """
    store = await recover_store(loop, config, directory)
    try:
        await store.checkpointer.run(moves=False, whole=True)
    finally:
        await store.close()
