"""A directory of one core with all that topics can have, and what is found of it once it has several cores."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.engine.harness import Answer, records
from tests.engine.queue.queue_calls import claim
from tests.engine.read.reader_calls_of import Readers
from tests.engine.real_world import RealWorld
from tests.sim import SimRing, SimStoppedError
from topics.config import Config
from topics.engine.moves.set_cores import set_cores
from topics.engine.shared.topic_snapshot import TopicsSnapshot
from topics.engine.state.producer_part import Part
from topics.engine.state.router import RouterConfig
from topics.engine.state.topic import STAGING
from topics.loop import Loop
from topics.store.cores.core_directories import CoreDirectories, core_config, read_cores
from topics.store.cores.slots import slot_of

DATA = "data"
TOPICS = 6
Found = dict[str, Any]
"""By topic, all that is known of it."""


def twin_of(name: str, cores: int = 6) -> str:
    """Return a name that has the slot of another one, whatever the cores."""
    return next(other for number in range(1 << 20) if slot_of(other := f"{name}x{number}") == slot_of(name))


TWIN = twin_of("t0")


def of_one_core(*, seed: int = 0, is_killed: bool = False, **config: Any) -> RealWorld:
    """Return a world that has ended, with records in segments, in packs and in the log."""
    world = RealWorld(seed, wal_spare_files=0, **config)
    fill(world)
    end(world, is_killed=is_killed)
    return world


def fill(world: RealWorld) -> None:
    for number in range(TOPICS):
        name = f"t{number}"
        world.put(name, durability="fsync" if number % 2 else "disk", cap_records=0 if number else 150)
        world.append(*range(110 if number < 2 else number), name=name, tag="even")
        world.append(1, name=name, key=b"key")
        world.start_append(records(7, 8), name, identity=Part(b"producer", 1, number))
        world.settle()
    world.put("t1", ttl_ms=1 << 40)
    world.real_loop.run_task(world.real_store.format.raise_to(2))
    readers = Readers(world)
    for name in ("t0", "t3"):
        readers.put(topic=name)
        readers.commit(readers.page(topic=name, limit=2).token, topic=name)
    world.put("q", type="queue", leases_durable=True, lease_ms=1 << 30)
    world.append(1, 2, 3, 4, name="q")
    assert claim(world, 2) == [1, 2]
    world.put(TWIN)
    route(world, "r", "t0", TWIN)
    world.checkpoint()
    for number in range(TOPICS):
        world.append(*range(5), name=f"t{number}", tag="odd")
    world.delete(before_seq=3, name="t2")
    world.delete(match="odd", name="t4")
    world.put("gone")
    world.delete_topic("gone")
    world.checkpoint()
    world.delete(match="even", name="t3")
    world.append(6, name="t5")


def route(world: RealWorld, name: str, source: str, dest: str) -> None:
    made = Answer()
    world.engine.put_router(name, RouterConfig(source, dest), lambda _name: True, made)
    world.until(lambda: made.given)
    made.get()


def end(world: RealWorld, *, is_killed: bool = False) -> None:
    if not is_killed:
        world.engine.begin_shutdown()
        world.real_loop.run_task(world.real_store.close())
    world.ring = world.ring.next_life(power_cut=False)


def moved(ring: SimRing, config: Config, cores: int) -> CoreDirectories | None:
    loop = Loop(ring, ring.clock)
    return loop.run_task(set_cores(loop, config, cores))


def is_stopped(ring: SimRing, config: Config, cores: int, effect: int) -> bool:
    """Give the directory so many cores until an operation has taken effect; return whether it was cut short."""
    ring.stop_at(ring.effects + effect)
    try:
        moved(ring, config, cores)
    except SimStoppedError:
        return True
    ring.stop_at(1 << 62)
    return False


def found_in(ring: SimRing, config: Config) -> tuple[Found, SimRing]:
    """Start each core and stop it; return all topics, which are each on the core of their slot, and only there."""
    loop = Loop(ring, ring.clock)
    cores = loop.run_task(read_cores(loop.files, DATA))
    found: Found = {}
    if cores is None:
        world = RealWorld(ring=ring, **settings_of(config))
        found = contents(world)
        end(world)
        return found, world.ring
    for core in range(cores.slots.cores):
        settings = settings_of(core_config(config, core))
        world = RealWorld(ring=ring, core=core, number=cores.number_of(core), **settings)
        some = contents(world)
        assert not some.keys() & found.keys(), "a topic is on two cores"
        assert {cores.slots.core_of(name) for name in some} <= {core}
        found |= some
        end(world)
        ring = world.ring
    return found, ring


def settings_of(config: Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def copy_of(ring: SimRing) -> SimRing:
    """Return a machine with a copy of a disk."""
    return SimRing(ring.seed, disk=ring.disk.copy(), life=ring.life)


def _plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def contents(world: RealWorld) -> Found:
    """Return all that a snapshot states of each topic, and its records."""
    image = msgspec.json.decode(b"".join(map(bytes, world.catalog.checkpoints.snapshot())), type=TopicsSnapshot)
    names = {topic.id: topic.name for topic in image.topics if topic.name != STAGING}
    found: Found = {name: {} for name in names.values()}
    for topic in image.topics:
        if topic.name != STAGING:
            found[topic.name]["image"] = _plain(topic)
    for block in image.plain:
        for row, name in enumerate(block.names):
            names[block.ids[row]] = name
            columns = [block.ids, block.orders, block.heads, block.last_ts, block.generations]
            incarnation = block.incarnations[16 * row : 16 * row + 16]
            config = bytes(block.configs[block.config[row]])
            found[name] = {"plain": (*(column[row] for column in columns), incarnation, config)}
    for kind in ("keys", "producers", "readers"):
        for topic_id, rows in getattr(image, kind):
            found[names[topic_id]].setdefault(kind, []).extend(_plain(rows))
    for router in image.routers:
        found[names[router.dest]].setdefault("routers", []).append(_plain(router))
    for name, topic in found.items():
        if name != "q":
            diff = world.diff(0, name)
            topic["records"] = (bytes(diff.records), diff.tombstone)
    return found
