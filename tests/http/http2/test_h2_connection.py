"""HTTP/2: the protocol's choice, requests, windows, limits and ends, frame by frame, over the package's client side."""

import gzip
import struct
from itertools import pairwise

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.engine.fake_store import FakeLoop
from tests.http.byte_stream import Echo, FakeCores, Peer, Response, make_service
from tests.http.http2.h2_peer import H2Client, H2Peer, Seen, frame
from topics.errors import RequestError
from topics.http.access.keyring import parse_keys
from topics.http.access.routes import Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.http1.http1_connection import HttpConnection
from topics.http.http2.h2_connection import PREFACE, Http2Connection
from topics.http.wire.response import JSON
from topics.http.wire.stream import Block
from topics.http.wire.transport import Arriving, Waits

WAITS = Waits(head=60, idle=75, ping_after=20, ping_timeout=20, stall=30, drain=10)
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def h2(echo: Echo) -> H2Peer:
    return H2Peer(make_service(echo.routes()))


def test_a_request_for_a_topic_of_another_core_is_refused(echo: Echo) -> None:
    cores = FakeCores()
    h2 = H2Peer(make_service(echo.routes(), cores=cores))
    far, near = (h2.client.begin("GET", f"/v0/topics/{name}") for name in ("far", "near"))
    h2.server.receive(h2.client.take())
    assert (h2.seen(far).response.code, h2.seen(near).response.json["name"]) == ("not_ready", "near")
    assert cores.given == []


# --- the choice of the protocol --------------------------------------------------------------------------------------
@pytest.mark.parametrize("cut", [1, 3, 18, 23, 24])
def test_the_preface_chooses_http_2_however_it_is_cut(h2: H2Peer, cut: int) -> None:
    """R-NET-1."""
    stream = h2.client.begin("GET", "/v0/topics/a")
    data = h2.client.take()
    h2.server.receive(data[:cut])
    assert isinstance(h2.server, Http2Connection) == (cut == 24)
    h2.server.receive(data[cut:])
    assert h2.seen(stream).response.json["name"] == "a"


@pytest.mark.parametrize("first", [b"P", b"PRI", b"PRI * HTTP/2.0\r\n\r\nS"])
def test_a_part_of_the_preface_waits_and_is_overdue_like_a_head(h2: H2Peer, first: bytes) -> None:
    """R-NET-4."""
    h2.server.receive(first)
    assert (h2.wire.sent, h2.wire.closed) == (b"", False)
    h2.service.tick += WAITS.head
    assert not h2.server.overdue(WAITS)
    h2.service.tick += 1
    assert h2.server.overdue(WAITS)


@pytest.mark.parametrize("first", [b"PO", b"PRI * HTTP/2.1", b"PRI * HTTP/2.0\r\n\r\nSX", b"GET"])
def test_anything_else_is_http_1(h2: H2Peer, first: bytes) -> None:
    """R-NET-1."""
    for at in range(len(first)):
        h2.server.receive(first[at : at + 1])
    assert isinstance(h2.server, HttpConnection)


@pytest.mark.parametrize(
    ("first", "decided"), [(b"", 0), (b"P", 0), (b"PR", 0), (b"PRI", 0), (b"PO", 1), (b"GET /", 1)]
)
def test_a_handler_of_requests_in_bulk_may_settle_on_http_1_early(h2: H2Peer, first: bytes, decided: int) -> None:
    assert isinstance(h2.server.begin_http1(memoryview(first)), HttpConnection) == decided
    assert isinstance(h2.server, HttpConnection) == decided


def test_a_preface_behind_a_request_is_a_malformed_request(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes()))
    assert [r.status for r in peer.send(b"GET /v0/topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n" + PREFACE)] == [
        200,
        400,
    ]


# --- settings --------------------------------------------------------------------------------------------------------
def test_the_settings_are_the_contracts(h2: H2Peer) -> None:
    """R-NET-5."""
    h2.flush()
    announced = h2.client.server_settings
    assert announced[SettingCodes.INITIAL_WINDOW_SIZE] == 1 << 20
    assert announced[SettingCodes.MAX_CONCURRENT_STREAMS] == 1024
    assert not announced.get(SettingCodes.ENABLE_CONNECT_PROTOCOL)
    assert h2.client.h2.outbound_flow_control_window == 4 << 20


# --- requests --------------------------------------------------------------------------------------------------------
def test_a_request_is_what_it_would_be_over_http_1(h2: H2Peer, echo: Echo) -> None:
    """R-NET-2."""
    body, headers = b'{"records":[]}', {"Content-Type": "application/json", "Content-Length": "14", "X-Odd": "\xe9"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /v0/topics/caf%C3%A9?a=1&b=%20 HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode("latin-1") + body
    (one,) = Peer(make_service(echo.routes())).send(request)
    stream = h2.client.begin("POST", "/v0/topics/caf%C3%A9?a=1&b=%20", body, headers)
    two = h2.seen(stream).response
    assert two.json == one.json
    assert (two.status, two.headers) == (one.status, one.headers)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/nowhere", 404), ("PATCH", "/v0/topics", 405), ("GET", "/v0/topics/%ff", 400), ("GET", "/fail", 500)],
)
def test_errors_are_the_same_too(h2: H2Peer, echo: Echo, method: str, target: str, status: int) -> None:
    """R-NET-2."""
    (one,) = Peer(make_service(echo.routes())).send(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert h2.ask(method, target) == one
    assert one.status == status


def test_the_gate_is_asked_and_many_streams_are_answered_in_any_order(h2: H2Peer, echo: Echo) -> None:
    first, second = h2.begin("GET", "/park"), h2.begin("GET", "/park")
    echo.parked[1].reply(b"2")
    assert h2.seen(second).response.json == 2
    h2.service.gate = lambda _plan: RequestError("shutting_down", "going")
    refused = h2.ask("GET", "/park")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    echo.parked[0].reply(b"1")
    assert h2.seen(first).response.json == 1


def test_a_head_request_gets_the_length_and_no_body(h2: H2Peer) -> None:
    answer = h2.ask("HEAD", "/v0/topics/a")
    assert answer.body == b""
    assert int(answer.headers["content-length"]) > 0


def test_a_body_may_come_in_many_frames_and_with_trailers(h2: H2Peer) -> None:
    stream = h2.client.begin("POST", "/v0/topics/a", None, {"content-type": "application/json"}, end=False)
    for part in (b'{"a"', b":", b"1}"):
        h2.client.h2.send_data(stream, part)
        h2.flush()
    h2.client.h2.send_headers(stream, [(b"x-sum", b"1")], end_stream=True)
    assert h2.seen(stream).response.json["body"] == '{"a":1}'


@pytest.mark.parametrize("sent", [b"", b"{}"])
def test_a_body_that_ends_before_its_content_length_is_malformed_and_not_run(h2: H2Peer, sent: bytes) -> None:
    """R-NET-8: a PUT whose body was lost would set the defaults."""
    headers = {"content-length": "10", "content-type": "application/json"}
    stream = h2.client.begin("PUT", "/v0/topics/a", None, headers, end=not sent)
    if sent:
        h2.client.h2.send_data(stream, sent)
        h2.client.h2.send_headers(stream, [(b"x-trailer", b"1")], end_stream=True)
    assert h2.seen(stream).response.status == 400
    assert h2.service.in_flight.total == 0
    assert h2.ask("GET", "/v0/topics/a").status == 200


def test_expect_continue_is_answered_when_the_body_is_wanted(h2: H2Peer) -> None:
    """R-NET-7."""
    wanted = h2.client.begin(
        "POST", "/v0/topics/a", None, {"content-type": "application/json", "expect": "100-continue"}, end=False
    )
    refused = h2.client.begin("POST", "/nowhere", None, {"expect": "100-continue"}, end=False)
    assert h2.seen(wanted).informational == [100]
    assert h2.client.seen[refused].informational == []
    assert h2.client.seen[refused].response.status == 404


# --- bodies and their limits -----------------------------------------------------------------------------------------
def test_a_body_announced_too_large_is_refused_at_once_and_its_stream_waits_for_the_client(echo: Echo) -> None:
    """R-NET-7."""
    h2 = H2Peer(make_service(echo.routes(), max_body_bytes=1000))
    headers = {"content-type": "application/json", "content-length": str(1 << 40)}
    stream = h2.client.begin("POST", "/v0/topics/a", None, headers, end=False)
    seen = h2.seen(stream)
    assert seen.response.code == "payload_too_large"
    assert seen.reset is None
    assert h2.ask("GET", "/v0/topics/a").status == 200


def send_all(h2: H2Peer, stream: int, size: int) -> None:
    """A body as a client sends it that looks at no answer before its end, as far as the windows open."""
    rest = b"x" * size
    while rest:
        left = h2.client.send_body(stream, rest)
        h2.flush()
        assert len(left) < len(rest), "the windows stay shut"
        rest = left


@pytest.mark.parametrize("announced", [True, False])
def test_a_refused_body_of_many_windows_may_be_sent_to_its_end(echo: Echo, announced: bool) -> None:
    """R-NET-7: a client that reads the answer only then has it."""
    h2 = H2Peer(make_service(echo.routes(), max_body_bytes=1000))
    size = 6 << 20
    headers = {"content-type": "application/json"} | ({"content-length": str(size)} if announced else {})
    stream = h2.client.begin("POST", "/v0/topics/a", None, headers, end=False)
    send_all(h2, stream, size)
    seen = h2.seen(stream)
    assert (seen.response.code, seen.reset) == ("payload_too_large", None)
    assert (h2.server.held_bytes, h2.server.arriving) == (0, [])


def test_more_of_a_refused_body_than_is_drained_resets_its_stream(echo: Echo) -> None:
    """R-NET-7: a frame counts as a KiB at least, and the streams of a connection together."""
    h2 = H2Peer(make_service(echo.routes(), max_body_bytes=1000, h2_drain_bytes=29 * 1024))
    first, second = (
        h2.client.begin("POST", "/nowhere", None, {"content-type": "application/json"}, end=False) for _ in range(2)
    )
    for number in (first, second):
        for _ in range(10):
            h2.client.h2.send_data(number, b"")
            h2.client.h2.send_data(number, b"x")
    assert h2.seen(second).reset == ErrorCodes.NO_ERROR
    assert (h2.seen(first).reset, h2.seen(first).response.status) == (None, 404)
    third = h2.client.begin("POST", "/nowhere", None, {"content-type": "application/json"}, end=False)
    send_all(h2, third, 7 * 1024)
    assert h2.seen(third).reset is None, "what the second one had used is free again"
    h2.client.send_body(first, b"x" * 10_240, end=False)
    assert h2.seen(first).reset == ErrorCodes.NO_ERROR
    assert h2.ask("GET", "/v0/topics/a").status == 200


def test_a_refused_body_that_goes_on_for_too_long_resets_its_stream(h2: H2Peer) -> None:
    """R-NET-7: however fast it comes."""
    stream = h2.client.begin("POST", "/nowhere", None, {"content-type": "application/json"}, end=False)
    h2.flush()
    for _ in range(WAITS.drain):
        h2.service.tick += 1
        h2.client.send_body(stream, b"x" * 1000, end=False)
        h2.flush()
        h2.server.overdue(WAITS)
        assert h2.seen(stream).reset is None
    h2.service.tick += 1
    h2.server.overdue(WAITS)
    assert (h2.seen(stream).reset, h2.seen(stream).response.status) == (ErrorCodes.NO_ERROR, 404)
    assert not h2.wire.closed


def test_a_reader_that_waits_is_not_hurried_by_a_refused_body(h2: H2Peer) -> None:
    """R-SSE-6."""
    h2.client.begin("GET", "/stream")
    h2.flush()
    h2.client.begin("POST", "/nowhere", None, {"content-type": "application/json"}, end=False)
    h2.flush()
    assert h2.server.patient


def test_a_body_that_grows_too_large_is_refused_where_it_does(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), max_body_bytes=1000))
    stream = h2.client.begin("POST", "/v0/topics/a", b"x" * 1001, {"content-type": "application/json"}, end=False)
    assert h2.seen(stream).response.code == "payload_too_large"
    assert h2.server.held_bytes == 0


def test_the_windows_open_again_as_a_body_is_taken(h2: H2Peer) -> None:
    body = b'"' + b"x" * (6 << 20) + b'"'
    stream = h2.client.begin("POST", "/v0/topics/a", None, {"content-type": "application/json"}, end=False)
    rest = body
    while rest:
        rest = h2.client.send_body(stream, rest)
        h2.flush()
    assert len(h2.seen(stream).response.json["body"]) == len(body)
    assert h2.server.held_bytes == 0


def test_a_body_that_stops_coming_is_reset_like_a_head_that_does(h2: H2Peer) -> None:
    stream = h2.client.begin("POST", "/v0/topics/a", b"{", {"content-type": "application/json"}, end=False)
    h2.flush()
    assert (h2.server.arriving, h2.server.held_bytes) == ([Arriving(1, 1)], 1)
    assert h2.server.look_cost == 2, "the connection, and its stream"
    h2.service.tick += WAITS.head + 1
    h2.server.overdue(WAITS)
    assert h2.seen(stream).reset == ErrorCodes.CANCEL
    assert (h2.server.arriving, h2.server.held_bytes) == ([], 0)
    assert h2.server.look_cost == 1


# --- heads and their limits ------------------------------------------------------------------------------------------
def test_a_head_over_the_limits_is_431_and_the_limits_themselves_are_met(h2: H2Peer) -> None:
    """R-NET-9."""
    assert h2.ask("GET", "/v0/topics/a", None, x="x" * 64_000).status == 200
    many = {f"x{number}": "y" for number in range(100)}
    assert h2.ask("GET", "/v0/topics/a", None, **many).status == 200
    assert h2.ask("GET", "/v0/topics/a", None, x="x" * 66_000).status == 431
    assert h2.ask("GET", "/v0/topics/a", None, **many, y="1").status == 431
    assert h2.ask("GET", "/v0/topics/a").status == 200


def test_a_header_bomb_ends_the_connection(h2: H2Peer) -> None:
    h2.begin("GET", "/v0/topics/a", None, x="\\" * 70_000)  # of 19 bits each in Huffman's code
    assert h2.client.goaways[0][0] == ErrorCodes.ENHANCE_YOUR_CALM
    assert h2.wire.closed


def test_a_flood_of_continuations_ends_the_connection(h2: H2Peer) -> None:
    h2.raw(frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 200)
    assert h2.client.goaways
    assert h2.wire.closed


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "http://other/v0", {}),
        ("GET", "v0/topics", {}),
        ("G T", "/v0/topics", {}),
        ("GET", "/v0/to pics", {}),
        ("GET", "/v0/topics/\xe9", {}),
        ("GET", "/v0/topics/a", {"x": "a\x01b"}),
    ],
)
def test_a_request_http_1_would_not_take_is_400(h2: H2Peer, method: str, target: str, headers: dict[str, str]) -> None:
    stream = h2.client.begin(method, target, None, headers)
    assert h2.seen(stream).response.code == "invalid_request"
    assert not h2.wire.closed


def test_a_foreign_host_is_refused_in_either_place(h2: H2Peer) -> None:
    assert h2.ask("GET", "/v0/topics/a", None, host="evil.example").status == 403
    assert h2.ask("GET", "/v0/topics/a", None, host="localhost").status == 200


def ask_list(h2: H2Peer, *fields: tuple[bytes, bytes]) -> Response:
    """A GET of a topic with no host but those of `fields`."""
    stream = h2.client.begin("GET", "/v0/topics/a", end=False)
    given = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/v0/topics/a"), *fields]
    h2.flush()
    number = h2.client.h2.get_next_available_stream_id()
    h2.client.seen[number] = Seen()
    h2.client.h2.send_headers(number, given, end_stream=True)
    response = h2.seen(number).response
    h2.client.h2.end_stream(stream)
    assert h2.seen(stream).response.status == 200, "others of the connection go on"
    assert not h2.wire.closed
    return response


def test_a_request_without_any_host_is_served(h2: H2Peer) -> None:
    """R-NET-12: as over HTTP/1.0, by a server that checks Host."""
    (old,) = Peer(h2.service).send(b"GET /v0/topics/a HTTP/1.0\r\n\r\n")
    for fields in ((), ((b":authority", b""),)):
        response = ask_list(h2, *fields)
        assert (response.status, response.body) == (200, old.body)


@pytest.mark.parametrize(
    "fields",
    [
        ((b":authority", b"localhost"), (b"host", b"127.0.0.1")),
        ((b":authority", b"localhost"), (b"host", b"")),
        ((b":authority", b""), (b"host", b"localhost")),
        ((b":authority", b"localhost"), (b"host", b"localhost"), (b"host", b"localhost")),
        ((b"host", b"localhost"), (b"x", b"y"), (b"host", b"localhost")),
        ((b"host", b"localhost"), (b"host", b"evil.example")),
        ((b":authority", b"localhost\1localhost"),),
    ],
)
def test_a_request_with_two_hosts_is_400_alone(h2: H2Peer, fields: tuple[tuple[bytes, bytes], ...]) -> None:
    """R-NET-12."""
    response = ask_list(h2, *fields)
    assert (response.status, response.code) == (400, "invalid_request")
    assert "one Host" in response.json["error"]["message"]


def test_a_request_with_the_same_host_in_both_places_is_served(h2: H2Peer) -> None:
    """R-NET-12."""
    assert ask_list(h2, (b":authority", b"localhost"), (b"host", b"localhost")).json["headers"] == {"host": "localhost"}
    assert ask_list(h2, (b":authority", b"evil.example"), (b"host", b"evil.example")).status == 403


# --- answers and the peer's windows ----------------------------------------------------------------------------------
def big_answer(echo: Echo, size: int) -> None:
    echo.parked.pop().respond(200, b"x" * size, JSON, b"")


def test_an_answer_waits_for_the_streams_window_and_others_do_not(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), automatic=False)
    stream = h2.begin("GET", "/park")
    big_answer(echo, 60_000)
    h2.client.h2.increment_flow_control_window(1 << 20)
    second = h2.begin("GET", "/park")
    big_answer(echo, 200_000)
    assert len(h2.seen(second).body) == 65_535
    assert h2.seen(stream).ended
    assert h2.ask("GET", "/v0/topics/a").status == 200
    assert h2.server.held_bytes == 200_000 - 65_535
    h2.client.h2.increment_flow_control_window(200_000, second)
    assert len(h2.seen(second).response.body) == 200_000
    assert h2.server.held_bytes == 0


def test_an_answer_waits_for_the_connections_window(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), automatic=False)
    streams = [h2.begin("GET", "/park") for _ in range(3)]
    for _ in streams:
        big_answer(echo, 30_000)
    assert sum(len(h2.seen(stream).body) for stream in streams) == 65_535
    h2.client.h2.increment_flow_control_window(100_000)
    assert all(len(h2.seen(stream).response.body) == 30_000 for stream in streams)


def test_a_smaller_window_by_settings_is_respected(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), automatic=False, settings={SettingCodes.INITIAL_WINDOW_SIZE: 10})
    stream = h2.begin("GET", "/park")
    big_answer(echo, 25)
    assert len(h2.seen(stream).body) == 10
    h2.client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 20})
    assert len(h2.seen(stream).body) == 20
    h2.client.h2.increment_flow_control_window(5, stream)
    assert len(h2.seen(stream).response.body) == 25


def test_large_answers_take_turns(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), settings={SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
    h2.client.h2.increment_flow_control_window(1 << 20)
    for _ in range(2):
        h2.begin("GET", "/park")
    h2.wire.over_high_water = True
    for _ in range(2):
        big_answer(echo, 200_000)
    h2.wire.over_high_water = False
    h2.server.drained()
    data, at, order = h2.wire.sent, 0, []
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 3]), data[at + 3]
        if kind == DATA and size:
            order.append(int.from_bytes(data[at + 5 : at + 9]))
        at += 9 + size
    assert len(order) > 10
    assert all(one != two for one, two in list(pairwise(order))[:10])


def test_a_peer_that_does_not_read_gets_nothing_run_and_is_not_read_from(h2: H2Peer, echo: Echo) -> None:
    h2.flush()
    h2.wire.over_high_water = True
    h2.begin("GET", "/park")
    assert h2.wire.paused
    assert not echo.parked
    h2.wire.over_high_water = False
    h2.server.drained()
    assert not h2.wire.paused
    assert len(echo.parked) == 1


def test_requests_wait_while_too_much_waits_for_windows(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), send_high_water_bytes=1 << 18), automatic=False)
    first = h2.begin("GET", "/park")
    big_answer(echo, 1 << 20)
    h2.begin("GET", "/park")
    assert not echo.parked
    h2.client.h2.increment_flow_control_window(2 << 20)
    h2.client.h2.increment_flow_control_window(2 << 20, first)
    h2.flush()
    assert len(echo.parked) == 1


def test_requests_that_wait_for_windows_are_in_flight_for_their_key(echo: Echo) -> None:
    """4.3: else all of them would run at once as soon as the client reads on."""
    keys = parse_keys("secret", 2)
    principal = keys.find(b"secret")
    assert principal is not None
    h2 = H2Peer(make_service(echo.routes(), keyring=keys, send_high_water_bytes=1 << 18), automatic=False)
    key = {"authorization": "Bearer secret"}
    first = h2.begin("GET", "/park", **key)
    big_answer(echo, 1 << 20)
    waiting = [h2.begin("GET", "/wait", **key) for _ in range(4)]
    h2.client.h2.increment_flow_control_window(2 << 20)
    assert (principal.in_flight, len(echo.parked)) == (2, 0)
    h2.client.h2.reset_stream(waiting[0], ErrorCodes.CANCEL)
    h2.flush()
    assert principal.in_flight == 1
    h2.client.h2.increment_flow_control_window(2 << 20, first)
    h2.flush()
    assert (principal.in_flight, len(echo.parked)) == (1, 1)
    assert [h2.seen(stream).status for stream in waiting] == [0, 0, 429, 429]
    h2.server.lost()
    assert principal.in_flight == 0


def test_an_answer_that_the_client_does_not_take_is_reset_after_the_stall_timeout(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), automatic=False)
    stream = h2.begin("GET", "/park")
    big_answer(echo, 100_000)
    h2.flush()
    assert h2.server.busy
    h2.service.tick += WAITS.stall + 1
    h2.server.overdue(WAITS)
    assert h2.seen(stream).reset == ErrorCodes.CANCEL
    assert (h2.server.busy, h2.server.held_bytes) == (False, 0)


# --- leaving ---------------------------------------------------------------------------------------------------------
def test_a_reset_stream_is_a_client_that_left(h2: H2Peer, echo: Echo) -> None:
    """R-NET-11."""
    stream, other = h2.begin("GET", "/wait"), h2.begin("GET", "/wait")
    h2.client.h2.reset_stream(stream, ErrorCodes.CANCEL)
    h2.flush()
    assert echo.abandoned == echo.parked[:1]
    assert h2.service.in_flight.requests == 1
    echo.parked[0].reply(b"1")
    echo.parked[1].reply(b"2")
    assert h2.seen(other).response.json == 2


def test_a_request_taken_back_at_once_is_not_run(h2: H2Peer, echo: Echo) -> None:
    stream = h2.client.begin("GET", "/park")
    h2.client.h2.reset_stream(stream, ErrorCodes.CANCEL)
    h2.flush()
    assert not echo.parked


def test_a_lost_connection_is_every_client_that_left(h2: H2Peer, echo: Echo) -> None:
    for _ in range(3):
        h2.begin("GET", "/wait")
    h2.server.lost()
    assert len(echo.abandoned) == 3
    assert h2.service.in_flight.requests == 0


def test_a_half_closed_peer_gets_its_answers_and_its_waits_end(h2: H2Peer, echo: Echo) -> None:
    h2.begin("GET", "/wait")
    parked = h2.begin("GET", "/park")
    h2.server.end_of_stream()
    assert len(echo.abandoned) == 1
    assert not h2.wire.closed
    echo.parked[1].reply(b"1")
    assert h2.seen(parked).response.json == 1
    assert h2.wire.closed


MANY, A_PASS = 450, 100


def _many(echo: Echo, *, whole: bool = True) -> tuple[H2Peer, FakeLoop]:
    """A peer with very many requests in progress: waits, or requests whose bodies are still to come."""
    loop = FakeLoop()
    h2 = H2Peer(make_service(echo.routes(), loop=loop, pass_requests_us=10 * A_PASS, h2_max_streams=MANY))
    h2.flush()
    headers = {"content-type": "application/json"} | ({} if whole else {"content-length": "5"})
    for _ in range(MANY):
        h2.client.begin("POST", "/v0/topics/a/diff", None, headers, end=whole)
    h2.flush()
    while h2.service.turns:
        _end_pass(h2, loop)
    h2.service.turns.next_pass()
    assert len(echo.parked) == (MANY if whole else 0)
    assert len(h2.server._streams) == MANY
    return h2, loop


def _end_pass(h2: H2Peer, loop: FakeLoop) -> None:
    loop.advance_ms(0)
    h2.service.turns.next_pass()


@pytest.mark.parametrize("how", ["lost", "half-closed", "goaway", "stalled"])
def test_the_ends_of_very_many_streams_take_turns(echo: Echo, how: str) -> None:
    """R-NET-11: those of a connection, 1,024 or more, ended in one pass of 36 ms."""
    h2, loop = _many(echo, whole=how != "stalled")
    connection, left = h2.server, [MANY]
    if how == "lost":
        connection.lost()
    elif how == "half-closed":
        connection.end_of_stream()
    elif how == "goaway":
        connection.receive(frame(GOAWAY, 0, 0, bytes(7) + b"\1"))
    else:
        h2.service.tick += WAITS.head + 1
        connection.overdue(WAITS)
    while connection._streams:
        left.append(len(connection._streams))
        _end_pass(h2, loop)
    left.append(0)
    assert all(0 < before - after <= A_PASS for before, after in pairwise(left)), left
    assert h2.wire.closed == (how in ("half-closed", "goaway"))
    assert (len(echo.abandoned), h2.service.in_flight.requests) == (len(echo.parked), 0)
    if how == "stalled":
        h2.flush()
        assert all(seen.reset == ErrorCodes.CANCEL for seen in h2.client.seen.values())


@pytest.mark.parametrize("how", ["lost", "half-closed"])
def test_an_answer_before_the_turn_of_its_stream_is_for_who_still_listens(echo: Echo, how: str) -> None:
    h2, loop = _many(echo)
    h2.wire.sent = b""
    connection = h2.server
    if how == "lost":
        connection.lost()
    else:
        connection.end_of_stream()
    echo.parked[-1].reply(b"1")
    while connection._streams:
        _end_pass(h2, loop)
    assert (len(echo.abandoned), h2.service.in_flight.requests) == (MANY - 1, 0)
    if how == "lost":
        assert h2.wire.sent == b""
    else:
        assert h2.seen(max(h2.client.seen)).response.json == 1


def test_waits_and_streams_of_a_half_closed_peer_whose_turn_comes_later_end_at_once(echo: Echo) -> None:
    """R-NET-11: they had to wait for room; what is no wait is answered."""
    h2 = H2Peer(make_service(echo.routes(), send_high_water_bytes=1 << 18))
    h2.begin("GET", "/park")
    h2.wire.over_high_water = True
    last = [h2.begin("GET", path) for path in ("/wait", "/stream", "/healthz")][-1]
    h2.server.end_of_stream()
    h2.wire.over_high_water = False
    h2.server.drained()
    assert (echo.abandoned, echo.streams) == (echo.parked[1:], [])
    assert h2.seen(last).response.status == 200
    assert not h2.wire.closed
    echo.parked[0].reply(b"1")
    assert (h2.wire.closed, h2.service.in_flight.requests) == (True, 0)


def test_a_wait_of_a_half_closed_peer_that_begins_after_its_body_was_unpacked_ends_at_once(echo: Echo) -> None:
    """R-NET-11."""
    loop = FakeLoop()
    routes = RouteTable([Route("POST", "/v0/topics/:topic/claim", Scope.WRITE, echo.wait, body=Body.JSON_OR_EMPTY)])
    h2 = H2Peer(make_service(routes, loop=loop, pass_body_bytes=100))
    h2.begin("POST", "/v0/topics/a/claim", gzip.compress(b'{"node":"n"%b}' % (b" " * 500)), content_encoding="gzip")
    h2.server.end_of_stream()
    assert echo.parked == []
    while loop.waiting:
        loop.advance_ms(0)
    assert len(echo.parked) == 1
    assert echo.abandoned == echo.parked
    assert (h2.wire.closed, h2.service.in_flight.requests) == (True, 0)


@pytest.mark.parametrize("path", ["/healthz", "/park"])
def test_a_half_closed_peer_owes_no_more_of_a_body_that_is_not_wanted(h2: H2Peer, echo: Echo, path: str) -> None:
    """R-NET-11: the end of the connection is the end of the body too."""
    stream = h2.client.begin("GET", path, None, {"content-length": "5"}, end=False)
    h2.flush()
    h2.server.end_of_stream()
    for call in echo.parked:
        assert not h2.wire.closed
        call.reply(b"1")
    assert h2.seen(stream).status == 200
    assert h2.wire.closed


def test_a_peer_that_says_goaway_gets_the_answers_it_waits_for(h2: H2Peer, echo: Echo) -> None:
    stream = h2.begin("GET", "/park")
    h2.raw(frame(GOAWAY, 0, 0, bytes(8)))
    assert not h2.wire.closed
    echo.parked[0].reply(b"1")
    assert h2.seen(stream).response.json == 1
    assert h2.wire.closed


def test_the_servers_end_is_announced_and_requests_under_way_are_answered(h2: H2Peer, echo: Echo) -> None:
    stream = h2.begin("GET", "/park")
    h2.server.going_away()
    h2.flush()
    assert h2.client.goaways == [(ErrorCodes.NO_ERROR, (1 << 31) - 1)]
    echo.parked[0].reply(b"1")
    assert h2.seen(stream).response.json == 1
    h2.server.going_away()
    h2.flush()
    assert h2.client.goaways[1] == (ErrorCodes.NO_ERROR, stream)


# --- signs of life ---------------------------------------------------------------------------------------------------
def test_a_silent_peer_is_pinged_and_overdue_without_an_answer(h2: H2Peer) -> None:
    """R-NET-5."""
    h2.flush()
    h2.service.tick += 19
    assert not h2.server.overdue(WAITS)
    assert not h2.wire.sent
    h2.service.tick += 1
    assert not h2.server.overdue(WAITS)
    assert len(h2.wire.sent) == 17
    h2.service.tick += 20
    assert not h2.server.overdue(WAITS)
    h2.service.tick += 1
    assert h2.server.overdue(WAITS)


def test_a_peer_that_answers_its_pings_stays(h2: H2Peer) -> None:
    """R-NET-5."""
    for round_ in range(1, 10):
        h2.flush()
        h2.service.tick += 20
        assert not h2.server.overdue(WAITS)
        h2.flush()
        assert len(h2.client.pings) == round_


# --- peers that make us work for nothing -----------------------------------------------------------------------------
def test_rapid_resets_end_the_connection_and_a_few_do_not(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_reset_burst=50, h2_resets_per_s=10))
    for number in range(60):
        stream = h2.client.begin("GET", "/wait")
        h2.flush()
        h2.client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        h2.flush()
        assert h2.wire.closed == (number >= 50)
        if h2.wire.closed:
            break
    assert h2.client.goaways[0][0] == ErrorCodes.ENHANCE_YOUR_CALM
    assert h2.service.in_flight.requests == 0


@pytest.mark.parametrize(
    "flood",
    [
        frame(PING, 0, 0, bytes(8)),
        frame(SETTINGS, 0, 0),
        frame(PRIORITY, 0, 1, bytes((0, 0, 0, 0, 1))),
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
        frame(77, 0, 0, b"?"),
    ],
    ids=["ping", "settings", "priority", "window update", "unknown"],
)
def test_floods_of_frames_that_carry_nothing_end_the_connection(echo: Echo, flood: bytes) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=100, h2_controls_per_s=10))
    h2.raw(flood * 90)
    assert not h2.wire.closed
    h2.raw(flood * 90)
    assert h2.wire.closed
    assert h2.client.goaways[-1][0] == ErrorCodes.ENHANCE_YOUR_CALM


def test_a_flood_of_empty_data_ends_the_connection(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=100, h2_controls_per_s=10))
    stream = h2.client.begin("POST", "/v0/topics/a", None, {"content-type": "application/json"}, end=False)
    h2.raw(frame(DATA, 0, stream) * 200)
    assert h2.client.goaways[-1][0] == ErrorCodes.ENHANCE_YOUR_CALM


def settings_frame(*entries: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *entry) for entry in entries))


def test_unknown_settings_are_not_kept(h2: H2Peer) -> None:
    """65,000 of them are 54 MB, and each further SETTINGS frame would look through all."""
    assert h2.ask("GET", "/v0/topics/a").status == 200
    kept = len(h2.server._h2.remote_settings)
    for first in range(100, 5100, 1000):
        h2.raw(settings_frame(*((number, 1) for number in range(first, first + 1000))))
    assert len(h2.server._h2.remote_settings) == kept
    assert h2.ask("GET", "/v0/topics/a").status == 200


def test_a_flood_of_settings_in_few_frames_ends_the_connection(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=1000, h2_controls_per_s=10))
    h2.raw(settings_frame(*((number, 1) for number in range(100, 900))))
    assert not h2.wire.closed
    h2.raw(settings_frame(*((number, 1) for number in range(100, 900))))
    assert h2.client.goaways[-1][0] == ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(("streams", "ends"), [(0, False), (320, True)])
def test_settings_that_change_the_windows_of_many_streams_count_for_more(echo: Echo, streams: int, ends: bool) -> None:
    """0.14 ms each with 1000 of them."""
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=500, h2_controls_per_s=10))
    for _ in range(streams):
        h2.client.begin("GET", "/park")
    for turn in range(100):
        h2.raw(settings_frame((4, 60_000 + turn % 2)))
    assert h2.wire.closed == ends


def test_a_table_size_that_changes_again_and_again_is_told_twice_at_most(h2: H2Peer) -> None:
    """They wait for the next head, whose making took their number squared."""
    assert h2.ask("GET", "/v0/topics/a").status == 200
    for turn in range(500):
        h2.raw(settings_frame((1, (100, 4000, 0, 2000)[turn % 4])))
    assert h2.server._h2.encoder.table_size_changes == [0, 2000]
    assert h2.ask("GET", "/v0/topics/a").status == 200


def test_a_head_of_thousands_of_fields_in_a_byte_each_ends_the_connection(h2: H2Peer) -> None:
    """9 ms each, for 3.5 KB."""
    assert h2.ask("GET", "/v0/topics/a").status == 200
    most = h2.service.config.max_head_fields
    head, age = b"\x82\x86\x84\x41\x09localhost", b"\x95"
    h2.server.receive(frame(HEADERS, 5, 5, head + age * 2 * most))
    assert not h2.wire.closed
    h2.server.receive(frame(HEADERS, 5, 7, head + age * 3500))
    assert h2.wire.closed


def test_how_streams_ended_is_not_remembered_for_long(h2: H2Peer) -> None:
    """For 65,536 streams that would be 8 MiB a connection."""
    assert h2.ask("GET", "/v0/topics/a").status == 200
    ended = h2.server._h2._closed_streams
    assert ended._size_limit <= 4096


def test_a_peer_that_takes_large_answers_may_send_window_updates_for_them(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=100, h2_controls_per_s=1))
    stream = h2.begin("GET", "/park")
    big_answer(echo, 5 << 20)
    assert len(h2.seen(stream).response.body) == 5 << 20


def test_more_streams_than_allowed_end_the_connection(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_max_streams=3))
    for _ in range(3):
        h2.begin("GET", "/park")
    h2.client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
    h2.client.h2.remote_settings.acknowledge()
    h2.begin("GET", "/park")
    assert h2.wire.closed


# --- any bytes -------------------------------------------------------------------------------------------------------
FRAMES = st.builds(
    frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 9, 0x0C, 0x20, 0x2D]),
    st.sampled_from([0, 1, 1, 3, 2, 5, (1 << 31) - 1]),
    st.one_of(st.binary(max_size=40), st.just(bytes(8)), st.just(b"\x82\x86\x84\x41\x01a"), st.just(b"\0\3\0\0\0\1")),
)


@examples(75)
@given(parts=st.lists(st.one_of(FRAMES, st.binary(max_size=30)), max_size=12), cut=st.integers(1, 50))
def test_any_bytes_are_events_or_the_end_of_the_connection(parts: list[bytes], cut: int) -> None:
    echo = Echo()
    h2 = H2Peer(make_service(echo.routes()))
    data = h2.client.take() + b"".join(parts)
    for at in range(0, len(data), cut):
        if h2.wire.closed:
            assert h2.wire.sent, "it says goodbye"
            break
        h2.server.receive(data[at : at + cut])
    h2.server.end_of_stream()
    for call in echo.parked:
        call.reply(b"1")
    h2.server.lost()
    assert h2.service.in_flight.requests == 0
    assert h2.server.held_bytes == 0


@examples(30)
@given(data=st.data())
def test_a_sound_exchange_damaged_anywhere_is_an_answer_or_a_goaway(data: st.DataObject) -> None:
    client = H2Client()
    for number in range(3):
        client.begin("POST", f"/v0/topics/t{number}", b'{"records":[]}', {"content-type": "application/json"})
    sent = bytearray(client.take())
    at = data.draw(st.integers(len(PREFACE), len(sent) - 1))
    sent[at] = data.draw(st.integers(0, 255))
    h2 = H2Peer(make_service(Echo().routes()))
    h2.server.receive(bytes(sent))
    assert h2.wire.sent
    h2.server.lost()
    assert (h2.service.in_flight.requests, h2.server.held_bytes) == (0, 0)


# --- answers that go on ----------------------------------------------------------------------------------------------
def test_a_stream_is_data_without_a_length_until_its_end(h2: H2Peer, echo: Echo) -> None:
    stream = h2.begin("GET", "/stream")
    seen = h2.seen(stream)
    assert (seen.status, seen.headers["x-kind"]) == (200, "stream")
    assert "content-length" not in seen.headers
    echo.streams[0].write(b"one")
    assert h2.seen(stream).body == b"one"
    echo.streams[0].write_block(Block(b"two"))
    assert not h2.seen(stream).ended
    assert not h2.server.busy
    echo.streams[0].end()
    assert h2.seen(stream).response.body == b"onetwo"
    echo.streams[0].write(b"nobody listens")
    assert echo.told == []


def test_a_streams_client_leaves_by_a_reset_or_with_the_connection(h2: H2Peer, echo: Echo) -> None:
    first, _second, _third = (h2.begin("GET", "/stream") for _ in range(3))
    h2.client.h2.reset_stream(first)
    h2.flush()
    assert echo.told == ["gone"]
    echo.streams[0].write(b"x")
    h2.server.end_of_stream()
    assert echo.told == ["gone"] * 3
    assert h2.wire.closed


def test_a_streams_reader_that_stalls_costs_its_high_water_mark_and_others_go_on(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), automatic=False)
    slow, fast = h2.begin("GET", "/stream"), h2.begin("GET", "/stream")
    h2.client.h2.increment_flow_control_window(1 << 20)
    h2.flush()
    block = b"x" * 10_000
    while not echo.streams[0].over_high_water:
        echo.streams[0].write(block)
    assert len(h2.seen(slow).body) == 65_535
    assert 65_536 < h2.server.held_bytes <= 65_536 + len(block)
    echo.streams[1].write(b"through")
    assert h2.seen(fast).body == b"through"
    assert h2.ask("GET", "/v0/topics/a").status == 200
    h2.service.tick += 10 * WAITS.stall
    assert not h2.server.overdue(WAITS)
    assert h2.server.patient
    assert h2.seen(slow).reset is None
    h2.client.h2.increment_flow_control_window(40_000, slow)
    h2.flush()
    assert echo.told == []
    h2.client.h2.increment_flow_control_window(40_000, slow)
    h2.flush()
    assert echo.told == ["drained"]
    assert not echo.streams[0].over_high_water


def test_a_streams_end_waits_for_what_was_written_before_it(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes()), automatic=False)
    stream = h2.begin("GET", "/stream")
    echo.streams[0].write(b"x" * 70_000)
    echo.streams[0].end()
    assert not h2.seen(stream).ended
    assert h2.server.busy
    h2.client.h2.increment_flow_control_window(10_000)
    h2.client.h2.increment_flow_control_window(10_000, stream)
    assert len(h2.seen(stream).response.body) == 70_000
    assert not h2.server.busy


def test_answers_around_shared_bytes_hold_them_and_no_copy(h2: H2Peer, echo: Echo) -> None:
    shared = b"1" * 300_000
    streams = [h2.begin("GET", "/park") for _ in range(3)]
    for call in echo.parked:
        call.reply_around(b"[", shared, b"]")
    assert {id(part) for part in h2.server.large_writes()} <= {id(shared)}
    for stream in streams:
        assert h2.seen(stream).response.body == b"[" + shared + b"]"
    assert h2.server.large_writes() == []


@pytest.mark.parametrize(("now", "status"), [("other", 401), ("secret:r", 403), ("secret:rw:a", 200), ("secret", 200)])
@pytest.mark.parametrize("waits", [False, True], ids=["body arrives", "waits its turn"])
def test_a_key_is_asked_again_when_the_request_is_run(echo: Echo, now: str, status: int, waits: bool) -> None:
    """R-AUTH-10."""
    keys = parse_keys("secret", 5)
    h2 = H2Peer(make_service(echo.routes(), keyring=keys, send_high_water_bytes=1 << 18), automatic=False)
    key = {"authorization": "Bearer secret"}
    before = keys.find(b"secret")
    assert before is not None
    if waits:
        first = h2.begin("GET", "/park", **key)
        big_answer(echo, 1 << 20)
    fields = key | {"content-type": "application/json"}
    stream = h2.client.begin("POST", "/v0/topics/a", b"[", fields, end=waits)
    h2.flush()
    keys.change_to(parse_keys(now, 5))
    h2.service.planner.forget()
    if waits:
        h2.client.h2.increment_flow_control_window(2 << 20)
        h2.client.h2.increment_flow_control_window(2 << 20, first)
    else:
        h2.client.h2.send_data(stream, b"]", end_stream=True)
    h2.flush()
    assert h2.seen(stream).status == status
    assert before.in_flight == 0
