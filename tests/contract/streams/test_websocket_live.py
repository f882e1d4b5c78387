"""WebSockets on real sockets: what a simulated network cannot vouch for."""

from __future__ import annotations

from tests.contract.world.live_world import LiveWorld
from tests.contract.world.websocket_client import WebSocket


def test_stalled_websockets_on_real_sockets_give_everything_back(executed_world: LiveWorld) -> None:
    """R-WS-3, 11.6: others continue while some read nothing; what is held for those is bounded, and given back."""
    world = executed_world
    world.start()
    world.put("t", durability="memory")
    talker = WebSocket(world)
    talker.subscribe("t")
    talker.next()
    before = world.sockets()
    stalled = [WebSocket(world) for _ in range(12)]
    for socket in stalled:
        socket.subscribe("t")
        socket.next()
    rss_bytes = world.rss_bytes()
    for number in range(1, 33):
        talker.say({"op": "publish", "topic": "t", "records": [{"data": [number, "x" * 250_000]}]})
        assert [message["op"] for message in talker.take(3)] == ["ack", "record", "caught_up"]
    for socket in stalled:
        socket.say({"op": "ping"})
    assert world.rss_bytes() - rss_bytes < 64 << 20, "12 readers with 8 MB unread would be 96"
    seqs: list[int] = []
    while not seqs or seqs[-1] < 32:
        seqs += [record["$seq"] for record in stalled[0].next().get("records", ())]
    assert seqs == list(range(1, 33))
    for socket in stalled:
        socket.connection.reset()
    world.wait_for(lambda: world.sockets() <= before, 5000)
    assert world.sockets() <= before
    metrics = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
    assert metrics["sse_connections"] == 1
    assert talker.ask({"op": "ping"})["op"] == "pong"
