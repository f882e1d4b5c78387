"""The timeline that the cores of a data directory have together: a directory of the archive.

    <archive>/2026-11-27T12-13-14Z-5f3a9c01/     a joint timeline
                  archive.json                   its note, with the line
                  slot-map                       which core owns which slots
                  core-00/2026-11-27T12-13-15Z-.../   a timeline of core 0, as one core has it
                  core-01/...

One of another slot map has another one, since a restore needs the map of its time. So the directory
names it in the file `archive-of-cores`, with the map that it is for. It is chosen before any core
starts; nothing is written to the archive then, whose disk may not be there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec
import xxhash

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import (
    BASES,
    NOTE_OF_CORES,
    REMEDY,
    ArchiveNote,
    OfCore,
    OwnTimeline,
    ShardEnd,
    name_timeline,
    new_timeline,
    own_timeline,
    read_note,
    timeline_names,
    write_note,
)
from topics.store.backup.backup_files import NOTE_NAME, is_timeline_name
from topics.store.backup.backup_manifest import is_backup_name
from topics.store.cores.core_directories import CORE_PREFIX, CoreDirectories, core_name
from topics.store.cores.slot_map_file import StoredMap, read_slot_map
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.disk.whole_files import (
    FileCalls,
    list_if_there,
    read_file,
    read_slow_file,
    replace_file,
    unlink_if_there,
)

JOINT_NAME = "archive-of-cores"
"""The file of a data directory of several cores that names its joint timeline."""
_SET_BACK_MS = 100
"""A difference as of a backup of several cores: smaller ones may be from reading two clocks."""
_NOTED_MAX = 64
"""Most ranges of times that came twice. Those that would be more are joined with the first one."""
_CORE = re.compile(rf"{CORE_PREFIX}(\d{{2,4}})", re.ASCII)


class CorePlace(NamedTuple):
    """Where a core has its timelines."""

    archive: str
    """The archive of all."""
    joint: str
    """The name of the joint timeline."""
    core: int


def core_place(path: str) -> CorePlace | None:
    """Return the parts of the path of the directory of a core; None: it is an archive of one."""
    above, name = os.path.split(path)
    found, joint = _CORE.fullmatch(name), os.path.basename(above)
    return CorePlace(os.path.dirname(above), joint, int(found[1])) if found and is_timeline_name(joint) else None


def core_places(files: FileCalls, path: str) -> list[str]:
    """Return the directories of the cores of a joint timeline; [] if this is none."""
    if not is_timeline_name(os.path.basename(os.path.abspath(path))):
        return []
    return [f"{path}/{name}" for name in sorted(list_if_there(files, path)) if _CORE.fullmatch(name)]


def is_joint(path: str, names: Iterable[str]) -> bool:
    """Return whether a timeline is a joint one, by the names in it. One without cores has a map."""
    return any(name == SLOT_MAP_NAME or core_place(f"{path}/{name}") is not None for name in names)


def is_just_begun(list_names: Callable[[str], list[str]], joint: str) -> bool:
    """Return whether a joint timeline, given by its path, was just begun: it needs no map yet.

    Core 0 writes the map and then the note before its first base. A note that is missing beside
    such a base is damage, if it is still missing afterwards.
    list_names: returns the names in a directory; [] if it does not exist.
    Raises: OSError.
    """
    if NOTE_NAME in list_names(joint):
        return False
    first = f"{joint}/{core_name(0)}"
    timelines = filter(is_timeline_name, list_names(first))
    return not any(is_backup_name(name) for each in timelines for name in list_names(f"{first}/{each}/{BASES}"))


async def read_joint_map(files: FileCalls, joint: str) -> StoredMap:
    """Return the slot map of a joint timeline, given by its path.

    Raises: CorruptError, it is damaged or missing; FormatError; OSError.
    """
    path = f"{joint}/{SLOT_MAP_NAME}"
    try:
        return StoredMap.unpack(await read_slow_file(files, path, REMEDY), path)
    except FileNotFoundError:
        raise CorruptError(f"{path} is missing, which says what each core owns. {REMEDY}", {"path": path}) from None


async def write_joint_map(loop: Loop, archive_dir: str, data_dir: str, line: str) -> None:
    """Have a joint timeline have the map and a note, which core 0 writes.

    The note has a version that makes builds refuse it that know one core.
    archive_dir, data_dir: of a core.
    Raises: StorageError, OSError.
    """
    files, place, joint = loop.files, core_place(archive_dir), os.path.dirname(archive_dir)
    if place is None or place.core or NOTE_NAME in await files.to_thread(list_if_there, files, joint):
        return
    found = await read_slot_map(files, os.path.dirname(data_dir))
    assert found is not None, "a core has a directory of several"
    await replace_file(files, f"{joint}/{SLOT_MAP_NAME}", found.stored.pack())
    await write_note(files, joint, ArchiveNote(NOTE_OF_CORES, line=line))


class _Chosen(NamedTuple):
    name: str
    line: str
    key: str
    """The checksum of the slot map that it is for."""


async def _read(files: FileCalls, data_dir: str) -> _Chosen:
    with suppress(FileNotFoundError):
        words = (await read_file(files, f"{data_dir}/{JOINT_NAME}")).decode("ascii", "replace").split()
        if [*map(is_timeline_name, words)] == [True, True, False]:
            return _Chosen(*words)
    return _Chosen("", "", "")


async def _write(files: FileCalls, data_dir: str, named: _Chosen) -> None:
    await replace_file(files, f"{data_dir}/{JOINT_NAME}", " ".join(named).encode())


def _key(stored: StoredMap) -> str:
    return "map-" + xxhash.xxh3_64_hexdigest(stored.pack())


async def named_joint(files: FileCalls, cores: CoreDirectories) -> str:
    """Return the joint timeline that a data directory continues; "": none. Raises: OSError."""
    named = await _read(files, cores.path)
    return named.name if named.key == _key(cores.stored) else ""


async def choose_joint(loop: Loop, cores: CoreDirectories) -> None:
    """Have a data directory name its joint timeline, another one if the slot map is another one.

    The cores begin timelines in it then, of the same line. The caller holds the directory's lock.
    Raises: OSError.
    """
    files = loop.files
    if await named_joint(files, cores):
        return
    before = await _read(files, cores.path)
    of_one = await own_timeline(files, cores.path_of(0))  # what was archived as of one core
    one_name, one_line = ("", "") if of_one is None else (of_one.name, of_one.line or of_one.name)
    name = new_timeline(loop, filter(None, [before.name, one_name]))
    line = before.line or one_line or name
    for core in range(cores.slots.cores):
        await name_timeline(files, cores.path_of(core), OwnTimeline("", line=line))
    await _write(files, cores.path, _Chosen(name, line, _key(cores.stored)))


async def continue_joint(files: FileCalls, cores: CoreDirectories, joint: str, line: str) -> None:
    """Have a directory that was restored begin another joint timeline of a line, after this one."""
    for core in range(cores.slots.cores):
        await name_timeline(files, cores.path_of(core), OwnTimeline("", line=line))
    await _write(files, cores.path, _Chosen(os.path.basename(joint), line, "restored"))


async def leave_joint(files: FileCalls, data_dir: str) -> None:
    """Have a directory that is one of one core now begin a timeline of the line of its cores."""
    named = await _read(files, data_dir)
    if named.line:
        await name_timeline(files, data_dir, OwnTimeline("", line=named.line))
        await unlink_if_there(files, f"{data_dir}/{JOINT_NAME}")


class CoreTimes:
    """The times that the note of one core states, `of_core`, so that a restore has one time of all.

    A batch of a log states when it was written, which is before all that it causes on other cores,
    by the clock that they share (R-CORE-16). That holds for times that came once.
    """

    def __init__(self, loop: Loop, archive_dir: str, core: int, opened_ms: int) -> None:
        """archive_dir: of the core. opened_ms: Unix ms before which this process wrote no log."""
        self._clock = loop.clock
        self._files = loop.files
        self._joint, self._own = os.path.split(archive_dir)
        self.of_core = OfCore(core)
        self._seen_ms, self._seen_ns = self._clock.now_ms(), self._clock.monotonic_ns()
        """The two clocks at the last look."""
        self._opened_ms: int | None = opened_ms
        """Unix ms before which this process wrote no log; None: a note was continued since."""
        self._others: dict[str, dict[int, ShardEnd]] = {}
        self._had_moved = False

    @classmethod
    def of(cls, loop: Loop, archive_dir: str, opened_ms: int) -> CoreTimes | None:
        """Return those of the core whose archive is here; None: it is that of one core."""
        place = core_place(archive_dir)
        return None if place is None else cls(loop, archive_dir, place.core, opened_ms)

    async def continue_from(self, note: ArchiveNote) -> None:
        """Begin with what a timeline has noted. The clock may have been set back since then.

        It may have been set to a time between that note and the last one of another core. So the
        latest of all counts: one that another core has written by now is of the same clock.
        """
        self.look()
        if isinstance(note.of_core, OfCore):
            noted = dict.fromkeys((*note.of_core.set_back, *self.of_core.set_back))
            self.of_core = msgspec.structs.replace(self.of_core, set_back=tuple(noted))
        then_ms = note.upto_ms
        for path in await self._files.to_thread(core_places, self._files, self._joint):
            if (other := await self._last_note(path)) is not None:
                then_ms = max(then_ms, other.upto_ms)
        now_ms, opened_ms = self._clock.now_ms(), self._opened_ms
        first_ms = now_ms if opened_ms is None else min(now_ms, opened_ms)
        if now_ms < then_ms:
            self._note_twice(first_ms, then_ms)
        elif first_ms < note.upto_ms:  # the archive was away until the clock had caught up
            self._note_twice(first_ms, note.upto_ms)
        self._opened_ms = None

    def look(self) -> None:
        """Note the times that came twice since the last look."""
        now_ms, now_ns = self._clock.now_ms(), self._clock.monotonic_ns()
        since_ms = (now_ns - self._seen_ns) // 1_000_000
        if now_ms < self._seen_ms + since_ms - _SET_BACK_MS:
            self._note_twice(max(0, now_ms - since_ms), self._seen_ms + since_ms)
        self._seen_ms, self._seen_ns = now_ms, now_ns

    def _note_twice(self, first_ms: int, last_ms: int) -> None:
        """Note the times from the first to the last, Unix ms, which came twice."""
        noted = (*self.of_core.set_back, (first_ms, last_ms))
        if len(noted) > _NOTED_MAX:
            (begin, end), (other_begin, other_end), *rest = noted
            noted = ((min(begin, other_begin), max(end, other_end)), *rest)
        self.of_core = msgspec.structs.replace(self.of_core, set_back=noted)

    async def others_have_moved(self) -> bool:
        """Return whether another core has archived log since the last call, or before that one.

        A core that is idle notes its time with the others, because a restore leads up to the time
        that all have noted. The last log of another one may be newer than the call before.
        """
        moved = False
        for path in await self._files.to_thread(core_places, self._files, self._joint):
            if os.path.basename(path) != self._own:
                moved |= await self._has_moved(path)
        had_moved, self._had_moved = self._had_moved, moved
        return moved or had_moved

    async def _has_moved(self, path: str) -> bool:
        note = await self._last_note(path)
        if note is None or note.shards == self._others.get(path):
            return False
        self._others[path] = note.shards
        return True

    async def _last_note(self, path: str) -> ArchiveNote | None:
        """Return the note of the last timeline of a core; None: there is none that can be read."""
        with suppress(CorruptError, FormatError, OSError):
            names = await self._files.to_thread(timeline_names, self._files, path)
            return await read_note(self._files, f"{path}/{names[-1]}") if names else None
        return None
