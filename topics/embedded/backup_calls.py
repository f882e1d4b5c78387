"""Verify a backup or an archive, without a log that is open."""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple

from topics.common.values import arguments
from topics.config import Config
from topics.embedded.own_loop import own_loop
from topics.errors import CorruptError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.joint_point import core_of, joints_of
from topics.store.archive.timelines import Timeline, damaged_timelines, end_of, is_there
from topics.store.archive.unbroken_log import restorable_ranges
from topics.store.archive.verify_archive import verify_timelines
from topics.store.backup.backup_logs import check_one_log
from topics.store.backup.backup_manifest import BackupManifest, is_backup_name, read_manifest
from topics.store.backup.restore_backup import check_backup, find_backup, has_only_files
from topics.store.cores.core_directories import core_directory, layout_faults, marker_or_none, whole_map
from topics.store.repair.verify_directory import verify


class VerifiedBackup(NamedTuple):
    """The result of comparing every checksum of a backup or an archive."""

    path: str
    taken_ms: int
    """Unix ms of its instant; of an archive, of its end."""
    files: int
    bytes: int
    records: int
    """Records of a backup; of an archive, those of its newest base, or of that of each core."""
    findings: list[str]
    """Damaged places, one sentence each."""
    log_records: int | None = None
    """Records in the log of an archive, from its oldest base on; None: it is a backup."""
    ranges: tuple[tuple[str, int, int], ...] = ()
    """The timelines of an archive with the first and the last time (Unix ms) of each range that a
    restore can lead to, if nothing in it is damaged: a hole ends one, and a base begins the next.
    """

    @property
    def sound(self) -> bool:
        return not self.findings


def verify_backup(backup: str | os.PathLike[str]) -> VerifiedBackup:
    """Compare every checksum of a backup or an archive.

    There are those of manifests, and those of frames, indexes, snapshots and batches of the log.

    backup: as in `restore`.
    Raises: UsageError, there is none; CorruptError, its manifest is damaged; FormatError;
        StorageError.
    """
    source = arguments.path(backup, "backup")
    with own_loop(Config()) as loop:
        found, damaged = loop.run_task(damaged_timelines(loop, source))
        if found:
            check_no_backups(source, found)
            return loop.run_task(_verify_archive(loop, source, found, damaged))
        loop.run_task(check_one_log(loop.files, source))
        return loop.run_task(_verify_backup(loop, named_backup(loop, source)))


def named_backup(loop: Loop, source: str) -> str:
    """Return what `find_backup` does. Raises: as it, with the argument."""
    try:
        return find_backup(loop, source)
    except UsageError as error:
        raise UsageError(f"is {source!r}: {error}", "backup") from None


def check_no_backups(archive: str, timelines: list[Timeline]) -> None:
    """Check that a directory with timelines has no backups, too: a call means one of them.

    Raises: UsageError, it has.
    """
    backups = [name for name in sorted(os.listdir(archive)) if is_backup_name(name)]
    if backups:
        timeline = os.path.basename(timelines[-1].path)
        raise UsageError(f"{archive} has backups, such as {backups[-1]}, and a log, {timeline}: name one of them")


async def _verify_archive(loop: Loop, archive: str, timelines: list[Timeline], damaged: list[str]) -> VerifiedBackup:
    """damaged: notes, a sentence each."""
    with_bases = [timeline for timeline in timelines if timeline.bases]
    all_of_it = await verify_timelines(loop, timelines)
    end_ms, records, findings = end_of((with_bases or timelines)[-1]), 0, damaged + all_of_it.findings
    joints = []
    try:
        joints = await joints_of(loop, filter(partial(is_there, loop.files), timelines))
    except CorruptError as error:
        findings.append(str(error))
    newest = with_bases[-1:]
    if newest and (joint := core_of(newest[0])):  # the newest one of each core
        newest = list({os.path.dirname(each.path): each for each in with_bases if core_of(each) == joint}.values())
        end_ms = min(map(end_of, newest))
    for each in newest:
        base = each.bases[-1]
        if len(newest) == 1:
            end_ms = max(end_ms, base.manifest.taken_ms)  # without a note the base is the end
        in_base, in_newest = await _verify_log(loop, base.path, base.manifest)
        records, findings = records + in_base, in_newest + findings
    ranges = [(each.path, *times) for each in with_bases if not core_of(each) for times in restorable_ranges(each)]
    ranges += [(joint.path, *times) for joint in joints for times in joint.times]
    if not ranges and not findings:
        findings = [f"{archive} has no base yet, so no restore leads there: its server makes one, if it can"]
    return VerifiedBackup(
        archive,
        end_ms,
        all_of_it.files,
        all_of_it.bytes,
        records,
        findings,
        log_records=all_of_it.records,
        ranges=tuple(ranges),
    )


async def _verify_backup(loop: Loop, backup: str) -> VerifiedBackup:
    manifest = await read_manifest(loop.files, backup)
    damaged = await check_backup(loop, backup)
    records, in_log = await _verify_log(loop, backup, manifest)
    return VerifiedBackup(backup, manifest.taken_ms, len(manifest.files), manifest.size, records, damaged + in_log)


async def _verify_log(loop: Loop, backup: str, manifest: BackupManifest) -> tuple[int, list[str]]:
    """Verify a backup as a data directory; return its records, and the damage, a sentence each."""
    if not has_only_files(loop, backup, manifest):
        return 0, []  # which is damage that was found
    if manifest.is_of_cores:
        return await _verify_cores(loop, backup)
    marker = await marker_or_none(loop.files, backup)
    of_core = {} if marker is None else {"core": marker.core, "number": marker.number}
    report = await verify(loop, backup, "", **of_core)
    return report.records, [report.describe(each) for each in report.findings]


async def _verify_cores(loop: Loop, backup: str) -> tuple[int, list[str]]:
    """Verify a backup of several cores as `_verify_log` does one of one core."""
    try:
        found = await whole_map(loop.files, backup)
    except StorageError as error:
        return 0, [str(error)]
    assert found is not None, "its manifest lists a slot map"
    faults = await layout_faults(loop.files, backup, found.stored)
    records, findings = 0, [*found.damage, *(fault.sentence for fault in faults)]
    for core in sorted({*range(found.stored.slots.cores)} - {fault.core for fault in faults}):
        path, number = core_directory(backup, core), found.stored.numbers[core]
        report = await verify(loop, path, core=core, number=number)
        records += report.records
        findings += [report.describe(each) for each in report.findings]
    return records, findings
