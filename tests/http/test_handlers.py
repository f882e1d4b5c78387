"""Requests of sections 7 and 12 to engine calls, and results to the exact JSON."""

import pytest

from tests.http.byte_stream import FakeProbes, Peer, make_service
from tests.http.fake_engine import FakeEngine
from tests.store.format.frames_by_hand import record_at
from topics.common.values.begin import Begin
from topics.engine.values.node_set import node_set
from topics.engine.values.predicate import Predicate
from topics.engine.values.results import (
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    DiffQuery,
    DiffResult,
    PutResult,
    QueueState,
    Tombstone,
    TopicPage,
    TopicState,
)
from topics.engine.values.topic_config import DEFAULT, read_config
from topics.errors import CorruptError, DiskFullError, LogReadOnlyError, RequestError
from topics.http.route_table import route_table

CONFIG = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120000,
    "dedupe_node": True,
    "lease_ms": 30000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def peer(engine: FakeEngine, parser: str) -> Peer:
    service = make_service(route_table(), http_parser=parser)
    service.serve(engine)
    return Peer(service)


def performance(answer: dict[str, object]) -> dict[str, object]:
    """Takes `performance` out of an answer; every value is a number not below 0."""
    taken = answer.pop("performance")
    assert isinstance(taken, dict)
    assert all(isinstance(value, int | float) and value >= 0 for value in taken.values())
    assert isinstance(taken["server_total_ms"], float)
    return taken


# --- 7.1 put ---------------------------------------------------------------------------------------------------------
def test_a_created_topic_is_201_and_an_updated_one_200(peer: Peer, engine: FakeEngine) -> None:
    """7.1."""
    for created, status in ((True, 201), (False, 200)):
        engine.answers["put_topic"] = PutResult(created, DEFAULT)
        response = peer.ask("PUT", "/v0/topics/jobs", b"{}")
        assert response.status == status
        answer = response.json
        assert performance(answer).keys() == {"server_total_ms"}
        assert answer == {"topic": "jobs", "created": created, "config": CONFIG}


def test_an_empty_body_is_all_defaults(peer: Peer, engine: FakeEngine) -> None:
    """7.1."""
    engine.answers["put_topic"] = PutResult(True, DEFAULT)
    assert peer.ask("PUT", "/v0/topics/jobs", b"", json_type=False).status == 201
    assert engine.last == ("jobs", DEFAULT)


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v0/topics/-x", b"{}", None),
        ("/v0/topics/a%2Fb", b"{}", None),
        ("/v0/topics/" + "a" * 256, b"{}", None),
        ("/v0/topics/jobs", b'{"dead_letter":"a b"}', {"dead_letter": "a b"}),
        ("/v0/topics/jobs", b'{"type":"queue","dead_letter":"jobs"}', None),
        ("/v0/topics/jobs", b'{"ttl_ms":1.0}', None),
        ("/v0/topics/jobs", b'{"ttl_ms":null}', None),
        ("/v0/topics/jobs", b"[]", None),
        ("/v0/topics/jobs", b"{} x", None),
        ("/v0/topics/jobs", b"\xef\xbb\xbf{}", None),
    ],
)
def test_a_bad_name_or_config_is_400(peer: Peer, engine: FakeEngine, path: str, body: bytes, detail: object) -> None:
    """7.1."""
    response = peer.ask("PUT", path, body)
    assert response.code == "invalid_request"
    assert response.json["error"].get("detail") == detail
    assert engine.asked == []


# --- 7.2 state -------------------------------------------------------------------------------------------------------
STATE = TopicState("jobs", DEFAULT, 9, 4, 5, 310, 500, 1748450000123, None, None)


def test_state_has_every_key_and_queue_only_on_queues(peer: Peer, engine: FakeEngine) -> None:
    """7.2."""
    engine.answers["state"] = STATE
    answer = peer.ask("GET", "/v0/topics/jobs").json
    performance(answer)
    expected = {
        "topic": "jobs",
        "type": "log",
        "head_seq": 9,
        "earliest_seq": 4,
        "next_seq": 10,
        "count": 5,
        "bytes": 310,
        "config": CONFIG,
        "effective_priority": 500,
        "last_write_ts": 1748450000123,
        "last_read_ts": None,
    }
    assert answer == expected
    assert engine.last == ("jobs", True)
    queue = read_config(b'{"type":"queue"}')
    engine.answers["state"] = STATE._replace(config=queue, queue=QueueState(3, 2, 1))
    answer = peer.ask("GET", "/v0/topics/jobs?touch=false").json
    assert answer["queue"] == {"ready": 3, "in_flight": 2, "dead_lettered": 1}
    assert answer["type"] == "queue"
    assert engine.last == ("jobs", False)


def test_an_absent_topic_is_404_with_its_name(peer: Peer, engine: FakeEngine) -> None:
    engine.fails("state", RequestError("topic_not_found", "no such topic", {"topic": 'a"b'}))
    response = peer.ask("GET", "/v0/topics/a%22b")
    assert response.status == 404
    assert response.json["error"]["detail"] == {"topic": 'a"b'}


# --- 7.3 list --------------------------------------------------------------------------------------------------------
def test_a_page_of_topics_has_its_cursor(peer: Peer, engine: FakeEngine) -> None:
    """7.3."""
    engine.answers["list_topics"] = TopicPage([STATE], "box1")
    answer = peer.ask("GET", "/v0/topics?prefix=j&page_size=1&touch=1").json
    performance(answer)
    row = {"topic": "jobs", "head_seq": 9, "earliest_seq": 4, "count": 5, "bytes": 310, "durable": False}
    assert answer == {"topics": [row | {"effective_priority": 500}], "next_cursor": "eyJhZnRlciI6ImJveDEifQ"}
    assert engine.last == ("j", "", 1, True)
    engine.answers["list_topics"] = TopicPage([], None)
    answer = peer.ask("GET", "/v0/topics").json
    assert performance(answer)
    assert answer == {"topics": []}
    assert engine.last == ("", "", 100, False)


@pytest.mark.parametrize(("asked", "size"), [("0", 1), ("5000", 1000), ("x", 100)])
def test_the_page_size_is_clamped(peer: Peer, engine: FakeEngine, asked: str, size: int) -> None:
    """7.3."""
    engine.answers["list_topics"] = TopicPage([], None)
    peer.ask("GET", f"/v0/topics?page_size={asked}")
    assert engine.last == ("", "", size, False)


@pytest.mark.parametrize(
    ("cursor", "after"),
    [
        ("eyJhZnRlciI6ImJveDEifQ", "box1"),
        ("eyJhZnRlciI6ImJveDEifQ==", "box1"),
        ("eyJhZnRlciI6Ij4_In0", ">?"),
        ("eyJhZnRlciI6Ij4%2FIn0=", ">?"),
        ("", ""),
        ("e30", ""),
        ("MQ", ""),
        ("eyJhZnRlciI6MX0", ""),
    ],
)
def test_cursors_of_both_alphabets_are_taken(peer: Peer, engine: FakeEngine, cursor: str, after: str) -> None:
    """3.4."""
    engine.answers["list_topics"] = TopicPage([], None)
    assert peer.ask("GET", f"/v0/topics?cursor={cursor}").status == 200
    assert engine.last[1] == after


@pytest.mark.parametrize("cursor", ["!", "a", "bm90IGpzb24", "_w", "===", "e30=e30", "Wy" * 3000, "W1tb" * 3000])
def test_a_corrupt_cursor_is_400(peer: Peer, engine: FakeEngine, cursor: str) -> None:
    """3.4."""
    assert peer.ask("GET", f"/v0/topics?cursor={cursor}").code == "invalid_request"
    assert engine.asked == []


# --- 7.4 delete topic ------------------------------------------------------------------------------------------------
def test_delete_tells_the_routers_removed_and_any_spelling_is_echoed(peer: Peer, engine: FakeEngine) -> None:
    """7.4."""
    engine.answers["delete_topic"] = DeleteTopicResult(True, ["audit->mirror", "jobs->audit"])
    answer = peer.ask("DELETE", "/v0/topics/audit?if_empty=true").json
    performance(answer)
    assert answer == {"topic": "audit", "deleted": True, "routers_removed": ["audit->mirror", "jobs->audit"]}
    assert engine.last == ("audit", True)
    engine.answers["delete_topic"] = DeleteTopicResult(False, [])
    answer = peer.ask("DELETE", "/v0/topics/%22%0A").json
    performance(answer)
    assert answer == {"topic": '"\n', "deleted": False, "routers_removed": []}


# --- 7.5 write -------------------------------------------------------------------------------------------------------
WRITTEN = AppendResult(1, 2, 2, 2, True, False, 100_000, 0)
BODY = b'{"records":[{"data":{"a": 1},"tag":"t"},{"data":null}],"node":"n"}'


def test_a_write_is_answered_with_its_seqs(peer: Peer, engine: FakeEngine) -> None:
    """7.5."""
    engine.answers["append"] = WRITTEN
    response = peer.ask("POST", "/v0/topics/jobs", BODY)
    assert response.status == 201
    answer = response.json
    assert performance(answer) == {"server_total_ms": 0.0, "wal_append_ms": 0.1, "fsync_ms": 0.0}
    expected = {"topic": "jobs", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2}
    assert answer == expected | {"created": True, "deduped": False}
    (request,) = engine.last
    assert (request.topic, request.node, request.identity, request.create, request.config) == (
        "jobs",
        b"n",
        None,
        None,
        None,
    )
    assert record_at(request.rows, 0).data == b'{"a":1}'
    assert record_at(request.rows, 0).tag == b"t"


def test_a_write_of_one_record_and_one_without_seqs_are_answered(peer: Peer, engine: FakeEngine) -> None:
    """7.5."""
    engine.answers["append"] = AppendResult(7, 7, 7, 1, False, False, 1000, 2_500_000)
    response = peer.ask("POST", "/v0/topics/jobs", b'{"records":[{"data":1}]}')
    assert response.status == 200
    assert response.json["seqs"] == [7]
    assert response.json["performance"]["fsync_ms"] == 2.5
    assert "seqs" not in peer.ask("POST", "/v0/topics/jobs?return_seqs=false", b'{"records":[{"data":1}]}').json


def test_a_deduplicated_write_has_the_total_alone(peer: Peer, engine: FakeEngine) -> None:
    """3.3."""
    engine.answers["append"] = AppendResult(1, 2, 2, 2, False, True, 0, 0)
    answer = peer.ask("POST", "/v0/topics/jobs", BODY).json
    assert performance(answer).keys() == {"server_total_ms"}
    assert answer["deduped"] is True


@pytest.mark.parametrize(
    ("header", "body_key", "key"),
    [
        ("k", b"", b"k"),
        ("k", b',"idempotency_key":"b"', b"b"),
        ("k", b',"idempotency_key":null', b"k"),
        ("", b"", b""),
        (None, b',"idempotency_key":""', b""),
        ("\xe9", b"", None),
        (None, b"", None),
    ],
)
def test_the_key_of_the_body_goes_before_the_header(
    peer: Peer, engine: FakeEngine, header: str | None, body_key: bytes, key: bytes | None
) -> None:
    """R-IDEM-1."""
    engine.answers["append"] = WRITTEN
    headers = {} if header is None else {"Idempotency_Key": header}
    peer.ask("POST", "/v0/topics/jobs", b'{"records":[{"data":1}]%b}' % body_key, **headers)
    identity = engine.last[0].identity
    assert (None if identity is None else identity.name) == key


def test_violations_of_limits_go_to_the_engine_that_knows_their_turn(peer: Peer, engine: FakeEngine) -> None:
    """7.5."""
    assert peer.ask("POST", "/v0/topics/jobs", b'{"records":[]}').code == "invalid_request"
    many = b'{"records":[%b]}' % b",".join([b'{"data":1}'] * 10_001)
    assert peer.ask("POST", "/v0/topics/jobs", many).code == "batch_too_large"
    response = peer.ask("POST", "/v0/topics/jobs", b'{"records":[{"data":1}]}', Idempotency_Key="k" * 257)
    assert response.code == "invalid_request"
    assert engine.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"records":{}}',
        b'{"records":[{}]}',
        b'{"records":[1]}',
        b'{"records":[{"data":1}],"create":1}',
        b"{",
    ],
)
def test_r_json_a_body_of_another_shape_is_400(peer: Peer, engine: FakeEngine, body: bytes) -> None:
    assert peer.ask("POST", "/v0/topics/jobs", body).code == "invalid_request"
    assert engine.asked == []


FULL = {"topic": "jobs"}
QUOTA = {"limit": "max_total_bytes", "max": 1}


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (RequestError("topic_full", "full", FULL), 422, ("topic_full", FULL)),
        (RequestError("throttled", "quota", QUOTA), 429, ("throttled", QUOTA)),
        (DiskFullError("no space"), 500, ("internal", {"reason": "disk_full"})),
        (LogReadOnlyError("broken"), 500, ("internal", {"reason": "read_only"})),
        (CorruptError("checksum", {"topic": "jobs", "seq": 3}), 500, ("internal", {"topic": "jobs", "seq": 3})),
    ],
)
def test_errors_of_the_engine_have_their_status_and_detail(
    peer: Peer, engine: FakeEngine, error: RequestError, status: int, shown: object
) -> None:
    """3.2."""
    engine.fails("append", error)
    response = peer.ask("POST", "/v0/topics/jobs", BODY)
    assert response.status == status
    assert (response.code, response.json["error"]["detail"]) == shown
    assert response.headers.get("retry-after") == ("1" if status == 429 else None)


# --- 7.6 diff --------------------------------------------------------------------------------------------------------
def test_a_diff_has_every_key(peer: Peer, engine: FakeEngine) -> None:
    """7.6."""
    lost = Tombstone(1, 3, "cap", 3, 4, 9)
    engine.answers["diff"] = DiffResult(b'{"$seq":4,"$ts":1,"data":1}', 1, 4, 9, 4, lost, 1, 0)
    answer = peer.ask("POST", "/v0/topics/jobs/diff", b"", json_type=False).json
    assert performance(answer) == {"server_total_ms": 0.0, "records_scanned": 1}
    assert answer == {
        "topic": "jobs",
        "records": [{"$seq": 4, "$ts": 1, "data": 1}],
        "next_from_seq": 4,
        "head_seq": 9,
        "earliest_seq": 4,
        "caught_up": False,
        "tombstone": {
            "gap_from": 1,
            "gap_to": 3,
            "reason": "cap",
            "missed_estimate": 3,
            "earliest_seq": 4,
            "head_seq": 9,
        },
        "lag": 5,
    }
    assert engine.last == ("jobs", DiffQuery())
    engine.answers["diff"] = DiffResult(b"", 0, 9, 9, 4, None, 0, 2)
    answer = peer.ask("POST", "/v0/topics/jobs/diff", b"{}").json
    assert performance(answer)["cold_segments_read"] == 2
    assert answer["tombstone"] is None
    assert answer["caught_up"] is True
    assert answer["records"] == []


def test_the_fields_of_a_diff_reach_the_engine(peer: Peer, engine: FakeEngine) -> None:
    """7.6."""
    body = b'{"from_seq":18446744073709551615,"limit":4294967295,"node":["a","\\u00e9"],"include_tags":true,'
    body += b'"include_meta":false,"wait_ms":5,"max_batch_bytes":7,"unknown":[]}'
    engine.answers["diff"] = DiffResult(b"", 0, 0, 0, 1, None, 0, 0)
    assert peer.ask("POST", "/v0/topics/jobs/diff", body).status == 200
    expected = DiffQuery(2**64 - 1, 2**32 - 1, node_set((b"a", "é".encode())), True, False, True, 5, 7)
    assert engine.last == ("jobs", expected)
    assert peer.ask("POST", "/v0/topics/jobs/diff", b'{"from":{"time":18446744073709551615}}').status == 200
    assert engine.last == ("jobs", DiffQuery(begin=Begin("time", 2**64 - 1)))
    assert peer.ask("POST", "/v0/topics/jobs/diff", b'{"from":"now"}').status == 200
    assert engine.last == ("jobs", DiffQuery(begin=Begin("now")))


@pytest.mark.parametrize(
    "body",
    [b'{"from_seq":-1}', b'{"from_seq":"1"}', b'{"limit":4294967296}', b'{"limit":1e2}', b'{"node":1}', b'{"node":[1]}',
     b'{"include_tags":1}', b'{"include_tags":null}', b'{"from_seq":1,"from_\\u0073eq":1}'],
)  # fmt: skip
def test_r_json_fields_of_a_diff_are_strict(peer: Peer, engine: FakeEngine, body: bytes) -> None:
    assert peer.ask("POST", "/v0/topics/jobs/diff", body).code == "invalid_request"


def test_a_long_poll_is_cancelled_when_its_client_leaves(peer: Peer, engine: FakeEngine) -> None:
    """R-NET-11."""
    head = b"POST /v0/topics/jobs/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert peer.send(head + b'Content-Length: 15\r\n\r\n{"wait_ms":500}') == []
    peer.http.lost()
    assert engine.cancelled == 1


# --- 7.7 delete records ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "before_seq", "match"),
    [
        (b'{"before_seq":3}', 3, None),
        (b'{"match":"a*","before_seq":null}', None, Predicate(True, b"a")),
        (b'{"match":["tag","Eq","x"],"before_seq":1}', 1, Predicate(False, b"x")),
    ],
)
def test_records_are_deleted_by_seq_and_tag(
    peer: Peer, engine: FakeEngine, body: bytes, before_seq: int | None, match: Predicate | None
) -> None:
    """7.7."""
    engine.answers["delete_records"] = DeleteResult(2, 3, 5, 3, 41)
    answer = peer.ask("POST", "/v0/topics/jobs/delete", body).json
    performance(answer)
    assert answer == {"topic": "jobs", "deleted": 2, "earliest_seq": 3, "head_seq": 5, "count": 3, "bytes": 41}
    assert engine.last == ("jobs", before_seq, match)


@pytest.mark.parametrize(
    "body", [b"{}", b"", b'{"match":null}', b'{"match":["tag","eq","x"]}', b'{"match":{}}', b'{"before_seq":-1}']
)
def test_neither_bound_or_a_bad_predicate_is_400(peer: Peer, engine: FakeEngine, body: bytes) -> None:
    """7.7."""
    assert peer.ask("POST", "/v0/topics/jobs/delete", body).code == "invalid_request"


# --- 12 probes -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/healthz", "/v0/health"])
def test_health_says_ok_with_version_and_uptime(peer: Peer, path: str) -> None:
    """12.1."""
    answer = peer.ask("GET", path).json
    assert answer.pop("version")
    assert answer == {"status": "ok", "uptime_ms": 84012}


@pytest.mark.parametrize("path", ["/readyz", "/v0/ready"])
def test_readiness_is_told_in_every_state(peer: Peer, path: str) -> None:
    """12.2."""
    assert peer.ask("GET", path).json == {"status": "ready", "wal_replay_complete": True, "topics": 3}
    probes = peer.service.probes
    assert isinstance(probes, FakeProbes)
    for refusal in (
        RequestError("not_ready", "recovering", {"replay_progress": 0.25}),
        RequestError("shutting_down", "draining"),
    ):
        probes.refusal = refusal
        response = peer.ask("GET", path)
        assert response.status == 503
        assert response.code == refusal.code
        assert response.headers["retry-after"] == "1"


def test_metrics_come_as_text_or_json(peer: Peer) -> None:
    """12.3."""
    response = peer.ask("GET", "/v0/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4"
    assert response.body.startswith(b"# HELP")
    assert peer.ask("GET", "/v0/metrics", Accept="application/json; q=1").json == {"topics": 3}


def test_answers_are_compact_json_with_a_length(peer: Peer, engine: FakeEngine) -> None:
    """3.1."""
    engine.answers["state"] = STATE
    response = peer.ask("GET", "/v0/topics/jobs")
    assert response.headers["content-type"] == "application/json"
    assert int(response.headers["content-length"]) == len(response.body)
    assert b": " not in response.body


def test_no_answer_has_cors_cookies_or_redirects(peer: Peer, engine: FakeEngine) -> None:
    """R-NET-10."""
    engine.answers["state"] = STATE
    headers = peer.ask("GET", "/v0/topics/jobs", Origin="http://localhost").headers
    assert set(headers) == {"content-type", "content-length", "x-content-type-options"}


def test_a_write_is_refused_under_load_unless_it_opts_out(peer: Peer, engine: FakeEngine) -> None:
    """3.2."""
    engine.refuses_writes = True
    answer = peer.ask("POST", "/v0/topics/t", b'{"records":[{"data":1}]}')
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "throttled", "1")
    assert engine.asked == []
    engine.answers["append"] = AppendResult(1, 1, 1, 1, False, False, 0, 0)
    assert peer.ask("POST", "/v0/topics/t", b'{"records":[{"data":1}],"disable_backpressure":true}').status == 200
    assert peer.ask("POST", "/v0/topics/t", b"{}").status == 400


def test_a_write_held_back_under_load_says_so(peer: Peer, engine: FakeEngine) -> None:
    """3.3."""
    engine.throttle_window_ns = 10_000_000
    engine.answers["append"] = AppendResult(1, 1, 1, 1, False, False, 0, 0)
    figures = performance(peer.ask("POST", "/v0/topics/t", b'{"records":[{"data":1}]}').json)
    assert list(figures) == ["server_total_ms", "throttle_wait_ms", "wal_append_ms", "fsync_ms"]
    engine.answers["append"] = AppendResult(1, 1, 1, 1, False, True, 0, 0)
    assert list(performance(peer.ask("POST", "/v0/topics/t", b'{"records":[{"data":1}]}').json)) == ["server_total_ms"]
