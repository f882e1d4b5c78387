"""A directory of one core with records, on a simulated disk, and its cores once it has several."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.sim import SimRing, SimStoppedError
from tests.store.fake_catalog import FakeCatalog
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.config import Config
from topics.loop import Loop
from topics.store.cores.core_directories import CoreDirectories, read_cores
from topics.store.cores.make_cores import make_cores
from topics.store.disk.data_directory import LockedDirectory, lock_directory
from topics.store.store import Store


def of_one_core(*, clean: bool, seed: int = 0) -> SimRing:
    """A directory with a segment, a pack and records in the log, closed or killed."""
    world = StoreWorld(SimRing(seed), seed=seed).open()
    for topic_id in (1, 2, 3):
        world.create(topic_id)
    world.append(1, 40)
    world.append(2, 2)
    world.checkpoint()
    world.append(1, 5)
    world.append(3, 3)
    if clean:
        world.close()
    return world.end(power_cut=False)


def made(ring: SimRing, cores: int) -> CoreDirectories:
    loop = Loop(ring, ring.clock)
    return loop.run_task(make_cores(loop, DIRECTORY, cores))


def stopped(ring: SimRing, cores: int, effect: int) -> bool:
    """Make cores until an operation has taken effect. Return whether it was cut short."""
    ring.stop_at(ring.effects + effect)
    try:
        made(ring, cores)
    except SimStoppedError:
        return True
    ring.stop_at(1 << 62)
    return False


def layout(ring: SimRing) -> CoreDirectories | None:
    loop = Loop(ring, ring.clock)
    return loop.run_task(read_cores(loop.files, DIRECTORY))


def locked(ring: SimRing, config: Config, core: int) -> LockedDirectory:
    """Lock the directory of a core. Those of a new map have the numbers from 1 on."""
    return lock_directory(ring, config, core=core, number=core + 1)


def topics_in(ring: SimRing, path: str, core: int) -> dict[int, list[int]]:
    """Open the directory of a core; return the seqs of each topic that it has."""
    loop, catalog = Loop(ring, ring.clock), FakeCatalog()
    config = replace(small_config(), data_dir=path)
    store = loop.run_task(Store.open(loop, config, catalog, directory=locked(ring, config, core)))
    found = {topic_id: sorted(topic.rows) for topic_id, topic in catalog.topics.items()}
    loop.run_task(store.close())
    return found


def raised(ring: SimRing, path: str, core: int, number: int) -> None:
    """Open the directory of a core, and raise its format."""
    loop = Loop(ring, ring.clock)
    config = replace(small_config(), data_dir=path)
    store = loop.run_task(Store.open(loop, config, FakeCatalog(), directory=locked(ring, config, core)))
    loop.run_task(store.format.raise_to(number))
    loop.run_task(store.close())


def marker_of(ring: SimRing, path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(ring.file_bytes(f"{path}/topics.json"))
    return found
