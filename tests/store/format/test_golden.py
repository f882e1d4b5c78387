"""Directories of released formats open for ever, and hold what they held."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim import SimRing
from tests.store.golden.make import CONFIG, expected
from tests.store.store_world import DIRECTORY, StoreWorld
from topics.loop import Loop
from topics.store.repair.verify_directory import verify

GOLDEN = Path(__file__).parent.parent / "golden"


def lay_down(version: str) -> SimRing:
    ring = SimRing(9)
    for path in sorted((GOLDEN / version).rglob("*")):
        if path.is_file():
            ring.put_file(f"{DIRECTORY}/{path.relative_to(GOLDEN / version)}", path.read_bytes())
    return ring


@pytest.mark.parametrize("version", ["v1"])
def test_a_directory_of_an_earlier_release_opens_and_goes_on(version: str) -> None:
    ring = lay_down(version)
    loop = Loop(ring, ring.clock)
    assert loop.run_task(verify(loop, DIRECTORY)).findings == []
    world = StoreWorld(ring, config=CONFIG).open()
    wanted = json.loads((GOLDEN / f"{version}-expected.json").read_text())
    assert json.loads(json.dumps(expected(world))) == wanted
    assert world.catalog.keys == {(1, b"a key"): (46, 3)}
    world.append(1, 5)
    world.checkpoint()
    assert len(world.next_life(power_cut=True).topic(1).rows) == len(wanted["orders"]["records"]) + 5
