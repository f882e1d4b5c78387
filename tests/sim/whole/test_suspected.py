"""What readers of the code suspected, each as the scenario it is: it was mended, or it is shown here to hold."""

from __future__ import annotations

import pytest

from tests.contract.sim_world import SimWorld
from tests.sim.core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_wait_whose_time_is_over_while_a_router_is_held_up_is_answered_once_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-WAIT-5, R-WAIT-4, R-RTR-4: it shows no less than a wait without time, which waits for the router, too."""
    world = SimWorld()
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    world.write("a", 1)
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "write", 400_000_000)
        slowly.setitem(LATENCY_NS, "sync", 400_000_000)
        asked = world.ask("POST", "/v0/wait", {"topics": {"b": 0}, "wait_ms": 100})
        world.advance_ms(200)
        assert asked.waiting
        assert asked.answer(within_ms=1000).json["topics"]["b"]["head_seq"] == 1
