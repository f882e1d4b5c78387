"""The counts of features on the metrics page: routers, queues, streams, sessions, in both of its forms."""

from __future__ import annotations

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World

STREAM = {"Accept": "text/event-stream"}
NAMES = ("routers", "queue_topics", "queue_leases_in_flight", "sse_connections", "watch_sessions", "topics")


def numbers(world: World) -> dict[str, int]:
    """Both forms say the same."""
    shown = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
    text = world.request("GET", "/v0/metrics").text
    for name in NAMES:
        assert f"\ntopics_{name} {shown[name]}.0\n" in f"\n{text}", name
    return {name: shown[name] for name in NAMES}


def test_gauges_follow_what_exists(world: World) -> None:
    """12.3: up when it comes, down when it ends."""
    assert numbers(world) == dict.fromkeys(NAMES, 0)
    world.put("jobs", type="queue")
    world.write("jobs", 1, 2, 3)
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    claimed = world.request("POST", "/v0/topics/jobs/claim", {"node": "n", "max": 2})
    assert claimed.json["count"] == 2
    wid = world.request("POST", "/v0/watch", {"topics": {"a": {}}}).json["wid"]
    watch = world.ask("GET", f"/v0/watch/{wid}", headers=STREAM)
    work = world.ask("GET", "/v0/topics/jobs/work?node=w", headers=STREAM)
    world.settle()
    assert numbers(world) == {
        "routers": 1,
        "queue_topics": 1,
        "queue_leases_in_flight": 3,
        "sse_connections": 2,
        "watch_sessions": 1,
        "topics": 3,
    }
    text = world.request("GET", "/v0/metrics").text
    assert '\ntopics_topic_queue_ready{topic="jobs"} 0.0\n' in text
    assert '\ntopics_topic_queue_in_flight{topic="jobs"} 3.0\n' in text
    assert 'topics_topic_queue_ready{topic="a"}' not in text
    watch.reset()
    work.reset()
    world.request("DELETE", "/v0/routers/r")
    world.request("POST", "/v0/topics/jobs/ack", {"node": "n", "seqs": [1, 2]})
    assert numbers(world) == {
        "routers": 0,
        "queue_topics": 1,
        "queue_leases_in_flight": 0,
        "sse_connections": 0,
        "watch_sessions": 1,
        "topics": 3,
    }


def test_streams_of_a_key_count_for_its_cap_until_they_end(make_world: MakeWorld) -> None:
    """R-SSE-5, 14, R-LIM-1: TOPICS_MAX_SSE_CONNECTIONS_PER_KEY, by the session's key; in flight they are not."""
    world = make_world(api_keys="k,o", max_sse_connections_per_key=1, max_inflight_per_key=1)
    auth = {"Authorization": "Bearer k"}
    world.request("PUT", "/v0/topics/jobs", {"type": "queue"}, auth)
    wid = world.request("POST", "/v0/watch", {"topics": {"jobs": {}}}, auth).json["wid"]
    stream = world.ask("GET", f"/v0/watch/{wid}", headers=auth | STREAM)
    world.settle()
    path = "/v0/topics/jobs/work?node=w"
    refused = world.request("GET", path, headers=auth | STREAM)
    assert refused.refusal == (429, "throttled", None)
    assert refused.header("retry-after") == "1"
    other = world.ask("GET", path, headers={"Authorization": "Bearer o"} | STREAM)
    world.settle()
    assert other.receive().startswith(b"HTTP/1.1 200")
    stream.reset()
    again = world.ask("GET", f"{path}&token=k", headers=STREAM)
    world.settle()
    assert again.receive().startswith(b"HTTP/1.1 200")
    assert world.request("GET", "/v0/topics", headers=auth).status == 200


@pytest.mark.http1
def test_all_streams_together_have_a_cap(make_world: MakeWorld) -> None:
    """R-SSE-5, 14: TOPICS_MAX_SSE_CONNECTIONS."""
    world = make_world(max_sse_connections=1)
    world.put("jobs", type="queue")
    wid = world.request("POST", "/v0/watch", {"topics": {"jobs": {}}}).json["wid"]
    stream = world.ask("GET", f"/v0/watch/{wid}", headers=STREAM)
    world.settle()
    assert world.request("GET", "/v0/topics/jobs/work?node=w", headers=STREAM).status == 429
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert world.request("GET", "/v0/ws", headers=handshake).status == 429
    stream.reset()
    assert world.ask("GET", "/v0/ws", headers=handshake).send(b"").receive().startswith(b"HTTP/1.1 101")


def test_limits_of_claims_and_watches_are_settings(make_world: MakeWorld) -> None:
    """14: TOPICS_MAX_CLAIM, TOPICS_MAX_WATCH_TOPICS, TOPICS_MAX_WATCH_SESSIONS, TOPICS_MAX_ROUTERS."""
    world = make_world(max_claim=2, max_watch_topics=2, max_watch_sessions=1, max_routers=1)
    world.put("jobs", type="queue")
    world.write("jobs", *range(5))
    assert world.request("POST", "/v0/topics/jobs/claim", {"node": "n", "max": 10}).json["count"] == 2
    three = world.request("POST", "/v0/watch?lenient=true", {"topics": {"jobs": {}, "x": {}, "y": {}}})
    assert three.status == 400
    assert world.request("POST", "/v0/watch", {"topics": {"jobs": {}}}).status == 200
    full = world.request("POST", "/v0/watch", {"topics": {"jobs": {}}})
    assert full.refusal == (429, "throttled", {"limit": "max_watch_sessions", "max": 1})
    assert world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}).status == 201
    assert world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}).status == 200
    more = world.request("PUT", "/v0/routers/s", {"source": "a", "dest": "c"})
    assert more.refusal == (429, "throttled", {"limit": "max_routers", "max": 1})
    assert world.request("GET", "/v0/topics/c").status == 404
