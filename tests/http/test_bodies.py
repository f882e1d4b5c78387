"""R-NET-7, R-NET-8 and the body steps of 2.3."""

import gzip
import random
import zlib

import pytest

from tests.engine.fake_store import FakeLoop
from tests.http.byte_stream import Echo, Peer, make_service
from topics.http.access.keyring import parse_keys
from topics.http.access.routes import Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.handlers.record_endpoints import write
from topics.http.http1.http1_connection import PIPELINED_BYTES
from topics.http.plan.body import unpack

HEAD = b"POST /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def bodies(peer: Peer, data: bytes) -> list[str]:
    return [response.json["body"] for response in peer.send(data)]


def test_a_body_by_length_is_taken_however_it_is_split(peer: Peer) -> None:
    data = HEAD + b'Content-Length: 7\r\n\r\n{"a":1}'
    for split in range(1, len(data)):
        peer.http.receive(data[:split])
        peer.http.receive(data[split:] + data)
        assert [response.json["body"] for response in peer.wire.take()] == ['{"a":1}'] * 2


def test_a_chunked_body_is_taken_however_it_is_split(peer: Peer) -> None:
    data = CHUNKED + b'3;x=y\r\n{"a\r\n4\r\n":1}\r\n0\r\nTrailer: t\r\n\r\n'
    for split in range(1, len(data)):
        peer.http.receive(data[:split])
        peer.http.receive(data[split:] + data)
        assert [response.json["body"] for response in peer.wire.take()] == ['{"a":1}'] * 2


@pytest.mark.parametrize(
    "body",
    [
        b"2\r\n{}x\r\n0\r\n\r\n",
        b"2\r\n{}\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"2 \r\n{}\r\n0\r\n\r\n",
        b"\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"11111111111111111\r\n",
        b"2;a\nb\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\r\n0\r\nno colon\r\n\r\n",
        b"2\r\n{}\r\n0\r\n folded: x\r\n\r\n",
        b"2;" + b"x" * 5000,
    ],
)
def test_a_bad_chunk_gets_400_and_the_connection_closes(peer: Peer, body: bytes) -> None:
    """R-NET-8."""
    (response,) = peer.send(CHUNKED + body)
    assert response.status == 400
    assert peer.wire.closed


def test_a_length_over_the_limit_is_refused_without_reading(peer: Peer) -> None:
    (response,) = peer.send(HEAD + b"Content-Length: 1099511627776\r\n\r\n{")
    assert response.status == 413
    assert response.code == "payload_too_large"
    assert response.headers["connection"] == "close"
    assert peer.wire.closed
    peer.http.receive(b"x" * 1000)
    assert peer.wire.sent == b""


def test_a_chunked_body_is_refused_as_soon_as_it_crosses_the_limit(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes(), max_body_bytes=10))
    assert peer.send(CHUNKED + b"8\r\n12345678\r\n") == []
    (response,) = peer.send(b"3\r\n")
    assert response.status == 413


def test_behind_a_chunked_body_that_is_over_the_limit_and_whole_the_connection_goes_on(echo: Echo) -> None:
    keys = parse_keys("secret", 2)
    principal = keys.find(b"secret")
    assert principal is not None
    peer = Peer(make_service(echo.routes(), max_body_bytes=10, keyring=keys))
    big = CHUNKED.replace(b"Host", b"Authorization: Bearer secret\r\nHost") + b"b\r\n12345678901\r\n0\r\n\r\n"
    data = big + b"GET /v0/topics/a HTTP/1.1\r\nAuthorization: Bearer secret\r\nHost: localhost\r\n\r\n"
    for pieces in ([], [len(big)], [len(big), len(data) - 1]):
        responses = peer.send(data, pieces=pieces)
        assert [response.status for response in responses] == [413, 200]
        assert (principal.in_flight, peer.http.held_bytes) == (0, 0)


def test_a_body_of_exactly_the_limit_is_taken_and_zero_is_no_limit(echo: Echo) -> None:
    body = b'"12345678"'
    for limit in (10, 0):
        peer = Peer(make_service(echo.routes(), max_body_bytes=limit))
        assert peer.ask("POST", "/v0/topics/jobs", body).status == 200
    peer = Peer(make_service(echo.routes(), max_body_bytes=9))
    assert peer.send(HEAD + b"Content-Length: 10\r\n\r\n")[0].status == 413


def test_an_oversize_body_of_a_wrong_type_is_413(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes(), max_body_bytes=9))
    assert peer.ask("POST", "/v0/topics/jobs", b'"12345678"', content_type="text/plain").status == 413


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("  application/json; charset=utf-8", 200),
        ("application/jsonx", 200),
        ("Application/json", 415),
        ("text/plain", 415),
        ("text/json, application/json", 415),
    ],
)
def test_the_content_type_must_begin_with_application_json(peer: Peer, content_type: str, status: int) -> None:
    response = peer.ask("POST", "/v0/topics/jobs", b"{}", content_type=content_type)
    assert response.status == status
    if status == 415:
        assert response.code == "unsupported_media_type"
        assert not peer.wire.closed, "the body was read, so the connection goes on"


def test_a_missing_content_type_is_415_also_for_an_empty_body(peer: Peer) -> None:
    assert peer.ask("POST", "/v0/topics/jobs", b"{}", json_type=False).status == 415
    assert peer.ask("POST", "/v0/topics/jobs", b"", json_type=False).status == 415


def test_routes_that_take_an_empty_body_take_it_without_a_type(peer: Peer) -> None:
    assert peer.ask("PUT", "/v0/topics/jobs", b"", json_type=False).status == 200
    assert peer.ask("PUT", "/v0/topics/jobs", b"{}", json_type=False).status == 415


def test_a_gzip_body_is_decompressed(peer: Peer) -> None:
    body = gzip.compress(b'{"a"') + gzip.compress(b":1}")
    assert peer.ask("POST", "/v0/topics/jobs", body, content_encoding="gzip").json["body"] == '{"a":1}'


def test_a_gzip_body_of_several_members_and_slices_is_one_body(peer: Peer) -> None:
    peer.service.step_bytes = 1 << 62  # the echo takes no turns
    noise = random.Random(1).randbytes(100_000).hex()
    body = gzip.compress(b'{"a":"') + gzip.compress(noise.encode()) + gzip.compress(b"") + gzip.compress(b'"}')
    answer = peer.ask("POST", "/v0/topics/a", body, content_encoding="gzip", content_type="application/json")
    assert answer.json["body"] == f'{{"a":"{noise}"}}'


def test_a_gzip_body_of_countless_members_is_refused_at_once(peer: Peer) -> None:
    body = gzip.compress(b"") * 50_000
    answer = peer.ask("POST", "/v0/topics/a", body, content_encoding="gzip", content_type="application/json")
    assert answer.code == "invalid_request"
    assert "members" in answer.json["error"]["message"]


def test_a_gzip_body_over_the_limit_once_decompressed_is_413(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes(), max_body_bytes=1000))
    response = peer.ask("POST", "/v0/topics/jobs", gzip.compress(b" " * 1_000_000)[:900], content_encoding="gzip")
    assert response.status == 413


GZIPPED = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize("body", [b"not gzip", GZIPPED[:-3], GZIPPED + b"x"])
def test_a_corrupt_gzip_body_is_400(peer: Peer, body: bytes) -> None:
    assert peer.ask("POST", "/v0/topics/jobs", body, content_encoding="gzip").code == "invalid_request"


def test_another_encoding_is_415_and_identity_is_none(peer: Peer) -> None:
    assert peer.ask("POST", "/v0/topics/jobs", b"{}", content_encoding="br").code == "unsupported_media_type"
    assert peer.ask("POST", "/v0/topics/jobs", b"{}", content_encoding="Identity").status == 200


def test_bodies_of_get_and_delete_are_ignored(peer: Peer) -> None:
    for method in ("GET", "DELETE"):
        response = peer.ask(method, "/v0/topics/jobs", b"not json", content_encoding="br", content_type="x/y")
        assert response.status == 200
        assert response.json["body"] == ""
    assert not peer.wire.closed


# --- Expect: 100-continue --------------------------------------------------------------------------------------------
EXPECT = HEAD + b"Expect: 100-continue\r\n"


def test_continue_comes_when_the_body_is_going_to_be_read(peer: Peer) -> None:
    """R-NET-7."""
    assert [r.status for r in peer.send(EXPECT + b"Content-Length: 2\r\n\r\n")] == [100]
    assert [r.status for r in peer.send(b"{}")] == [200]
    assert [r.status for r in peer.send(EXPECT + b"Transfer-Encoding: chunked\r\n\r\n")] == [100]
    assert [r.status for r in peer.send(b"2\r\n{}\r\n0\r\n\r\n")] == [200]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (EXPECT + b"Content-Length: 1099511627776\r\n\r\n", 413),
        (EXPECT.replace(b"jobs", b"a/b/c") + b"Content-Length: 2\r\n\r\n", 404),
        (EXPECT.replace(b"POST", b"PATCH") + b"Content-Length: 2\r\n\r\n", 405),
        (EXPECT.replace(b"application/json", b"text/plain") + b"Content-Length: 2\r\n\r\n", 415),
        (EXPECT + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n", 415),
    ],
)
def test_no_continue_when_the_answer_is_known_without_the_body(peer: Peer, head: bytes, status: int) -> None:
    """R-NET-7."""
    (response,) = peer.send(head)
    assert response.status == status
    assert response.headers["connection"] == "close"
    assert peer.wire.closed


def test_no_continue_without_a_body_or_for_one_that_is_ignored(peer: Peer) -> None:
    """R-NET-7."""
    assert [r.status for r in peer.send(EXPECT + b"Content-Length: 0\r\n\r\n")] == [200]
    get = b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    assert [r.status for r in peer.send(get)] == [200]


def test_a_refused_request_with_a_small_body_keeps_its_connection(peer: Peer) -> None:
    assert peer.ask("POST", "/v0/nowhere", b"x" * 100).status == 404
    assert peer.ask("GET", "/v0/topics/jobs").status == 200


EMPTY_BLOCKS = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 200_000 + b"\3\0" + bytes(8)
"""Unpacked there is nothing of them."""


def test_a_gzip_body_that_holds_next_to_nothing_is_unpacked_in_steps_too() -> None:
    """Blocks of deflate may be empty: time passes without any output."""
    steps = sum(1 for _ in unpack(EMPTY_BLOCKS, 1 << 20, 1 << 20))
    assert steps == len(EMPTY_BLOCKS) // 65_536


def test_so_is_one_of_a_route_whose_bodies_are_small(echo: Echo) -> None:
    loop = FakeLoop()
    route = Route("POST", "/v0/topics/:topic/claim", Scope.WRITE, echo.echo, body=Body.JSON_OR_EMPTY)
    peer = Peer(make_service(RouteTable([route]), loop=loop, pass_body_bytes=1 << 20))
    head = HEAD.replace(b"jobs", b"jobs/claim") + b"Content-Encoding: gzip\r\n"
    passes = 0
    answers = peer.send(head + b"Content-Length: %d\r\n\r\n" % len(EMPTY_BLOCKS) + EMPTY_BLOCKS)
    while not answers and loop.waiting:
        passes += 1
        loop.advance_ms(0)
        answers = peer.wire.take()
    assert [answer.json["body"] for answer in answers] == [""]
    assert passes == len(EMPTY_BLOCKS) // 65_536, "the first step is taken where it was received"


def test_one_of_those_whose_client_leaves_reaches_no_handler(echo: Echo) -> None:
    loop = FakeLoop()
    route = Route("POST", "/v0/topics/:topic/claim", Scope.WRITE, echo.park, body=Body.JSON_OR_EMPTY)
    for turns_before in (0, 1):
        peer = Peer(make_service(RouteTable([route]), loop=loop, pass_body_bytes=1 << 20))
        head = HEAD.replace(b"jobs", b"jobs/claim") + b"Content-Encoding: gzip\r\n"
        peer.send(head + b"Content-Length: %d\r\n\r\n" % len(EMPTY_BLOCKS) + EMPTY_BLOCKS)
        for _ in range(turns_before):
            loop.advance_ms(0)
        peer.http.lost()
        while loop.waiting:
            loop.advance_ms(0)
        assert peer.service.in_flight.requests == 0
    assert echo.parked == []


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_wait_that_begins_after_its_body_was_unpacked_ends_with_its_client(echo: Echo, is_gone: bool) -> None:
    """R-NET-11: the client closed meanwhile, or does so later; so much was before its request that reading paused."""
    loop = FakeLoop()
    routes = [
        Route("POST", "/v0/topics/:topic/claim", Scope.WRITE, echo.wait, body=Body.JSON_OR_EMPTY),
        Route("GET", "/park", Scope.READ, echo.park),
        Route("GET", "/v0/topics/:topic", Scope.READ, echo.echo),
    ]
    peer = Peer(make_service(RouteTable(routes), loop=loop, pass_body_bytes=1 << 20))
    get = b"GET /v0/topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = HEAD.replace(b"jobs", b"jobs/claim") + b"Content-Encoding: gzip\r\n"
    claim = head + b"Content-Length: %d\r\n\r\n" % len(EMPTY_BLOCKS) + EMPTY_BLOCKS
    peer.send(b"GET /park HTTP/1.1\r\nHost: localhost\r\n\r\n")
    peer.send(get * (PIPELINED_BYTES // len(get) + 2) + claim)
    echo.parked[0].reply(b"1")
    assert len(echo.parked) == 1
    if is_gone:
        peer.http.end_of_stream()
    while loop.waiting:
        loop.advance_ms(0)
    assert len(echo.parked) == 2
    if not is_gone:
        assert not peer.wire.paused
        assert echo.abandoned == []
        peer.http.end_of_stream()
    assert echo.abandoned == echo.parked[1:]
    assert (peer.wire.closed, peer.service.in_flight.requests) == (True, 0)


def test_a_browser_is_told_not_to_guess_what_the_refusal_of_a_malformed_chunk_is(peer: Peer) -> None:
    """R-NET-13: the head was in order."""
    head = HEAD + b"Sec-Fetch-Site: same-origin\r\nTransfer-Encoding: chunked\r\n\r\n"
    (answer,) = peer.send(head + b"1\r\n{}\r\n")
    assert (answer.status, answer.headers["x-content-type-options"]) == (400, "nosniff")


def test_a_long_body_that_waits_for_its_turns_is_counted_until_its_client_leaves() -> None:
    route = Route("POST", "/v0/topics/:topic", Scope.WRITE, write, body=Body.JSON, large=True)
    peer = Peer(make_service(RouteTable([route]), pass_body_bytes=100))
    body = b'{"records":[{"data":"%b"}]}' % random.Random(1).randbytes(500).hex().encode()
    for encoding, sent in ((b"", body), (b"Content-Encoding: gzip\r\n", zlib.compress(body, wbits=31))):
        peer = Peer(peer.service)
        peer.http.receive(HEAD + encoding + b"Content-Length: %d\r\n\r\n" % len(sent) + sent)
        call = peer.http._call
        assert call is not None
        assert len(sent) <= peer.http.held_bytes <= len(sent) + 100  # and what its first step unpacks
        peer.http.lost()
        assert (peer.http.held_bytes, call.body, call.unpacking) == (0, b"", None)


def unpacking_peer(echo: Echo, *, is_large: bool) -> tuple[Peer, FakeLoop, bytes]:
    """A peer whose compressed body of 8 KB, which was `sent`, is unpacked by a kilobyte a pass of the loop."""
    handler = write if is_large else echo.echo
    route = Route("POST", "/v0/topics/:topic", Scope.WRITE, handler, body=Body.JSON, large=is_large)
    loop = FakeLoop()
    peer = Peer(make_service(RouteTable([route]), loop=loop, pass_body_bytes=1000))
    sent = zlib.compress(b'{"records":[{"data":"%b"}]}' % (b"x" * 8000), wbits=31)
    peer.http.receive(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(sent) + sent)
    return peer, loop, sent


@pytest.mark.parametrize("is_large", [False, True])
def test_what_is_unpacked_of_a_body_is_counted_as_it_grows(echo: Echo, is_large: bool) -> None:
    """A megabyte of a client that sends a kilobyte would be nothing to those who drop clients that hold too much."""
    peer, loop, sent = unpacking_peer(echo, is_large=is_large)
    held = [peer.http.held_bytes]
    for _ in range(6):
        loop.advance_ms(0)
        held.append(peer.http.held_bytes)
    assert held == [len(sent) + 1000 * number for number in range(1, 8)]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_body_is_not_unpacked_further_when_its_client_has_left(echo: Echo, is_large: bool) -> None:
    peer, loop, _sent = unpacking_peer(echo, is_large=is_large)
    loop.advance_ms(0)
    works = peer.service.long_bodies if is_large else peer.service.long_commands
    assert len(works) == 1
    peer.http.lost()
    loop.advance_ms(0)
    assert (len(works), peer.http.held_bytes) == (0, 0)


def test_a_command_that_is_unpacked_in_turns_waits_for_no_long_write(echo: Echo) -> None:
    loop = FakeLoop()
    routes = [
        Route("POST", "/v0/topics/:topic", Scope.WRITE, write, body=Body.JSON, large=True),
        Route("POST", "/v0/topics/:topic/claim", Scope.WRITE, echo.echo, body=Body.JSON_OR_EMPTY),
    ]
    writer = Peer(make_service(RouteTable(routes), loop=loop, pass_body_bytes=65_536))
    long = b'{"records":[%b]}' % b",".join([b'{"data":"%b"}' % (b"x" * 100)] * 9000)
    writer.http.receive(HEAD + b"Content-Length: %d\r\n\r\n" % len(long) + long)
    assert len(writer.service.long_bodies) == 1, writer.wire.take()
    claimer = Peer(writer.service)
    head = HEAD.replace(b"jobs", b"jobs/claim") + b"Content-Encoding: gzip\r\n"
    sent = EMPTY_BLOCKS[:10] + b"\0\0\0\xff\xff" * 3000 + b"\3\0" + bytes(8)
    assert claimer.send(head + b"Content-Length: %d\r\n\r\n" % len(sent) + sent) == []
    answers = []
    for _ in range(10):
        loop.advance_ms(0)
        answers += claimer.wire.take()
    assert [answer.json["body"] for answer in answers] == [""]
    assert len(writer.service.long_bodies) == 1
