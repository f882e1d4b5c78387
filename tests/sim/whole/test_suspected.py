"""What readers of the code suspected, each as the scenario it is: it was mended, or it is shown here to hold."""

from __future__ import annotations

import pytest

from tests.contract.sim_world import SimWorld
from tests.sim.core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_MS = 1_000_000


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


def test_a_record_deleted_while_a_router_reads_it_and_then_passed_by_an_eviction_is_not_forwarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-9: the step that read it is planned again."""
    world = SimWorld(checkpoint_wal_bytes=1, hot_tail_bytes=0)
    world.start()
    world.put("a", cap_records=3)
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "d"})
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.advance_ms(_CHECKPOINT_MS)
    assert world.data("d") == ["full"]
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "read", 500 * _MS)
        world.put("d")
        world.advance_ms(200)
        assert world.request("POST", "/v0/topics/a/delete", {"match": "gone"}).status == 200
        world.write("a", 4, 5, 6)
    world.advance_ms(1000)
    assert world.data("d") == ["full", 4, 5, 6]
