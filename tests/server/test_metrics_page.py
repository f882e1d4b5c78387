"""The metrics page: every family the contract names, in both forms, in every state."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.server_world import MS, World
from topics.engine.stored_engine import LogStats
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import QueueState, TopicState
from topics.engine.values.topic_config import DEFAULT, read_config

DESCRIBED = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
FAMILIES = {
    "topics_topics": "gauge",
    "topics_topics_by_class": "gauge",
    "topics_routers": "gauge",
    "topics_records_live": "gauge",
    "topics_bytes_live": "gauge",
    "topics_topic_head_seq": "gauge",
    "topics_topic_earliest_seq": "gauge",
    "topics_topic_records_live": "gauge",
    "topics_topic_bytes_live": "gauge",
    "topics_topic_queue_ready": "gauge",
    "topics_topic_queue_in_flight": "gauge",
    "topics_topic_queue_moving": "gauge",
    "topics_topic_metrics_truncated": "gauge",
    "topics_queue_topics": "gauge",
    "topics_queue_leases_in_flight": "gauge",
    "topics_producers": "gauge",
    "topics_producer_parts": "gauge",
    "topics_staged_bytes": "gauge",
    "topics_sse_connections": "gauge",
    "topics_watch_sessions": "gauge",
    "topics_ready": "gauge",
    "topics_recovery_progress": "gauge",
    "topics_uptime_ms": "counter",
    "topics_wal_frames_total": "counter",
    "topics_wal_batches_total": "counter",
    "topics_wal_fsyncs_total": "counter",
    "topics_wal_bytes_written_total": "counter",
    "topics_wal_rotations_total": "counter",
    "topics_wal_queue_depth": "gauge",
    "topics_wal_queue_depth_peak": "gauge",
    "topics_wal_submit_full_total": "counter",
    "topics_wal_read_only": "gauge",
    "topics_wal_fsync_latency_us": "histogram",
    "topics_records_appended_total": "counter",
    "topics_bytes_appended_total": "counter",
    "topics_wal_unsynced_bytes": "gauge",
    "topics_seals_total": "counter",
    "topics_sealed_bytes": "histogram",
    "topics_checksum_failures_total": "counter",
    "topics_recovery_ms": "gauge",
    "topics_recovery_frames": "gauge",
    "topics_recovery_cut_bytes": "gauge",
}
OTHERWISE_IN_SECONDS = {"topics_uptime": "process_start_time", "topics_wal_fsync_latency": "topics_stage"}
"""Times in ms or us, and the family that has them in seconds by another name; of a sync: its stage."""
OF_PROCFS = {
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_virtual_memory_bytes": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
}
"""Families that the simulated server does not show."""


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_the_guide_names_a_family_of_the_page_for_each_number_of_stats() -> None:
    """One number has none: calls of the library that have no answer yet."""
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "embedded.md").read_text(encoding="utf-8")
    table = guide[guide.index("| `stats()` | in a server |") :].split("\n\n", 1)[0]
    rows = re.findall(r"^\| (`.*) \| (.*) \|$", table, re.MULTILINE)
    named = {name for numbers, _families in rows for name in re.findall(r"`(\w+)`", numbers)}
    assert set(LogStats._fields) <= named
    world = World().start()
    shown = re.findall(r"^# TYPE (\S+) ", world.connect().get("/v0/metrics").body.decode(), re.MULTILINE)
    families = {name for _numbers, told in rows for name in re.findall(r"`(topics_\w+)`", told)}
    assert families
    assert families <= set(shown)


def test_every_family_has_help_and_type() -> None:
    """12.3."""
    world = World().start()
    text = world.connect().get("/v0/metrics").body.decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert FAMILIES.items() <= types.items()
    assert set(types) <= set(re.findall(r"^# HELP (\S+) ", text, re.MULTILINE))
    assert len(types) == text.count("# TYPE ")


def test_every_time_is_there_in_seconds_too() -> None:
    types = re.findall(r"^# TYPE (\S+) ", World().start().connect().get("/v0/metrics").body.decode(), re.MULTILINE)
    times = {name.rpartition("_")[0] for name in types if name.endswith(("_ms", "_us"))}
    assert len(times) > 6
    assert {f"{OTHERWISE_IN_SECONDS.get(name, name)}_seconds" for name in times} <= set(types)


def test_the_page_of_metrics_describes_every_family_with_its_type_and_labels() -> None:
    """docs/metrics.md: no family is missing, and none is invented; its alarms name families."""
    world = World().start()
    world.backend.engine.states = [TopicState("a", read_config(b'{"type":"queue"}'), 1, 1, 1, 3, 0, None, None, None)]
    text = world.connect().get("/v0/metrics").body.decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    described = dict(re.findall(r"^\| `(\w+)(?:{[\w,]+})?` \| (gauge|counter|histogram) \|", DESCRIBED, re.MULTILINE))
    assert {name: kind for name, kind in described.items() if name not in OF_PROCFS} == types
    assert described.items() >= OF_PROCFS.items()
    labels = {name: set(names.split(",")) for name, names in re.findall(r"^\| `(\w+){([\w,]+)}`", DESCRIBED, re.M)}
    of_histogram = re.compile(r"_(bucket|sum|count)$")
    shown = {of_histogram.sub("", name): {key for key, _ in pairs} - {"le"} for name, pairs in samples(text)}
    assert {name: names for name, names in shown.items() if names and labels.get(name) != names} == {}
    assert set(re.findall(r"\btopics_\w+", DESCRIBED)) <= set(types)
    stages = {dict(pairs)["stage"] for name, pairs in samples(text) if name == "topics_stage_us_count"}
    assert set(re.findall(r"^\| `(\w+)` \|", DESCRIBED.partition("## Stages\n")[2], re.M)) == stages


def test_values_are_those_of_the_engine_and_the_log() -> None:
    """12.3."""
    world = World().start()
    queue = read_config(b'{"type":"queue"}')
    world.backend.engine.states = [
        TopicState('a"\\\n', DEFAULT, 9, 4, 5, 310, 500, None, None, None),
        TopicState("q", queue, 1, 1, 1, 3, 0, None, None, None),
        TopicState("topics_uptime_ms_total", DEFAULT, 7, 4, 5, 310, 500, None, None, None),
    ]
    counters = world.backend.log.counters
    counters.all_frames = 12
    counters.count_sync(60_000)
    world.backend.checkpoints.count(30, 4000, 17)
    world.backend.checkpoints.failed = 1
    world.backend.checkpoints.error = "no space"
    counters.count_sync(200_000_000)
    world.backend.checkpoints.count_seal(3_000_000, 5000)
    world.backend.recovery.cut_bytes = 77
    world.backend.checksum_failures = 4
    text = world.connect().get("/v0/metrics").body.decode()
    assert re.search("^topics_uptime_ms [0-9.]+$", text, re.MULTILINE)
    found = samples(text)
    assert found["topics_topics", ()] == 3
    assert found["topics_topics_by_class", (("class", "disk"),)] == 3
    assert found["topics_topics_by_class", (("class", "fsync"),)] == 0
    assert found["topics_topic_head_seq", (("topic", 'a"\\\n'),)] == 9
    assert found["topics_topic_bytes_live", (("topic", "q"),)] == 3
    assert found["topics_topic_head_seq", (("topic", "topics_uptime_ms_total"),)] == 7
    assert found["topics_wal_frames_total", ()] == 12
    assert found["topics_wal_fsync_latency_us_bucket", (("le", "50"),)] == 0
    assert found["topics_wal_fsync_latency_us_bucket", (("le", "100"),)] == 1
    assert found["topics_wal_fsync_latency_us_bucket", (("le", "+Inf"),)] == 2
    assert found["topics_wal_fsync_latency_us_count", ()] == found["topics_wal_fsyncs_total", ()] == 2
    assert found["topics_wal_fsync_latency_us_sum", ()] == 200_060
    assert found["topics_ready", ()] == 1
    assert found["topics_checkpoints_total", ()] == found["topics_checkpoint_failures_total", ()] == 1
    assert found["topics_checkpoint_copied_bytes_total", ()] == 4000
    assert found["topics_checkpoint_last_ms", ()] == 17
    assert found["topics_checkpoint_failing", ()] == 1
    assert found["topics_cold_failed", ()] == 0
    assert found["topics_seals_total", ()] == found["topics_sealed_bytes_count", ()] == 1
    assert found["topics_sealed_bytes_bucket", (("le", "4096"),)] == 0
    assert found["topics_sealed_bytes_bucket", (("le", "8192"),)] == 1
    assert found["topics_sealed_bytes_sum", ()] == 5000
    assert found["topics_stage_us_count", (("stage", "seal"),)] == 1
    assert found["topics_stage_us_count", (("stage", "sync"),)] == 2
    assert found["topics_recovery_cut_bytes", ()] == 77
    assert found["topics_checksum_failures_total", ()] == 4


def test_the_json_form_has_the_same_numbers() -> None:
    """12.3."""
    world = World().start()
    world.backend.log.counters.count_sync(5000)
    answer = world.connect().get("/v0/metrics", "Accept: application/json").json
    assert set(answer) == {
        "topics", "topics_ephemeral", "topics_memory", "topics_disk", "topics_fsync", "routers", "records_live",
        "bytes_live", "queue_topics", "queue_leases_in_flight", "sse_connections", "watch_sessions", "ready",
        "replay_progress", "uptime_ms", "wal",
    }  # fmt: skip
    assert set(answer["wal"]) == {
        "fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth", "queue_depth_peak",
        "submit_full_total", "read_only", "fsync_count", "fsync_micros_total",
    }  # fmt: skip
    assert answer["ready"] is True
    assert answer["wal"]["read_only"] is False
    assert answer["wal"]["fsync_micros_total"] == 5


def test_metrics_are_answered_while_recovering() -> None:
    """12.3."""
    world = World()
    world.recovered = False
    client = world.start().connect()
    world.progress(0.5)
    found = samples(client.get("/v0/metrics").body.decode())
    assert found["topics_ready", ()] == 0
    assert found["topics_recovery_progress", ()] == 0.5
    assert client.get("/v0/metrics", "Accept: application/json").json["ready"] is False


def states(count: int) -> list[TopicState]:
    return [TopicState(f"t{number:05}", DEFAULT, number, 1, 0, 0, 0, None, None, None) for number in range(count)]


@pytest.mark.parametrize(("count", "truncated"), [(0, 0), (199, 0), (200, 0), (201, 0), (1000, 0), (1001, 1)])
def test_a_thousand_topics_are_shown_and_each_family_once(count: int, truncated: int) -> None:
    """12.3."""
    world = World().start()
    world.backend.engine.states = states(count)
    text = world.connect().get("/v0/metrics").body.decode()
    heads = [value for name, value in samples(text).items() if name[0] == "topics_topic_head_seq"]
    assert sorted(heads) == list(range(min(count, 1000)))
    assert f"\ntopics_topic_metrics_truncated {truncated}.0\n" in text
    assert text.count("# TYPE topics_topic_head_seq gauge\n") == text.count("# HELP topics_topic_head_seq ") == 1


def test_a_page_is_made_in_small_pieces() -> None:
    """The rest of the loop has its turn between two of them, however many topics and queues there are."""
    world = World().start()
    engine = world.backend.engine
    engine.states = states(5000)
    asked: list[int] = []
    find = engine.topic_states

    def topic_states(after: str, within: Prefixes, limit: int) -> list[TopicState]:
        asked.append(limit)
        return find(after, within, limit)

    engine.topic_states = topic_states  # type: ignore[method-assign]
    loop = world.loop
    now = [0]
    loop.clock.monotonic_ns = lambda: now.__setitem__(0, now[0] + MS) or now[0]  # type: ignore[method-assign,func-returns-value]
    passes = loop.stats().passes
    pages: list[bytes | Exception] = []
    world.server.scrapes.text((), pages.append)
    while not pages:
        loop.run_pass(0)
    assert loop.stats().passes - passes > 10
    assert max(asked) * len(asked) <= 1400


def test_a_page_is_begun_after_it_was_asked_for_and_shared_beyond_ten_at_once() -> None:
    world = World(metrics_share_ms=100).start()
    scrapes, counters = world.server.scrapes, world.backend.log.counters

    def frames() -> list[int]:
        """Return the answers to two scrapes in one pass."""
        pages: list[bytes | Exception] = []
        for _ in range(2):
            scrapes.text((), pages.append)
        world.run_ms(1)
        assert len(pages) == 2
        return [int(samples(page.decode())["topics_wal_frames_total", ()]) for page in pages if isinstance(page, bytes)]

    for number in range(5):
        counters.all_frames = number
        assert frames() == [number, number]
    counters.all_frames = 100
    assert frames() == [4, 4], "an older page, as ten were made at once"
    world.run_ms(100)
    assert frames() == [100, 100], "which is no older than this"
    for _ in range(40):
        frames()
    counters.all_frames = 200
    world.run_ms(2000)
    assert frames() == [200, 200]
    counters.all_frames = 300
    assert frames() == [300, 300], "a flood that is over is forgotten"


def test_one_that_fails_to_be_made_is_answered_and_the_next_is_made() -> None:
    world = World().start()
    client = world.connect()
    engine = world.backend.engine
    good, engine.topic_states = engine.topic_states, None  # type: ignore[method-assign,assignment]
    assert client.get("/v0/metrics").status == 500
    engine.topic_states = good  # type: ignore[method-assign]
    assert client.get("/v0/metrics").status == 200


def test_the_page_shows_for_each_queue_how_many_jobs_are_on_their_way_to_another_core() -> None:
    world = World().start()
    queue = TopicState("q", read_config(b'{"type":"queue"}'), 9, 1, 5, 3, 0, None, None, QueueState(5, 0, 0))
    world.backend.engine.states = [TopicState("a", DEFAULT, 9, 4, 5, 310, 500, None, None, None), queue]
    world.backend.engine.moving = 4
    found = samples(world.connect().get("/v0/metrics").body.decode())
    named = {pairs: value for (name, pairs), value in found.items() if name == "topics_topic_queue_moving"}
    assert named == {(("topic", "q"),): 4}
