"""A storm on the whole server, in simulated time: what a delivery costs is given, and it is too much."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket
from topics.engine.scheduling import scheduler
from topics.engine.state.topic import Topic

TOPICS = [f"hot{number:02}" for number in range(10)]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SimWorld:
    """A server to whose clock each delivery of a topic adds 12 ms."""
    world = SimWorld(pressure_refuse_after_ms=300)
    world.start()
    serve = scheduler._serve

    def slowly(topic: Topic) -> None:
        serve(topic)
        world.ring.clock.advance_ns(12_000_000)

    monkeypatch.setattr(scheduler, "_serve", slowly)
    return world


def seqs_of(messages: list[Any]) -> list[int]:
    return [record["$seq"] for message in messages for record in message.get("records", ())]


def test_a_storm_costs_latency_and_nothing_else(slow: SimWorld) -> None:
    """R-WS-4, 3.2, 3.3: frames of many records, commits held back, 429 at last; each reader gets all, in order."""
    world = slow
    for name in TOPICS:
        world.put(name, durability="disk", priority=900)
    world.put("low", durability="disk", priority=-100)
    readers: dict[str, WebSocket] = {}
    for name in (*TOPICS, "low"):
        readers[name] = WebSocket(world)
        readers[name].subscribe(name)
        readers[name].next()
    writers = {name: world.connect() for name in readers}
    written: Counter[str] = Counter()
    refused = throttled = 0
    for turn in range(80):
        for name, writer in writers.items():
            body = {"records": [{"data": turn}], "disable_backpressure": name == "low"}
            writer.start("POST", f"/v0/topics/{name}", body)
        for name, writer in writers.items():
            answer = writer.answer()
            if answer.status == 429:
                assert name != "low", "it opted out"
                assert answer.error["code"] == "throttled"
                assert answer.header("retry-after") == "1"
                refused += 1
            else:
                assert answer.status == 200
                written[name] += 1
                throttled += "throttle_wait_ms" in answer.json["performance"]
    assert refused, "the last step of the ladder"
    assert throttled, "the second one"
    assert world.diff("low", limit=1000)["next_from_seq"] == written["low"], "who asks waits for nobody"
    page = world.request("GET", "/v0/metrics").text
    assert 'topics_pressure_step{step="refuse"}' in page
    assert f"topics_writes_refused_total {refused}.0" in page
    world.advance_ms(5000)
    frames = 0
    for name, reader in readers.items():
        messages = []
        while not reader.silent:
            messages.append(reader.next())
        found = seqs_of(messages)
        assert found == list(range(1, written[name] + 1)), name
        frames += sum(message["op"] == "record" for message in messages)
    assert frames < sum(written.values()), "records shared frames"
    assert "topics_pressure 0.0" in world.request("GET", "/v0/metrics").text
    assert world.request("POST", f"/v0/topics/{TOPICS[0]}", {"records": [{"data": 1}]}).status == 200
    assert world.stop() == 0
