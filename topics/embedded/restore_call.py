"""Restore: make a data directory of a backup, or of an archive as it was at some time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from topics.common.values import arguments
from topics.common.values.backup_result import SKIPPED_SEQS, SKIPPED_SEQS_MAX
from topics.common.values.time_texts import LATEST_MS, time_text
from topics.config import Config
from topics.embedded.backup_calls import check_no_backups, named_backup
from topics.embedded.own_loop import own_loop
from topics.engine.recovery.archived_seqs import known_seqs, point_of_record
from topics.engine.recovery.known_seqs import IdAndHead, KnownSeqs
from topics.engine.recovery.time_of_record import time_of_record
from topics.engine.stored_engine import StoredEngine
from topics.errors import DiskFullError, TopicsError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import OwnTimeline, name_timeline
from topics.store.archive.joint_point import (
    Joint,
    check_all_cores,
    check_one_server,
    copy_joint,
    core_of,
    joint_points,
    joints_of,
    newest_ms,
    time_of_all,
)
from topics.store.archive.restore_archive import copy_point, with_ends
from topics.store.archive.restore_point import END, RestorePoint, point_at
from topics.store.archive.timelines import (
    Timeline,
    check_one_line,
    damaged_timelines,
    end_of,
    find_timelines,
    is_timeline,
    lacks_bases,
    line_of,
    timelines_beside,
)
from topics.store.backup.backup_files import remove_tree
from topics.store.backup.backup_logs import check_one_log
from topics.store.backup.free_places import NEW_DATA, taken
from topics.store.backup.restore_backup import copy_backup
from topics.store.cores.core_directories import core_config, marker_or_none
from topics.store.cores.new_id import draw_new_id
from topics.store.disk.data_directory import LockedDirectory, lock_directory, lock_to_read, make_with_parents
from topics.store.disk.directory_format import NO_CORE
from topics.store.disk.disk_space import lacks_space

_RESTORING = ".restoring"
_ATTEMPTS = 3
"""Restores that are tried while a server removes bases that it keeps no longer."""


FetchRest = Callable[[str], None]
"""Reads the log of a timeline, given by its path, and its bases."""


class _RestoreCall(NamedTuple):
    """The arguments of a restore of an archive, checked."""

    source: str
    target: str
    at_ms: int
    upto: tuple[str, int] | None
    skipped_seqs: int
    fetch_rest: FetchRest | None


class Restored(NamedTuple):
    """A directory that was made of a backup or an archive."""

    path: str
    """The data directory."""
    backup: str
    """The directory of the backup; in an archive, of the base that the restore began with, or of
    the timeline that several cores have together.
    """
    taken_ms: int
    """Unix ms of the instant that was restored."""
    topics: int
    records: int
    """Live records."""
    skipped_seqs: int
    """Seqs that each topic leaves out, after the highest one that the backup or archive knows."""
    archived_ms: int = 0
    """Unix ms up to which the archive has the log, in later timelines, too, if an end was named; 0:
    it is a backup.
    """
    damage: str = ""
    """Damage in the archive that the restore did without: a base, its log after the restored time,
    the note of another timeline; "" if there is none.
    """


def restore(
    backup: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    at: int | datetime | None = None,
    upto: tuple[str, int] | None = None,
    skipped_seqs: int = SKIPPED_SEQS,
) -> Restored:
    """Make a data directory of a backup or an archive. Every checksum is compared on the way.

    Clients may know seqs that were given out later. So each topic gets another incarnation, and
    leaves out the next `skipped_seqs` seqs after the highest one that the backup or the archive
    knows: a read that comes to them reports a loss with the reason "crash", and no seq that a
    client knows will name another record.

    backup: the directory of a backup, or that in which they are made, for the newest one; or an
        archive. to: a path where nothing is.
    at: for an archive, the time to restore, Unix ms or a datetime with a zone; None for its end.
    upto: for an archive, (topic, seq) of the last record to restore, in the place of `at`. Several
        cores have what all of them wrote up to its millisecond.
    skipped_seqs: more than were given out since.
    Raises: UsageError, there is no backup, the archive does not have that time, or `to` exists;
        CorruptError, what is needed is damaged; FormatError; StorageError. Nothing is at `to` then.
    """
    return restore_copy(backup, to, at=at, upto=upto, skipped_seqs=skipped_seqs)


def restore_copy(
    backup: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    at: int | datetime | None = None,
    upto: tuple[str, int] | None = None,
    skipped_seqs: int = SKIPPED_SEQS,
    fetch_rest: FetchRest | None = None,
) -> Restored:
    """Restore as `restore` does, also from a directory that lacks the logs of other lines.

    fetch_rest: has such a log be there, with its bases, before it is read; None: all are.
    """
    source, target = os.path.realpath(arguments.path(backup, "backup")), _new_path(to)
    _check_apart(target)
    skipped_seqs = arguments.count("skipped_seqs", skipped_seqs, least=1, most=SKIPPED_SEQS_MAX)
    at_ms = _time(at)
    if at is not None and upto is not None:
        raise UsageError("at and upto name two ends: leave out one of them")
    if upto is not None:
        _check_record(upto)
    with own_loop(Config()) as loop:
        timelines = loop.run_task(find_timelines(loop, source))
    if not timelines:
        if at is not None or upto is not None:
            remedy = "a backup has one time, so leave it out"
            said = f"is given, and {source} is no archive (TOPICS_ARCHIVE_DIR): {remedy}"
            raise UsageError(said, "at" if upto is None else "upto")
        return _restore_backup(source, target, skipped_seqs)
    check_no_backups(source, timelines)
    call = _RestoreCall(source, target, at_ms, upto, skipped_seqs, fetch_rest)
    for left in reversed(range(_ATTEMPTS)):
        siblings, findings = _beside(source, timelines)
        try:
            if any(map(core_of, timelines)):
                check_all_cores(source, timelines)
                made = _restore_cores(call, timelines, siblings)
            else:
                made = _restore_archive(call, timelines, siblings)
            return made._replace(damage="; ".join(filter(None, [made.damage, *findings])))
        except (TopicsError, OSError):
            with own_loop(Config()) as loop:
                if not left or not lacks_bases(loop.files, siblings):
                    raise
                timelines = loop.run_task(find_timelines(loop, source))
    raise AssertionError("the last attempt returns or raises")


def unfinished_restores(to: str) -> list[str]:
    """Return the directories beside `to` that restores to it have begun, and that may be left."""
    above, name = os.path.split(os.path.realpath(to))
    ours = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{8}}{re.escape(_RESTORING)}")
    return [f"{above}/{each}" for each in sorted(os.listdir(above)) if ours.fullmatch(each)]


def find_record_in(timelines: list[Timeline], upto: tuple[str, int], bring: Callable[[str], None]) -> RestorePoint:
    """Return the point right after a record, (topic, seq), was written.

    timelines: which need not be there yet. bring: has a base be there, whose path it gets, and the
    log after it.
    Raises: as `restore`, and what `bring` raises.
    """
    with own_loop(Config()) as loop:
        return loop.run_task(point_of_record(loop, timelines, *upto, _heads, bring=bring))


def find_time_in(joints: list[Joint], upto: tuple[str, int], bring: Callable[[str], None]) -> tuple[Joint, int]:
    """Return the time of all cores that a record, (topic, seq), ends, and its joint timeline.

    joints, bring: as of `find_record_in`. Raises: as `restore`, and what `bring` raises.
    """
    with own_loop(Config()) as loop:
        return loop.run_task(time_of_record(loop, joints, *upto, _heads, bring=bring))


def _beside(source: str, timelines: list[Timeline]) -> tuple[list[Timeline], list[str]]:
    """Return all timelines of the archive that `source` is or is in, and damage of their notes.

    Those of other lines, too, since a copied data directory begins one. More seqs are left out
    then, and none names two records.
    """
    with own_loop(Config()) as loop:
        return loop.run_task(timelines_beside(loop, source)) if is_timeline(loop.files, source) else (timelines, [])


def _check_record(upto: object) -> None:
    """Raises: UsageError, it is no topic and seq."""
    if not isinstance(upto, tuple | list) or len(upto) != len(("topic", "seq")):
        raise UsageError(f'is {arguments.shown(upto)}: use a topic and a seq, such as ("orders", 17)', "upto")
    arguments.text("upto[0]", upto[0])
    arguments.count("upto[1]", upto[1], least=1)


def _time(at: int | datetime | None) -> int:
    if at is None:
        return END
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError(f"is {at!r}, without a zone: give it one, such as datetime.UTC", "at")
        return round(at.timestamp() * 1000)
    at = arguments.count("at", at, most=LATEST_MS)
    return at


def _restore_backup(source: str, target: str, skipped_seqs: int) -> Restored:
    with own_loop(Config()) as loop:
        loop.run_task(check_one_log(loop.files, source))
    with _making(target) as (loop, made):
        found = named_backup(loop, source)
        manifest = loop.run_task(copy_backup(loop, found, made))
        if manifest.is_of_cores:
            topics, records = _settle_cores(loop, made, target, skipped_seqs, KnownSeqs())
        else:
            topics, records = loop.run_task(_settle(loop, made, target, skipped_seqs, KnownSeqs()))
    return Restored(target, found, manifest.taken_ms, topics, records, skipped_seqs)


def _restore_archive(call: _RestoreCall, timelines: list[Timeline], siblings: list[Timeline]) -> Restored:
    source, target, at_ms, upto, skipped_seqs, fetch_rest = call
    check_one_line(source, timelines)
    with own_loop(Config()) as loop:
        if upto is None:
            point = point_at(timelines, at_ms)
        else:
            point = loop.run_task(point_of_record(loop, timelines, *upto, _heads))
        point = loop.run_task(with_ends(loop, point))
        known, damage = loop.run_task(known_seqs(loop, siblings, [point], _heads, partial(_whole, loop, fetch_rest)))
    with _making(target) as (loop, made):
        loop.run_task(copy_point(loop, point, made))
        continued = OwnTimeline("", line=line_of(point.timeline))
        loop.run_task(name_timeline(loop.files, made, continued))
        topics, records = loop.run_task(_settle(loop, made, target, skipped_seqs, known))
    left_out = [
        f"{each.path} has log up to {time_text(end_of(each))} and no base, so it is left out"
        for each in timelines
        if at_ms == END and upto is None and not each.bases and end_of(each) > end_of(point.timeline)
    ]
    to_the_end = at_ms == END and upto is None
    known_ends = [end_of(each) for each in ([point.timeline] if to_the_end else timelines)]
    return Restored(
        target,
        point.base.path,
        min(point.at_ms, end_of(point.timeline)),
        topics,
        records,
        skipped_seqs,
        max(known_ends),
        "; ".join([*point.timeline.findings, *left_out, *([damage] if damage else [])]),
    )


def _restore_cores(call: _RestoreCall, timelines: list[Timeline], siblings: list[Timeline]) -> Restored:
    source, target, at_ms, upto, skipped_seqs, fetch_rest = call
    with own_loop(Config()) as loop:
        joints = loop.run_task(joints_of(loop, timelines))
        if upto is None:
            begun = {*map(core_of, timelines)} - {joint.path for joint in joints}
            joint, at_ms, end_ms, left_out = time_of_all(source, joints, at_ms, begun)
        else:
            check_one_server(source, joints)
            joint, at_ms = loop.run_task(time_of_record(loop, joints, *upto, _heads))
            end_ms, left_out = newest_ms(joints), []
        points = loop.run_task(joint_points(loop, joint, at_ms))
        known, damage = loop.run_task(known_seqs(loop, siblings, points, _heads, partial(_whole, loop, fetch_rest)))
    with _making(target) as (loop, made):
        loop.run_task(copy_joint(loop, joint, points, made))
        topics, records = _settle_cores(loop, made, target, skipped_seqs, known)
    findings = [finding for point in points for finding in point.timeline.findings]
    found = "; ".join([*findings, *left_out, *([damage] if damage else [])])
    return Restored(target, joint.path, at_ms, topics, records, skipped_seqs, end_ms, found)


async def _whole(loop: Loop, fetch_rest: FetchRest | None, timeline: Timeline) -> Timeline:
    """Return a timeline of another line with its log and bases."""
    if fetch_rest is None:
        return timeline
    fetch_rest(timeline.path)
    (whole,), _damage = await damaged_timelines(loop, timeline.path)
    return whole


def _new_path(to: str | os.PathLike[str]) -> str:
    """Return the path to restore to, without links above it. Raises: UsageError, it exists."""
    given = arguments.new_path(to, "to")
    target = os.path.join(os.path.realpath(os.path.dirname(given)), os.path.basename(given))
    if os.path.lexists(target):
        raise _exists(target)
    return target


def _check_apart(target: str) -> None:
    """Check that a new directory is in no other one that it would become a part of.

    Raises: UsageError.
    """
    if found := taken(target, NEW_DATA):
        raise UsageError(f"is {target!r}, {found}: name a path elsewhere", "to")


def _exists(target: str) -> UsageError:
    return UsageError(f"is {target!r}, which exists: restore to a path where nothing is, and move it there then", "to")


@contextmanager
def _making(target: str) -> Iterator[tuple[Loop, str]]:
    """Yield a loop for a restore, and a new directory, which is removed if it is not completed."""

    async def remove(loop: Loop, made: str) -> None:
        with suppress(FileNotFoundError):
            await remove_tree(loop.files, made)
        for above in reversed(made_in[1:]):  # each was made in the one before
            loop.files.remove_directory(above)

    made, made_in = "", list[str]()
    try:
        with own_loop(Config()) as loop:
            while not made:
                path = f"{target}.{loop.random_bytes(4).hex()}{_RESTORING}"
                try:
                    made_in = made_in or make_with_parents(loop.ring, path)
                    made = path if made_in else ""
                except OSError as error:
                    reason = error.strerror or str(error)
                    said = f"is {target!r}, which cannot be made: {reason}: name a path where you may write"
                    raise UsageError(said, "to") from error
            try:
                yield loop, made
            except (OSError, DiskFullError) as error:
                if not lacks_space(error):
                    raise
                remedy = "make room there, or restore to another disk"
                raise DiskFullError(f"{target} cannot be made: no space left on its disk: {remedy}") from error
    except BaseException:
        if made:
            with suppress(OSError, TopicsError), own_loop(Config()) as loop:
                loop.run_task(remove(loop, made))
        raise


async def _settle(loop: Loop, made: str, target: str, skipped_seqs: int, known: KnownSeqs) -> tuple[int, int]:
    """Open the directory with its seqs left out, close it, and give it its name.

    Return the number of its topics and that of its live records.
    """
    numbers = await _leave_out(loop, replace(Config(), data_dir=made), None, skipped_seqs, known)
    await _name(loop, made, target)
    return numbers


def _settle_cores(loop: Loop, made: str, target: str, skipped_seqs: int, known: KnownSeqs) -> tuple[int, int]:
    """Do with each core what `_settle` does with a directory of one core."""
    cores = loop.run_task(draw_new_id(loop, made))
    topics = records = 0
    for core in range(cores.slots.cores):
        config = core_config(replace(Config(), data_dir=made), core)
        with own_loop(config) as own:
            directory = lock_directory(own.ring, config, core=core, number=cores.number_of(core))
            of_core = own.run_task(_leave_out(own, config, directory, skipped_seqs, known))
        topics, records = topics + of_core[0], records + of_core[1]
    loop.run_task(_name(loop, made, target))
    return topics, records


async def _leave_out(
    loop: Loop, config: Config, directory: LockedDirectory | None, skipped_seqs: int, known: KnownSeqs
) -> tuple[int, int]:
    """Open a log with its seqs left out, and close it.

    Return the number of its topics and that of its live records.
    """
    stored = await StoredEngine.open(loop, config, directory=directory, skipped_seqs=skipped_seqs, known_seq=known.of)
    numbers = stored.engine.stats()
    await stored.close()
    return numbers.topics, numbers.records_live


async def _name(loop: Loop, made: str, target: str) -> None:
    if os.path.lexists(target):
        raise _exists(target)  # another restore was quicker
    await loop.files.rename(made, target)
    await loop.files.sync_directory(os.path.dirname(target) or ".")


def _heads(base: str) -> dict[str, IdAndHead]:
    """Return the topics of a base and their highest seqs."""
    config = replace(Config(), data_dir=base)
    with own_loop(config) as loop:

        async def run() -> dict[str, IdAndHead]:
            directory = lock_to_read(loop.ring, config, any_owner=True)
            marker = await marker_or_none(loop.files, base)
            if marker is not None and marker.core != NO_CORE:
                directory.core, directory.number = marker.core, marker.number
            stored = await StoredEngine.open(loop, config, directory=directory)
            heads = stored.heads()
            await stored.close()
            return heads

        return loop.run_task(run())
