"""Rebuild a damaged data directory: `topics fsck --rebuild`.

A sound snapshot lists the files that count, the topics, and where the log begins; without one,
segments and packs describe themselves. The log is replayed after that as far as it is sound.
Damaged files are copied to `set-aside-<ms>`, then replaced by one with the sound records. A
snapshot is written last, so an interrupted rebuild is simply begun again. A directory with a file
of a newer version of topics is refused, and left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from topics.loop.loop import Loop
from topics.store.archive.archive_note import mark_losses
from topics.store.disk.directory_format import Marker
from topics.store.disk.whole_files import read_file, unlink_if_there
from topics.store.layouts.directory_names import SNAPSHOT_DIRECTORY
from topics.store.repair.newer_files import refuse_newer
from topics.store.repair.owned_topics import EVERY_TOPIC, OwnedTopics
from topics.store.repair.rebuild_from_segments import RebuildFromSegments
from topics.store.repair.rebuild_from_snapshot import RebuildFromSnapshot
from topics.store.repair.rebuild_log import RebuildLog
from topics.store.repair.set_aside import SetAside
from topics.store.segments.snapshot_files import Loaded, snapshot_numbers, sound_snapshot, write_snapshot
from topics.store.segments.store_part import StorePart, pack_store_part
from topics.store.segments.tiers import Tiers, require_cold


@dataclass
class Rebuilt:
    """The result of a rebuild."""

    topics: int = 0
    """Number of topics with records in segments and packs."""
    records: int = 0
    """Number of frames kept in segments and packs."""
    set_aside: list[str] = field(default_factory=list)
    """Paths of the copies of damaged files."""
    snapshot: int = 0


async def rebuild(loop: Loop, directory: str, cold: str = "", owned: OwnedTopics = EVERY_TOPIC) -> Rebuilt:
    """Rebuild from the files in the data directory and in the cold one.

    The caller holds the lock, and opens the store afterwards.

    owned: the topics that may be in it, if it is the directory of a core.
    Raises: StorageError for a cold directory that is not the data directory's own; FormatError for
    a file of a newer version of topics, before anything is changed; OSError.
    """
    tiers = Tiers(directory, cold)
    await require_cold(loop, tiers)
    await refuse_newer(loop.files, tiers, owned.core, owned.number)
    aside = SetAside(loop.files, tiers, loop.clock.now_ms())
    await _drop_unreadable_marker(loop, directory, aside)
    log = RebuildLog(loop, directory, aside)
    found = await sound_snapshot(loop.files, directory)
    if found is not None and log.is_older(found):
        found = None
    if found is not None:
        result, part, catalog = await _by_snapshot(loop, tiers, aside, log, found)
    else:
        result, part, catalog = await _by_files(loop, tiers, aside, log, owned)
    if part.rebuilt or aside.copies:
        await mark_losses(loop.files, directory)  # its log leads elsewhere now
    if loop.files.make_directory(f"{directory}/{SNAPSHOT_DIRECTORY}"):
        await loop.files.sync_directory(directory)
    result.set_aside = aside.copies
    result.snapshot = await write_snapshot(
        loop.files,
        directory,
        after=max(snapshot_numbers(loop.files, directory), default=0),
        now_ms=loop.clock.now_ms(),
        store=[pack_store_part(part)],
        catalog=[catalog],
    )
    return result


async def _by_snapshot(
    loop: Loop, tiers: Tiers, aside: SetAside, log: RebuildLog, found: Loaded
) -> tuple[Rebuilt, StorePart, bytes | memoryview]:
    listed = RebuildFromSnapshot(loop, tiers, aside)
    await listed.mend(found.store)
    await log.mend(found.store.replay)
    part = StorePart(
        replay=log.starts,
        segments=listed.segments,
        packs=listed.packs,
        boot=found.store.boot,
        shards=found.store.shards,
        rebuilt=found.store.rebuilt,
        log_cut=found.store.log_cut or log.cut,
        flagging=found.store.flagging,
    )
    return Rebuilt(len(listed.topic_ids), listed.records), part, found.catalog


async def _by_files(
    loop: Loop, tiers: Tiers, aside: SetAside, log: RebuildLog, owned: OwnedTopics
) -> tuple[Rebuilt, StorePart, bytes | memoryview]:
    await log.mend(None)
    described = RebuildFromSegments(loop, tiers, aside, owned)
    await described.mend(await log.seqs())
    part = StorePart(
        replay=log.starts,
        segments=described.segments,
        packs=described.packs,
        boot="",
        shards=1,
        rebuilt=True,
        log_cut=log.cut,
        flagging=[segment.path for segment in described.segments] + [pack.path for pack in described.packs],
        extensions=described.extensions,
        described_ms=described.described_ms,
    )
    catalog = msgspec.json.encode([(topic_id, msgspec.Raw(text)) for topic_id, text in described.descriptions])
    return Rebuilt(len(described.topic_ids), described.records), part, catalog


async def _drop_unreadable_marker(loop: Loop, directory: str, aside: SetAside) -> None:
    """Remove a damaged marker, which is written again when the directory is opened."""
    path = f"{directory}/topics.json"
    try:
        data = await read_file(loop.files, path)
        msgspec.json.decode(data, type=Marker)
    except FileNotFoundError:
        pass
    except msgspec.DecodeError:
        await aside.copy(path, data)
        await unlink_if_there(loop.files, path)
        await loop.files.sync_directory(directory)
