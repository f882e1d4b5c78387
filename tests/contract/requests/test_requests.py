"""Paths, queries, bodies and strict JSON: what of a request is understood, and which failure is reported first."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World

JSON_TYPE = {"Content-Type": "application/json"}
INVALID = (400, "invalid_request", None)


# --- paths ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    [
        "/v0", "/v0/", "/ui/", "/v0/topics/", "/v0/topics/t/", "/v0/topics/t/diff/", "/v0/topics/t/diff/x",
        "/V0/topics", "/v0/Topics", "/v0/topics/t/Diff", "/v1/topics", "/v0//topics", "/healthz/", "/v0/healthz",
        "/health", "/v0/%74opics", "/v0/topics/t/dif%66", "/v0/topics/t/unknown",
    ],
)  # fmt: skip
def test_any_other_path_is_unknown(world: World, path: str) -> None:
    """2.1: exact, case-sensitive, no trailing slash, fixed segments not decoded."""
    world.put("t")
    for method in ("GET", "POST", "PUT", "DELETE"):
        answer = world.request(method, path)
        assert answer.refusal == (404, "not_found", None)
        assert "/docs" in answer.json["error"]["message"]


def test_a_parameter_is_decoded_after_matching(world: World) -> None:
    """2.1: %61 is a letter like others, %2F is part of a name that no topic can have."""
    assert world.request("PUT", "/v0/topics/%61b%2Ec").json["topic"] == "ab.c"
    assert world.request("GET", "/v0/topics/ab.c").status == 200
    assert world.request("GET", "/v0/topics/a%2Fdiff").refusal == (404, "topic_not_found", {"topic": "a/diff"})
    assert world.request("PUT", "/v0/topics/a%2Fb").refusal == INVALID
    assert world.request("DELETE", "/v0/topics/%E2%82%AC").json["topic"] == "€"


def test_a_plus_in_a_path_is_a_plus(world: World) -> None:
    """2.1: only queries read it as a blank."""
    assert world.request("GET", "/v0/topics/a+b").refusal[2] == {"topic": "a+b"}


@pytest.mark.parametrize("segment", ["%FF", "%C3%28", "a%ED%A0%80"])
def test_a_name_that_is_not_utf_8_is_refused(world: World, segment: str) -> None:
    """2.1: after the path is known to exist."""
    assert world.request("GET", f"/v0/topics/{segment}").refusal == INVALID
    assert world.request("BREW", f"/v0/topics/{segment}").status == 405


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v0/topics", {"GET", "HEAD"}),
        ("/v0/topics/t", {"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"}),
        ("/v0/topics/t/diff", {"POST"}),
        ("/v0/topics/t/delete", {"POST"}),
        ("/v0/health", {"GET", "HEAD"}),
        ("/healthz", {"GET", "HEAD"}),
        ("/v0/ready", {"GET", "HEAD"}),
        ("/readyz", {"GET", "HEAD"}),
        ("/v0/metrics", {"GET", "HEAD"}),
    ],
)
def test_another_method_is_told_which_are_allowed(world: World, path: str, allow: set[str]) -> None:
    """2.1: OPTIONS and made-up ones alike."""
    for method in {"GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "BREW"} - allow:
        answer = world.request(method, path)
        assert answer.refusal == (405, "method_not_allowed", None)
        assert {name.strip() for name in (answer.header("allow") or "").split(",")} == allow


@pytest.mark.parametrize(
    "path", ["/v0/topics", "/v0/topics/t", "/v0/topics/absent", "/healthz", "/v0/ready", "/v0/metrics"]
)
def test_head_is_get_without_its_body(world: World, path: str) -> None:
    """2.1: status and headers as GET would give them."""
    world.put("t")
    connection = world.connect()
    get, head = connection.request("GET", path), connection.request("HEAD", path)
    assert (head.status, head.body, head.header("content-type")) == (get.status, b"", get.header("content-type"))
    assert head.header("content-length") is not None
    assert connection.request("GET", "/healthz").status == 200, "no body came after the head"


# --- queries --------------------------------------------------------------------------------------------------------
def test_a_query_is_form_decoded(world: World) -> None:
    """2.2: escapes and plus signs; a malformed escape stays as it is; unknown keys do not matter."""
    world.put("a.b")
    world.put("other")

    def listed(query: str) -> list[str]:
        return [row["topic"] for row in world.request("GET", f"/v0/topics?{query}").json["topics"]]

    assert listed("prefix=a%2Eb") == ["a.b"]
    assert listed("%70refix=a") == ["a.b"]
    assert listed("prefix=a+b") == []
    assert listed("prefix=a%zz") == []
    assert listed("prefix=%") == []
    assert listed("what=ever&prefix=o&&=&x") == ["other"]


def test_the_last_of_repeated_keys_counts(world: World) -> None:
    """2.2: for all keys of these endpoints."""
    world.put("a")
    world.put("b")
    rows = world.request("GET", "/v0/topics?prefix=a&prefix=b").json["topics"]
    assert [row["topic"] for row in rows] == ["b"]
    answer = world.request("POST", "/v0/topics/a?return_seqs=false&return_seqs=true", {"records": [{"data": 1}]})
    assert answer.json["seqs"] == [1]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("true", True),
        ("1", True),
        ("false", False),
        ("0", False),
        ("TRUE", True),
        ("no", True),
        ("", True),
        ("00", True),
    ],
)
def test_a_boolean_of_a_query_has_four_spellings(world: World, value: str, meant: bool) -> None:
    """2.2: anything else means the default."""
    body = {"records": [{"data": 1}]}
    assert ("seqs" in world.request("POST", f"/v0/topics/t?return_seqs={value}", body).json) is meant


@pytest.mark.parametrize("value", ["-1", "1.0", "x", "", "%20", "1e3", "%2B2", "0x10", "%D9%A3"])
def test_an_integer_of_a_query_that_is_none_means_the_default(world: World, value: str) -> None:
    """2.2: never an error."""
    for number in range(3):
        world.put(f"t{number}")
    assert len(world.request("GET", f"/v0/topics?page_size={value}").json["topics"]) == 3


# --- bodies ---------------------------------------------------------------------------------------------------------
def test_a_body_over_the_limit_is_refused_without_reading(make_world: MakeWorld) -> None:
    """2.3/1: only from its length, whatever its type; one of exactly the limit passes."""
    world = make_world(max_body_bytes=100)
    too_large = (413, "payload_too_large", None)
    connection = world.connect()
    connection.send(b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 101\r\n\r\n")
    assert connection.answer().refusal == too_large
    assert world.request("PUT", "/v0/topics/t", b" " * 101, JSON_TYPE).refusal == too_large
    assert world.request("PUT", "/v0/topics/t", b"{}" + b" " * 98, JSON_TYPE).status == 201


def test_a_chunked_body_is_refused_as_soon_as_it_crosses_the_limit(make_world: MakeWorld) -> None:
    """2.3/1: before its end."""
    world = make_world(max_body_bytes=100)
    connection = world.connect()
    head = (
        b"PUT /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    connection.send(head + b"64\r\n" + b" " * 100 + b"\r\n")
    assert connection.waiting
    connection.send(b"1\r\n \r\n")
    assert connection.answer().refusal == (413, "payload_too_large", None)


def test_bodies_of_all_but_writes_have_a_limit_of_their_own(make_world: MakeWorld) -> None:
    """2.3/1: by length and unpacked; TOPICS_MAX_COMMAND_BYTES."""
    world = make_world(max_command_bytes=100)
    world.write("t", "x" * 1000)
    gzipped = {**JSON_TYPE, "Content-Encoding": "gzip"}
    for method, path in (("PUT", "/v0/topics/t"), ("POST", "/v0/topics/t/diff")):
        assert world.request(method, path, b"{}" + b" " * 98, JSON_TYPE).status == 200
        for _ in range(3):  # the lane learns the name from the first
            assert world.request(method, path, b"{}" + b" " * 98, JSON_TYPE).status == 200
            assert world.request(method, path, b"{}" + b" " * 99, JSON_TYPE).status == 413
        assert world.request(method, path, gzip.compress(b"{}" + b" " * 98), gzipped).status == 200
        assert world.request(method, path, gzip.compress(b"{}" + b" " * 99), gzipped).status == 413
    unlimited = make_world(max_command_bytes=0, max_body_bytes=1 << 22)
    assert unlimited.request("PUT", "/v0/topics/t", b"{}" + b" " * (2 << 20), JSON_TYPE).status == 201


def test_zero_as_body_limit_means_none(make_world: MakeWorld) -> None:
    """14: TOPICS_MAX_BODY_BYTES."""
    world = make_world(max_body_bytes=0)
    assert world.request("PUT", "/v0/topics/t", b"{}" + b" " * 100_000, JSON_TYPE).status == 201


def test_a_gzip_body_is_unpacked(make_world: MakeWorld) -> None:
    """2.3/2: the limit holds for what comes out of it."""
    world = make_world(max_body_bytes=1000)
    gzipped = {**JSON_TYPE, "Content-Encoding": "gzip"}
    body = json.dumps({"records": [{"data": "packed"}]}).encode()
    assert world.request("POST", "/v0/topics/t", gzip.compress(body), gzipped).status == 201
    assert world.data("t") == ["packed"]
    bomb = gzip.compress(b" " * 1_000_000)
    assert world.request("POST", "/v0/topics/t", bomb[:999] if len(bomb) > 1000 else bomb, gzipped).status == 413
    for corrupt in (b"no gzip", gzip.compress(body)[:-4], gzip.compress(body)[:-8] + bytes(8)):
        assert world.request("POST", "/v0/topics/t", corrupt, gzipped).refusal == INVALID


def test_an_unknown_encoding_or_type_is_unsupported(world: World) -> None:
    """2.3/2, 2.3/3: the encoding is looked at first."""
    body = b'{"records":[{"data":1}]}'
    unsupported = (415, "unsupported_media_type", None)
    for encoding in ("br", "deflate", "gzip, gzip", "zstd"):
        headers = {**JSON_TYPE, "Content-Encoding": encoding}
        assert world.request("POST", "/v0/topics/t", body, headers).refusal == unsupported
    assert world.request("POST", "/v0/topics/t", body, {**JSON_TYPE, "Content-Encoding": "identity"}).status == 201
    for kind in ("text/plain", "application/xml", "Application/JSON", "application/jso", "text/application/json"):
        assert world.request("POST", "/v0/topics/t", body, {"Content-Type": kind}).refusal == unsupported
    assert world.request("POST", "/v0/topics/t", body).refusal == unsupported
    assert world.request("POST", "/v0/topics/t", b"not json").refusal == unsupported
    headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    assert world.request("POST", "/v0/topics/t", b"not gzip", headers).status in (400, 415)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/json;x=y", "  application/json"])
def test_a_json_type_may_have_parameters(world: World, kind: str) -> None:
    """2.3/3: after the exact lower-case text."""
    assert world.request("POST", "/v0/topics/t", b'{"records":[{"data":1}]}', {"Content-Type": kind}).status == 201


def test_two_endpoints_take_an_empty_body_for_all_defaults(world: World) -> None:
    """2.3: whatever the content type; the others do not."""
    for headers in ({}, {"Content-Type": "text/plain"}, JSON_TYPE, {"Content-Encoding": "gzip"}):
        assert world.request("PUT", "/v0/topics/t", b"", headers).status in (200, 201)
        assert world.request("POST", "/v0/topics/t/diff", b"", headers).status == 200
    assert world.request("POST", "/v0/topics/t/diff").status == 200
    for path in ("/v0/topics/t", "/v0/topics/t/delete"):
        assert world.request("POST", path, b"").status == 415
        assert world.request("POST", path, b"", JSON_TYPE).refusal == INVALID


def test_bodies_of_get_and_delete_do_not_matter(world: World) -> None:
    """2.3: read over, never parsed."""
    world.put("t")
    connection = world.connect()
    for headers in ({}, JSON_TYPE, {"Content-Encoding": "br"}):
        assert connection.request("GET", "/v0/topics/t", b"{not json", headers).status == 200
        assert connection.request("DELETE", "/v0/topics/none", b"[1,", headers).status == 200
    assert connection.request("GET", "/healthz", b"x" * 10_000).status == 200


def test_a_body_that_no_handler_reads_may_come_after_its_head(world: World) -> None:
    """2.3, R-NET-3: the connection continues after it."""
    world.put("t")
    connection = world.connect()
    for path, status in (("/v0/topics/t", 200), ("/nowhere", 404)):
        connection.send(f"GET {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode())
        assert connection.waiting
        assert connection.send(b"{not json").answer().status == status
    assert connection.request("GET", "/healthz").status == 200


def test_accept_does_not_matter_for_json(world: World) -> None:
    """2.3: a client that wants XML gets JSON."""
    answer = world.request("GET", "/v0/topics", headers={"Accept": "application/xml"})
    assert (answer.status, answer.header("content-type")) == (200, "application/json")


# --- strict JSON ----------------------------------------------------------------------------------------------------
def record_of(data: bytes) -> bytes:
    return b'{"records":[{"data":' + data + b"}]}"


BAD_JSON = {
    "invalid UTF-8": record_of(b'"\xff"'),
    "an overlong sequence": record_of(b'"\xc0\xaf"'),
    "an encoded surrogate": record_of(b'"\xed\xa0\x80"'),
    "a BOM": b"\xef\xbb\xbf" + record_of(b"1"),
    "trailing text": record_of(b"1") + b" x",
    "two values": record_of(b"1") + record_of(b"1"),
    "NaN": record_of(b"NaN"),
    "Infinity": record_of(b"-Infinity"),
    "a lone high surrogate": record_of(b'"\\ud800"'),
    "a lone low surrogate": record_of(b'"\\udc00x"'),
    "two high surrogates": record_of(b'"\\ud800\\ud800"'),
    "a comment": record_of(b"1 /* one */"),
    "a trailing comma": record_of(b"[1,]"),
    "a trailing comma in an object": record_of(b'{"a":1,}'),
    "1e400": record_of(b"1e400"),
    "400 digits": record_of(b"1" * 400),
    "a leading zero": record_of(b"01"),
    "a leading plus": record_of(b"+1"),
    "no digit after the point": record_of(b"1."),
    "no digit before the point": record_of(b".5"),
    "a control character": record_of(b'"\x01"'),
    "a bad escape": record_of(b'"\\x41"'),
    "single quotes": record_of(b"'a'"),
    "a bare word": record_of(b"nul"),
    "an unfinished string": b'{"records":[{"data":"',
    "an unfinished object": b'{"records":[{"data":1}]',
    "a key that is no string": record_of(b"{1:2}"),
    "nothing": b"   ",
    "an array for the body": b"[]",
    "a string for the body": b'"records"',
    "null for the body": b"null",
    "a form feed as blank": b"\x0c" + record_of(b"1"),
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON)
def test_what_is_not_strict_json_is_refused(world: World, body: bytes) -> None:
    """R-JSON-1, 2.3/4: and nothing is written."""
    assert world.request("POST", "/v0/topics/t", body, JSON_TYPE).refusal == INVALID
    assert world.request("GET", "/v0/topics/t").status == 404


@pytest.mark.parametrize("path", ["/v0/topics/t", "/v0/topics/t/diff", "/v0/topics/t/delete"])
@pytest.mark.parametrize("body", [b'{"x":NaN}', b'{"a":1,}', b"{} {}", b'{"\xff":1}', b"[]", b"7", b"{"])
def test_small_bodies_are_as_strict(world: World, path: str, body: bytes) -> None:
    """R-JSON-1: on every endpoint that reads one."""
    world.put("t")
    method = "PUT" if path.endswith("/t") else "POST"
    assert world.request(method, path, body, JSON_TYPE).refusal == INVALID


def test_numbers_strings_and_escapes_at_the_edge_of_json_are_fine(world: World) -> None:
    """R-JSON-1: what is unusual but right."""
    body = record_of(b'[1e308,-0,0.0,1E+2,"\\ud83d\\ude00","\\u0000\\/\xc3\xa9"," ",{"":[]}]')
    assert world.request("POST", "/v0/topics/t", b" \t\r\n" + body + b"\n", JSON_TYPE).status == 201
    assert world.data("t") == [[1e308, 0, 0.0, 100.0, "😀", "\0/é", " ", {"": []}]]


def nested(depth: int, *, objects: bool = False) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth if objects else b"[" * depth + b"]" * depth


@pytest.mark.parametrize("objects", [False, True])
def test_127_levels_pass_and_128_do_not(world: World, objects: bool) -> None:
    """R-JSON-2: the body, the list of records and the record are three of them."""
    assert world.request("POST", "/v0/topics/t", record_of(nested(124, objects=objects)), JSON_TYPE).status == 201
    for depth in (125, 1000, 100_000):
        body = record_of(nested(depth, objects=objects))
        assert world.request("POST", "/v0/topics/t", body, JSON_TYPE).refusal == INVALID


def test_unknown_keys_are_ignored_but_must_be_json(world: World) -> None:
    """R-JSON-3: in the body, in a record, in a config."""
    body = b'{"x":[1,{"y":null}],"records":[{"data":1,"z":true,"$seq":9}],"config":{"w":"w"}}'
    assert world.request("POST", "/v0/topics/t", body, JSON_TYPE).status == 201
    for bad in (b'{"x":tru,"records":[{"data":1}]}', b'{"records":[{"data":1,"z":}]}', b'{"x":[1,,2],"records":[]}'):
        assert world.request("POST", "/v0/topics/t", bad, JSON_TYPE).refusal == INVALID


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v0/topics/t", b'{"records":[{"data":1}],"records":[{"data":2}]}'),
        ("/v0/topics/t", b'{"records":[{"data":1}],"\\u0072ecords":[{"data":2}]}'),
        ("/v0/topics/t", b'{"records":[{"data":1,"data":1}]}'),
        ("/v0/topics/t", b'{"records":[{"data":1,"d\\u0061ta":1}]}'),
        ("/v0/topics/t", b'{"records":[{"data":1}],"config":{"ttl_ms":1,"ttl_ms":1}}'),
        ("/v0/topics/t/diff", b'{"from_seq":1,"from_seq":1}'),
        ("/v0/topics/t/diff", b'{"from_seq":1,"from\\u005fseq":1}'),
        ("/v0/topics/t/delete", b'{"before_seq":1,"before_seq":2}'),
    ],
)
def test_a_known_key_given_twice_is_refused(world: World, path: str, body: bytes) -> None:
    """R-JSON-3: also when an escape hides it, also when both say the same."""
    world.put("t")
    assert world.request("POST", path, body, JSON_TYPE).refusal == INVALID
    assert world.state("t")["head_seq"] == 0


@pytest.mark.parametrize("value", ["1.0", "1e2", '"1"', "true", "-1", "-0", "[]", "{}", "18446744073709551616", "1E0"])
@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("PUT", "/v0/topics/t", "ttl_ms"),
        ("PUT", "/v0/topics/t", "cap_records"),
        ("POST", "/v0/topics/t/diff", "from_seq"),
        ("POST", "/v0/topics/t/diff", "max_batch_bytes"),
        ("POST", "/v0/topics/t/delete", "before_seq"),
    ],
)
def test_a_u64_is_an_integer_literal_in_range(world: World, method: str, path: str, field: str, value: str) -> None:
    """R-JSON-4: no fraction, no exponent, no sign."""
    world.put("t")
    assert world.request(method, path, f'{{"{field}":{value}}}'.encode(), JSON_TYPE).refusal == INVALID


def test_integers_reach_to_the_end_of_their_range(world: World) -> None:
    """R-JSON-4: u64, u32 and i32 at their bounds."""
    world.put("t", ttl_ms=2**64 - 1, cap_records=2**64 - 1, priority=-(2**31))
    assert world.put("t", priority=2**31 - 1)["config"]["priority"] == 2**31 - 1
    assert world.diff("t", 0, limit=2**32 - 1, wait_ms=0, max_batch_bytes=2**64 - 1)["caught_up"]
    assert world.diff("t", 2**64 - 1)["tombstone"]["reason"] == "recreated"
    for body in ({"priority": 2**31}, {"priority": -(2**31) - 1}, {"priority": 1.5}, {"priority": "1"}):
        assert world.request("PUT", "/v0/topics/t", body).refusal == INVALID
    for body in ({"limit": 2**32}, {"wait_ms": 2**32}, {"limit": 1.5}, {"wait_ms": -1}):
        assert world.request("POST", "/v0/topics/t/diff", body).refusal == INVALID


WRONG_TYPES: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/v0/topics/t", {"auto_priority": 1}),
    ("PUT", "/v0/topics/t", {"auto_priority": "true"}),
    ("PUT", "/v0/topics/t", {"durable": 0}),
    ("PUT", "/v0/topics/t", {"type": 1}),
    ("PUT", "/v0/topics/t", {"type": "LOG"}),
    ("PUT", "/v0/topics/t", {"type": "stack"}),
    ("PUT", "/v0/topics/t", {"discard": "new"}),
    ("PUT", "/v0/topics/t", {"durability": "Disk"}),
    ("PUT", "/v0/topics/t", {"durability": True}),
    ("PUT", "/v0/topics/t", {"dead_letter": 5}),
    ("POST", "/v0/topics/t/diff", {"include_tags": "yes"}),
    ("POST", "/v0/topics/t/diff", {"include_meta": 1}),
    ("POST", "/v0/topics/t/diff", {"node": 5}),
    ("POST", "/v0/topics/t/diff", {"node": ["a", 5]}),
    ("POST", "/v0/topics/t/diff", {"node": [None]}),
    ("POST", "/v0/topics/t/diff", {"node": {}}),
    ("POST", "/v0/topics/t/delete", {"match": 5}),
    ("POST", "/v0/topics/t", {"records": {}}),
    ("POST", "/v0/topics/t", {"records": "x"}),
    ("POST", "/v0/topics/t", {"records": [1]}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1, "tag": 1}]}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1, "node": ["n"]}]}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}], "node": 1}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}], "idempotency_key": 1}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}], "create": "true"}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}], "disable_backpressure": 1}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}], "incarnation": 1}),
]


@pytest.mark.parametrize(("method", "path", "body"), WRONG_TYPES, ids=lambda value: json.dumps(value)[:60])
def test_a_field_takes_its_own_type_only(world: World, method: str, path: str, body: dict[str, Any]) -> None:
    """R-JSON-5: booleans, strings and enumerations."""
    world.put("t")
    assert world.request(method, path, body).refusal == INVALID


NULLS = [
    ("PUT", "/v0/topics/t", "ttl_ms"), ("PUT", "/v0/topics/t", "type"), ("PUT", "/v0/topics/t", "discard"),
    ("PUT", "/v0/topics/t", "durable"), ("PUT", "/v0/topics/t", "auto_priority"), ("PUT", "/v0/topics/t", "lease_ms"),
    ("POST", "/v0/topics/t/diff", "from_seq"), ("POST", "/v0/topics/t/diff", "limit"),
    ("POST", "/v0/topics/t/diff", "include_tags"), ("POST", "/v0/topics/t/diff", "wait_ms"),
    ("POST", "/v0/topics/t", "records"), ("POST", "/v0/topics/t", "disable_backpressure"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "field"), NULLS)
def test_null_is_refused_where_it_means_nothing(world: World, method: str, path: str, field: str) -> None:
    """R-JSON-6: only nullable fields take it."""
    world.put("t")
    body = {"records": [{"data": 1}]} if path.endswith("/t") and method == "POST" else {}
    assert world.request(method, path, {**body, field: None}).refusal == INVALID


def test_null_means_absent_in_nullable_fields(world: World) -> None:
    """R-JSON-6: in configs, records, writes, reads and deletes."""
    world.put("t", durability=None, priority=None, dead_letter=None)
    record = {"data": None, "tag": None, "node": None, "meta": None}
    world.write_records("t", [record], node=None, idempotency_key=None, create=None, config=None, incarnation=None)
    page = world.diff("t", node=None, include_tags=True)
    assert page["records"] == [{"$seq": 1, "$ts": page["records"][0]["$ts"], "data": None}]
    assert world.delete("t", before_seq=2, match=None)["deleted"] == 1


def test_required_fields_are_required(world: World) -> None:
    """R-JSON-7: records, and data of each."""
    for body in ({}, {"node": "n"}, {"records": [{}]}, {"records": [{"data": 1}, {"tag": "t"}]}):
        assert world.request("POST", "/v0/topics/t", body).refusal == INVALID


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v0/topics/t", []),
        ("PUT", "/v0/topics/t", ["log"]),
        ("POST", "/v0/topics/t", [[{"data": 1}]]),
        ("POST", "/v0/topics/t", {"records": [[1]]}),
        ("POST", "/v0/topics/t", {"records": [[]]}),
        ("POST", "/v0/topics/t", {"records": [{"data": 1}], "config": []}),
        ("POST", "/v0/topics/t/diff", []),
        ("POST", "/v0/topics/t/delete", [5]),
        ("PUT", "/v0/topics/t", {"type": {"log": None}}),
        ("PUT", "/v0/topics/t", {"discard": {"old": []}}),
        ("PUT", "/v0/topics/t", {"durability": {"disk": None}}),
    ],
)
def test_an_array_is_no_object_and_an_object_no_name(world: World, method: str, path: str, body: Any) -> None:
    """R-JSON-8: nothing is taken by position."""
    world.put("t")
    assert world.request(method, path, body).refusal == INVALID


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v0/topics/t/diff", "{%s}"),
        ("/v0/topics/t", '{"records": [{"data": 1}], "config": {%s}}'),
        ("/v0/topics/t", '{"records": [{"data": 1}], "producer": {%s}}'),
        ("/v0/topics/t", '{"records": [{"data": 1}], %s}'),
        ("/v0/topics/t", '{"records": [{"data": 1}, {"data": 1, %s}]}'),
    ],
)
def test_objects_have_a_thousand_keys_at_most(world: World, path: str, body: str) -> None:
    """R-JSON-9: unknown ones included."""
    world.put("t")
    refused = world.request("POST", path, (body % ",".join(f'"k{n}": 0' for n in range(1001))).encode(), JSON_TYPE)
    assert (refused.refusal, "1000" in refused.text) == (INVALID, True)


def test_a_payload_may_have_any_number_of_keys_within_its_bytes(world: World) -> None:
    """R-JSON-9: `meta` has its own limit, see 5.2."""
    payload = {f"k{n}": n for n in range(20_000)}
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": payload}]}).status == 201
    assert world.request("POST", "/v0/topics/t/diff", {}).json["records"][0]["data"] == payload


# --- order ----------------------------------------------------------------------------------------------------------
def test_the_first_failing_step_is_told(make_world: MakeWorld) -> None:
    """2.4/1, 2.4/4, 2.4/5, 2.4/6, 2.4/7, 2.4/8: of the body its size, encoding, type and JSON in this order."""
    world = make_world(max_body_bytes=50)
    large, type_wrong = b"x" * 51, {"Content-Type": "text/plain", "Content-Encoding": "br"}
    assert world.raw(b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert world.request("POST", "/nowhere", large, type_wrong).status == 404
    assert world.request("BREW", "/v0/topics/%FF", large, type_wrong).status == 405
    assert world.request("POST", "/v0/topics/%FF", large, type_wrong).status == 400
    assert world.request("POST", "/v0/topics/!", large, type_wrong).status == 413
    assert world.request("POST", "/v0/topics/!", b"{", type_wrong).status == 415
    assert world.request("POST", "/v0/topics/!", b"{", {"Content-Type": "text/plain"}).status == 415
    assert world.request("POST", "/v0/topics/!", b"{", JSON_TYPE).refusal == INVALID
    assert world.request("POST", "/v0/topics/absent/diff", b"{", JSON_TYPE).status == 400
    assert world.request("POST", "/v0/topics/absent/diff", b"{}", JSON_TYPE).status == 404
    assert world.request("POST", "/v0/topics/absent/delete", b"{}", JSON_TYPE).status == 400
    assert world.request("POST", "/v0/topics/absent/delete", {"before_seq": 1}).status == 404
