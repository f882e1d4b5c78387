"""Calls about backups: restore one as a data directory, and verify one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from topics.clock import SystemClock
from topics.common.values import arguments
from topics.common.values.backup_result import SKIPPED_SEQS
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.errors import StorageError, TopicsError, UsageError
from topics.loop.choose import open_ring
from topics.loop.loop import Loop
from topics.store.backup.backup_files import remove_tree
from topics.store.backup.backup_manifest import BackupManifest, read_manifest
from topics.store.backup.restore_backup import check_backup, copy_backup, find_backup
from topics.store.repair.verify_directory import verify

_RESTORING = ".restoring"


class Restored(NamedTuple):
    """A directory that was made of a backup."""

    path: str
    """The data directory."""
    backup: str
    """The directory of the backup."""
    taken_ms: int
    """Unix ms of the instant of the backup."""
    topics: int
    records: int
    """Live records."""
    skipped_seqs: int
    """The first seq that a topic gives out is its highest one of the backup, plus these, plus 1."""


class VerifiedBackup(NamedTuple):
    """The result of comparing every checksum of a backup."""

    path: str
    taken_ms: int
    files: int
    bytes: int
    records: int
    findings: list[str]
    """Damaged places, one sentence each."""

    @property
    def sound(self) -> bool:
        return not self.findings


def restore(
    backup: str | os.PathLike[str], to: str | os.PathLike[str], *, skipped_seqs: int = SKIPPED_SEQS
) -> Restored:
    """Make a data directory of a backup. Every checksum is compared on the way.

    Clients may know seqs that were given out after the backup. So each topic gets another
    incarnation, and leaves out the next `skipped_seqs` seqs: a read that comes to them reports a
    loss with the reason "crash", and no seq that a client knows will name another record.

    backup: the directory of one, or that in which they are made, for the newest one.
    to: a path where nothing is. skipped_seqs: more than were given out since the backup.
    Raises: UsageError, there is no backup or `to` exists; CorruptError, the backup is damaged;
        FormatError; StorageError. Nothing is at `to` then.
    """
    source, target = arguments.path(backup, "backup"), arguments.path(to, "to").rstrip("/") or "/"
    arguments.count("skipped_seqs", skipped_seqs, least=1)
    if os.path.lexists(target):
        raise UsageError(f"{target} exists: restore to a path where nothing is, and move it there then")
    made = f"{target}{_RESTORING}"
    config = replace(Config(), data_dir=made)
    with _loop(config) as loop:
        found = find_backup(loop, source)

        async def run() -> tuple[BackupManifest, int, int]:
            with suppress(FileNotFoundError):  # an interrupted restore left it
                await remove_tree(loop.files, made)
            manifest = await copy_backup(loop, found, made)
            stored = await StoredEngine.open(loop, config, skipped_seqs=skipped_seqs)
            numbers = stored.engine.stats()
            await stored.close()
            await loop.files.rename(made, target)
            await loop.files.sync_directory(os.path.dirname(target) or ".")
            return manifest, numbers.topics, numbers.records_live

        manifest, topics, records = loop.run_task(run())
    return Restored(target, found, manifest.taken_ms, topics, records, skipped_seqs)


def verify_backup(backup: str | os.PathLike[str]) -> VerifiedBackup:
    """Compare every checksum of a backup.

    There are those of its manifest, and those of frames, indexes and snapshots.

    backup: as in `restore`.
    Raises: UsageError, there is none; CorruptError, its manifest is damaged; FormatError;
        StorageError.
    """
    source = arguments.path(backup, "backup")
    with _loop(Config()) as loop:
        found = find_backup(loop, source)

        async def run() -> VerifiedBackup:
            manifest = await read_manifest(loop.files, found)
            damaged = [str(error) for error in await check_backup(loop, found)]
            report = await verify(loop, found, "")
            findings = damaged + [report.describe(finding) for finding in report.findings]
            return VerifiedBackup(
                found, manifest.taken_ms, len(manifest.files), manifest.size, report.records, findings
            )

        return loop.run_task(run())


@contextmanager
def _loop(config: Config) -> Iterator[Loop]:
    """Yield a loop of its own, closed in the end. An OSError becomes a StorageError."""
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    try:
        yield loop
    except OSError as error:
        if isinstance(error, TopicsError):
            raise
        name = f"{error.filename}: " if error.filename else ""
        raise StorageError(f"{name}{error.strerror or error}") from error
    finally:
        loop.close()
