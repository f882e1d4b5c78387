"""Slots move between any numbers of cores, over any crash, and no topic is lost, changed, or there twice."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from tests.amount import stride
from tests.engine.harness import records
from tests.engine.real_world import RealWorld
from tests.engine.routers.far_cores import LinkedCores
from tests.sim import SimRing
from tests.store.cores.moves_world import (
    DATA,
    TOPICS,
    Found,
    copy_of,
    end,
    found_in,
    is_stopped,
    moved,
    of_one_core,
    route,
    settings_of,
    twin_of,
)
from topics.config import Config
from topics.engine.routers.far_messages import LinkState, Order, Replied
from topics.engine.state.control_frames import JobsMove
from topics.engine.state.producer_part import Part
from topics.errors import CorruptError, StorageError, UsageError
from topics.loop import Loop
from topics.store.cores.core_directories import CoreDirectories, core_config, read_cores
from topics.store.cores.make_cores import make_cores
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import MapState, read_slot_map

MOVES = [(1, 2), (2, 3), (3, 2), (2, 1)]


@lru_cache(maxsize=16)
def closed(cores: int, *, is_cold: bool = False) -> tuple[SimRing, Config, Found]:
    """Return a directory of so many cores that has ended, its settings, and all its topics. It is copied before use."""
    world = with_cold_directory() if is_cold else of_one_core()
    if cores > 1:
        moved(world.ring, world.config, cores)
    found, ring = found_in(world.ring, world.config)
    ring.disk.sync_everything()
    return ring, world.config, found


def layout_of(ring: SimRing) -> CoreDirectories | None:
    loop = Loop(ring, ring.clock)
    return loop.run_task(read_cores(loop.files, DATA))


def state_of(ring: SimRing) -> MapState | None:
    loop = Loop(ring, ring.clock)
    found = loop.run_task(read_slot_map(loop.files, DATA))
    return None if found is None else found.stored.state


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_all_that_topics_have_comes_along(is_killed: bool) -> None:
    """To more cores, to fewer, and back to one, which any build opens."""
    world = of_one_core(is_killed=is_killed)
    ring, config = world.ring, world.config
    names = set(ring.list_directory(DATA))
    wanted, _ring = found_in(copy_of(ring), config)
    assert {f"t{number}" for number in range(TOPICS)} <= wanted.keys()
    assert {"keys", "producers", "readers", "routers", "records"} <= {
        kind for topic in wanted.values() for kind in topic
    }
    for cores in (2, 3, 5, 2, 1, 4, 1):
        layout = moved(ring, config, cores)
        assert (layout is None) == (cores == 1)
        if layout is not None:
            assert (layout.slots.cores, layout.damage, layout.stored.state) == (cores, [], MapState.WHOLE)
            assert max(layout.slots.counts()) - min(layout.slots.counts()) <= 1
        found, ring = found_in(ring, config)
        assert found == wanted, cores
    assert set(ring.list_directory(DATA)) <= names | {"session", "packs"}
    assert b'"cores":1}' in ring.file_bytes(f"{DATA}/topics.json")


def test_a_move_is_over_and_moves_nothing_the_second_time() -> None:
    ring, config, wanted = closed(3)
    ring = copy_of(ring)
    before = ring.disk.contents(DATA)
    assert moved(ring, config, 3) == layout_of(ring)
    assert ring.disk.contents(DATA) == before
    assert found_in(ring, config)[0] == wanted


def first_effect_of_move(ring: SimRing, config: Config, cores: int) -> tuple[int, int]:
    """Return how many operations have taken effect when the map is written first, and in all."""
    begun: list[int] = []

    def look(_kind: str, path: str) -> None:
        if path.startswith(f"{DATA}/") and path.endswith("slot-map.tmp"):
            begun.append(ring.effects)

    ring.faults.on_seen = look
    moved(ring, config, cores)
    return begun[0], ring.effects


@pytest.mark.parametrize("is_cold", [False, True], ids=["hot", "cold"])
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_crash_after_any_operation_leaves_all_topics_where_one_core_finds_them(
    before: int, after: int, power_cut: bool, is_cold: bool
) -> None:
    """And another one in the next attempt; then the move is completed, or taken back."""
    base, config, wanted = closed(before, is_cold=is_cold)
    _begun, effects = first_effect_of_move(copy_of(base), config, after)
    assert effects > 100
    states = set()
    last_steps = range(effects - 30 if after == 1 else effects, effects)
    for effect in (*range(1 + before, effects, stride(40 if is_cold else 10)), *last_steps):
        ring = copy_of(base)
        assert is_stopped(ring, config, after, effect)
        ring = ring.next_life(power_cut=power_cut)
        states.add(state_of(ring))
        if is_stopped(ring, config, after, 1 + 37 * effect % effects):
            ring = ring.next_life(power_cut=power_cut)
            states.add(state_of(ring))
        cores = before if effect % 3 == 0 else after
        moved(ring, config, cores)
        layout = layout_of(ring)
        assert (1 if layout is None else layout.slots.cores) == cores
        found, ring = found_in(ring, config)
        assert found == wanted, f"cut after operation {effect}"
    assert is_cold or states >= {MapState.MOVING, MapState.MOVED}


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_disk_that_is_full_from_any_write_on_loses_nothing(before: int, after: int) -> None:
    """The move ends with the error, or the rest needs no space; with space it is completed, or taken back."""
    base, config, wanted = closed(before)
    ring = copy_of(base)
    moved(ring, config, after)
    writes, refusals, states = ring.faults.seen["write"], 0, set()
    for write in range(1, writes + 1, stride(1)):
        ring = copy_of(base)
        for kind in ("write", "link", "make_directory"):
            ring.faults.fail(kind, errno.ENOSPC, nth=write if kind == "write" else 1 + write // 2, times=1 << 30)
        try:
            moved(ring, config, after)
        except (OSError, StorageError):
            refusals += 1
        ring = copy_of(ring.next_life(power_cut=write % 3 == 0))
        states.add(state_of(ring))
        moved(ring, config, before if write % 2 else after)
        assert found_in(ring, config)[0] == wanted, write
    assert refusals > writes // stride(1) // 2
    assert MapState.MOVING in states


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_segments_are_copied_where_files_cannot_have_two_names(before: int, after: int) -> None:
    base, config, wanted = closed(before)
    ring = copy_of(base)
    ring.faults.fail("link", errno.EXDEV, times=1 << 30)
    moved(ring, config, after)
    assert ring.faults.struck["link"] or (before, after) == (2, 3)
    assert found_in(ring, config)[0] == wanted


def test_cores_give_out_ids_that_no_topic_has_over_moves() -> None:
    ring, config, _wanted = closed(2)
    ring, ids = copy_of(ring), set[int]()
    for life, cores in enumerate((2, 3, 1, 2, 1)):
        layout = moved(ring, config, cores)
        for core in range(cores):
            place: dict[str, Any] = settings_of(config)
            if layout is not None:
                place = {**settings_of(core_config(config, core)), "core": core, "number": layout.number_of(core)}
            world = RealWorld(ring=ring, **place)
            name = next(f"n{n}" for n in range(99) if layout is None or layout.slots.core_of(f"n{n}") == core)
            world.put(f"{name}")
            topic = world.stored.registry.named(name)
            assert topic is not None
            assert topic.id not in ids, (life, core)
            ids.add(topic.id)
            world.delete_topic(name)
            end(world)
            ring = world.ring


# --- the cold directory -----------------------------------------------------------------------------------------------


def with_cold_directory(codec: str = "none") -> RealWorld:
    """Return a world that has ended, with a segment of each topic in the cold directory."""
    world = RealWorld(
        cold_dir="cold",
        segment_codec=codec,
        segment_max_age_ms=1,
        hot_retain_ms=1,
        hot_retain_segments=0,
        wal_spare_files=0,
    )
    for number in range(TOPICS):
        world.put(f"t{number}")
        world.append(*range(120), name=f"t{number}", meta="x" * 200)
    world.checkpoint()
    world.advance_ms(10_000)
    world.checkpoint()
    end(world)
    return world


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("has_links", [True, False])
def test_segments_in_the_cold_directory_stay_in_those_of_their_cores(codec: str, has_links: bool) -> None:
    world = with_cold_directory(codec)
    ring, config = world.ring, world.config
    wanted, ring = found_in(ring, config)
    assert len(ring.list_directory("cold/topics")) == TOPICS
    if not has_links:
        ring.faults.fail("link", errno.EPERM, times=1 << 30)
    for cores in (2, 3, 1):
        moved(ring, config, cores)
        found, ring = found_in(ring, config)
        assert found == wanted
        if cores > 1:
            assert ring.list_directory("cold") == [f"core-0{core}" for core in range(cores)]
            with pytest.raises(StorageError, match="has segments in a cold directory: set cold_dir"):
                moved(copy_of(ring), replace(config, cold_dir=""), 1)
    assert len(ring.list_directory("cold/topics")) == TOPICS
    assert "core-00" not in ring.list_directory("cold")


def test_a_queue_and_its_dead_letters_may_come_to_two_cores_which_older_builds_refuse() -> None:
    """R-CORE-15: with jobs on their way."""
    world, name, far = of_two_slots()
    queue = twin_of(name)
    world.put(queue, type="queue", dead_letter=far)
    world.append("job", name=queue)
    move = JobsMove("00000000000000aa", 7, 99, far, [1, 1])
    leases = world.stored.registry.by_name[queue].queue
    assert leases is not None
    leases.move = move
    end(world)
    ring = world.ring
    for cores in (2, 3, 1):
        layout = moved(ring, world.config, cores)
        slots = layout.slots if layout is not None else None
        config = world.config if slots is None else core_config(world.config, slots.core_of(queue))
        markers = [DATA] if slots is None else [f"{DATA}/core-{core:02}" for core in range(cores)]
        assert all(b'"format":5' in ring.file_bytes(f"{each}/topics.json") for each in markers)
        place: dict[str, Any] = settings_of(config)
        if layout is not None:
            core = layout.slots.core_of(queue)
            place |= {"core": core, "number": layout.number_of(core)}
        one = RealWorld(ring=copy_of(ring), **place)
        leases = one.stored.registry.by_name[queue].queue
        assert leases is not None
        assert (leases.move, [job.seq for job in leases.moving_jobs()]) == (move, [1])


# --- what cannot move -------------------------------------------------------------------------------------------------


def far_from(name: str, slots: Any) -> str:
    return next(f"f{n}" for n in range(999) if slots.core_of(f"f{n}") != slots.core_of(name))


def refused(world: RealWorld, sentence: str) -> None:
    """Two cores are refused, with the sentence; and one has everything, before and after."""
    end(world)
    ring, config = world.ring, world.config
    wanted, _ring = found_in(copy_of(ring), config)
    with pytest.raises(UsageError, match=sentence):
        moved(ring, config, 2)
    ring = ring.next_life(power_cut=True)
    moved(ring, config, 1)
    assert found_in(ring, config)[0] == wanted
    assert "slot-map" not in ring.list_directory(DATA)


def of_two_slots() -> tuple[RealWorld, str, str]:
    """Return a world, and two topics that two cores would share."""
    world = of_one_core()
    slots = moved(copy_of(world.ring), world.config, 2)
    assert slots is not None
    world = RealWorld(ring=world.ring, **settings_of(world.config))
    far = far_from("t1", slots.slots)
    world.put(far)
    return world, "t1", far


def test_a_router_between_two_cores_is_refused() -> None:
    world, source, dest = of_two_slots()
    route(world, "away", source, dest)
    refused(world, rf"^router away copies from {source} to {dest}, which would be on cores \d and \d, and a move")


def test_so_is_a_topic_with_a_part_that_waits_for_pieces() -> None:
    world, name, far = of_two_slots()
    for topic in (name, far, twin_of(name), twin_of(far)):
        world.start_append(records(1), topic, identity=Part(b"p", 9, 9, 0, False, b"a"))
        world.settle()
    refused(
        world, r"^topic \w+ would be on core 1, and a part of producer p waits for its last pieces on core 0: start"
    )


def with_routers(*names: str) -> tuple[SimRing, Config, list[tuple[str, str]]]:
    """Return a directory of two cores with a router each, whose ids are equal; and the ends of both."""
    base, config, _wanted = closed(2)
    ring, ends = copy_of(base), []
    layout = layout_of(ring)
    assert layout is not None
    for core, name in enumerate(names):
        place = {**settings_of(core_config(config, core)), "core": core, "number": layout.number_of(core)}
        world = RealWorld(ring=ring, **place)
        source = next(f"s{n}" for n in range(99) if layout.slots.core_of(f"s{n}") == core)
        ends.append((source, twin_of(source)))
        for topic in ends[-1]:
            world.put(topic)
        world.stored.registry.last_order = 1 << 20
        route(world, name, *ends[-1])
        assert world.stored.routers.by_name[name].id == (1 << 20) + 1
        end(world)
        ring = world.ring
    return ring, config, ends


def test_routers_of_several_cores_get_different_ids_on_one() -> None:
    """A router's id is an order number of its core, so two cores may have given out the same one."""
    ring, config, ends = with_routers("own", "other")
    moved(ring, config, 1)
    world = RealWorld(ring=ring, **settings_of(config))
    assert len(world.stored.routers.by_id) == len(world.stored.routers.by_name) == 3
    for source, dest in ends:
        world.append(source, name=source)
        assert world.seqs(name=dest) == [1]


class Linked(LinkedCores):
    """Another core, which makes each link."""

    def __init__(self, slots: SlotMap) -> None:
        super().__init__(0)
        self.core_of = slots.core_of  # type: ignore[assignment]

    def ask(self, _topic: str, _order: Order, done: Replied) -> None:
        done(LinkState(1, 0, 0))


def test_a_router_between_cores_stays_as_it_is_or_the_move_is_refused() -> None:
    """R-CORE-11."""
    base, config, _wanted = closed(2)
    ring, layout = copy_of(base), layout_of(base)
    assert layout is not None
    of_two, of_three = layout.slots, layout.slots.moved_to(3)
    names = [f"s{n}" for n in range(99)]
    source, dest = (
        next(name for name in names if of_two.core_of(name) == of_three.core_of(name) == core) for core in range(2)
    )
    place = {**settings_of(core_config(config, 0)), "core": 0, "number": layout.number_of(0)}
    world = RealWorld(ring=ring, joined=Linked(of_two), **place)
    world.put(source)
    route(world, "away", source, dest)
    end(world)
    with pytest.raises(UsageError, match=f"^router away copies between {source} and {dest}, on cores 0 and 1, which"):
        moved(world.ring, config, 1)
    assert state_of(world.ring) is MapState.WHOLE
    moved(world.ring, config, 3)
    world = RealWorld(ring=world.ring, **place)
    assert [router.dest.name for router in world.stored.routers.by_name.values() if router.token] == [dest]


def test_two_routers_with_one_name_stay_on_their_cores() -> None:
    ring, config, _ends = with_routers("same", "same")
    with pytest.raises(
        UsageError, match="^two routers are named same, and both would be on core 0: delete one of them"
    ):
        moved(ring, config, 1)
    assert state_of(ring) is MapState.WHOLE


def test_a_core_directory_with_files_of_others_is_not_removed() -> None:
    base, config, wanted = closed(3)
    ring = copy_of(base)
    ring.put_file(f"{DATA}/core-02/set-aside-1/x", b"x")
    with pytest.raises(StorageError, match="^data/core-02/set-aside-1: the directory of core 2 is to be removed, and"):
        moved(ring, config, 2)
    ring = ring.next_life(power_cut=False)
    ring.disk.rename(f"{DATA}/core-02/set-aside-1", "elsewhere")
    moved(ring, config, 2)
    assert found_in(ring, config)[0] == wanted


def test_sockets_of_its_process_are_removed_with_a_core_directory() -> None:
    base, config, wanted = closed(3)
    ring = copy_of(base)
    for core in range(3):
        for name in ("mailbox", "reports"):
            ring.put_file(f"{DATA}/core-{core:02}/{name}", b"")
    names = set(copy_of(closed(1)[0]).list_directory(DATA))
    for cores in (2, 1):
        moved(ring, config, cores)
    assert found_in(ring, config)[0] == wanted
    assert set(ring.list_directory(DATA)) <= names | {"session", "packs"}


def test_a_topic_on_a_core_that_does_not_own_its_slot_is_refused() -> None:
    base, config, _wanted = closed(2)
    ring = copy_of(base)
    layout = layout_of(ring)
    assert layout is not None
    world = RealWorld(ring=ring, **{**settings_of(core_config(config, 0)), "core": 0, "number": layout.number_of(0)})
    stray = next(f"s{n}" for n in range(99) if layout.slots.core_of(f"s{n}") == 1)
    world.put(stray)
    end(world)
    before = {path: data for path, data in world.ring.disk.contents(DATA).items() if "slot-map" in path}
    with pytest.raises(CorruptError, match=f"^topic {stray} is on core 0, and core 1 owns its slot"):
        moved(world.ring, config, 3)
    assert before.items() <= world.ring.disk.contents(DATA).items()


# --- states -----------------------------------------------------------------------------------------------------------


def test_a_directory_whose_slots_are_being_moved_is_opened_by_nothing() -> None:
    base, config, _wanted = closed(2)
    begun, _effects = first_effect_of_move(copy_of(base), config, 3)
    ring = copy_of(base)
    assert is_stopped(ring, config, 3, begun + 20)
    ring = ring.next_life(power_cut=False)
    assert state_of(ring) is MapState.MOVING
    with pytest.raises(StorageError, match="^data: slots are being moved between cores, which was cut short: use the"):
        layout_of(ring)


def test_a_move_that_was_cut_short_is_taken_back_by_a_start_with_the_cores_before() -> None:
    base, config, _wanted = closed(2)
    begun, _effects = first_effect_of_move(copy_of(base), config, 3)
    before = files_of(base)
    ring = copy_of(base)
    is_stopped(ring, config, 3, begun + 60)
    ring = ring.next_life(power_cut=False)
    assert state_of(ring) is MapState.MOVING
    assert files_of(ring) - before
    moved(ring, config, 2)
    assert files_of(ring) <= before
    assert "core-02" not in ring.list_directory(DATA)


def files_of(ring: SimRing) -> set[str]:
    """Return the paths of segments, packs and next snapshots."""
    return {path for path in ring.disk.contents(DATA) if any(part in path for part in ("/seg-", "/pack-", "/next-"))}


def test_a_making_of_which_only_the_marker_was_written_is_taken_back() -> None:
    base, config, wanted = closed(1)
    ring = copy_of(base)
    ring.put_file(f"{DATA}/topics.json", b'{"format":2,"cores":2,"of":"00"}')
    assert moved(ring, config, 1) is None
    assert found_in(ring, config)[0] == wanted


def test_core_directories_without_any_map_are_left_as_they_are() -> None:
    base, config, _wanted = closed(2)
    ring = copy_of(base)
    for name in ("slot-map", "snapshots/snapshot-0000000000000001"):
        ring.disk.unlink(f"{DATA}/{name}")
    before = ring.disk.contents(DATA)
    for cores in (1, 2, 3):
        with pytest.raises(StorageError, match="^data: core-00 is there, and both files of the slot map are missing"):
            moved(ring, config, cores)
    loop = Loop(ring, ring.clock)
    with pytest.raises(StorageError, match="both files of the slot map are missing"):
        loop.run_task(make_cores(loop, DATA, 2))
    assert ring.disk.contents(DATA) == before


def test_there_cannot_be_no_core_or_more_than_slots() -> None:
    base, config, _wanted = closed(1)
    for cores in (0, 1025):
        with pytest.raises(UsageError, match=f"^cores is {cores}: use 1 to 1024"):
            moved(copy_of(base), config, cores)
