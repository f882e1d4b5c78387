"""Core directories are made: in a new data directory, or of one that one core has used.

Each step is durable before the next, and a start that was cut short is begun again:

1. The marker gets the number of cores. From here on no build opens the directory as one of one
   core.
2. The slot map is written in the state `MAKING`, without its copy, whose place may be taken.
   It says who owns the slots: core 0 all, if one core has used the directory. And it gives the
   core directories their numbers, above all that ids of topics have had in this directory.
3. The directories are made, and that of core 0 gets what one core has left, entry by entry: each
   is in one of the two places at any time.
4. Each core directory gets its marker.
5. The slot map and its copy are written in the state `WHOLE`.
"""

from __future__ import annotations

import msgspec

from topics.errors import FSCK_REMEDY, FormatError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.cores.core_directories import CoreDirectories, core_directory, core_marker, read_cores
from topics.store.cores.slot_map import SlotMap, check_cores
from topics.store.cores.slot_map_file import (
    ID_BYTES,
    NUMBERS_MAX,
    MapState,
    StoredMap,
    read_slot_map,
    write_slot_map,
    write_without_copy,
)
from topics.store.disk.data_directory import SET_ASIDE
from topics.store.disk.directory_format import CORES, DIRECTORY_SHIFT, Marker, refused_marker
from topics.store.disk.whole_files import FileCalls, read_file, replace_file
from topics.store.format.segment_format import (
    COLD_MARK_NAME,
    DIRECTORY_FORMAT,
    FIRST_DIRECTORY_FORMAT,
    MARKER_NAME,
    PACK_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    TOPICS_DIRECTORY,
)
from topics.store.segments.snapshot_files import load_snapshot

OF_ONE_CORE = (
    "wal",
    TOPICS_DIRECTORY,
    PACK_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    COLD_MARK_NAME,
    "session",
    "reserve",
    "archive",
)
"""Names in a directory of one core, beside its marker and its lock."""


async def make_cores(loop: Loop, path: str, cores: int) -> CoreDirectories:
    """Make the core directories of a data directory; return the layout.

    A making that was cut short is completed, for the number of cores for which it was begun. What
    one core has written is core 0's: no slot is moved. The caller holds the lock, and nothing is
    open in the directory.

    Raises: UsageError, there cannot be so many cores; FormatError, the directory is of another
    version, or is a core directory itself; CorruptError, it has no sound snapshot; the errors of
    `read_cores`.
    """
    check_cores(cores)
    if cores == CORES:
        raise UsageError("cores is 1: a directory of one core has no core directories")
    files = loop.files
    found = await read_slot_map(files, path)
    if found is None or found.stored.state is MapState.MAKING:
        await _make(files, path, found.stored if found is not None else await _begin(loop, path, cores))
    made = await read_cores(files, path)
    assert made is not None, "it has a slot map"
    return made


async def _begin(loop: Loop, path: str, cores: int) -> StoredMap:
    """Write the marker and the first map: steps 1 and 2. Return the map."""
    files = loop.files
    marker = await _marker_of(files, path)
    if refusal := refused_marker(msgspec.structs.replace(marker, cores=CORES), path):
        raise FormatError(refusal)
    numbers = numbers_from(await _first_number(files, path), cores)
    of = loop.random_bytes(ID_BYTES).hex()
    await replace_file(files, f"{path}/{MARKER_NAME}", msgspec.json.encode(Marker(marker.format, cores, of=of)))
    slots = SlotMap.of_first(cores) if _used(files, path) else SlotMap.balanced(cores)
    stored = StoredMap(bytes.fromhex(of), 1, MapState.MAKING, slots, numbers, numbers[-1] + 1)
    await write_without_copy(files, path, stored)
    return stored


async def _make(files: FileCalls, path: str, stored: StoredMap) -> None:
    """Make the directories and their markers, and write the map that counts: steps 3 to 5."""
    cores = stored.slots.cores
    for core in range(cores):
        files.make_directory(core_directory(path, core))
    await files.sync_directory(path)
    if stored.slots == SlotMap.of_first(cores):
        await _hand_to_first(files, path)
    number = (await _marker_of(files, path)).format
    for core in range(cores):
        marker = core_marker(number if core == 0 else FIRST_DIRECTORY_FORMAT, core, stored)
        await replace_file(files, f"{core_directory(path, core)}/{MARKER_NAME}", msgspec.json.encode(marker))
    await write_slot_map(files, path, stored._replace(generation=stored.generation + 1, state=MapState.WHOLE))


class _LastId(msgspec.Struct):
    """A part of the catalog in a snapshot."""

    last_id: int


async def _first_number(files: FileCalls, path: str) -> int:
    """Return a number for the first core directory that no id in the directory has.

    It is 1, unless it had several cores before. Topics that the log has after the newest snapshot
    continue its ids, and their upper 16 bits are not higher.

    Raises: CorruptError, no snapshot is sound.
    """
    loaded = await load_snapshot(files, path)
    if loaded is None:
        return 1
    if loaded.store.rebuilt:
        described = msgspec.json.decode(loaded.catalog, type=list[tuple[int, msgspec.Raw]])
        last_id = max((topic_id for topic_id, _description in described), default=0)
    else:
        last_id = msgspec.json.decode(loaded.catalog, type=_LastId).last_id
    return (last_id >> DIRECTORY_SHIFT) + 1


def numbers_from(first: int, count: int) -> tuple[int, ...]:
    """Return the numbers of new core directories. Raises: StorageError, there are too few left."""
    if first + count - 1 > NUMBERS_MAX:
        raise StorageError(
            f"the data directory has had {first - 1} core directories, and there are numbers for {NUMBERS_MAX}: "
            "start it with the number of cores that it has"
        )
    return tuple(range(first, first + count))


async def _hand_to_first(files: FileCalls, path: str) -> None:
    """Move what one core has left into the directory of core 0."""
    first = core_directory(path, 0)
    there = files.list_directory(first)
    for name in _used(files, path):
        if name not in there:
            await files.rename(f"{path}/{name}", f"{first}/{name}")
    await files.sync_directory(first)
    await files.sync_directory(path)


def _used(files: FileCalls, path: str) -> list[str]:
    """Return the names that one core has left in the data directory."""
    names = files.list_directory(path)
    return [name for name in names if name in OF_ONE_CORE or name.startswith(SET_ASIDE)]


async def _marker_of(files: FileCalls, path: str) -> Marker:
    """Return the marker of the data directory, or the one that it gets at a start.

    Raises: FormatError, it is damaged.
    """
    try:
        return msgspec.json.decode(await read_file(files, f"{path}/{MARKER_NAME}"), type=Marker)
    except FileNotFoundError:
        return Marker(DIRECTORY_FORMAT if _used(files, path) else FIRST_DIRECTORY_FORMAT, CORES)
    except msgspec.DecodeError as error:
        raise FormatError(f"{path}/{MARKER_NAME}: {error}: {FSCK_REMEDY}") from error
