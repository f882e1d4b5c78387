"""Writes the golden directory of format 1: python -m tests.store.golden.make DIRECTORY

A killed server's directory: sealed and unsealed segments with deleted records, a pack, a snapshot, and a log after it
with records of two classes, a key, tags, nodes left out, and every control the store knows about.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.sim.world.sim_disk import SimDirectory
from tests.sim.world.sim_file import SimFile
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.store.format.log_format import FrameType

CONFIG = small_config(segment_max_events=20, pack_run_bytes=2048)


def fill(world: StoreWorld) -> None:
    world.open()
    for topic_id, name in ((1, "orders"), (2, "clicks"), (3, "gone"), (4, "späti")):
        world.create(topic_id, name)
        world.configure(topic_id, f"config of {name}")
    world.append(1, 45, size=90, tag=b"t1")
    world.append(2, 3, tag=b"t2")
    world.append(3, 2)
    world.append(4, 1)
    world.checkpoint()
    world.delete(1, [4, 44])
    world.delete(2, [2])
    world.evict(1, 2)
    world.drop(3)
    world.checkpoint()
    world.control(4, FrameType.HEAD_RESERVATION, 0, {"upto": 64})
    world.append(1, 3, key=b"a key", tag=b"t1")
    world.append(4, 2, fsync=False)
    world.append(2, 1, tag=b"t3")
    world.delete(1, [46])
    world.create(5, "late")


def expected(world: StoreWorld) -> dict[str, Any]:
    """Topic name -> what must be found."""
    return {
        topic.name: {
            "id": topic.topic_id,
            "config": topic.config,
            "head": topic.head,
            "floor": topic.floor,
            "records": {
                str(seq): [world.read(topic.topic_id, seq).data.decode(), row.ts, row.tag and row.tag.decode()]
                for seq, row in sorted(topic.rows.items())
            },
        }
        for topic in sorted(world.catalog.topics.values(), key=lambda topic: topic.topic_id)
    }


def dump(node: SimDirectory, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for name, child in node.live.items():
        if isinstance(child, SimFile):
            (to / name).write_bytes(bytes(child.live))
        else:
            dump(child, to / name)


def new_target() -> Path:
    """Return the directory that the command line names."""
    target = Path(sys.argv[1])
    assert not target.exists(), "a golden directory is not written again"
    return target


def write_expected(target: Path, found: dict[str, Any]) -> None:
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
    (target.parent / f"{target.name}-expected.json").write_text(f"{text}\n")


def main() -> None:
    target = new_target()
    world = StoreWorld(seed=1, config=CONFIG)
    fill(world)
    found = world.ring.disk.find(DIRECTORY)
    assert isinstance(found, SimDirectory)
    dump(found, target)
    for extra in ("lock", "reserve"):
        (target / extra).unlink(missing_ok=True)
    write_expected(target, expected(world))
    world.end(power_cut=False)


if __name__ == "__main__":
    main()
