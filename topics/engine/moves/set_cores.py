"""A data directory gets the number of cores that it is started with, before any core starts.

Slots move between core directories, with all topics in them. Each step is durable before the next:

1. Each core is recovered and closed, so that its log has nothing that its files lack. Whether all
   topics can move is known from then on: a refusal changes nothing.
2. The map is written as `MOVING`. Directories of new cores are made.
3. Files are handed over, and each core gets its next snapshot (store/cores/moved_files.py).
4. The map is written as `MOVED`, with the owners after the move. This write decides: a crash before
   it leaves the owners as before, and the next start removes what was made.
5. The next snapshots count, and the old place is removed. The map is `WHOLE` again, or the
   directory becomes one of one core.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from topics.config import Config
from topics.engine.moves.moved_topics import Division, divide
from topics.engine.stored_engine import recover_and_close
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.cores.core_directories import (
    CoreDirectories,
    check_directories,
    core_config,
    core_directory,
    core_marker,
    read_cores,
)
from topics.store.cores.make_cores import (
    is_of_core,
    make_cores,
    numbers_from,
    remove_core_directory,
    return_to_one,
    unmark,
)
from topics.store.cores.moved_files import CoreFiles, HandOver
from topics.store.cores.next_snapshots import (
    drop_next_snapshot,
    remove_unlisted,
    take_next_snapshot,
    write_next_snapshot,
)
from topics.store.cores.slot_map import SlotMap, check_cores
from topics.store.cores.slot_map_file import MapState, StoredMap, read_slot_map, write_slot_map
from topics.store.disk.data_directory import lock_directory
from topics.store.disk.directory_format import CORES, Marker
from topics.store.disk.whole_files import read_file, replace_file
from topics.store.layouts.directory_names import COLD, DIRECTORY_FORMAT, FIRST_DIRECTORY_FORMAT, MARKER_NAME
from topics.store.segments.snapshot_files import Loaded, load_snapshot
from topics.store.segments.tiers import Tiers, claim_cold

log = logging.getLogger(__name__)


async def set_cores(loop: Loop, config: Config, cores: int) -> CoreDirectories | None:
    """Make config.data_dir a directory of this many cores; return its layout, None: of one core.

    A change that was cut short is completed or taken back first. The caller holds the lock of the
    directory, and nothing in it is open.

    Raises: UsageError, there cannot be so many cores, or topics cannot be on different ones, which
    changes nothing; the errors of `make_cores` and of the starts of the cores; OSError, the next
    call completes the change or takes it back.
    """
    check_cores(cores)
    move = _Move(loop, config)
    stored = await move.settled()
    if stored is None or stored.state is MapState.MAKING:
        if cores == CORES and stored is None:
            await unmark(loop.files, config.data_dir)
            return None
        await make_cores(loop, config.data_dir, max(cores, 2), config.cold_dir)
        stored = await move.settled()
        assert stored is not None, "it was made"
    if stored.state is not MapState.WHOLE or stored.slots.moved_to(cores) != stored.slots:
        await move.run(stored, cores)
    return await read_cores(loop.files, config.data_dir)


class _Move:
    """The moves of slots in one data directory."""

    def __init__(self, loop: Loop, config: Config) -> None:
        self._loop = loop
        self._config = config
        self._path = config.data_dir

    async def settled(self) -> StoredMap | None:
        """Complete a move that was decided; return the map, None if there is one core."""
        found = await read_slot_map(self._loop.files, self._path)
        if found is None:
            return None
        if found.stored.state is MapState.RETURNING:
            await return_to_one(self._loop.files, Tiers.of(self._config), found.stored)
            return None
        if found.stored.state is MapState.MOVED:
            await check_directories(self._loop.files, self._path, found)
            return await self._complete(found.stored)
        return found.stored

    async def run(self, stored: StoredMap, cores: int) -> None:
        """Move slots until the directory is one of this many cores."""
        found = await read_slot_map(self._loop.files, self._path)
        assert found is not None, "it has a map"
        await check_directories(self._loop.files, self._path, found)
        before, after = stored.slots, stored.slots.moved_to(cores)
        closed = [await self._close(stored, core) for core in range(before.cores)]
        if stored.state is MapState.MOVING:
            await self._discard(stored)
        if before == after:
            await self._write(_whole(stored))
            return
        self._check_given_up(range(after.cores, before.cores))
        numbers = stored.numbers
        new = max(before.cores, after.cores) - len(numbers)
        if new > 0:
            numbers += numbers_from(stored.next_number, new)
        next_number = max(stored.next_number, numbers[-1] + 1)
        division = divide([loaded.catalog for loaded in closed], before, after, next_number)
        log.info("moving %d slots: from %d cores to %d", len(before.moves_to(after)), before.cores, after.cores)
        directories = max(before.cores, after.cores)
        stored = stored._replace(numbers=numbers[:directories], next_number=next_number, directories=directories)
        stored = await self._write(stored._replace(state=MapState.MOVING))
        await self._hand_over(stored, closed, after, division)
        stored = await self._write(stored._replace(state=MapState.MOVED, slots=after))
        await self._complete(stored)

    async def _write(self, stored: StoredMap) -> StoredMap:
        stored = stored._replace(generation=stored.generation + 1)
        await write_slot_map(self._loop.files, self._path, stored)
        return stored

    def _config_of(self, core: int) -> Config:
        return core_config(self._config, core)

    def _tiers(self, core: int) -> Tiers:
        return Tiers.of(self._config_of(core))

    async def _close(self, stored: StoredMap, core: int) -> Loaded:
        """Recover a core and close it; return its snapshot, which has everything.

        Raises: StorageError, something is only in the log.
        """
        loop, config = self._loop, self._config_of(core)
        directory = lock_directory(loop.ring, config, core=core, number=stored.numbers[core])
        await recover_and_close(loop, config, directory)
        loaded = await load_snapshot(loop.files, config.data_dir)
        if loaded is None or not loaded.store.clean:
            raise StorageError(f"{config.data_dir}: could not be closed with everything in its files: start again")
        return loaded

    async def _discard(self, stored: StoredMap) -> None:
        """Remove what a move that was not decided has made."""
        for core in range(stored.slots.cores):
            await drop_next_snapshot(self._loop.files, core_directory(self._path, core))
            await remove_unlisted(self._loop, self._tiers(core))
        await self._remove(range(stored.slots.cores, stored.directories))

    async def _remove(self, cores: Sequence[int]) -> None:
        for core in cores:
            for root in (self._path, self._config.cold_dir):
                if root:
                    await remove_core_directory(self._loop.files, root, core)

    def _check_given_up(self, cores: Sequence[int]) -> None:
        """Check that directories that are to be removed hold nothing of others.

        Raises: StorageError.
        """
        for core in cores:
            path = core_directory(self._path, core)
            for name in self._loop.files.list_directory(path):
                if not is_of_core(name):
                    raise StorageError(
                        f"{path}/{name}: the directory of core {core} is to be removed, and this is no part of it: "
                        "move it elsewhere"
                    )

    async def _hand_over(self, stored: StoredMap, closed: Sequence[Loaded], after: SlotMap, division: Division) -> None:
        """Make everything that the cores have after the move, beside what they have."""
        loop, files = self._loop, self._loop.files
        number = DIRECTORY_FORMAT if division.has_far_dead_letters else FIRST_DIRECTORY_FORMAT
        await self._make_directories(stored, after.cores, number)
        boot, shards = loop.ring.boot_id(), max(1, self._config.wal_shards)
        cores = [CoreFiles.of(self._tiers(core), loaded) for core, loaded in enumerate(closed)]
        cores += [CoreFiles.new(self._tiers(core), boot, shards) for core in range(len(closed), after.cores)]
        for core in {target for leaving in division.leaving for target in leaving.values()}:
            if any(segment.tier == COLD for loaded in closed for segment in loaded.store.segments):
                await claim_cold(loop, self._tiers(core), listed=False)
        hand_over = HandOver(loop, cores)
        for core, leaving in enumerate(division.leaving):
            await hand_over.give(core, leaving)
        await hand_over.sync()
        for files_of_core, catalog in zip(cores, division.catalogs, strict=False):
            await write_next_snapshot(files, files_of_core, catalog, loop.clock.now_ms())

    async def _make_directories(self, stored: StoredMap, cores: int, number: int) -> None:
        """Make the directories of new cores, and raise the formats of all to the highest.

        number: one that what they are to hold needs.
        """
        files = self._loop.files
        markers = [await self._marker(core) for core in range(stored.slots.cores)]
        number = max(number, *(marker.format for marker in markers))
        for core in range(stored.slots.cores, cores):
            files.make_directory(core_directory(self._path, core))
        await files.sync_directory(self._path)
        for core in range(cores):
            if core >= len(markers) or markers[core].format < number:
                marker = core_marker(number, core, stored)
                path = f"{core_directory(self._path, core)}/{MARKER_NAME}"
                await replace_file(files, path, msgspec.json.encode(marker))

    async def _marker(self, core: int) -> Marker:
        path = f"{core_directory(self._path, core)}/{MARKER_NAME}"
        return msgspec.json.decode(await read_file(self._loop.files, path), type=Marker)

    async def _complete(self, stored: StoredMap) -> StoredMap | None:
        """Let the owners after a move count, and remove the old place. Return the map."""
        cores = stored.slots.cores
        for core in range(cores):
            await take_next_snapshot(self._loop.files, core_directory(self._path, core))
        for core in range(cores):
            await remove_unlisted(self._loop, self._tiers(core))
        await self._remove(range(cores, stored.directories))
        if cores == CORES:
            await return_to_one(self._loop.files, Tiers.of(self._config), stored)
            return None
        return await self._write(_whole(stored))


def _whole(stored: StoredMap) -> StoredMap:
    cores = stored.slots.cores
    return stored._replace(state=MapState.WHOLE, numbers=stored.numbers[:cores], directories=cores)
