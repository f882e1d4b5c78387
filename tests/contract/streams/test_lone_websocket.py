"""The contract's tests of WebSockets, with a publish in a pass by itself committed by the call that receives it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.streams import test_filtered_streams, test_prefixes, test_websocket
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket

pytestmark = pytest.mark.http1


@pytest.fixture
def variant() -> dict[str, Any]:
    return {"one_sender_passes": 0, "http_lane": "auto"}


def test_publishes_of_a_client_by_itself_do_form_a_streak(world: SimWorld) -> None:
    """R-WS-1: so the tests of this module are about it."""
    world.put("t")
    client = WebSocket(world)
    for number in range(9):
        assert client.ask({"op": "publish", "topic": "t", "records": [{"data": number}]})["first_seq"] == number + 1
    assert world.data("t") == list(range(9))
    assert world.server is not None
    host = world.server._websockets._host
    assert host is not None
    assert host.lone is not None
    assert host.lone.taken >= 6


for _module in (test_websocket, test_filtered_streams, test_prefixes):
    for _name, _test in list(vars(_module).items()):
        if _name.startswith("test_"):
            globals()[f"{_name}_of_a_client_by_itself"] = _test
