"""Watch streams on real sockets: what a simulated network cannot vouch for."""

from __future__ import annotations

import os
from pathlib import Path

from tests.contract.live_world import LiveWorld
from tests.contract.sse_client import EventStream, session
from tests.contract.world import seqs


def test_stalled_streams_on_real_sockets_give_everything_back(live_world: LiveWorld) -> None:
    """R-SSE-6, R-NET-11: others go on while some read nothing; what is held for those is bounded, and given back."""
    world = live_world
    world.start()
    world.put("t", durability="memory")
    process = world.process
    assert process is not None
    paths = [session(world, "t") for _ in range(6)]
    before = _sockets(process.pid)
    stalled = [EventStream(world, path) for path in paths[1:]]
    for stream in stalled:
        stream.frames(1)
    writer, lively = world.connect(), EventStream(world, paths[0])
    lively.frames(1)
    rss_bytes = _rss_bytes(process.pid)
    for number in range(1, 41):
        writer.start("POST", "/v0/topics/t", {"records": [{"data": [number, "x" * 250_000]}]})
        assert seqs(lively.frames(2)[0].data) == [number]
        assert writer.answer().status == 200
    assert _rss_bytes(process.pid) - rss_bytes < 64 << 20
    delivered: list[int] = []
    while not delivered or delivered[-1] < 40:
        delivered += [seq for frame in stalled[0].frames(1) if frame.event == "record" for seq in seqs(frame.data)]
    assert delivered == list(range(1, 41))
    for stream in stalled:
        stream.leave()
    world.wait_until(lambda: _sockets(process.pid) <= before + 2, 5000)
    assert _sockets(process.pid) <= before + 2
    metrics = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
    assert metrics["sse_connections"] == 1


def _sockets(pid: int) -> int:
    return sum(os.readlink(link).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir())


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
