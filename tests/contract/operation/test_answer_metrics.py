"""Answers by route and status on the metrics page, and what happened to jobs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World
from tests.sim import SimRing
from topics.loop.loop import Loop
from topics.server.process_numbers import read_process

_ROW = re.compile(r'^(topics_\w+){method="(\w*)",route="([^"]*)"(?:,status="(\d+)")?} (\S+)$', re.M)


def answers(world: World) -> dict[tuple[str, str, str], int]:
    """Number of answers by method, route and status, without those to requests for metrics and readiness."""
    rows = _ROW.findall(world.request("GET", "/v0/metrics").text)
    return {
        (method, route, status): int(float(value))
        for name, method, route, status, value in rows
        if name == "topics_http_responses_total" and route not in {"/v0/metrics", "/readyz"}
    }


def timed(world: World) -> dict[str, int]:
    """Number of timed answers by route."""
    rows = _ROW.findall(world.request("GET", "/v0/metrics").text)
    return {route: int(float(value)) for name, _, route, _, value in rows if name.endswith("duration_seconds_count")}


@pytest.mark.parametrize("lane", ["auto", "off"])
def test_each_answer_is_counted_once_by_its_route_and_status(make_world: MakeWorld, lane: str) -> None:
    """R-MET-1, R-MET-2: in the lane and beside it, topics that do not exist and refusals included."""
    world = make_world(http_lane=lane)
    record: dict[str, Any] = {"records": [{"data": 1}]}
    assert [world.request("POST", "/v0/topics/a", record).status for _ in range(20)] == [201, *[200] * 19]
    assert [world.request("POST", "/v0/topics/a/diff", {"from_seq": 0}).status for _ in range(17)] == [200] * 17
    assert world.request("POST", "/v0/topics/none/diff", {"from_seq": 0}).status == 404
    assert world.request("POST", "/v0/topics/a", {"records": 1}).status == 400
    assert world.request("GET", "/nowhere").status == 404
    assert world.request("PATCH", "/v0/routers").status == 405
    assert answers(world) == {
        ("POST", "/v0/topics/:topic", "201"): 1,
        ("POST", "/v0/topics/:topic", "200"): 19,
        ("POST", "/v0/topics/:topic", "400"): 1,
        ("POST", "/v0/topics/:topic/diff", "200"): 17,
        ("POST", "/v0/topics/:topic/diff", "404"): 1,
        ("", "unknown", "404"): 1,
        ("", "unknown", "405"): 1,
    }
    assert set(timed(world)) >= {"/v0/topics/:topic", "/v0/topics/:topic/diff"}


def test_names_in_paths_make_no_rows(make_world: MakeWorld) -> None:
    """R-MET-1."""
    world = make_world()
    for number in range(50):
        world.request("GET", f"/v0/topics/no-such-{number}")
        world.request("GET", f"/no/such/{number}")
    assert answers(world) == {("GET", "/v0/topics/:topic", "404"): 50, ("", "unknown", "404"): 50}


def test_jobs_are_counted_by_what_happened_to_them(world: World) -> None:
    """12.3."""
    world.put("jobs", type="queue", max_deliveries=1, dead_letter="dead")
    world.write("jobs", 1, 2, 3)
    world.request("POST", "/v0/topics/jobs/claim", {"node": "n", "max": 3})
    world.request("POST", "/v0/topics/jobs/ack", {"node": "n", "seqs": [1]})
    world.request("POST", "/v0/topics/jobs/nack", {"node": "n", "seqs": [2, 3]})
    assert world.request("POST", "/v0/topics/jobs/claim", {"node": "n", "max": 3}).json["count"] == 0
    world.request("DELETE", "/v0/topics/jobs")
    text = world.request("GET", "/v0/metrics").text
    found = dict(re.findall(r"^topics_queue_(\w+)_total (\S+)$", text, re.M))
    assert found == {"claimed": "3.0", "acked": "1.0", "nacked": "2.0", "dead_lettered": "2.0"}


def test_the_numbers_of_the_process_are_those_of_procfs() -> None:
    """R-MET-3: read through the ring; none where there is no procfs."""
    ring = SimRing(1)
    loop = Loop(ring, ring.clock)
    assert loop.run_task(read_process(loop)) is None
    numbers = " ".join(str(number) for number in range(3, 53))
    ring.put_file("/proc/self/stat", f"7 (a ) b) S {numbers}".encode())
    ring.put_file("/proc/self/fd", b"12345")
    process = loop.run_task(read_process(loop))
    assert process is not None
    # utime and stime are the 14th and 15th of proc(5), vsize the 23rd, rss the 24th
    assert (process.cpu_seconds, process.virtual_bytes, process.open_fds) == ((13 + 14) / 100, 22, 5)
    assert process.resident_bytes == 23 * 4096
