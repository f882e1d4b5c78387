"""The slot map on disk: two files of the same bytes, written one after the other.

Little-endian.

    header     64 bytes: magic, u16 version, u16 state, u64 generation, u32 cores, u32 number of
               the next core directory, the id of the directory (16 bytes), u32 core directories,
               12 zeros, u64 checksum of the header before it and of what follows it
    owners     u16 for each of the 1,024 slots: its core
    numbers    u16 for each of 1,024 core directories: its number; 0 after the last one

One file is `slot-map`. Its copy is where a directory of one core has its snapshot, and both have
the magic of a snapshot, with a version that no build reads as one. So a build from before there
were several cores refuses the directory even if its marker is lost or damaged, and `topics fsck
--rebuild` of such a build changes nothing in it.

The copy is written first. If either file is damaged, the other one is at least as new as anything
that was done since. Each write has a higher generation, and the highest one counts.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import xxhash

from topics.errors import VERSION_REMEDY, CorruptError, FormatError
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slots import SLOTS
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.disk.whole_files import FileCalls, ReadCalls, read_file, replace_file
from topics.store.layouts.directory_names import SNAPSHOT_DIRECTORY, snapshot_path
from topics.store.layouts.snapshot_format import SNAPSHOT_MAGIC

MAP_VERSION = 1000
"""Far from the versions of snapshots, whose magic it shares."""
ID_BYTES = 16
_HEADER = struct.Struct("<4sHHQII16sI12x")
_CHECKSUM = struct.Struct("<Q")
_COLUMN = struct.Struct(f"<{SLOTS}H")
_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
MAP_BYTES = _HEADER_BYTES + 2 * _COLUMN.size
NUMBERS_MAX = (1 << 16) - 1
"""The highest number of a core directory."""
COPY_PATH = snapshot_path(1)
"""Path of the copy, relative to the data directory."""


class MapState(IntEnum):
    """How far a directory is, and so whether a core may be started in it."""

    MAKING = 1
    """Core directories are being made; no core may be started."""
    WHOLE = 2
    """Every core directory is there, and holds the topics of its slots."""
    MOVING = 3
    """Slots are being moved. The owners are those before; what was made for those after does not
    count.
    """
    MOVED = 4
    """The owners are those after a move, whose old place is not removed yet."""
    RETURNING = 5
    """Core 0 owns everything, and its directory becomes that of one core."""


HAS_NO_COPY = (MapState.MAKING, MapState.RETURNING)
"""States in which the place of the copy may have a snapshot of one core."""


_STATES = frozenset(map(int, MapState))


class StoredMap(NamedTuple):
    """The slot map of one data directory."""

    id: bytes
    """ID_BYTES that the directory and its core directories share."""
    generation: int
    """Number of times it was written, from 1."""
    state: MapState
    slots: SlotMap
    numbers: tuple[int, ...]
    """Shape (directories,): the number of each core's directory, from 1. No other one ever has
    it.
    """
    next_number: int
    """The number that the next core directory gets; lower ones were given out."""
    directories: int
    """How many core directories there may be: while slots move, those of the cores after or before,
    of which there are more. Otherwise it is the number of cores.
    """

    def pack(self) -> bytes:
        """Return the bytes of the file."""
        columns = _COLUMN.pack(*self.slots.owners) + _COLUMN.pack(*self.numbers, *[0] * (SLOTS - self.directories))
        head = _HEADER.pack(
            SNAPSHOT_MAGIC,
            MAP_VERSION,
            self.state,
            self.generation,
            self.slots.cores,
            self.next_number,
            self.id,
            self.directories,
        )
        return head + _CHECKSUM.pack(_sum_of(head, columns)) + columns

    @classmethod
    def unpack(cls, data: bytes, path: str) -> StoredMap:
        """Return the map in a file's bytes.

        Raises: CorruptError; FormatError, it is of another version.
        """
        if len(data) < _HEADER.size or data[:4] != SNAPSHOT_MAGIC:
            raise CorruptError(f"{path}: not a slot map", {"path": path})
        _magic, version, state, generation, cores, next_number, owner_id, directories = _HEADER.unpack_from(data)
        if version != MAP_VERSION:
            raise FormatError(
                f"{path}: a slot map of version {version}; this build knows {MAP_VERSION}: {VERSION_REMEDY}"
            )
        head, columns = data[: _HEADER.size], data[_HEADER_BYTES:]
        if len(data) != MAP_BYTES or _CHECKSUM.unpack_from(data, _HEADER.size)[0] != _sum_of(head, columns):
            raise CorruptError(f"{path}: the checksum of the slot map is wrong", {"path": path})
        if state not in _STATES:
            raise FormatError(f"{path}: a slot map in state {state}, which this build does not know: {VERSION_REMEDY}")
        owned, numbers = _COLUMN.unpack_from(columns), _COLUMN.unpack_from(columns, _COLUMN.size)
        if not max(owned) < cores <= directories <= SLOTS:
            raise CorruptError(f"{path}: the slot map of {cores} cores names core {max(owned)}", {"path": path})
        slots = SlotMap(cores, owned)
        return cls(owner_id, generation, MapState(state), slots, numbers[:directories], next_number, directories)


class FoundMap(NamedTuple):
    """The map that counts, and what is wrong with its files."""

    stored: StoredMap
    damage: list[str]
    """A sentence about each file that is damaged or missing; the other one is read instead."""


async def read_slot_map(files: ReadCalls, directory: str) -> FoundMap | None:
    """Return the slot map of a data directory; None if it has none, because it is of one core.

    Raises: CorruptError, both files are damaged, or they are of two directories; FormatError, one
    is of another version; OSError.
    """
    found: list[StoredMap] = []
    damage: list[str] = []
    missing: list[str] = []
    for name, is_copy in ((SLOT_MAP_NAME, False), (COPY_PATH, True)):
        path = f"{directory}/{name}"
        try:
            data = await read_file(files, path, MAP_BYTES + 1)
            if not (is_copy and _is_snapshot(data)):
                found.append(StoredMap.unpack(data, path))
        except (FileNotFoundError, NotADirectoryError):
            missing.append(f"{path}: missing")
        except CorruptError as error:
            damage.append(str(error).partition(": `topics ")[0])
    if not found:
        if f"{directory}/{SLOT_MAP_NAME}: missing" in missing:
            return None  # what is in the place of the copy is of a directory of one core
        raise CorruptError(
            f"{directory}: the slot map and its copy are damaged, and no other file says which core owns a topic: put "
            f"{SLOT_MAP_NAME} back from a copy of the directory, or make another one of a backup by `topics restore`"
        )
    if len({each.id for each in found}) > 1:
        raise CorruptError(
            f"{directory}: {SLOT_MAP_NAME} and its copy {COPY_PATH} are of two data directories: remove the file that "
            "was put there from elsewhere; `topics restore` makes another directory of a backup"
        )
    newest = max(found, key=lambda each: each.generation)
    return FoundMap(newest, [] if newest.state in HAS_NO_COPY else damage + missing)


async def write_slot_map(files: FileCalls, directory: str, stored: StoredMap) -> None:
    """Write the copy durably, then the map. Raises: OSError."""
    if files.make_directory(f"{directory}/{SNAPSHOT_DIRECTORY}"):
        await files.sync_directory(directory)
    await replace_file(files, f"{directory}/{COPY_PATH}", stored.pack())
    await write_without_copy(files, directory, stored)


async def write_without_copy(files: FileCalls, directory: str, stored: StoredMap) -> None:
    """Write the map durably while the place of the copy is not free yet. Raises: OSError."""
    await replace_file(files, f"{directory}/{SLOT_MAP_NAME}", stored.pack())


def _sum_of(head: bytes, columns: bytes) -> int:
    return xxhash.xxh3_64_intdigest(head, seed=xxhash.xxh3_64_intdigest(columns))


def _is_snapshot(data: bytes) -> bool:
    """Return whether the bytes begin as a snapshot of a directory of one core."""
    if len(data) < _HEADER.size:
        return False
    magic, version, *_ = _HEADER.unpack_from(data)
    return bool(magic == SNAPSHOT_MAGIC and version < MAP_VERSION)
