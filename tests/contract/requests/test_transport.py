"""HTTP/1.1 on the wire: heads, framing, keep-alive, malformed requests, clients that leave."""

from __future__ import annotations

import errno
import json

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.answer import take_answer
from tests.contract.world.world import World, request_bytes

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_connection_serves_one_request_after_another(world: World) -> None:
    """R-NET-3: keep-alive is on without being asked for."""
    connection = world.connect()
    for number in range(3):
        answer = connection.request("PUT", f"/v0/topics/t{number}")
        assert answer.status == 201
        assert answer.header("connection") != "close"
    assert not connection.ended


def test_pipelined_requests_are_answered_in_order(world: World) -> None:
    """R-NET-3: also when the first of them takes longest."""
    world.put("a", durability="fsync")
    connection = world.connect()
    write = request_bytes("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    state = request_bytes("GET", "/v0/topics/a")
    connection.send(write + state + HEALTH + b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert connection.answer().json["last_seq"] == 1
    assert connection.answer().json["head_seq"] == 1
    assert connection.answer().json["status"] == "ok"
    assert connection.answer().status == 404


def test_http_1_0_is_answered_and_the_connection_closes(world: World) -> None:
    """R-NET-3: an old client that did not ask for more."""
    connection = world.connect().send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert connection.answer().status == 200
    assert connection.ended


def test_http_1_0_stays_open_when_keep_alive_is_asked_for(world: World) -> None:
    """R-NET-3: Connection: keep-alive counts in HTTP/1.0."""
    connection = world.connect()
    for _ in range(2):
        connection.send(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert connection.answer().status == 200
    assert not connection.ended


@pytest.mark.http1
def test_connection_close_is_honoured(world: World) -> None:
    """R-NET-3: the answer says so too."""
    connection = world.connect()
    answer = connection.request("GET", "/healthz", headers={"Connection": "close"})
    assert answer.header("connection") == "close"
    assert connection.ended


def test_a_head_may_come_byte_by_byte(world: World) -> None:
    """R-NET-7: where the network cuts a request has no meaning."""
    connection = world.connect()
    for byte in request_bytes("POST", "/v0/topics/t", {"records": [{"data": "x"}]}):
        connection.send(bytes([byte]))
        world.settle()
    assert connection.answer().status == 201


def test_a_request_head_that_takes_a_minute_is_cut_off_without_a_word(world: World) -> None:
    """R-NET-4: measured from accept, for a silent connection and for half a head alike."""
    silent = world.connect()
    slow = world.connect().send(b"GET /healthz HT")
    preface = world.connect().send(b"PRI * HTTP/2.0\r\n")
    world.advance_ms(58_000)
    assert not silent.ended
    assert not slow.ended
    world.advance_ms(5_000)
    for connection in (silent, slow, preface):
        assert connection.ended
        assert connection.receive() == b""


def test_the_minute_for_a_head_starts_again_after_each_answer(world: World) -> None:
    """R-NET-4: a connection in use is never too old."""
    connection = world.connect()
    for _ in range(3):
        world.advance_ms(40_000)
        assert connection.request("GET", "/healthz").status == 200
    world.advance_ms(65_000)
    assert connection.ended


def test_a_body_may_come_in_chunks(world: World) -> None:
    """R-NET-7: with extensions, odd cuts and trailers."""
    body = json.dumps({"records": [{"data": "chunked"}]}).encode()
    chunks = b"5;name=value\r\n" + body[:5] + b"\r\n%x\r\n" % (len(body) - 5) + body[5:] + b"\r\n0\r\nX: y\r\n\r\n"
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection = world.connect().send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert connection.answer().status == 201
    assert connection.request("GET", "/healthz").status == 200
    assert world.data("t") == ["chunked"]


def test_a_client_that_expects_100_gets_it_when_its_body_will_be_read(world: World) -> None:
    """R-NET-7: before it sends a byte of it."""
    body = b'{"records":[{"data":1}]}'
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    connection = world.connect().send(head + b"Content-Length: %d\r\n\r\n" % len(body))
    assert connection.answer().status == 100
    connection.send(body)
    assert connection.answer().status == 201


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("POST /v0/nowhere", 404), ("POST /v0/topics", 405), ("POST /v0/topics/t", 413)],
)
def test_no_100_when_the_answer_is_clear_from_the_head(make_world: MakeWorld, request_line: str, status: int) -> None:
    """R-NET-7: 404, 405 and 413 need no body."""
    world = make_world(max_body_bytes=1000)
    head = f"{request_line} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
    connection = world.connect().send(head.encode() + b"Content-Length: 1001\r\n\r\n")
    assert connection.answer().status == status


MALFORMED = {
    "length and chunked": (
        b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    ),
    "two lengths": b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "two lengths in a list": b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 5\r\n\r\nabcde",
    "a bare LF": b"GET /healthz HTTP/1.1\nHost: a\n\n",
    "a bare LF in a field": b"GET /healthz HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "a bare CR": b"GET /healthz HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
    "no chunk end": (
        b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}XX0\r\n\r\n"
    ),
    "a chunk size that is none": (
        b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"zz\r\n{}\r\n0\r\n\r\n"
    ),
    "an unknown transfer coding": b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a negative length": b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "a length with a sign": b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
    "no method": b" /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    "a field name with a blank": b"GET /healthz HTTP/1.1\r\nHost: a\r\nX Y: z\r\n\r\n",
    "a blank before the colon": b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nabcd",
    "a folded field": b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
    "a field without a colon": b"GET /healthz HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n",
    "a NUL": b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
    "another protocol": b"HELO mail.example\r\n\r\n",
    "no host in HTTP/1.1": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_gets_400_and_the_connection_closes(world: World, data: bytes) -> None:
    """R-NET-8, R-NET-9: nothing after it is looked at."""
    connection = world.connect().send(data)
    assert connection.answer().status == 400
    connection.send(HEALTH)
    assert connection.receive() == b""
    assert connection.ended


def test_a_smuggled_request_is_never_served(world: World) -> None:
    """R-NET-8: what one framing takes for a body and the other for a request."""
    inner = b"PUT /v0/topics/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    framing = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(inner))
    world.raw(head + framing + inner)
    assert world.request("GET", "/v0/topics/smuggled").status == 404


@pytest.mark.parametrize("fields", [99, 60])
def test_a_head_of_64_kib_and_100_fields_is_accepted(world: World, fields: int) -> None:
    """R-NET-9: that much must pass."""
    width = (65_000 - 60) // fields - 10
    head = b"".join(b"X-%04d: %s\r\n" % (number, b"v" * width) for number in range(fields))
    assert 60_000 < len(head) < 65_400
    connection = world.connect().send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
    assert connection.answer().status == 200


@pytest.mark.parametrize("head", [b"X: " + b"v" * 1_000_000, b"".join(b"X-%d: y\r\n" % n for n in range(5000))])
def test_a_head_beyond_the_limit_gets_431_and_the_connection_closes(world: World, head: bytes) -> None:
    """R-NET-9: too many bytes or too many fields."""
    connection = world.connect().send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
    assert connection.answer().status == 431
    assert connection.ends()


def test_answers_carry_nothing_of_browsers_and_sessions(world: World) -> None:
    """R-NET-10: no CORS, no cookies, no redirects, no authentication challenges."""
    answers = [
        world.request("PUT", "/v0/topics/t", {}, {"Cookie": "a=b"}),
        world.request("GET", "/v0/topics/t", headers={"Origin": "http://127.0.0.1"}),
        world.request("GET", "/v0/topics/"),
        world.request("OPTIONS", "/v0/topics/t", headers={"Access-Control-Request-Method": "PUT"}),
    ]
    for answer in answers:
        names = {name for name, _ in answer.headers}
        assert not {name for name in names if name.startswith("access-control-")}
        assert not names & {"set-cookie", "location", "www-authenticate"}
        assert not 300 <= answer.status < 400


def test_out_of_descriptors_is_no_reason_to_end(world: World) -> None:
    """R-NET-8: accepting fails for a while, then works."""
    for error in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOBUFS):
        world.fail_storage("accept", error, times=3)
        connections = [world.connect() for _ in range(5)]
        world.advance_ms(3000)
        world.heal_storage()
        assert world.request("GET", "/healthz").status == 200
        for connection in connections:
            connection.reset()


def test_the_wait_of_a_client_that_left_is_over(world: World) -> None:
    """R-NET-11: and others who wait on the same topic do not notice."""
    world.put("t")
    leaver, stayer = (world.ask("POST", "/v0/topics/t/diff", {"wait_ms": 20_000}) for _ in range(2))
    assert leaver.waiting
    leaver.reset()
    assert stayer.waiting
    world.write("t", "news")
    assert stayer.answer().json["records"][0]["data"] == "news"


def test_a_client_may_leave_in_the_middle_of_its_request(world: World) -> None:
    """R-NET-11: half a write is no write."""
    data = request_bytes("POST", "/v0/topics/t", {"records": [{"data": "x"}]})
    for cut in (5, 40, len(data) - 1):
        connection = world.connect().send(data[:cut])
        world.settle()
        connection.reset()
    assert world.request("GET", "/v0/topics/t").status == 404


def test_a_client_that_half_closes_still_gets_its_answer(world: World) -> None:
    """R-NET-11: having nothing more to say is not leaving."""
    connection = world.connect().start("POST", "/v0/topics/t", {"records": [{"data": 1}]}).finish_sending()
    assert connection.answer().status == 201
    assert connection.ended


def test_small_answers_leave_at_once(world: World) -> None:
    """R-NET-6: nothing is held back to travel with something else. A real machine may be busy, though not each time."""
    took_ms = []
    for _ in range(20):
        before_ms = world.now_ms()
        world.request("GET", "/healthz")
        took_ms.append(world.now_ms() - before_ms)
    assert min(took_ms) <= 5


def test_every_answer_parses_to_its_last_byte(world: World) -> None:
    """3.1: lengths are right, so that a hundred answers on one connection stay in step."""
    connection = world.connect()
    requests = [
        ("GET", "/healthz"),
        ("GET", "/nowhere"),
        ("HEAD", "/v0/topics"),
        ("GET", "/v0/metrics"),
        ("DELETE", "/v0/topics/t"),
    ]
    for method, path in requests * 20:
        assert connection.request(method, path).status in (200, 404)
    assert connection.receive() == b""
    assert take_answer(bytearray(b"HTTP/1.1 200 OK\r\n")) is None
