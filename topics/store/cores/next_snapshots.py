"""The next snapshots of cores whose topics move, which count once the map is `MOVED`.

While it is `MOVING`, each core gets its next snapshot, in two copies as always, under another name.
Once it is `MOVED`, they get their real names. Only then is anything removed: earlier snapshots, the
files that none lists any more, and the directories of cores that are given up.
"""

from __future__ import annotations

from topics.loop.loop import Loop
from topics.store.cores.moved_files import CoreFiles
from topics.store.disk.whole_files import FileCalls, list_if_there, replace_file, unlink_if_there
from topics.store.layouts.directory_names import (
    HOT,
    PACK_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    TOPICS_DIRECTORY,
    numbered,
    snapshot_path,
)
from topics.store.layouts.snapshot_format import Pieces, pack_snapshot
from topics.store.recovery.recovery import sweep
from topics.store.segments.manifest import Manifest
from topics.store.segments.snapshot_files import COPIES, load_snapshot, snapshot_numbers
from topics.store.segments.store_part import StorePart, pack_store_part
from topics.store.segments.tiers import Tiers

_NEXT = "next-"
"""How the names of next snapshots begin."""


async def write_next_snapshot(files: FileCalls, core: CoreFiles, catalog: Pieces, now_ms: int) -> None:
    """Write a core's next snapshot durably, under a name that does not count yet.

    Raises: OSError.
    """
    manifest, part = core.manifest, core.part
    segments, packs = list(manifest.all_segments()), list(manifest.packs.values())
    store = pack_store_part(StorePart(part.replay, segments, packs, part.boot, part.shards, clean=True))
    directory = f"{core.tiers.hot}/{SNAPSHOT_DIRECTORY}"
    if files.make_directory(directory):
        await files.sync_directory(core.tiers.hot)
    for number in range(core.after + 1, core.after + 1 + COPIES):
        data = pack_snapshot(number, now_ms, [store], catalog)
        await replace_file(files, f"{directory}/{_NEXT}{number:016x}", *data)


async def take_next_snapshot(files: FileCalls, directory: str) -> None:
    """Give a core's next snapshot its name, durably, and remove earlier ones."""
    below = f"{directory}/{SNAPSHOT_DIRECTORY}"
    for name in files.list_directory(below):
        number = numbered(name, _NEXT)
        if number is not None:
            await files.rename(f"{below}/{name}", f"{directory}/{snapshot_path(number)}")
    await files.sync_directory(below)
    numbers = snapshot_numbers(files, directory)
    for number in numbers[COPIES:]:
        await unlink_if_there(files, f"{directory}/{snapshot_path(number)}")
    await files.sync_directory(below)


async def drop_next_snapshot(files: FileCalls, directory: str) -> None:
    """Remove what a move that was cut short has left of a next snapshot."""
    below = f"{directory}/{SNAPSHOT_DIRECTORY}"
    for name in list_if_there(files, below):
        if name.startswith(_NEXT):
            await files.unlink(f"{below}/{name}")


async def remove_unlisted(loop: Loop, tiers: Tiers) -> None:
    """Remove the segments and packs of a core that its snapshot does not list, durably."""
    loaded = await load_snapshot(loop.files, tiers.hot)
    assert loaded is not None, "the core was closed, or has got a snapshot"
    await sweep(loop, tiers, Manifest.of(loaded.store))
    for tier, root in tiers.roots():
        names = list_if_there(loop.files, root)
        for name in (TOPICS_DIRECTORY, PACK_DIRECTORY) if tier == HOT else (TOPICS_DIRECTORY,):
            if name in names:
                await loop.files.sync_directory(f"{root}/{name}")
