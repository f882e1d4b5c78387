"""Watch streams on real sockets: what a simulated network cannot vouch for."""

from __future__ import annotations

from tests.contract.world.live_world import LiveWorld
from tests.contract.world.sse_client import EventStream, session
from tests.contract.world.world import seqs


def test_stalled_streams_on_real_sockets_give_everything_back(executed_world: LiveWorld) -> None:
    """R-SSE-6, R-NET-11: others continue while some read nothing; what is held for those is bounded, and given back."""
    world = executed_world
    world.start()
    world.put("t", durability="memory")
    paths = [session(world, "t") for _ in range(6)]
    before = world.sockets()
    stalled = [EventStream(world, path) for path in paths[1:]]
    for stream in stalled:
        stream.frames(1)
    writer, lively = world.connect(), EventStream(world, paths[0])
    lively.frames(1)
    rss_bytes = world.rss_bytes()
    for number in range(1, 41):
        writer.start("POST", "/v0/topics/t", {"records": [{"data": [number, "x" * 250_000]}]})
        assert seqs(lively.frames(2)[0].data) == [number]
        assert writer.answer().status == 200
    assert world.rss_bytes() - rss_bytes < 64 << 20
    delivered: list[int] = []
    while not delivered or delivered[-1] < 40:
        delivered += [seq for frame in stalled[0].frames(1) if frame.event == "record" for seq in seqs(frame.data)]
    assert delivered == list(range(1, 41))
    for stream in stalled:
        stream.leave()
    world.wait_for(lambda: world.sockets() <= before + 2, 5000)
    assert world.sockets() <= before + 2
    metrics = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
    assert metrics["sse_connections"] == 1
