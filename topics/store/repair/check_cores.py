"""A check of a directory of several cores: each core by itself, and then all against the slot map.

A rebuild works on each damaged core by itself. It writes a slot map anew of which one file is
damaged, and the marker beside it. It does not decide which of two core directories counts, and
brings no topic back that moved away: a core gets only those of its slots.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from topics.config import Config
from topics.errors import CorruptError, FormatError, LockedError, StorageError
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.store.cores.core_directories import (
    CORE_PREFIX,
    core_config,
    layout_faults,
    marker_or_none,
    whole_map,
)
from topics.store.cores.slot_map_file import FoundMap, write_slot_map
from topics.store.disk.data_directory import LockedDirectory, lock_directory
from topics.store.disk.directory_format import CORES, NO_CORE, SLOT_MAP_NAME, Marker, refused_cores, refused_marker
from topics.store.disk.uncached_reads import is_direct
from topics.store.disk.whole_files import FileCalls, list_if_there, read_file, replace_file
from topics.store.format.log_format import FrameType, shard_directory
from topics.store.layouts.directory_names import FIRST_DIRECTORY_FORMAT, MARKER_NAME
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.log_survey import shards_of
from topics.store.recovery.verified_batches import NameOfTopic, VerifiedBatches
from topics.store.repair.check_files import FsckReport, found_in, newer_file, rebuilt, verified
from topics.store.repair.owned_topics import OwnedTopics
from topics.store.repair.rebuild import Rebuilt
from topics.store.repair.set_aside import SetAside
from topics.store.repair.verify_directory import Damage, VerifyReport, replay_shard
from topics.store.segments.snapshot_files import Loaded, sound_snapshot
from topics.store.segments.tiers import Tiers

_PUT_BACK = (
    "one of the two directories is older than the slot map: put the one there that the core had last, or make another "
    "data directory of a backup by `topics restore`"
)


def lock_to_check(ring: Ring, config: Config, core: int = NO_CORE, number: int = 0) -> LockedDirectory:
    """Lock a directory that is to be checked. Raises: as `lock_directory`."""
    try:
        return lock_directory(ring, config, core=core, number=number)
    except LockedError as error:
        raise LockedError(f"{error}, then check again") from error


async def map_to_check(files: FileCalls, path: str) -> FoundMap | None:
    """Return the slot map of a directory; None if it is of one core.

    Raises: FormatError, it is a core directory, or made by a newer version; StorageError, it has
    core directories and no map, or the errors of `whole_map`.
    """
    marker = await marker_or_none(files, path)
    if marker is not None and marker.core != NO_CORE:
        raise FormatError(refused_cores(marker, path))
    found = await whole_map(files, path)
    if found is None:
        if marker is not None and marker.cores == CORES:
            return None
        cores = [name for name in files.list_directory(path) if name.startswith(CORE_PREFIX)]
        markers = [await marker_or_none(files, f"{path}/{name}") for name in cores]
        if any(each is not None and each.core != NO_CORE for each in markers):
            raise StorageError(
                f"{path}: {cores[0]} is there, and both files of the slot map are missing, which say which core owns "
                f"a topic: put {SLOT_MAP_NAME} back from a copy of the directory, or make another one of a backup by "
                "`topics restore`"
            )
        if marker is not None:
            raise FormatError(refused_cores(marker, path))
        return None
    if marker is not None and (refusal := refused_marker(msgspec.structs.replace(marker, cores=CORES), path)):
        raise FormatError(refusal)
    return found


def check_cores(loop: Loop, config: Config, found: FoundMap, *, mend: bool) -> FsckReport:
    """Check all cores of a directory; with `mend`, rebuild what is damaged, and check that again.

    The caller holds the lock of the directory.
    Raises: LockedError, a core is running; FormatError, a file is of a newer version, before
    anything is changed; OSError.
    """
    path, stored = config.data_dir, found.stored
    faults = loop.run_task(layout_faults(loop.files, path, stored))
    without = {fault.core for fault in faults}
    parts = [
        CheckedCore(core_config(config, core), OwnedTopics(core, stored.numbers[core], stored.slots))
        for core in range(stored.slots.cores)
        if core not in without
    ]
    shared = [Damage(each.path, each.sentence.removeprefix(f"{each.path} ")) for each in faults]
    mendable = loop.run_task(_shared_damage(loop.files, path, found))
    with contextlib.ExitStack() as locks:
        for part in parts:
            locks.callback(lock_to_check(loop.ring, part.config, part.owned.core, part.owned.number).release)
        firsts = [verified(loop, part.config, part.owned) for part in parts]
        mends = mend and (bool(mendable) or not all(first.sound for first in firsts))
        if mends:
            for part in parts:
                if newer := newer_file(loop, part.config, part.owned):
                    raise FormatError(newer)
        outcomes = [
            (found_in if first.sound or not mends else rebuilt)(loop, part.config, part.owned, first)
            for part, first in zip(parts, firsts, strict=True)
        ]
        strays = loop.run_task(_strays(loop, parts))
        shared += strays
        names = {each.topic_id: each.topic for each in strays}
        whole = FsckReport(path, VerifyReport(findings=[*shared], names=names), cores=outcomes, by_hand=len(shared))
        if mends:
            whole.rebuilt, whole.damage = Rebuilt(), [*mendable]
            if mendable:
                whole.rebuilt.set_aside += loop.run_task(_mend_shared(loop, path, found, mendable))
        else:
            whole.report.findings += mendable
    for each in outcomes:
        _add(whole, each)
    return whole


class CheckedCore(NamedTuple):
    """A core whose directory is there."""

    config: Config
    owned: OwnedTopics


# --- what cores share -------------------------------------------------------------------------------------------------


async def _shared_damage(files: FileCalls, path: str, found: FoundMap) -> list[Damage]:
    """Return the damage of the slot map and of the marker, which a rebuild mends."""
    damage = []
    for sentence in found.damage:
        place, _, what = sentence.partition(": ")
        damage.append(Damage(place, f"{what}: the other file of the slot map is sound, and is read instead"))
    marker = await marker_or_none(files, path)
    if marker is None:
        damage.append(Damage(f"{path}/{MARKER_NAME}", "missing or damaged: the slot map says what it held"))
    elif marker.cores == CORES or marker.of != found.stored.id.hex():
        damage.append(Damage(f"{path}/{MARKER_NAME}", "not the marker of this directory, as the slot map says"))
    return damage


async def _mend_shared(loop: Loop, path: str, found: FoundMap, damage: Sequence[Damage]) -> list[str]:
    """Write the slot map and the marker anew. Return copies of what was there."""
    files, stored = loop.files, found.stored
    aside = SetAside(files, Tiers(path), loop.clock.now_ms())
    for each in damage:
        with contextlib.suppress(FileNotFoundError):
            await aside.copy(each.path, await read_file(files, each.path))
    if found.damage:
        await write_slot_map(files, path, stored._replace(generation=stored.generation + 1))
    if any(each.path.endswith(MARKER_NAME) for each in damage):
        # every build knows this format, and refuses the number of cores with the right sentence
        marker = Marker(FIRST_DIRECTORY_FORMAT, stored.slots.cores, of=stored.id.hex())
        await replace_file(files, f"{path}/{MARKER_NAME}", msgspec.json.encode(marker))
    return aside.copies


# --- topics -----------------------------------------------------------------------------------------------------------


class _TopicName(msgspec.Struct):
    id: int
    name: str


class _Plain(msgspec.Struct):
    ids: list[int]
    names: list[str]


class _CatalogNames(msgspec.Struct):
    """The names of topics in the catalog's part of a snapshot."""

    topics: list[_TopicName]
    plain: list[_Plain] = []


async def _strays(loop: Loop, parts: Sequence[CheckedCore]) -> list[Damage]:
    """Return the topics on a core that does not own their slots."""
    names = {part.owned.core: await _topics_of(loop, part.config.data_dir) for part in parts}
    by_name = {core: set(some.values()) for core, some in names.items()}
    damage: list[Damage] = []
    for part in parts:
        core, slots = part.owned.core, part.owned.slots
        assert slots is not None, "there is a slot map"
        for topic_id, name in sorted(names[core].items()):
            owner = slots.core_of(name)
            if not part.owned.owns(name):
                there = " and has it, too" if name in by_name.get(owner, ()) else ""
                text = f"core {owner} owns its slot{there}: {_PUT_BACK}"
                damage.append(Damage(part.config.data_dir, text, topic_id=topic_id, topic=name))
    return damage


async def _topics_of(loop: Loop, path: str) -> dict[int, str]:
    """Return the names of a core's topics by id, from its newest sound snapshot and its log."""
    found = await sound_snapshot(loop.files, path)
    names = dict(_names_in(found)) if found is not None else {}

    def take(chunk: VerifiedBatches) -> None:
        kinds = chunk.frames["type"]
        for at in np.flatnonzero((kinds == FrameType.TOPIC_CREATE) | (kinds == FrameType.TOPIC_DELETE)).tolist():
            topic_id = int(chunk.frames["topic_id"][at])
            if kinds[at] == FrameType.TOPIC_CREATE:
                names[topic_id] = msgspec.json.decode(chunk.payload(at), type=NameOfTopic).name
            else:
                names.pop(topic_id, None)

    reader = DirectReader(loop.files, direct=is_direct(loop.files.direct_block_bytes(path)))
    starts = found.store.replay if found is not None else {}
    for shard in shards_of(loop.files, path, starts) if list_if_there(loop.files, f"{path}/wal") else ():
        # what is damaged is among the findings
        with contextlib.suppress(CorruptError, FormatError, msgspec.DecodeError):
            await replay_shard(loop, reader, f"{path}/{shard_directory(shard)}", starts.get(shard), take)
    return names


def _names_in(found: Loaded) -> Iterator[tuple[int, str]]:
    if found.store.rebuilt:
        for topic_id, description in msgspec.json.decode(found.catalog, type=list[tuple[int, msgspec.Raw]]):
            yield topic_id, msgspec.json.decode(description, type=NameOfTopic).name
        return
    catalog = msgspec.json.decode(found.catalog, type=_CatalogNames)
    yield from ((topic.id, topic.name) for topic in catalog.topics)
    for block in catalog.plain:
        yield from zip(block.ids, block.names, strict=True)


# --- one report -------------------------------------------------------------------------------------------------------


def _add(whole: FsckReport, core: FsckReport) -> None:
    """Add what was found in a core to the report of the whole directory."""
    report, part = whole.report, core.report
    report.findings += part.findings
    report.notes += part.notes
    for name in ("snapshots", "segments", "packs", "records", "log_batches", "log_records"):
        setattr(report, name, getattr(report, name) + getattr(part, name))
    report.names.update(part.names)
    whole.damage += core.damage
    whole.newer = whole.newer or core.newer
    if whole.rebuilt is not None and core.rebuilt is not None:
        whole.rebuilt.topics += core.rebuilt.topics
        whole.rebuilt.records += core.rebuilt.records
        whole.rebuilt.set_aside += core.rebuilt.set_aside
