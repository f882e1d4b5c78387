"""Ids of topics: given out once, also by core directories whose topics come from others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.fake_store import FakeLoop, small_config
from tests.engine.real_world import RealWorld
from tests.sim import SimRing
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_registry import Registry
from topics.loop import Loop
from topics.store.cores.make_cores import make_cores

FOREIGN = 3 << 48


def registry_of(number: int) -> Registry:
    return StoredState(FakeLoop(), small_config(), number).registry


def test_a_directory_of_one_core_gives_out_ids_from_1() -> None:
    registry = registry_of(0)
    assert [registry.take_id(), registry.take_id()] == [1, 2]
    registry.note_id(FOREIGN + 7)
    assert registry.take_id() == FOREIGN + 8, "it had several cores before"


def test_a_core_directory_gives_out_ids_with_its_number() -> None:
    registry = registry_of(2)
    for other in (9, (1 << 48) + 5, FOREIGN, FOREIGN + 5):
        registry.note_id(other)
    assert registry.take_id() == (2 << 48) + 1
    registry.note_id((2 << 48) + 6)
    assert registry.take_id() == (2 << 48) + 7
    registry_of(65535).note_id((1 << 64) - 1)


def cores_of(world: RealWorld, cores: int) -> list[dict[str, Any]]:
    """Make core directories of the closed directory of a world; return how each is opened."""
    ring = closed(world)
    loop = Loop(ring, ring.clock)
    made = loop.run_task(make_cores(loop, "data", cores))
    return [
        {"data_dir": made.path_of(core), "core": core, "number": made.number_of(core)}
        for core in range(made.slots.cores)
    ]


def closed(world: RealWorld, *, is_killed: bool = False) -> SimRing:
    if not is_killed:
        world.engine.begin_shutdown()
        world.real_loop.run_task(world.real_store.close())
    world.ring = world.ring.next_life(power_cut=False)
    return world.ring


def id_of(world: RealWorld, name: str) -> int:
    topic = world.stored.registry.named(name)
    assert topic is not None
    return topic.id


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_no_two_cores_give_out_the_same_id_over_restarts(is_killed: bool) -> None:
    """And core 0, which has ids of the time with one core, keeps those topics."""
    world = RealWorld()
    world.put("old")
    world.append(1, name="old")
    places = cores_of(world, 2)
    ring, ids = world.ring, []
    for life in range(3):
        for core, place in enumerate(places):
            world = RealWorld(ring=ring, **place)
            for name in ("a", "b"):
                world.put(f"{name}{life}")
                world.append(life, name=f"{name}{life}")
                ids.append(id_of(world, f"{name}{life}"))
                assert ids[-1] >> 48 == core + 1
            world.delete_topic(f"b{life}")
            if life == 1:
                world.checkpoint()
            assert [world.seqs(name=f"a{each}") for each in range(life + 1)] == [[1]] * (life + 1)
            if core == 0:
                assert (id_of(world, "old"), world.seqs(name="old")) == (1, [1])
            ring = closed(world, is_killed=is_killed)
    assert len(set(ids)) == len(ids) == 12


def test_a_snapshot_has_topics_with_higher_and_lower_ids_of_other_directories() -> None:
    """They were there when it began, whatever their ids; a topic that is made meanwhile is in the log."""
    world = RealWorld(ring=None)
    places = cores_of(world, 2)
    world = RealWorld(ring=world.ring, **places[1])
    registry = world.stored.registry
    for name, topic_id in (("lower", 7), ("own", (2 << 48) + 4), ("higher", FOREIGN + 1)):
        registry.last_id = topic_id - 1
        world.put(name)
    registry.last_id = (2 << 48) + 4
    preparing = world.catalog.checkpoints.prepare_snapshot(1)
    next(preparing)
    world.put("later")
    for _ in preparing:
        pass
    image = b"".join(bytes(piece) for piece in world.catalog.checkpoints.snapshot())
    assert [b'"%b"' % name in image for name in (b"lower", b"own", b"higher", b"later")] == [True, True, True, False]
