"""The layout of a data directory of several cores, checked before anything in it is used.

lock            held by the process that starts the cores
topics.json     the marker: for how many cores, which older builds refuse, and the directory's id
slot-map        which core owns which slots, and whether all core directories are made
snapshots/      only the copy of the slot map
core-00/ ...    one for each core: what a directory of one core holds, and sockets; the marker of
                each names its core and the id
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import msgspec

from topics.config import Config
from topics.errors import VERSION_REMEDY, FormatError, StorageError
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import FoundMap, MapState, StoredMap, read_slot_map
from topics.store.disk.directory_format import NO_CORE, Marker, has_slot_map, refused_cores
from topics.store.disk.whole_files import FileCalls, read_file
from topics.store.layouts.directory_names import DIRECTORY_FORMAT, MARKER_NAME

CORE_PREFIX = "core-"
MAILBOX_NAME = "mailbox"
"""The socket of a core to which the others send connections."""
REPORTS_NAME = "reports"
"""The socket to which the process of a core reports."""
_CORE_NAME = re.compile(rf"{CORE_PREFIX}(\d{{2,4}})")


class CoreDirectories(NamedTuple):
    """A data directory of several cores, in which every core directory was found."""

    path: str
    stored: StoredMap
    damage: list[str]
    """A sentence about each file of the slot map that is damaged or missing, and not needed."""

    @property
    def slots(self) -> SlotMap:
        return self.stored.slots

    def path_of(self, core: int) -> str:
        """Return the path of a core's directory."""
        return core_directory(self.path, core)

    def number_of(self, core: int) -> int:
        """Return the number of a core's directory."""
        return self.stored.numbers[core]


def core_directory(path: str, core: int) -> str:
    """Return the path of a core's directory below a data directory."""
    return f"{path}/{core_name(core)}"


def core_name(core: int) -> str:
    return f"{CORE_PREFIX}{core:02d}"


def core_config(config: Config, core: int, joint: str = "") -> Config:
    """Return the settings of a core: its own directories.

    joint: the joint timeline of the archive; "": the core archives nothing.
    """
    cold_dir = config.cold_dir and core_directory(config.cold_dir, core)
    archive_dir = core_directory(f"{config.archive_dir}/{joint}", core) if config.archive_dir and joint else ""
    return replace(config, data_dir=core_directory(config.data_dir, core), cold_dir=cold_dir, archive_dir=archive_dir)


async def refuse_several_cores(files: FileCalls, path: str) -> None:
    """Check that a directory is none of several cores, and no core directory of one.

    Raises: FormatError with the number of cores and the remedy; the errors of `read_cores`, if
    something is wrong with the layout, too.
    """
    marker = await marker_or_none(files, path)
    if marker is not None and (refusal := refused_cores(marker, path)):
        await read_cores(files, path)
        raise FormatError(refusal)
    if await read_cores(files, path) is not None:
        raise FormatError(has_slot_map(path))


async def read_cores(files: FileCalls, path: str) -> CoreDirectories | None:
    """Return the layout of a data directory; None if it is of one core.

    Raises: StorageError, core directories are being made, or slots moved; the errors of
    `check_directories` and of `read_slot_map`.
    """
    found = await whole_map(files, path)
    return None if found is None else await check_directories(files, path, found)


async def whole_map(files: FileCalls, path: str) -> FoundMap | None:
    """Return the slot map of a data directory at rest; None if it is of one core.

    Raises: StorageError, core directories are being made, or slots moved; the errors of
    `read_slot_map`.
    """
    found = await read_slot_map(files, path)
    if found is None:
        return None
    state = found.stored.state
    if state is not MapState.WHOLE:
        what = "core directories are being made" if state is MapState.MAKING else "slots are being moved between cores"
        raise StorageError(f"{path}: {what}, which was cut short: {VERSION_REMEDY}, whose next start completes it")
    return found


async def check_directories(files: FileCalls, path: str, found: FoundMap) -> CoreDirectories:
    """Return the layout of a data directory with this map, of any state in which cores have theirs.

    Raises: StorageError, a core directory is missing, is there twice, or is that of another core or
    directory; OSError.
    """
    for fault in await layout_faults(files, path, found.stored):
        raise StorageError(fault.sentence)
    return CoreDirectories(path, found.stored, found.damage)


class LayoutFault(NamedTuple):
    """Something that is wrong with how cores share a directory."""

    path: str
    sentence: str
    """It names the path and the remedy."""
    core: int = NO_CORE
    """The core without a directory to look into; NO_CORE: none lacks its own."""


async def layout_faults(files: FileCalls, path: str, stored: StoredMap) -> list[LayoutFault]:
    """Return all that is wrong with the core directories of a map, missing ones first.

    Raises: OSError.
    """
    names, cores = set(files.list_directory(path)), stored.slots.cores
    missing = [core for core in range(cores) if core_name(core) not in names]
    faults = [
        LayoutFault(
            path,
            f"{path}: {core_name(core)} is missing, and the slot map has {cores} cores: put it back from where it was "
            "moved to, or make another directory of a backup by `topics restore`",
            core,
        )
        for core in missing
    ]
    for core in range(cores):
        if core not in missing:
            sentence = await _core_fault(files, path, core_marker(DIRECTORY_FORMAT, core, stored))
            if sentence:
                faults.append(LayoutFault(core_directory(path, core), sentence, core))
    for name in sorted(names - {core_name(core) for core in range(stored.directories)}):
        if name.startswith(CORE_PREFIX):
            sentence = (
                f"{path}: {name} is there, and the slot map has {cores} cores: move it out of the data directory, "
                f"because no topic is looked for in it{await _whose(files, path, name)}"
            )
            faults.append(LayoutFault(path, sentence))
    return faults


async def _core_fault(files: FileCalls, path: str, wanted: Marker) -> str:
    """Return why a core directory is not the one of its name and of this data directory; "": it is.

    wanted: the marker that it may have.
    """
    core = wanted.core
    below = core_directory(path, core)
    marker = await marker_or_none(files, below)
    if marker is None:
        text = msgspec.json.encode(wanted).decode()
        return (
            f"{below}: the marker {MARKER_NAME} is missing or damaged: if the directory was never moved or copied, "
            f"write this to it: {text}"
        )
    if marker.of != wanted.of:
        return f"{below} is of another data directory than {path}: put that of core {core} in its place"
    if marker.core != core:
        return (
            f"{below} holds core {marker.core}, which is there twice or has changed its place: put the directory of "
            f"core {core} in its place"
        )
    if marker.number != wanted.number:
        return (
            f"{below} has the number {marker.number} and is not the directory that core {core} has now, whose number "
            f"is {wanted.number}: put that one in its place"
        )
    return ""


def core_marker(directory_format: int, core: int, stored: StoredMap) -> Marker:
    """Return the marker of a core directory.

    stored: the slot map of the directory above it.
    """
    return Marker(directory_format, _NEVER_ONE, core, stored.id.hex(), stored.numbers[core])


_NEVER_ONE = 2
"""In the place of a number of cores. It has only to be another one than 1."""


async def _whose(files: FileCalls, path: str, name: str) -> str:
    """Return the end of a sentence: of which core a surplus directory is a copy, if it is one."""
    marker = await marker_or_none(files, f"{path}/{name}")
    is_core = _CORE_NAME.fullmatch(name) is not None
    if marker is None or marker.core < 0 or (is_core and core_name(marker.core) == name):
        return ""
    return f"; it is a copy of {core_name(marker.core)}"


async def marker_or_none(files: FileCalls, path: str) -> Marker | None:
    """Return the marker of a directory; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(await read_file(files, f"{path}/{MARKER_NAME}"), type=Marker)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
