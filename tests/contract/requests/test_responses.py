"""The shape of answers: success, the error envelope, performance keys, list pages and their cursors."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.answer import Answer
from tests.contract.world.world import World

REQUESTS: list[tuple[str, str, Any]] = [
    ("PUT", "/v0/topics/t", {}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
    ("GET", "/v0/topics/t", {}),
    ("GET", "/v0/topics", {}),
    ("POST", "/v0/topics/t/diff", {}),
    ("POST", "/v0/topics/t/delete", {"before_seq": 1}),
    ("DELETE", "/v0/topics/t", {}),
]


def test_success_is_compact_json_with_its_length(world: World) -> None:
    """3.1: the payload is the body; no envelope, no error key, no blanks."""
    for method, path, body in REQUESTS:
        answer = world.request(method, path, body)
        assert answer.status in (200, 201)
        assert answer.header("content-type") == "application/json"
        assert answer.header("content-length") == str(len(answer.body))
        assert "error" not in answer.json
        assert b" " not in answer.body
        assert b"\n" not in answer.body


def test_201_is_for_bringing_a_topic_into_existence(world: World) -> None:
    """3.1: every other success is 200."""
    statuses = [world.request(method, path, body).status for method, path, body in REQUESTS]
    assert statuses == [201, 200, 200, 200, 200, 200, 200]
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 1}]}).status == 201


def test_a_compressed_answer_says_so(world: World) -> None:
    """3.1: only when gzip is offered with a weight above zero; small answers and others come plain."""
    world.write("t", "long " * 1000)
    plain = world.request("POST", "/v0/topics/t/diff")
    assert plain.header("content-encoding") is None
    for offer in ("gzip", "br, gzip;q=0.5", "*;q=0, gzip"):
        answer = world.request("POST", "/v0/topics/t/diff", headers={"Accept-Encoding": offer})
        if answer.header("content-encoding") is not None:
            assert answer.header("content-encoding") == "gzip"
            assert "accept-encoding" in (answer.header("vary") or "").lower()
            assert json.loads(gzip.decompress(answer.body))["records"] == plain.json["records"]
    for offer in ("gzip;q=0", "br", "identity", "gzip; q=0.0"):
        answer = world.request("POST", "/v0/topics/t/diff", headers={"Accept-Encoding": offer})
        assert answer.header("content-encoding") is None
    small = world.request("GET", "/healthz", headers={"Accept-Encoding": "gzip"})
    assert small.header("content-encoding") is None


def test_a_browser_is_told_not_to_guess_what_json_is(world: World) -> None:
    """R-NET-13: of successes, large and compressed ones among them, and of failures; others have no such field."""
    world.write("t", *["x" * 1000] * 100)
    asked = (
        ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
        ("GET", "/v0/topics/t", None),
        ("POST", "/v0/topics/t/diff", {"limit": 1000, "max_batch_bytes": 1 << 20}),
        ("POST", "/v0/topics/t/diff", {"limit": 2}),
        ("POST", "/v0/topics/absent/diff", {}),
        ("GET", "/v0/absent", None),
        ("DELETE", "/v0/health", None),
    )
    of_browsers = (
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Storage-Access": "none"},
        {"Origin": "http://evil.example"},
    )
    for headers in of_browsers:
        for method, path, body in asked:
            json_type = {"Content-Type": "application/json"} if body is not None else {}
            text = b"" if body is None else json.dumps(body).encode()
            for more in ({}, {"Accept-Encoding": "gzip"}):
                answer = world.request(method, path, text, json_type | more | headers)
                assert answer.header("x-content-type-options") == "nosniff", (method, path)
                plain = world.request(method, path, text, json_type | more)
                assert plain.header("x-content-type-options") is None


# --- errors ---------------------------------------------------------------------------------------------------------
def error_answers(world: World) -> dict[str, Answer]:
    world.put("t", cap_records=1, discard="reject")
    world.write("t", 1)
    world.put("q", type="queue")
    write = {"records": [{"data": 1}]}
    return {
        "invalid_request": world.request("POST", "/v0/topics/t", {"records": []}),
        "invalid_request name": world.request("PUT", "/v0/topics/.x"),
        "invalid_request dead_letter": world.request("PUT", "/v0/topics/x", {"dead_letter": "bad name"}),
        "batch_too_large": world.request("POST", "/v0/topics/t", {"records": [{"data": 1}] * 10_001}),
        "record_too_large": world.request("POST", "/v0/topics/t", {"records": [{"data": "x" * 1_048_575}]}),
        "record_too_large cap": world.request("POST", "/v0/topics/t", {"records": [{"data": 1}] * 2}),
        "topic_not_found": world.request("GET", "/v0/topics/none"),
        "topic_not_found write": world.request("POST", "/v0/topics/none", {**write, "create": False}),
        "topic_not_found diff": world.request("POST", "/v0/topics/none/diff", {}),
        "topic_not_found delete": world.request("POST", "/v0/topics/none/delete", {"before_seq": 1}),
        "not_found": world.request("GET", "/nowhere"),
        "method_not_allowed": world.request("BREW", "/v0/topics/t"),
        "type conflict": world.request("PUT", "/v0/topics/q", {}),
        "topic_not_empty": world.request("DELETE", "/v0/topics/t?if_empty=true"),
        "payload_too_large": world.connect()
        .send(b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n")
        .answer(),
        "unsupported_media_type": world.request("POST", "/v0/topics/t", b"{}"),
        "topic_full": world.request("POST", "/v0/topics/t", write),
    }


EXPECTED: dict[str, tuple[int, str, Any]] = {
    "invalid_request": (400, "invalid_request", None),
    "invalid_request name": (400, "invalid_request", None),
    "invalid_request dead_letter": (400, "invalid_request", {"dead_letter": "bad name"}),
    "batch_too_large": (400, "batch_too_large", None),
    "record_too_large": (400, "record_too_large", None),
    "record_too_large cap": (400, "record_too_large", None),
    "topic_not_found": (404, "topic_not_found", {"topic": "none"}),
    "topic_not_found write": (404, "topic_not_found", {"topic": "none"}),
    "topic_not_found diff": (404, "topic_not_found", {"topic": "none"}),
    "topic_not_found delete": (404, "topic_not_found", {"topic": "none"}),
    "not_found": (404, "not_found", None),
    "method_not_allowed": (405, "method_not_allowed", None),
    "type conflict": (
        409,
        "topic_exists_incompatible",
        {"topic": "q", "existing_type": "queue", "requested_type": "log"},
    ),
    "topic_not_empty": (409, "topic_not_empty", {"topic": "t", "count": 1}),
    "payload_too_large": (413, "payload_too_large", None),
    "unsupported_media_type": (415, "unsupported_media_type", None),
    "topic_full": (
        422,
        "topic_full",
        {"topic": "t", "cap_records": 1, "cap_bytes": 0, "head_seq": 1, "earliest_seq": 1},
    ),
}


def test_every_error_has_its_status_its_code_and_exactly_its_detail(world: World) -> None:
    """3.2: in the envelope and nothing beside it, as JSON with its length."""
    answers = error_answers(world)
    assert {name: answer.refusal for name, answer in answers.items()} == EXPECTED
    for answer in answers.values():
        assert answer.header("content-type") == "application/json"
        assert answer.header("content-length") == str(len(answer.body))
        assert answer.header("retry-after") is None


def test_a_head_request_fails_without_a_body(world: World) -> None:
    """3.2, 2.1: the same status and headers."""
    connection = world.connect()
    answer = connection.request("HEAD", "/v0/topics/none")
    assert (answer.status, answer.body) == (404, b"")
    assert connection.request("HEAD", "/nowhere").status == 404


def test_throttled_names_the_limit_and_when_to_retry(make_world: MakeWorld) -> None:
    """3.2: 429 for the number of topics and for the quota."""
    world = make_world(max_topics=1, max_total_bytes=10)
    world.put("t")
    topics = world.request("PUT", "/v0/topics/u")
    assert topics.refusal == (429, "throttled", {"limit": "max_topics", "max": 1})
    assert topics.header("retry-after") == "1"
    quota = world.request("POST", "/v0/topics/t", {"records": [{"data": "x" * 9}]})
    assert quota.refusal == (429, "throttled", {"limit": "max_total_bytes", "max": 10})
    assert quota.header("retry-after") == "1"


# --- performance ----------------------------------------------------------------------------------------------------
def keys(answer: dict[str, Any]) -> set[str]:
    performance = answer["performance"]
    assert all(isinstance(value, (int, float)) and value >= 0 for value in performance.values())
    return set(performance)


def test_every_answer_tells_what_it_cost(world: World) -> None:
    """3.3: one key for all, more for writes and reads."""
    assert keys(world.put("t")) == {"server_total_ms"}
    assert keys(world.write("t", 1)) == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert keys(world.state("t")) == {"server_total_ms"}
    assert keys(world.request("GET", "/v0/topics").json) == {"server_total_ms"}
    assert keys(world.diff("t")) - {"cold_segments_read"} == {"server_total_ms", "records_scanned"}
    assert keys(world.delete("t", before_seq=1)) == {"server_total_ms"}
    assert keys(world.drop("t")) == {"server_total_ms"}


def test_only_the_fsync_class_reports_a_sync(world: World) -> None:
    """3.3, 13.4: exactly zero in the others."""
    for durability in ("ephemeral", "memory", "disk"):
        world.put(durability, durability=durability)
        assert world.write(durability, 1)["performance"]["fsync_ms"] == 0.0
    world.put("fsync", durability="fsync")
    performance = world.write("fsync", 1)["performance"]
    assert performance["fsync_ms"] > 0
    assert performance["wal_append_ms"] >= 0


def test_a_deduplicated_write_reports_no_log(world: World) -> None:
    """3.3: it wrote nothing."""
    world.write("t", 1, idempotency_key="k")
    assert keys(world.write("t", 1, idempotency_key="k")) == {"server_total_ms"}


def test_scanned_records_count_the_skipped_too(world: World) -> None:
    """3.3: delivered or filtered."""
    world.write("t", 1, 2, 3, node="me")
    assert world.diff("t")["performance"]["records_scanned"] == 3
    assert world.diff("t", node="me")["performance"]["records_scanned"] == 3
    assert world.diff("t", 3)["performance"]["records_scanned"] == 0


def test_probes_and_errors_carry_no_performance(world: World) -> None:
    """3.3: nor does the metrics page."""
    for path in ("/healthz", "/readyz", "/v0/health", "/v0/ready", "/v0/topics/none"):
        assert "performance" not in world.request("GET", path).json
    assert "performance" not in world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json


# --- pages ----------------------------------------------------------------------------------------------------------
def page(world: World, query: str = "") -> tuple[list[str], str | None]:
    answer = world.request("GET", f"/v0/topics?{query}").json
    assert set(answer) <= {"topics", "next_cursor", "performance"}
    return [row["topic"] for row in answer["topics"]], answer.get("next_cursor")


def test_pages_follow_each_other_by_name(world: World) -> None:
    """3.4: byte order; a cursor only while there is more."""
    for name in ("b", "a", "B", "a:1", "a.1", "10", "9"):
        world.put(name)
    ordered = sorted(["b", "a", "B", "a:1", "a.1", "10", "9"])
    assert page(world) == (ordered, None)
    first, cursor = page(world, "page_size=4")
    assert (first, cursor is not None) == (ordered[:4], True)
    assert page(world, f"page_size=4&cursor={cursor}") == (ordered[4:], None)
    assert page(world, f"page_size=3&cursor={cursor}") == (ordered[4:], None), "an exactly full last page ends the list"


def test_a_cursor_is_url_safe_base64_of_the_last_name(world: World) -> None:
    """3.4, TV-10: without padding; both alphabets are taken, padded or not."""
    world.put("box1")
    world.put("box2")
    assert page(world, "page_size=1") == (["box1"], "eyJhZnRlciI6ImJveDEifQ")
    for cursor in ("eyJhZnRlciI6ImJveDEifQ", "eyJhZnRlciI6ImJveDEifQ==", "eyJhZnRlciI6ImJveDEifQ%3D%3D"):
        assert page(world, f"cursor={cursor}") == (["box2"], None)
    tricky = json.dumps({"after": "box1", "x": "???>>>~~~"}).encode()
    for encoded in (base64.b64encode(tricky), base64.urlsafe_b64encode(tricky)):
        escaped = encoded.decode().replace("+", "%2B").replace("/", "%2F")
        assert page(world, f"cursor={escaped}")[0] == ["box2"]


def test_a_corrupt_cursor_is_refused_and_an_odd_one_starts_over(world: World) -> None:
    """3.4: 400 for what is neither base64 nor JSON; JSON without a string means the first page."""
    world.put("t")
    for cursor in ("!!!", "a", base64.b64encode(b"{").decode(), base64.b64encode(b"\xff").decode(), "e30%00"):
        assert world.request("GET", f"/v0/topics?cursor={cursor}").refusal == (400, "invalid_request", None)
    for value in ({}, {"after": 5}, {"after": None}, [], "t", 7):
        cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
        assert page(world, f"cursor={cursor}") == (["t"], None)
    assert page(world, "cursor=") == (["t"], None)


def test_page_sizes_are_clamped(world: World) -> None:
    """3.4, 5.2: 1 to 1000, by default 100."""
    for number in range(102):
        world.put(f"t{number:03d}")
    assert len(page(world)[0]) == 100
    assert len(page(world, "page_size=0")[0]) == 1
    assert len(page(world, "page_size=5000")[0]) == 102


@pytest.mark.parametrize("gone", ["c", "d"])
def test_a_page_starts_after_a_name_whether_or_not_it_still_exists(world: World, gone: str) -> None:
    """3.4: what is created and deleted between two pages neither repeats nor hides others."""
    for name in ("a", "c", "d", "e"):
        world.put(name)
    first, cursor = page(world, "page_size=2")
    assert first == ["a", "c"]
    world.drop(gone)
    world.put("b")
    assert page(world, f"page_size=2&cursor={cursor}")[0] == [name for name in ("d", "e") if name != gone]


def test_filters_come_before_paging_and_are_resent(world: World) -> None:
    """3.4: the cursor does not remember the prefix."""
    for name in ("a1", "a2", "b1", "b2", "c1"):
        world.put(name)
    rows, cursor = page(world, "prefix=b&page_size=1")
    assert rows == ["b1"]
    assert page(world, f"prefix=b&page_size=1&cursor={cursor}") == (["b2"], None)
    assert page(world, f"cursor={cursor}") == (["b2", "c1"], None)


# --- compression ----------------------------------------------------------------------------------------------------
GZIP = {"Accept-Encoding": "gzip"}


def test_long_json_is_compressed_for_those_who_can_read_it(world: World) -> None:
    """3.1: and names it, for caches too."""
    world.write("t", *["x" * 100] * 20)
    plain = world.request("POST", "/v0/topics/t/diff", {})
    assert plain.header("content-encoding") is None
    short = world.request("GET", "/v0/topics/t", headers=GZIP)
    assert (short.header("content-encoding"), len(short.body) < 1024) == (None, True)
    packed = world.request("POST", "/v0/topics/t/diff", {}, GZIP)
    assert (packed.status, packed.header("content-encoding"), packed.header("vary")) == (200, "gzip", "Accept-Encoding")
    assert packed.header("content-type") == "application/json"
    assert int(packed.header("content-length") or 0) == len(packed.body) < len(plain.body)
    assert json.loads(gzip.decompress(packed.body))["records"] == plain.json["records"]
    refused = world.request("POST", "/v0/topics/t/diff", {}, {"Accept-Encoding": "gzip;q=0"})
    assert refused.json["records"] == plain.json["records"]


def test_a_head_shows_what_the_get_would_send(world: World) -> None:
    """2.1, 3.1: compressed lengths included."""
    for number in range(40):
        world.put(f"topic-{number}")
    got = world.request("GET", "/v0/topics", headers=GZIP)
    head = world.request("HEAD", "/v0/topics", headers=GZIP)
    assert head.header("content-encoding") == got.header("content-encoding") == "gzip"
    assert head.body == b""


def test_compression_can_be_switched_off_and_spares_the_largest(make_world: MakeWorld) -> None:
    """3.1, 14: by level, by size."""
    for settings, packed in (({"gzip_level": 0}, None), ({"gzip_max_bytes": 2000}, None), ({"gzip_level": 9}, "gzip")):
        world = make_world(**settings)
        world.write("t", *["x" * 100] * 20)
        assert world.request("POST", "/v0/topics/t/diff", {}, GZIP).header("content-encoding") == packed
        world.close()


def test_compressed_answers_keep_their_place_among_pipelined_ones(world: World) -> None:
    """R-NET-3, 3.1: on one connection."""
    world.write("t", *["x" * 100] * 20)
    connection = world.connect()
    for _ in range(3):
        connection.start("POST", "/v0/topics/t/diff", {}, GZIP).start("GET", "/v0/topics/t")
    for _ in range(3):
        assert connection.answer("POST").header("content-encoding") == "gzip"
        assert connection.answer().json["topic"] == "t"
