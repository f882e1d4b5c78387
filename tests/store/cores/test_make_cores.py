"""Core directories are made of any directory, over any crash, and no record is lost or seen twice."""

from __future__ import annotations

import pytest

from tests.amount import stride
from tests.sim import SimRing
from tests.store.cores.cores_world import layout, made, marker_of, of_one_core, raised, stopped, topics_in
from tests.store.store_world import DIRECTORY, StoreWorld
from topics.errors import FormatError, StorageError, UsageError
from topics.loop import Loop
from topics.store.cores.make_cores import make_cores
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import MapState, read_slot_map

WRITTEN = {1: list(range(1, 46)), 2: [1, 2], 3: [1, 2, 3]}


def empty() -> SimRing:
    ring = SimRing(3)
    ring.make_directory(DIRECTORY)
    ring.disk.sync_everything()
    return ring


def test_the_cores_of_a_new_directory_share_the_slots() -> None:
    ring = empty()
    cores = made(ring, 3)
    assert cores == layout(ring)
    assert cores.slots == SlotMap.balanced(3)
    assert (cores.stored.state, cores.damage) == (MapState.WHOLE, [])
    assert ring.list_directory(DIRECTORY) == ["core-00", "core-01", "core-02", "slot-map", "snapshots", "topics.json"]
    of = cores.stored.id.hex()
    assert marker_of(ring, DIRECTORY) == {"format": 1, "cores": 3, "of": of}
    assert marker_of(ring, cores.path_of(2)) == {"format": 1, "cores": 2, "core": 2, "of": of, "number": 3}
    assert ([cores.number_of(core) for core in range(3)], cores.stored.next_number) == ([1, 2, 3], 4)
    for core in range(3):
        assert topics_in(ring, cores.path_of(core), core) == {}


@pytest.mark.parametrize("clean", [True, False])
def test_what_one_core_has_written_is_that_of_core_0(clean: bool) -> None:
    ring = of_one_core(clean=clean)
    cores = made(ring, 2)
    assert cores.slots == SlotMap.of_first(2)
    assert topics_in(ring, cores.path_of(0), 0) == WRITTEN
    assert topics_in(ring, cores.path_of(1), 1) == {}
    assert not {"wal", "topics", "packs", "session"} & set(ring.list_directory(DIRECTORY))
    assert made(ring, 2) == cores, "it is made once"


def test_a_directory_that_had_several_cores_before_gets_other_numbers() -> None:
    """Whether its newest topic is in a snapshot or only in the log."""
    for last_id, numbers in ((5 << 48, (6, 7)), ((5 << 48) + 3, (6, 7)), ((6 << 48) - 1, (6, 7)), (5, (1, 2))):
        world = StoreWorld().open()
        world.create(last_id)
        world.checkpoint()
        world.create(last_id + 1 if last_id + 1 < 6 << 48 else 9)
        cores = made(world.end(power_cut=False), 2)
        assert (cores.stored.numbers, cores.stored.next_number) == (numbers, numbers[-1] + 1)


def test_there_are_numbers_for_65535_core_directories() -> None:
    for cores, last in ((3, 65532), (4, 65532)):
        world = StoreWorld().open()
        world.create(last << 48)
        world.close()
        ring = world.end(power_cut=False)
        if cores == 3:
            assert made(ring, cores).stored.numbers == (65533, 65534, 65535)
            continue
        before = ring.disk.contents(DIRECTORY)
        with pytest.raises(StorageError, match="^the data directory has had 65532 core directories, and there are nu"):
            made(ring, cores)
        assert ring.disk.contents(DIRECTORY) == before


def test_the_format_of_the_directory_is_that_of_core_0() -> None:
    world = StoreWorld().open()
    world.run(world.store.format.raise_to(2))
    world.create(1)
    world.append(1, 3)
    ring = world.end(power_cut=False)
    cores = made(ring, 2)
    assert [marker_of(ring, cores.path_of(core))["format"] for core in (0, 1)] == [2, 1]
    assert topics_in(ring, cores.path_of(0), 0) == {1: [1, 2, 3]}


def test_a_core_that_raises_its_format_stays_a_core() -> None:
    ring = of_one_core(clean=False)
    cores = made(ring, 2)
    before = marker_of(ring, cores.path_of(0))
    raised(ring, cores.path_of(0), 0, 3)
    assert marker_of(ring, cores.path_of(0)) == {**before, "format": 3}
    assert topics_in(ring, cores.path_of(0), 0) == WRITTEN


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize("kind", ["new", "clean", "killed"])
def test_a_crash_after_any_operation_is_completed_by_the_next_start(kind: str, power_cut: bool) -> None:
    """And by the one after it, if that one is cut short, too."""
    wanted = {} if kind == "new" else WRITTEN
    effect, states = 0, set()
    is_cut = True
    while is_cut:
        effect += 1
        ring = empty() if kind == "new" else of_one_core(clean=kind == "clean", seed=effect)
        ring.disk.sync_everything()
        is_cut = stopped(ring, 2, effect)
        ring = ring.next_life(power_cut=power_cut)
        states.add(state_of(ring))
        if stopped(ring, 2, 1 + effect % 7):
            ring = ring.next_life(power_cut=power_cut)
        cores = made(ring, 2)
        assert (layout(ring), cores.damage) == (cores, [])
        if kind == "new":
            assert ring.list_directory(cores.path_of(0)) == ["topics.json"]
        assert topics_in(ring, cores.path_of(0), 0) == wanted, f"cut after operation {effect}"
        assert topics_in(ring, cores.path_of(1), 1) == {}
    assert states == {"of one core", "begun", "making", "made"}
    assert effect > 30


def state_of(ring: SimRing) -> str:
    """How far the making is. A directory that is still of one core opens; no other one does."""
    names = ring.list_directory(DIRECTORY)
    marker = marker_of(ring, DIRECTORY) if "topics.json" in names else {"cores": 1}
    if marker["cores"] == 1:
        return "of one core"
    with pytest.raises(FormatError, match="^data: made for 2 cores: serve it by `topics serve --cores 2`"):
        StoreWorld(ring).open()
    if "slot-map" not in names:
        return "begun"
    loop = Loop(ring, ring.clock)
    found = loop.run_task(read_slot_map(loop.files, DIRECTORY))
    assert found is not None
    if found.stored.state is MapState.WHOLE:
        return "made"
    with pytest.raises(StorageError, match="core directories are being made, which was cut short: use the version"):
        layout(ring)
    return "making"


@pytest.mark.parametrize("stop", range(1, 30, stride(3)))
def test_a_making_that_was_cut_short_is_completed_for_the_cores_it_was_begun_for(stop: int) -> None:
    ring = of_one_core(clean=True)
    assert stopped(ring, 2, stop)
    ring = ring.next_life(power_cut=False)
    begun = "slot-map" in ring.list_directory(DIRECTORY)
    assert made(ring, 4).slots.cores == (2 if begun else 4)


def test_one_core_has_no_core_directories_and_none_cannot_be() -> None:
    for cores, fault in ((1, "a directory of one core has no core directories"), (0, "use 1 to 1024"), (1025, "use")):
        with pytest.raises(UsageError, match=f"^cores is {cores}: {fault}"):
            made(empty(), cores)


def test_a_directory_of_another_version_is_left_as_it_is() -> None:
    ring = of_one_core(clean=True)
    for text in (b'{"format":9,"cores":1}', b"{", b'{"format":1,"cores":2,"core":1,"of":"00"}'):
        ring.put_file(f"{DIRECTORY}/topics.json", text)
        before = ring.disk.contents(DIRECTORY)
        loop = Loop(ring, ring.clock)
        with pytest.raises(FormatError):
            loop.run_task(make_cores(loop, DIRECTORY, 2))
        assert ring.disk.contents(DIRECTORY) == before
