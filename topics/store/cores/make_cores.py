"""Core directories are made: in a new data directory, or of one that one core has used. And back.

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

`return_to_one` does the same in the other direction, once core 0 has everything (moved_files.py).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from topics.errors import FSCK_REMEDY, FormatError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.cores.core_directories import (
    CORE_PREFIX,
    MAILBOX_NAME,
    REPORTS_NAME,
    CoreDirectories,
    core_directory,
    core_marker,
    core_name,
    read_cores,
)
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
from topics.store.disk.data_directory import PROBE_NAME, SET_ASIDE
from topics.store.disk.directory_format import CORES, DIRECTORY_SHIFT, NO_CORE, SLOT_MAP_NAME, Marker, refused_marker
from topics.store.disk.whole_files import FileCalls, list_if_there, read_file, replace_file, unlink_if_there
from topics.store.layouts.directory_names import (
    COLD,
    COLD_MARK_NAME,
    DIRECTORY_FORMAT,
    FIRST_DIRECTORY_FORMAT,
    MARKER_NAME,
    PACK_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    TOPICS_DIRECTORY,
)
from topics.store.segments.snapshot_files import load_snapshot
from topics.store.segments.tiers import Tiers, claim_cold

OF_ONE_CORE = (
    "wal",
    TOPICS_DIRECTORY,
    PACK_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    COLD_MARK_NAME,
    "session",
    "reserve",
    "archive",
    "backup-mounts",
)
"""Names in a directory of one core, beside its marker and its lock."""
_OF_A_CORE = (MARKER_NAME, "lock", MAILBOX_NAME, REPORTS_NAME)
"""Further names in a core directory, which no other directory gets."""
_COLD_OF_ONE_CORE = (TOPICS_DIRECTORY, COLD_MARK_NAME)
"""Names in the cold directory of one core."""


async def make_cores(loop: Loop, path: str, cores: int, cold_dir: str = "") -> CoreDirectories:
    """Make the core directories of a data directory; return the layout.

    A making that was cut short is completed, for the number of cores for which it was begun. What
    one core has written is core 0's: no slot is moved. The caller holds the lock, and nothing is
    open in the directory.

    cold_dir: the cold directory of what one core has written; "": it has none.
    Raises: UsageError, there cannot be so many cores; FormatError, the directory is of another
    version, or is a core directory itself; CorruptError, it has no sound snapshot; StorageError, it
    has core directories and no map, or another cold directory; the errors of `read_cores`.
    """
    check_cores(cores)
    if cores == CORES:
        raise UsageError("cores is 1: a directory of one core has no core directories")
    files = loop.files
    found = await read_slot_map(files, path)
    if found is None or found.stored.state is MapState.MAKING:
        tiers = Tiers(path, cold_dir)
        await _make(files, tiers, found.stored if found is not None else await _begin(loop, tiers, cores))
    made = await read_cores(files, path)
    assert made is not None, "it has a slot map"
    return made


async def _begin(loop: Loop, tiers: Tiers, cores: int) -> StoredMap:
    """Write the marker and the first map: steps 1 and 2. Return the map."""
    files, path = loop.files, tiers.hot
    _refuse_core_directories(files, path)
    marker = await _marker_of(files, path)
    if refusal := refused_marker(msgspec.structs.replace(marker, cores=CORES), path):
        raise FormatError(refusal)
    numbers = numbers_from(await _first_number(loop, tiers), cores)
    of = loop.random_bytes(ID_BYTES).hex()
    marked = Marker(marker.format, cores, of=of, log=marker.log)
    await replace_file(files, f"{path}/{MARKER_NAME}", msgspec.json.encode(marked))
    slots = SlotMap.of_first(cores) if _used(files, path) else SlotMap.balanced(cores)
    stored = StoredMap(bytes.fromhex(of), 1, MapState.MAKING, slots, numbers, numbers[-1] + 1, cores)
    await write_without_copy(files, path, stored)
    return stored


def _refuse_core_directories(files: FileCalls, path: str) -> None:
    """Check that a directory without a slot map has no core directories.

    Raises: StorageError.
    """
    for name in files.list_directory(path):
        if name.startswith(CORE_PREFIX):
            raise StorageError(
                f"{path}: {name} is there, and both files of the slot map are missing, which say which core owns a "
                "topic: put slot-map back from a copy of the directory, or make another one of a backup by `topics "
                "restore`"
            )


async def _make(files: FileCalls, tiers: Tiers, stored: StoredMap) -> None:
    """Make the directories and their markers, and write the map that counts: steps 3 to 5."""
    path, cores = tiers.hot, stored.slots.cores
    for core in range(cores):
        files.make_directory(core_directory(path, core))
    await files.sync_directory(path)
    if stored.slots == SlotMap.of_first(cores):
        await _rename_all(files, path, core_directory(path, 0), _used(files, path))
        cold = [name for name in list_if_there(files, tiers.cold) if name in _COLD_OF_ONE_CORE] if tiers.cold else []
        if cold:
            files.make_directory(core_directory(tiers.cold, 0))
            await files.sync_directory(tiers.cold)
            await _rename_all(files, tiers.cold, core_directory(tiers.cold, 0), cold)
    number = (await _marker_of(files, path)).format
    for core in range(cores):
        marker = core_marker(number if core == 0 else FIRST_DIRECTORY_FORMAT, core, stored)
        await replace_file(files, f"{core_directory(path, core)}/{MARKER_NAME}", msgspec.json.encode(marker))
    await write_slot_map(files, path, stored._replace(generation=stored.generation + 1, state=MapState.WHOLE))


class _LastId(msgspec.Struct):
    """A part of the catalog in a snapshot."""

    last_id: int


async def _first_number(loop: Loop, tiers: Tiers) -> int:
    """Return a number for the first core directory that no id in the directory has.

    It is 1, unless it had several cores before. Topics that the log has after the newest snapshot
    continue its ids, and their upper 16 bits are not higher.

    Raises: CorruptError, no snapshot is sound; StorageError, the cold directory is another one.
    """
    loaded = await load_snapshot(loop.files, tiers.hot)
    if loaded is None:
        return 1
    listed = any(segment.tier == COLD for segment in loaded.store.segments)
    await claim_cold(loop, tiers, listed=listed, is_frozen=True)
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


async def _rename_all(files: FileCalls, path: str, to: str, names: list[str]) -> None:
    """Move entries of a directory to another one, durably."""
    there = files.list_directory(to)
    for name in names:
        if name not in there:
            await files.rename(f"{path}/{name}", f"{to}/{name}")
    await files.sync_directory(to)
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


# --- back to one core -------------------------------------------------------------------------------------------------


async def return_to_one(files: FileCalls, tiers: Tiers, stored: StoredMap) -> None:
    """Make the directory of core 0, which owns everything, that of one core.

    Each step is durable before the next. The state `RETURNING` is written, the copy of the map,
    whose place is needed, is removed, and the entries of core 0 are renamed to where one core has
    them. Then the marker is written. The map is removed last, and from then on any build that knows
    what it holds opens the directory.
    """
    path, first = tiers.hot, core_directory(tiers.hot, 0)
    if stored.state is not MapState.RETURNING:
        stored = stored._replace(generation=stored.generation + 1, state=MapState.RETURNING)
        await write_without_copy(files, path, stored)
    left = list_if_there(files, first)
    if SNAPSHOT_DIRECTORY in left:
        await remove_names(files, path, (SNAPSHOT_DIRECTORY,))
        await files.sync_directory(path)
    if tiers.cold:
        cold = core_directory(tiers.cold, 0)
        if names := list_if_there(files, cold):
            await _rename_all(files, cold, tiers.cold, names)
        await remove_core_directory(files, tiers.cold, 0)
    if left:
        await _rename_all(files, first, path, [name for name in left if name not in _OF_A_CORE])
        if MARKER_NAME in left:
            core = msgspec.json.decode(await read_file(files, f"{first}/{MARKER_NAME}"), type=Marker)
            marker = Marker(core.format, CORES, log=(await _marker_of(files, path)).log)
            await replace_file(files, f"{path}/{MARKER_NAME}", msgspec.json.encode(marker))
    await remove_core_directory(files, path, 0)
    await unlink_if_there(files, f"{path}/{SLOT_MAP_NAME}")
    await files.sync_directory(path)


async def unmark(files: FileCalls, path: str) -> None:
    """Make a directory one of one core again, if a making of core directories wrote only a marker.

    Raises: StorageError, it has core directories and no map; FormatError, its marker is damaged.
    """
    marker = await _marker_of(files, path)
    if marker.cores != CORES and marker.core == NO_CORE:
        _refuse_core_directories(files, path)
        await replace_file(
            files, f"{path}/{MARKER_NAME}", msgspec.json.encode(Marker(marker.format, CORES, log=marker.log))
        )


def is_of_core(name: str) -> bool:
    """Return whether a core has made an entry of its directory, or was killed in making it."""
    name = name.removesuffix(".tmp")
    return name in OF_ONE_CORE or name in _OF_A_CORE or f"{name}.tmp" == PROBE_NAME


async def remove_core_directory(files: FileCalls, root: str, core: int) -> None:
    """Remove the directory of a core, durably.

    Raises: OSError, also if it has files that are not of a core.
    """
    path = core_directory(root, core)
    if core_name(core) in list_if_there(files, root):
        await remove_names(files, path, [name for name in files.list_directory(path) if is_of_core(name)])
        files.remove_directory(path)
        await files.sync_directory(root)


async def remove_names(files: FileCalls, path: str, names: Collection[str]) -> None:
    """Remove these entries of a directory, with all that is below them."""
    for name in files.list_directory(path):
        if name not in names:
            continue
        below = f"{path}/{name}"
        try:
            inside = files.list_directory(below)
        except NotADirectoryError:
            await files.unlink(below)
            continue
        await remove_names(files, below, inside)
        files.remove_directory(below)
