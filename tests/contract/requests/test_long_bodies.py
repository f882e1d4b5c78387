"""Bodies that are taken in turns are answered as those that are taken at once (2.3, 7.5, 11.4)."""

from __future__ import annotations

import gc
import gzip
import json
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world import websocket_client
from tests.contract.world.world import World
from tests.ws.frame_client import TEXT, Incoming, frame
from topics.common.memory import LARGE_BYTES, PagedMemory

JSON_TYPE = {"Content-Type": "application/json"}
GZIPPED = {**JSON_TYPE, "Content-Encoding": "gzip"}
RECORDS = b",".join([b'{"data":{"n":%d,"n": [%d , "x"]},"tag":"t%d"}' % (i, i, i % 3) for i in range(60)])
BODIES = (
    b'{"records":[%b]}' % RECORDS,
    b'{"records":[%b],"node":"\\u006e"}' % RECORDS,
    b'{"records":[%b],"idempotency_key":"k"}' % RECORDS,
    b'{"records":[%b],"producer":{"id":"p","epoch":1,"part":2}}' % RECORDS,
    b'{"records":[%b],"producer":{"id":"q","epoch":1,"part":2,"last":false}}' % RECORDS,
    b'{"records":[%b],"producer":{"id":"q","epoch":1,"part":2,"piece":1}}' % RECORDS,
    b'{"records":[%b],"producer":{"id":"q","epoch":1,"part":2},"idempotency_key":"k"}' % RECORDS,
    b'{"records":[%b,{"data":1,"tag":"%b"}]}' % (RECORDS, b"x" * 257),
    b'{"records":[%b,{"data":nul}]}' % RECORDS,
    b'{"records":[%b,{"tag":1}]}' % RECORDS,
    b'{"records":[%b],"config":{"cap_records":7,"no":[%b]}}' % (RECORDS, RECORDS),
    b'{"records":[%b],"create":false,"incarnation":"0123456789abcdef"}' % RECORDS,
    b'{"records":[%b],"disable_backpressure":7}' % RECORDS,
    b'{"records":[]%b}' % (b" " * 3000),
    b'{"records":[{"data":1}],"unknown":[%b]}' % RECORDS,
    b'{"records":[%b]} and more' % RECORDS,
    b'{"nothing":[%b]}' % RECORDS,
    b"[%b]" % RECORDS,
)

WRITES = BODIES[:4] + BODIES[6:-1]
"""The bodies that are objects, and whose seqs are given out when they are staged: not so the last piece of a part."""


def told(world: World, body: bytes, headers: dict[str, str], path: str = "/v0/topics/t") -> Any:
    """The answer twice, since an identity is known the second time; without what it took, and without an
    incarnation, which servers draw."""
    found = []
    for _ in range(2):
        answer = world.request("POST", path, body, headers)
        said = {name: value for name, value in answer.json.items() if name != "performance"}
        said.get("error", {}).get("detail", {}).pop("incarnation", None)
        found.append(said | {"": answer.status})
    return found


@pytest.mark.parametrize("step_bytes", [30, 1000])
def test_answers_and_records_are_the_same(make_world: MakeWorld, step_bytes: int) -> None:
    """Whatever the body says, and whatever is wrong with it; unpacked in turns, too."""
    at_once, in_turns = make_world(pass_body_bytes=0), make_world(pass_body_bytes=step_bytes)
    for body in BODIES:
        for headers in (JSON_TYPE, {**JSON_TYPE, "Idempotency-Key": "h"}, GZIPPED, {"Content-Encoding": "gzip"}):
            sent = gzip.compress(body) if "Content-Encoding" in headers else body
            assert told(in_turns, sent, headers) == told(at_once, sent, headers), (body, headers)
    damaged = gzip.compress(BODIES[0])[:-5]
    for sent in (damaged, BODIES[0], gzip.compress(BODIES[0]) * 2):
        assert told(in_turns, sent, GZIPPED) == told(at_once, sent, GZIPPED)
    records = [
        [{**record, "$ts": 0} for record in world.diff("t", limit=1000, include_tags=True)["records"]]
        for world in (at_once, in_turns)
    ]
    assert records[0] == records[1]
    assert len(records[0]) > 500


def test_gzipped_bodies_of_other_requests_are_answered_the_same(make_world: MakeWorld) -> None:
    """2.3/2; each gets what the one before has left."""
    at_once, in_turns = make_world(pass_body_bytes=0), make_world(pass_body_bytes=30)
    padding = b" " * 500
    asked = (
        ("PUT", "/v0/topics/t", b'{"type":"queue"%b}' % padding),
        ("POST", "/v0/topics/t", BODIES[0]),
        ("POST", "/v0/topics/t/diff", b'{"limit":3%b}' % padding),
        ("POST", "/v0/topics/t/claim", b'{"node":"n","max":2,"lease_ms":1000%b}' % padding),
        ("POST", "/v0/topics/t/claim", b'{"node":7%b}' % padding),
        ("POST", "/v0/topics/t/delete", b'{"match":"t1"%b}' % padding),
        ("POST", "/v0/topics/t/delete", b'{"match":"t1"%b' % padding),
        ("POST", "/v0/wait", b'{"topics":{"t":{"seq":1}}%b}' % padding),
    )
    for method, path, body in asked:
        for sent in (gzip.compress(body), gzip.compress(body)[:-5], body):
            answers = [world.request(method, path, sent, GZIPPED) for world in (in_turns, at_once)]
            statuses = [answer.status for answer in answers]
            assert statuses[0] == statuses[1], (method, path, body)
            found, expected = (dict(answer.json) for answer in answers)
            for each in (found, expected):
                each.pop("performance", None)
                each.pop("incarnation", None)
            assert set(found) == set(expected)
            assert found.get("error") == expected.get("error")


def test_one_that_unpacks_beyond_the_limit_is_refused_amid_its_turns(make_world: MakeWorld) -> None:
    """2.3/1."""
    world = make_world(pass_body_bytes=100, max_body_bytes=5000)
    body = b'{"records":[{"data":"%b"}]}' % (b"x" * 5000)
    assert world.request("POST", "/v0/topics/t", gzip.compress(body), GZIPPED).refusal[:2] == (413, "payload_too_large")
    assert world.request("GET", "/v0/topics/t").status == 404


def test_fields_of_a_write_that_are_read_at_one_go_have_a_limit(make_world: MakeWorld) -> None:
    """R-JSON-10: TOPICS_MAX_COMMAND_BYTES."""
    world = make_world(max_command_bytes=1000)
    body = b'{"records":[{"data":1}],"config":{"no":"%b"}}'
    assert world.request("POST", "/v0/topics/t", body % (b"x" * 992), JSON_TYPE).refusal == (
        400,
        "invalid_request",
        None,
    )
    assert world.request("POST", "/v0/topics/t", body % (b"x" * 991), JSON_TYPE).status == 201


def test_one_whose_client_leaves_meanwhile_harms_no_other(make_world: MakeWorld) -> None:
    """R-NET-11; whether it is written is open, but it is all or nothing."""
    world = make_world(pass_body_bytes=30)
    for _ in range(3):
        long = world.connect()
        long.start("POST", "/v0/topics/t", BODIES[0], JSON_TYPE)
        long.reset()
    assert world.request("POST", "/v0/topics/t", BODIES[0], JSON_TYPE).json["first_seq"] % 60 == 1
    assert len(world.diff("t", limit=1000)["records"]) % 60 == 0


def commands(world: World, *messages: bytes) -> list[Any]:
    link = world.connect()
    link.start("GET", "/v0/ws", headers=websocket_client.HEADERS).head()
    link.send(b"".join(frame(TEXT, message) for message in messages))
    incoming, found = Incoming(), list[Any]()

    def answered() -> bool:
        found.extend(json.loads(payload) for _, payload in incoming.feed(link.take_bytes()))
        return len(found) >= len(messages) or link.over

    world.wait_until(answered, 10_000)
    for each in found:
        each.pop("performance", None)
    return found


@pytest.mark.http1
def test_publishes_are_too_and_keep_their_order(make_world: MakeWorld) -> None:
    """R-WS-1: a short one after a long one comes after it."""
    publishes = [b'{"op":"publish","topic":"t","request_id":%d,' % i + body[1:] for i, body in enumerate(WRITES)]
    short = b'{"op":"publish","topic":"t","records":[{"data":1}]}'
    messages = [part for each in publishes for part in (each, short)]
    messages += [b'{"op":"\\u0070ublish","topic":"t","return_seqs":false,' + BODIES[0][1:], b'{"op":"ping"}']
    messages += [
        b'{"op":"publish",' + BODIES[0][1:],
        b'{"op":7,' + BODIES[0][1:],
        b'{"op":"publish","op":1,' + BODIES[0][1:],
    ]
    at_once, in_turns = make_world(pass_body_bytes=0), make_world(pass_body_bytes=60)
    found, expected = commands(in_turns, *messages), commands(at_once, *messages)
    for its, other in zip(found, expected, strict=True):
        for each in (its, other):
            each.pop("message", None)
        assert its == other


@pytest.mark.http1
def test_other_commands_may_be_as_long_as_requests_may(make_world: MakeWorld) -> None:
    """R-WS-9: however little of a body a pass takes, and as short as the setting says."""
    names = b"".join([b'"absent%d":{},' % number for number in range(9)])
    subscribe = b'{"op":"subscribe","lenient":true,"node":["a","b"],"topics":{%b"t":{}}}' % names
    for step_bytes in (0, 60):
        for most in (0, len(subscribe)):
            world = make_world(pass_body_bytes=step_bytes, max_command_bytes=most)
            world.write("t", 1)
            (answer, *_) = commands(world, subscribe)
            assert answer["op"] == "subscribed"
        world = make_world(pass_body_bytes=step_bytes, max_command_bytes=len(subscribe) - 1)
        refused = commands(
            world, subscribe, b'{"op":"ping","unknown":"%b"}' % (b"x" * len(subscribe)), b'{"op":"ping"}'
        )
        assert [(each["op"], each.get("code")) for each in refused] == [
            ("error", "invalid_json"),
            ("error", "invalid_json"),
            ("pong", None),
        ]
        message = b'{"op":"publish","topic":"p",' + BODIES[0][1:]
        assert [answer["op"] for answer in commands(world, message)] == ["ack"]


def test_one_that_is_refused_is_let_go_of_with_its_answer(make_world: MakeWorld) -> None:
    """No cycle of an error, its traceback and what that holds keeps megabytes for the garbage collector."""
    world = make_world(pass_body_bytes=1 << 20, max_body_bytes=1 << 24)
    world.write("t", 1)
    data = b"x" * (1 << 19)
    for end in (b',"tag":"%b"}]}' % (b"x" * 257), b'}],"incarnation":"0123456789abcdef"}', b"}]} and more"):
        body = b'{"records":[%b{"data":0%b' % (b'{"data":"%b"},' % data * 10, end)
        gc.collect()
        before = large_memory()
        gc.disable()
        try:
            assert world.request("POST", "/v0/topics/t", body, JSON_TYPE).status in (400, 409)
            world.request("GET", "/v0/topics/t")
            assert large_memory() == before
        finally:
            gc.enable()


def large_memory() -> int:
    """How many pieces of large memory this process holds; a server in another one is not looked at."""
    return sum(
        isinstance(each, PagedMemory) and not each.closed and len(each) >= LARGE_BYTES for each in gc.get_objects()
    )
