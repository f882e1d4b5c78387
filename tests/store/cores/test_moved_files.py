"""Files that go to another core are there after a power cut, whatever an earlier process has left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.sim import SimRing
from topics.loop.loop import Loop
from topics.store.cores.moved_files import HandOver
from topics.store.disk.whole_files import replace_file
from topics.store.layouts.directory_names import COLD
from topics.store.segments.tiers import Tiers

TOPIC = "topics/0000000000000005"
SEGMENT: Any = SimpleNamespace(tier=COLD, path=f"{TOPIC}/seg-00000000000000000001.data")


def core(number: int) -> Any:
    added: list[Any] = []
    manifest = SimpleNamespace(segments={5: [SEGMENT]}, packs={}, runs={}, add_segment=added.append)
    return SimpleNamespace(tiers=Tiers(f"/data/core-0{number}", f"/cold/core-0{number}"), manifest=manifest)


def test_directories_that_a_killed_process_has_made_are_synced_before_a_segment_in_them_counts() -> None:
    ring = SimRing(1)
    loop = Loop(ring, ring.clock)
    files = loop.files
    for path in ("/cold", "/cold/core-00", "/cold/core-01", "/cold/core-01/topics", f"/cold/core-01/{TOPIC}"):
        files.make_directory(path)
        loop.run_task(files.sync_directory(path.rpartition("/")[0] or "/"))
    loop.run_task(replace_file(files, f"/cold/core-01/{SEGMENT.path}", b"records"))
    for path in ("/cold/core-00/topics", f"/cold/core-00/{TOPIC}"):
        files.make_directory(path)
    ring = ring.next_life(power_cut=False)
    loop = Loop(ring, ring.clock)
    hand_over = HandOver(loop, [core(0), core(1)])
    loop.run_task(hand_over.give(1, {5: 0}))
    loop.run_task(hand_over.sync())
    ring = ring.next_life(power_cut=True)
    assert ring.disk.contents("/cold")[f"/cold/core-00/{SEGMENT.path}"] == b"records"
