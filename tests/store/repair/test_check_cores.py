"""`fsck` on a directory of several cores: each core, what they share, and topics between them; and rebuilds of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest

from tests.engine.real_world import RealWorld
from tests.sim import SimRing
from tests.store.cores.moves_world import (
    DATA,
    copy_of,
    end,
    found_in,
    is_stopped,
    moved,
    of_one_core,
    settings_of,
)
from topics.cli.fsck import lines
from topics.config import Config
from topics.errors import FormatError, LockedError, StorageError
from topics.loop import Loop
from topics.store.cores.core_directories import core_config, read_cores
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import MapState, read_slot_map
from topics.store.disk.data_directory import lock_directory
from topics.store.repair.check_directory import check_locked
from topics.store.repair.check_files import FsckReport

CORE_0, CORE_1 = f"{DATA}/core-00", f"{DATA}/core-01"


@lru_cache(maxsize=1)
def two_cores() -> tuple[SimRing, Config]:
    """Return a directory of two cores that has ended. It is copied before use."""
    world = of_one_core()
    moved(world.ring, world.config, 2)
    world.ring.disk.sync_everything()
    return world.ring, world.config


def checked(ring: SimRing, *, mend: bool = False) -> FsckReport:
    return check_locked(Loop(ring, ring.clock), two_cores()[1], mend=mend)


def damage_in(report: FsckReport) -> list[str]:
    return [report.report.describe(each) for each in report.findings]


def without_lock(ring: SimRing) -> dict[str, bytes]:
    return {path: data for path, data in ring.disk.contents(DATA).items() if not path.endswith("/lock")}


def test_a_sound_directory_is_read_core_by_core_and_left_as_it_is() -> None:
    ring = copy_of(two_cores()[0])
    before = without_lock(ring)
    report = checked(ring, mend=True)
    assert (report.sound, report.rebuilt, len(report.cores)) == (True, None, 2)
    assert report.report.records == sum(core.report.records for core in report.cores) > 0
    assert all(core.report.snapshots == 2 for core in report.cores)
    assert list(lines(report))[-1].startswith("data: 2 cores, 4 snapshots, ")
    assert without_lock(ring) == before


def test_a_core_that_runs_is_not_checked() -> None:
    ring, config = copy_of(two_cores()[0]), two_cores()[1]
    lock_directory(ring, core_config(config, 1), core=1, number=2)
    with pytest.raises(LockedError, match="core-01 is in use, .*, then check again$"):
        checked(ring)


# --- what cores share -------------------------------------------------------------------------------------------------

MENDED: dict[str, tuple[Callable[[SimRing], object], str]] = {
    "a damaged map": (
        lambda ring: ring.corrupt_file(f"{DATA}/slot-map", 200),
        "data/slot-map: the checksum of the slot map is wrong: the other file of the slot map is sound",
    ),
    "a lost map": (lambda ring: ring.disk.unlink(f"{DATA}/slot-map"), "data/slot-map: missing: the other file"),
    "a damaged copy of the map": (
        lambda ring: ring.corrupt_file(f"{DATA}/snapshots/snapshot-0000000000000001", 200),
        "data/snapshots/snapshot-0000000000000001: the checksum of the slot map is wrong: the other file",
    ),
    "a lost marker": (lambda ring: ring.disk.unlink(f"{DATA}/topics.json"), "data/topics.json: missing or damaged"),
    "a damaged marker": (lambda ring: ring.put_file(f"{DATA}/topics.json", b"{"), "data/topics.json: missing or"),
    "the marker of one core": (
        lambda ring: ring.put_file(f"{DATA}/topics.json", b'{"format":1,"cores":1}'),
        "data/topics.json: not the marker of this directory",
    ),
}


@pytest.mark.parametrize("fault", MENDED)
def test_what_the_other_files_say_is_written_anew(fault: str) -> None:
    base, config = two_cores()
    ring = copy_of(base)
    wanted, _ring = found_in(copy_of(base), config)
    damaged, sentence = MENDED[fault]
    damaged(ring)
    before = without_lock(ring)
    (found,) = damage_in(checked(ring))
    assert found.startswith(sentence)
    assert without_lock(ring) == before
    mended = checked(ring, mend=True)
    assert (mended.sound, [mended.report.describe(each) for each in mended.damage]) == (True, [found])
    assert all(ring.file_bytes(copy) for copy in mended.rebuilt.set_aside) if mended.rebuilt else False
    assert checked(ring).sound
    ring = ring.next_life(power_cut=True)
    assert found_in(ring, config)[0] == wanted


BY_HAND: dict[str, tuple[Callable[[SimRing], object], str]] = {
    "a core directory is missing": (
        lambda ring: ring.disk.rename(CORE_1, f"{DATA}/elsewhere"),
        "data: core-01 is missing, and the slot map has 2 cores: put it back",
    ),
    "a core directory is there twice": (
        lambda ring: ring.put_file(f"{DATA}/core-02/topics.json", ring.file_bytes(f"{CORE_1}/topics.json")),
        "data: core-02 is there, and the slot map has 2 cores: move it out",
    ),
    "a core directory is in the place of another": (
        lambda ring: ring.put_file(f"{CORE_1}/topics.json", ring.file_bytes(f"{CORE_0}/topics.json")),
        "data/core-01: holds core 0, which is there twice or has changed its place: put the directory of core 1",
    ),
    "a core directory has lost its marker": (
        lambda ring: ring.disk.unlink(f"{CORE_1}/topics.json"),
        "data/core-01: the marker topics.json is missing or damaged: if the directory was never moved",
    ),
}


@pytest.mark.parametrize("fault", BY_HAND)
def test_core_directories_that_only_their_owner_can_tell_apart_are_left(fault: str) -> None:
    ring = copy_of(two_cores()[0])
    damaged, sentence = BY_HAND[fault]
    damaged(ring)
    before = without_lock(ring)
    for mend in (False, True):
        report = checked(ring, mend=mend)
        (found,) = damage_in(report)
        assert found.startswith(sentence)
        assert list(lines(report))[-1].endswith("which a rebuild leaves as it is: each line ends with its remedy")
    assert without_lock(ring) == before


def test_a_fault_between_cores_does_not_keep_others_from_being_rebuilt() -> None:
    ring = copy_of(two_cores()[0])
    ring.disk.rename(CORE_1, f"{DATA}/elsewhere")
    for name in ring.list_directory(f"{CORE_0}/snapshots"):
        ring.corrupt_file(f"{CORE_0}/snapshots/{name}", 100)
    report = checked(ring, mend=True)
    assert (len(damage_in(report)), report.by_hand, len(report.cores)) == (1, 1, 1)
    assert "1 damaged, between cores" in list(lines(report))[-1]


# --- topics -----------------------------------------------------------------------------------------------------------


def core_of(ring: SimRing, core: int) -> RealWorld:
    loop = Loop(ring, ring.clock)
    layout = loop.run_task(read_cores(loop.files, DATA))
    assert layout is not None
    settings = settings_of(core_config(two_cores()[1], core))
    return RealWorld(ring=ring, core=core, number=layout.number_of(core), **settings)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("is_twice", [True, False])
def test_a_topic_on_a_core_that_does_not_own_its_slot(is_twice: bool, is_killed: bool) -> None:
    ring = copy_of(two_cores()[0])
    slots = SlotMap.of_first(2).moved_to(2)
    stray = next(name for n in range(99) if slots.core_of(name := f"s{n}") == 1)
    for core in (1, 0) if is_twice else (0,):
        world = core_of(ring, core)
        world.put(stray)
        world.append(1, name=stray)
        end(world, is_killed=is_killed)
        ring = world.ring
    for mend in (False, True):
        (found,) = damage_in(checked(ring, mend=mend))
        there = " and has it, too" if is_twice else ""
        assert found.startswith(
            f"data/core-00, topic {stray}: core 1 owns its slot{there}: one of the two directories is older"
        )
    world = core_of(ring, 0)
    world.delete_topic(stray)
    end(world, is_killed=is_killed)
    assert checked(world.ring).sound


def without_snapshots(ring: SimRing, core: int) -> None:
    for name in ring.list_directory(f"{DATA}/core-{core:02d}/snapshots"):
        ring.corrupt_file(f"{DATA}/core-{core:02d}/snapshots/{name}", 100)


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_log_brings_no_topic_back_that_moved_away(is_killed: bool) -> None:
    config = two_cores()[1]
    world = of_one_core(is_killed=is_killed)
    ring = world.ring
    moved(ring, config, 2)
    wanted, _ring = found_in(copy_of(ring), config)
    ring = ring.next_life(power_cut=True)
    without_snapshots(ring, 0)
    assert checked(ring, mend=True).sound
    assert found_in(ring, config)[0].keys() == wanted.keys()


@pytest.mark.parametrize("core", [0, 1])
def test_a_core_is_rebuilt_without_the_topics_that_moved_away(core: int) -> None:
    """Packs of core 0 have the records of topics that moved to core 1, and the rebuild reads all of them."""
    base, config = two_cores()
    wanted, _ring = found_in(copy_of(base), config)
    ring = copy_of(base)
    without_snapshots(ring, core)
    damage = damage_in(checked(ring))
    assert len([line for line in damage if f"core-{core:02d}" in line]) == len(damage) >= 2
    report = checked(ring, mend=True)
    assert report.sound, damage_in(report)
    assert [each.rebuilt is not None for each in report.cores] == [core == 0, core == 1]
    assert any(line.startswith(f"rebuilt data/core-{core:02d}: ") for line in lines(report))
    found, _ring = found_in(ring.next_life(power_cut=True), config)
    empty = {name for name, topic in wanted.items() if not topic.get("records", (b"",))[0]}
    assert wanted.keys() - empty <= found.keys() <= wanted.keys()
    assert all(found[name].get("records") == wanted[name].get("records") for name in wanted.keys() - empty)


@pytest.mark.parametrize(("state", "cores"), [(MapState.MOVING, 2), (MapState.MOVED, 3)])
def test_a_move_that_was_cut_short_is_named_and_can_be_checked_once_it_has_ended(state: MapState, cores: int) -> None:
    base, config = two_cores()
    wanted, _ring = found_in(copy_of(base), config)
    for effect in range(1, 1 << 20, 7):
        ring = copy_of(base)
        assert is_stopped(ring, config, 3, effect), "it was over before it was in this state"
        ring = ring.next_life(power_cut=False)
        if state_of(ring) is state:
            break
    before = without_lock(ring)
    with pytest.raises(StorageError, match="^data: slots are being moved between cores, which was cut short: use the "):
        checked(ring, mend=True)
    assert without_lock(ring) == before
    moved(ring, config, cores)
    report = checked(ring)
    assert (report.sound, len(report.cores)) == (True, cores), damage_in(report)
    assert found_in(ring, config)[0].keys() == wanted.keys()


def state_of(ring: SimRing) -> MapState:
    loop = Loop(ring, ring.clock)
    found = loop.run_task(read_slot_map(loop.files, DATA))
    assert found is not None
    return found.stored.state


# --- refused ----------------------------------------------------------------------------------------------------------


def test_core_directories_without_any_map_and_a_core_directory_by_itself_cannot_be_checked() -> None:
    base, config = two_cores()
    ring = copy_of(base)
    loop = Loop(ring, ring.clock)
    with pytest.raises(
        FormatError, match="core-01: holds core 1 of a directory of several cores, and no log by itself"
    ):
        check_locked(loop, core_config(config, 1), mend=True)
    for name in ("slot-map", "snapshots/snapshot-0000000000000001"):
        ring.disk.unlink(f"{DATA}/{name}")
    for is_marked in (True, False):
        if not is_marked:
            ring.disk.unlink(f"{DATA}/topics.json")
        with pytest.raises(StorageError, match="^data: core-00 is there, and both files of the slot map are missing"):
            checked(ring, mend=True)


def test_a_core_with_a_file_of_a_newer_version_keeps_all_cores_from_being_rebuilt() -> None:
    ring = copy_of(two_cores()[0])
    without_snapshots(ring, 0)
    marker = ring.file_bytes(f"{CORE_1}/topics.json")
    ring.put_file(f"{CORE_1}/topics.json", marker.replace(b'"format":', b'"format":9'))
    before = without_lock(ring)
    with pytest.raises(FormatError, match="core-01: format 9"):
        checked(ring, mend=True)
    assert without_lock(ring) == before
