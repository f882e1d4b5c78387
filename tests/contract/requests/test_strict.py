"""R-STRICT: with `Prefer: handling=strict` an unknown key or parameter is a 400 that names the likely one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.websocket_client import HEADERS, WebSocket
from tests.contract.world.world import World
from tests.long.limits import fields
from topics.engine.json.known_keys import KnownKeys
from topics.http.access.routes import Body, Route
from topics.http.openapi.api_operations import OPERATIONS
from topics.http.openapi.document import operation_key
from topics.http.openapi.known_keys_of import body_keys
from topics.http.route_table import ROUTES
from topics.ws import commands

STRICT = {"Prefer": "handling=strict"}
APPLIED = "handling=strict"
WITH_BODY = [route for route in ROUTES if route.body is not Body.IGNORED]
WITHOUT_BODY = [route for route in ROUTES if route.body is Body.IGNORED]
REQUIRED: dict[str, Any] = {
    "POST /v0/topics/:": {"records": [{"data": 1}]},
    "POST /v0/topics/:/delete": {"before_seq": 1},
    "POST /v0/wait": {"topics": {"t": 0}},
    "POST /v0/watch": {"topics": {"t": {}}},
    "POST /v0/topics/:/claim": {"node": "n"},
    "POST /v0/topics/:/ack": {"node": "n", "seqs": [1]},
    "POST /v0/topics/:/nack": {"node": "n", "seqs": [1]},
    "POST /v0/topics/:/extend": {"node": "n", "seqs": [1], "lease_ms": 1},
    "POST /v0/topics/:/readers/:/commit": {"token": "page_1"},
    "POST /v0/topics/:/readers/:/seek": {"seq": 0},
    "PUT /v0/routers/:": {"source": "t", "dest": "u"},
}
"""The required keys of each body."""


def path_of(route: Route) -> str:
    return "/".join(
        {":topic": "t", ":reader": "r", ":router": "t>u", ":wid": "w"}.get(p, p) for p in route.pattern.split("/")
    )


def named(route: Route) -> str:
    return f"{route.method} {route.pattern}"


def message_of(world: World, method: str, path: str, body: Any) -> str:
    """The message of a strict request's 400."""
    answer = world.request(method, path, body, STRICT)
    assert answer.refusal == (400, "invalid_request", None), answer.text
    assert answer.header("preference-applied") == APPLIED
    return str(answer.json["error"]["message"])


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_every_body_refuses_an_unknown_key(world: World, route: Route) -> None:
    """R-STRICT-2: and without the header it is ignored, as R-JSON-3 says."""
    world.put("t", type="queue")
    body = REQUIRED.get(operation_key(route), {})
    known = next(iter(OPERATIONS[operation_key(route)].query), None)
    assert known is None or known in ("return_seqs", "lenient")
    message = message_of(world, route.method, path_of(route), body | {"zzz_unknown": 1})
    assert "zzz_unknown is an unknown key: use " in message
    lenient = world.request(route.method, path_of(route), body | {"zzz_unknown": 1})
    assert "zzz_unknown" not in lenient.text
    assert lenient.header("preference-applied") is None
    strict = world.request(route.method, path_of(route), body, STRICT)
    assert strict.status == world.request(route.method, path_of(route), body).status or strict.status == 201
    assert "unknown key" not in strict.text


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_every_query_refuses_an_unknown_parameter(world: World, route: Route) -> None:
    """R-STRICT-3: before the body is looked at."""
    message = message_of(world, route.method, f"{path_of(route)}?zzz_unknown=1", b"no JSON")
    assert "zzz_unknown is an unknown parameter" in message
    assert "zzz_unknown" not in world.request(route.method, f"{path_of(route)}?zzz_unknown=1", b"no JSON").text


@pytest.mark.parametrize("route", WITHOUT_BODY, ids=named)
def test_what_is_ignored_remains_ignored(world: World, route: Route) -> None:
    """R-STRICT-4: the bodies of GET and DELETE are not looked at."""
    if OPERATIONS[operation_key(route)].media[0] != "text/event-stream":
        assert "zzz" not in world.request(route.method, path_of(route), b'{"zzz":1}', STRICT).text


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("PUT", "/v0/topics/u", {"durabilty": "fsync"}, "durabilty is an unknown key: did you mean durability?"),
        ("PATCH", "/v0/topics/t", {"ttl": 1}, "ttl is an unknown key: did you mean ttl_ms?"),
        ("POST", "/v0/topics/t/diff", {"from_sq": 1}, "from_sq is an unknown key: did you mean from_seq?"),
        ("POST", "/v0/topics/t/diff", {"from": {"lst": 1}}, "from.lst is an unknown key: did you mean last?"),
        ("POST", "/v0/topics/t", {"recrods": [{"data": 1}]}, "recrods is an unknown key: did you mean records?"),
        ("POST", "/v0/topics/t", {"records": [{"dta": 1}]}, "records[0].dta is an unknown key: did you mean data?"),
        ("POST", "/v0/topics/t", {"records": [{"data": 1}], "nod": ""}, "nod is an unknown key: did you mean node?"),
        (
            "POST",
            "/v0/topics/t",
            {"records": [{"data": {"any": 1}, "meta": {"any": 1}}, {"data": 1, "tags": "a"}]},
            "records[1].tags is an unknown key: did you mean tag?",
        ),
        (
            "POST",
            "/v0/topics/u",
            {"records": [{"data": 1}], "config": {"cap_record": 1}},
            "config.cap_record is an unknown key: did you mean cap_records?",
        ),
        (
            "POST",
            "/v0/topics/t",
            {"records": [{"data": 1}], "producer": {"id": "p", "epoch": 1, "part": 1, "piec": 1}},
            "producer.piec is an unknown key: did you mean piece?",
        ),
        (
            "POST",
            "/v0/topics/t",
            {"records": [{"data": 1}], "producer": {"id": "p", "epoch": 1, "prt": 1}},
            "producer.prt is an unknown key: did you mean part?",
        ),
        (
            "POST",
            "/v0/wait",
            {"topics": {"t": {"seq": 1, "incarnatio": "0"}}},
            "topics.t.incarnatio is an unknown key: did you mean incarnation?",
        ),
        ("POST", "/v0/watch", {"topics": {"t": {"tial": True}}}, "topics.t.tial is an unknown key: did you mean tail?"),
        ("GET", "/v0/topics?page_siz=1", {}, "page_siz is an unknown parameter: did you mean page_size?"),
    ],
)  # fmt: skip
def test_the_likely_name_is_suggested(world: World, method: str, path: str, body: Any, message: str) -> None:
    """R-STRICT-2, R-STRICT-3: and nothing was done."""
    world.put("t")
    assert message in message_of(world, method, path, body)
    assert world.state("t")["head_seq"] == 0
    assert world.request("GET", "/v0/topics/u").status == 404


def test_a_long_write_is_checked_too(make_world: MakeWorld) -> None:
    """R-STRICT-2: a body that is scanned in turns, with rows that are cleaned."""
    world = make_world(pass_body_bytes=4096)
    records = [{"data": {"n": n}, "tag": "é"} for n in range(500)]
    body = json.dumps({"records": [*records, {"data": 1, "tgg": "x"}]}).encode()
    answer = world.request("POST", "/v0/topics/t", body, STRICT | {"Content-Type": "application/json"})
    assert "records[500].tgg is an unknown key: did you mean tag?" in answer.json["error"]["message"]
    assert world.request("GET", "/v0/topics/t").status == 404


@pytest.mark.parametrize(
    ("prefer", "is_strict"),
    [
        ("handling=strict", True),
        ("HANDLING=Strict", True),
        ('respond-async, handling="strict"; x=1', True),
        ("handling=lenient, handling=strict", False),
        ("handling", False),
        ("strict", False),
    ],
)
def test_only_the_first_handling_counts(world: World, prefer: str, is_strict: bool) -> None:
    """R-STRICT-1: of `Prefer` as RFC 7240 spells it."""
    answer = world.request("PUT", "/v0/topics/t", {"durabilty": "fsync"}, {"Prefer": prefer})
    assert answer.status == (400 if is_strict else 201)
    assert answer.header("preference-applied") == (APPLIED if is_strict else None)


def test_every_answer_to_a_strict_request_says_so(world: World) -> None:
    """R-STRICT-1: successes, failures, text and streams."""
    world.put("t", type="queue")
    for method, path in (
        ("GET", "/v0/topics/t"),
        ("GET", "/v0/topics/absent"),
        ("GET", "/no/such/path"),
        ("BREW", "/v0/topics/t"),
        ("GET", "/v0/metrics"),
        ("GET", "/docs"),
        ("HEAD", "/v0/topics/t"),
    ):
        assert world.request(method, path, headers=STRICT).header("preference-applied") == APPLIED, path
    stream = world.ask("GET", "/v0/topics/t/work?node=n", headers=STRICT)
    assert stream.head().header("preference-applied") == APPLIED


def paths_of(keys: KnownKeys) -> set[str]:
    """The paths of all known keys, as tests/long/limits/fields.py writes them."""
    found = set()
    for name, inner in keys.names.items():
        found |= {name} | {f"{name}.{path}" for path in paths_of(inner)}
    return found if keys.each is None else found | {f"*.{path}" for path in paths_of(keys.each)}


def test_every_field_that_is_read_is_known() -> None:
    """R-STRICT-2, R-STRICT-5: the tables of keys are those of the readers."""
    read = fields.fields()
    for op, keys in commands._KEYS.items():
        assert {f"body.{path}" for path in paths_of(keys)} == read[f"WS {op}"] | begins(keys), op
    for route in WITH_BODY:
        in_body = {name.removeprefix("body.") for name in read[operation_key(route)] if name.startswith("body.")}
        assert paths_of(body_keys(route)) == {name for name in in_body if "[" not in name}


def begins(keys: KnownKeys) -> set[str]:
    """The members of the field `from`, which its reader in json_fields.py knows."""
    return {f"body.{path}" for path in paths_of(keys) if ".from." in f".{path}"}


@pytest.mark.http1
def test_a_strict_websocket_refuses_unknown_keys(world: World) -> None:
    """R-STRICT-5: of each command; one without them is executed."""
    world.put("t")
    answer = world.connect().start("GET", "/v0/ws", headers={**HEADERS, **STRICT}).head()
    assert answer.header("preference-applied") == APPLIED
    client = WebSocket(world, **STRICT)
    producer = {"id": "p", "epoch": 1, "part": 0, "prt": 1}
    for command, message in (
        ({"op": "ping", "request": 1}, "request is an unknown key: did you mean request_id?"),
        ({"op": "subscribe", "topics": {"t": {"tial": True}}}, "topics.t.tial is an unknown key: did you mean tail?"),
        ({"op": "unsubscribe", "topic": "t", "tpics": []}, "tpics is an unknown key: did you mean topics?"),
        ({"op": "publish", "topic": "t", "records": [{"data": 1, "tg": ""}]}, "records[0].tg is an unknown key: did"),
        ({"op": "publish", "topic": "t", "records": [{"data": 1}], "nodee": ""}, "nodee is an unknown key: did"),
        ({"op": "publish", "topic": "t", "record": [{"data": 1}]}, "record is an unknown key: did you mean records?"),
        ({"op": "publish", "topic": "t", "records": [{"dat": 1}]}, "records[0].dat is an unknown key: did you mean"),
        ({"op": "publish", "topic": "t"}, 'records is missing: it is required, send "records": [...]'),
        (
            {"op": "publish", "topic": "t", "records": [{"data": 1}], "producer": producer},
            "producer.prt is an unknown key: did",
        ),
        (
            {"op": "publish", "topic": "t", "records": [{"data": 1}], "producer": {"id": "p", "epch": 1, "part": 0}},
            "producer.epch is an unknown key: did you mean epoch?",
        ),
    ):
        reply = client.ask(command)
        assert (reply["op"], reply["code"]) == ("error", "invalid_json")
        assert message in reply["message"]
    publish = {"op": "publish", "topic": "t", "records": [{"data": 1}], "request_id": 1, "return_seqs": False}
    assert client.ask(publish)["op"] == "ack"
