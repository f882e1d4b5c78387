"""The check that a rebuild without a snapshot finds what a stop leaves, by itself."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim.whole.machine import Machine, Wrong
from tests.sim.whole.rebuilt import rebuild_without_snapshots
from tests.sim.whole.scenarios.routed import route
from tests.sim.world.ring_core import LATENCY_NS


class _Killed:
    """A machine as the check uses it, after a kill."""

    def __init__(self, world: SimWorld) -> None:
        self.ring, self.config, self.counts = world.ring, world.config, Counter[str]()

    def crash(self, *, power_cut: bool) -> None:
        self.ring = self.ring.next_life(power_cut=power_cut)

    def wrong(self, text: str) -> Wrong:
        return Wrong(text)


def test_routers_that_lag_are_driven_to_their_end_before_the_log_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-LIFE-7. A copy that is made beside the last checkpoint is only in the log, and no rebuild looks there."""
    world = SimWorld()
    world.start()
    for name in "abc":
        world.put(name)
    for source, dest in ("ab", "bc"):
        route(world, source, dest, source + dest)
    world.write("a", 1)  # acknowledged, and not yet forwarded
    world.crash()
    monkeypatch.setitem(LATENCY_NS, "write", 50_000_000)
    machine = _Killed(world)
    rebuild_without_snapshots(cast(Machine, machine))
    assert machine.counts["rebuilds without a snapshot"] == 1
