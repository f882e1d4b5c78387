"""Health, readiness and the numbers."""

from __future__ import annotations

import re

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World

GAUGES = [
    "topics_topics", "topics_topics_by_class", "topics_routers", "topics_records_live", "topics_bytes_live",
    "topics_topic_head_seq", "topics_topic_earliest_seq", "topics_topic_records_live", "topics_topic_bytes_live",
    "topics_topic_queue_ready", "topics_topic_queue_in_flight", "topics_topic_metrics_truncated",
    "topics_queue_topics", "topics_queue_leases_in_flight", "topics_sse_connections", "topics_watch_sessions",
    "topics_producers", "topics_producer_parts", "topics_staged_bytes",
    "topics_ready", "topics_recovery_progress", "topics_wal_queue_depth", "topics_wal_queue_depth_peak",
    "topics_wal_read_only",
]  # fmt: skip
COUNTERS = [
    "topics_uptime_ms", "topics_wal_frames_total", "topics_wal_batches_total", "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total", "topics_wal_rotations_total", "topics_wal_submit_full_total",
]  # fmt: skip
JSON_KEYS = {
    "topics", "topics_ephemeral", "topics_memory", "topics_disk", "topics_fsync", "routers", "records_live",
    "bytes_live", "queue_topics", "queue_leases_in_flight", "sse_connections", "watch_sessions", "ready",
    "replay_progress", "uptime_ms", "wal",
}  # fmt: skip
WAL_KEYS = {
    "fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth", "queue_depth_peak",
    "submit_full_total", "read_only", "fsync_count", "fsync_micros_total",
}  # fmt: skip
SAMPLE = re.compile(r'([a-z_]+)(\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')


def samples(world: World) -> dict[str, float]:
    """Each line of the text form: name and labels to value."""
    found = {}
    for line in world.request("GET", "/v0/metrics").text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1] + (match[2] or "")] = float(match[4])
    return found


@pytest.mark.parametrize("path", ["/healthz", "/v0/health"])
def test_health_is_that_the_process_answers(world: World, path: str) -> None:
    """12.1: status, version, and a growing uptime."""
    first = world.request("GET", path)
    assert first.status == 200
    assert set(first.json) == {"status", "version", "uptime_ms"}
    assert first.json["status"] == "ok"
    assert isinstance(first.json["version"], str)
    assert first.json["version"]
    world.advance_ms(1234)
    assert 1234 <= world.request("GET", path).json["uptime_ms"] - first.json["uptime_ms"] <= 1300


@pytest.mark.parametrize("path", ["/readyz", "/v0/ready"])
def test_readiness_is_that_requests_are_served(world: World, path: str) -> None:
    """12.2: with the number of topics."""
    world.put("a")
    world.put("b")
    answer = world.request("GET", path)
    assert (answer.status, answer.json) == (200, {"status": "ready", "wal_replay_complete": True, "topics": 2})


def test_metrics_come_in_two_forms(world: World) -> None:
    """12.3: text unless JSON is named in Accept."""
    text = world.request("GET", "/v0/metrics")
    assert (text.status, text.header("content-type")) == (200, "text/plain; version=0.0.4")
    for accept in ("application/json", "text/html, application/json;q=0.5"):
        answer = world.request("GET", "/v0/metrics", headers={"Accept": accept})
        assert (answer.status, answer.header("content-type")) == (200, "application/json")
    for accept in ("*/*", "text/plain", "application/xml"):
        answer = world.request("GET", "/v0/metrics", headers={"Accept": accept})
        assert answer.header("content-type") == "text/plain; version=0.0.4"


def test_every_family_is_there_with_help_and_type(world: World) -> None:
    """12.3: both lines before the first sample, each family in one block."""
    world.put("q", type="queue", durability="fsync")
    world.write("q", 1)
    lines = world.request("GET", "/v0/metrics").text.splitlines()
    for kind, names in (("gauge", GAUGES), ("counter", COUNTERS), ("histogram", ["topics_wal_fsync_latency_us"])):
        for name in names:
            assert lines.count(f"# TYPE {name} {kind}") == 1, name
            at = lines.index(f"# TYPE {name} {kind}")
            assert any(line.startswith(f"# HELP {name} ") for line in (lines[at - 1], lines[at + 1]))
            of_family = [n for n, line in enumerate(lines) if re.match(rf"{name}(_bucket|_sum|_count)?[ {{]", line)]
            assert of_family, f"{name} has no sample"
            assert of_family == list(range(of_family[0], of_family[0] + len(of_family)))
            assert of_family[0] > at


def test_gauges_tell_the_state(make_world: MakeWorld) -> None:
    """12.3: of all topics and of each."""
    world = make_world()
    for durability in ("ephemeral", "memory", "disk", "fsync", "disk"):
        world.put(f"{durability}{world.request('GET', '/readyz').json['topics']}", durability=durability)
    world.put("q", type="queue")
    world.write("q", "ab", "cd")
    world.write("disk2", 1, 2, 3)
    world.delete("disk2", before_seq=3)
    found = samples(world)
    expected = {
        "topics_topics": 6, "topics_routers": 0, "topics_records_live": 3, "topics_bytes_live": 9,
        'topics_topics_by_class{class="ephemeral"}': 1, 'topics_topics_by_class{class="memory"}': 1,
        'topics_topics_by_class{class="disk"}': 3, 'topics_topics_by_class{class="fsync"}': 1,
        'topics_topic_head_seq{topic="disk2"}': 3, 'topics_topic_earliest_seq{topic="disk2"}': 3,
        'topics_topic_records_live{topic="disk2"}': 1, 'topics_topic_bytes_live{topic="disk2"}': 1,
        'topics_topic_queue_ready{topic="q"}': 2, 'topics_topic_queue_in_flight{topic="q"}': 0,
        "topics_topic_metrics_truncated": 0, "topics_queue_topics": 1, "topics_queue_leases_in_flight": 0,
        "topics_sse_connections": 0, "topics_watch_sessions": 0, "topics_ready": 1, "topics_recovery_progress": 1,
        "topics_wal_queue_depth": 0, "topics_wal_read_only": 0, "topics_wal_submit_full_total": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert 'topics_topic_queue_ready{topic="disk2"}' not in found


def test_a_server_without_topics_shows_all_four_classes(world: World) -> None:
    """12.3: as zeros."""
    found = samples(world)
    for name in ("ephemeral", "memory", "disk", "fsync"):
        assert found[f'topics_topics_by_class{{class="{name}"}}'] == 0


def test_counters_count_what_the_log_did(world: World) -> None:
    """12.3: frames by record and control operation, syncs with their histogram."""
    world.put("t", durability="fsync")
    before = samples(world)
    world.write("t", 1, 2, 3)
    world.write("t", 4)
    after = samples(world)
    assert after["topics_wal_frames_total"] - before["topics_wal_frames_total"] in (4, 5), "a reservation may be one"
    assert after["topics_wal_batches_total"] - before["topics_wal_batches_total"] == 2
    assert after["topics_wal_fsyncs_total"] - before["topics_wal_fsyncs_total"] == 2
    assert after["topics_wal_bytes_written_total"] > before["topics_wal_bytes_written_total"]
    assert after["topics_uptime_ms"] >= before["topics_uptime_ms"]
    assert after["topics_wal_queue_depth_peak"] >= 1
    world.diff("t")
    world.state("t")
    assert samples(world)["topics_wal_frames_total"] == after["topics_wal_frames_total"]


def test_the_histogram_of_syncs_is_cumulative(world: World) -> None:
    """12.3: with the ten buckets, and a count that is the number of syncs."""
    world.put("t", durability="fsync")
    for number in range(5):
        world.write("t", number)
    found = samples(world)
    bounds = ["50", "100", "250", "500", "1000", "5000", "10000", "50000", "100000", "+Inf"]
    name = "topics_wal_fsync_latency_us"
    buckets = [found[f'{name}_bucket{{le="{bound}"}}'] for bound in bounds]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found[f"{name}_count"] == found["topics_wal_fsyncs_total"] >= 6
    assert found[f"{name}_sum"] > 0


def test_the_json_form_has_the_same_numbers(world: World) -> None:
    """12.3: at least these keys."""
    world.put("t", durability="fsync")
    world.write("t", "x")
    found = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
    assert set(found) >= JSON_KEYS
    assert set(found["wal"]) >= WAL_KEYS
    text = samples(world)
    assert (found["topics"], found["topics_fsync"], found["topics_disk"]) == (1, 1, 0)
    assert (found["records_live"], found["bytes_live"], found["ready"], found["replay_progress"]) == (1, 3, True, 1)
    assert found["wal"]["fsyncs"] == found["wal"]["fsync_count"] == text["topics_wal_fsyncs_total"]
    assert found["wal"]["frames"] == text["topics_wal_frames_total"]


def test_more_than_a_thousand_topics_are_not_all_shown(world: World) -> None:
    """12.3: the page stays a page, and says so."""
    connection = world.connect()
    for number in range(1001):
        connection.start("PUT", f"/v0/topics/t{number:04d}", {"durability": "ephemeral"})
    for _ in range(1001):
        assert connection.answer().status == 201
    found = samples(world)
    assert (found["topics_topics"], found["topics_topic_metrics_truncated"]) == (1001, 1)
    assert sum(name.startswith("topics_topic_head_seq") for name in found) == 1000
