"""What a reading of loop, protocols and deliveries found, each as the scenario it is: readers that stay."""

from __future__ import annotations

import pytest

from tests.contract.sim_world import SimWorld
from tests.contract.websocket import WebSocket
from tests.sim.core import LATENCY_NS
from tests.ws.client import text

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_an_ack_comes_before_its_records_when_deliveries_have_waited_for_another_ack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-WS-2: writes committed together are readable together, before the last of them is acknowledged."""
    world = SimWorld(commit_in_place_max_us=0, commit="link")
    world.start()
    world.put("slow", durability="fsync")
    world.put("fast", durability="ephemeral")
    socket = WebSocket(world)
    socket.subscribe("slow")
    assert socket.next()["op"] == "caught_up"
    monkeypatch.setitem(LATENCY_NS, "sync", 5_000_000)
    world.ask("POST", "/v0/topics/slow", {"records": [{"data": "of another"}]})
    world.advance_ms(1)
    own = [{"data": "own"}]
    socket.send(b"".join(text({"op": "publish", "topic": name, "records": own}) for name in ("slow", "fast", "slow")))
    told = [socket.next() for _ in range(5)]
    assert [message["op"] for message in told] == ["ack", "ack", "ack", "record", "caught_up"]
    assert [record["$seq"] for record in told[3]["records"]] == [1, 2, 3]
