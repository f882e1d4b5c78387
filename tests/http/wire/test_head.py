"""R-NET-3, R-NET-8, R-NET-9: what a request head may be, over both parsers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.byte_stream import Peer
from topics.http.http1 import http1_connection
from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.head import HEAD_END, check_partial_head

GET = b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def refused(peer: Peer, data: bytes, status: int = 400) -> None:
    """The answer is an error envelope and the connection closes."""
    (response,) = peer.send(data)
    assert response.status == status
    assert response.headers["connection"] == "close"
    assert response.code
    assert peer.wire.closed


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v0/topics/jobs HTTP/1.1\nHost: localhost\n\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\rHost: localhost\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nnocolon\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET  /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics/a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics/\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics/jobs#part HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics?prefix=a#b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://localhost/v0/topics# HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics/jobs\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.2\r\nHost: localhost\r\n\r\n",
        b"GET /v0/topics/jobs HTTP/1.1 \r\nHost: localhost\r\n\r\n",
        b"G=T{} /v0/topics/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT example.org:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_malformed_head_is_refused_and_the_connection_closed(peer: Peer, head: bytes) -> None:
    """R-NET-9."""
    refused(peer, head)


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2, 3\r\n",
        b"Content-Length: +2\r\n",
        b"Content-Length: -2\r\n",
        b"Content-Length: 0x2\r\n",
        b"Content-Length: \r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_framing_that_two_readers_could_read_differently_is_refused(peer: Peer, framing: bytes) -> None:
    """R-NET-8."""
    refused(peer, POST + framing + b"\r\n{}")


def test_http_1_0_has_no_chunked_bodies(peer: Peer) -> None:
    """R-NET-8."""
    refused(peer, b"POST /v0/topics/jobs HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("partial", [b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nA: b\rc", b"\x00"])
def test_a_partial_head_that_cannot_become_one_is_refused_at_once(peer: Peer, partial: bytes) -> None:
    refused(peer, partial)


def test_one_host_field_is_required_in_http_1_1(peer: Peer) -> None:
    refused(peer, b"GET /v0/topics/jobs HTTP/1.1\r\n\r\n")


def test_two_host_fields_are_refused(peer: Peer) -> None:
    refused(peer, GET + b"Host: localhost\r\n\r\n")


def test_a_head_of_64_kib_is_taken_and_a_larger_one_gets_431(peer: Peer) -> None:
    """R-NET-9."""
    room = 65_536 - len(GET) - len(b"X: \r\n\r\n")
    (response,) = peer.send(GET + b"X: " + b"a" * room + b"\r\n\r\n")
    assert response.status == 200
    refused(peer, GET + b"X: " + b"a" * (room + 1) + b"\r\n\r\n", 431)


def test_a_head_without_end_gets_431_as_soon_as_it_crosses_the_limit(peer: Peer) -> None:
    """R-NET-9."""
    peer.send(GET + b"X: " + b"a" * 60_000)
    assert not peer.wire.closed
    refused(peer, b"a" * 6000, 431)


def test_a_hundred_fields_are_taken_and_one_more_gets_431(peer: Peer) -> None:
    """R-NET-9."""
    (response,) = peer.send(GET + b"A: b\r\n" * 99 + b"\r\n")
    assert response.status == 200
    refused(peer, GET + b"A: b\r\n" * 100 + b"\r\n", 431)


def test_empty_lines_before_a_request_are_skipped(peer: Peer) -> None:
    assert [r.status for r in peer.send(b"\r\n\r\n" + GET + b"\r\n" + b"\r\n" + GET + b"\r\n")] == [200, 200]


def test_http_1_1_stays_open_and_close_is_honoured(peer: Peer) -> None:
    """R-NET-3."""
    (response,) = peer.send(GET + b"\r\n")
    assert "connection" not in response.headers
    assert not peer.wire.closed
    (response,) = peer.send(GET + b"Connection: foo, Close\r\n\r\n")
    assert response.headers["connection"] == "close"
    assert peer.wire.closed


def test_http_1_0_closes(peer: Peer) -> None:
    """R-NET-3."""
    (response,) = peer.send(b"GET /v0/topics/jobs HTTP/1.0\r\n\r\n")
    assert response.status == 200
    assert response.headers["connection"] == "close"
    assert peer.wire.closed


def test_http_1_0_stays_open_when_asked(peer: Peer) -> None:
    """R-NET-3."""
    for _ in range(2):
        (response,) = peer.send(b"GET /v0/topics/jobs HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        assert response.headers["connection"] == "keep-alive"
    assert not peer.wire.closed


def test_an_unknown_method_is_a_method_and_gets_405(peer: Peer) -> None:
    response = peer.ask("BREW", "/v0/topics/jobs")
    assert response.status == 405


def test_field_names_ignore_case_and_the_first_of_equal_ones_counts(peer: Peer) -> None:
    (response,) = peer.send(GET + b"X-One: \t a \t\r\nx-oNE: b\r\nEmpty:\r\n\r\n")
    assert response.json["headers"] == {"host": "localhost", "x-one": "a", "empty": ""}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"Content-Type: application/json", b"content-type: text/plain"),
        (b"Content-Type: text/plain", b"Content-Type: application/json"),
        (b"Authorization: Bearer a", b"Authorization: Bearer b"),
        (b"Idempotency-Key: a", b"X: y\r\nIdempotency-Key:"),
        (b"Last-Event-ID: a", b"LAST-EVENT-ID: b"),
        (b"Origin: http://localhost", b"Origin: null"),
    ],
)
def test_fields_that_mean_one_thing_have_one_value(peer: Peer, first: bytes, second: bytes) -> None:
    """R-NET-8: the same twice is harmless (RFC 9110 section 5.3)."""
    (response,) = peer.send(GET + first + b"\r\n" + first + b"  \r\n\r\n")
    assert response.status == 200
    refused(peer, GET + first + b"\r\n" + second + b"\r\n\r\n")


def test_several_fields_of_a_list_are_one(peer: Peer) -> None:
    (response,) = peer.send(GET + b"Accept: a\r\nAccept-Encoding: x\r\nACCEPT: b \r\nAccept: a\r\n\r\n")
    assert response.json["headers"] == {"host": "localhost", "accept": "a, b, a", "accept-encoding": "x"}


def test_an_absolute_target_is_its_path(peer: Peer) -> None:
    response = peer.ask("GET", "http://localhost:4000/v0/topics/jobs?x=1")
    assert response.json["name"] == "jobs"
    assert response.json["query"] == {"x": "1"}


def test_an_upgrade_this_path_does_not_have_is_ignored(peer: Peer) -> None:
    response = peer.ask("GET", "/v0/topics/jobs", Connection="upgrade", Upgrade="h2c")
    assert response.status == 200


@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=8))
def test_a_head_that_trickles_is_judged_as_one_that_comes_at_once(noise: bytes, cuts: list[int]) -> None:
    data = b"GET /a HTTP/1.1\r\nHost: b\r\nX: " + noise.translate(_CRLF_HEAVY) + b"\r\nY: z\r\n"
    for end in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
        if HEAD_END in data[:end] or not end:
            return
        whole = _judged(data[:end], 0)
        looked = 0
        for upto in range(1, end + 1):
            found = _judged(data[:upto], looked)
            looked = upto
            if found:
                break
        assert found == whole


_CRLF_HEAVY = bytes((13, 10, 97, 58)[value % 4] for value in range(256))


def _judged(data: bytes, looked: int) -> str:
    try:
        check_partial_head(data, 1000, looked)
    except BadRequestError as error:
        return str(error)
    return ""


def test_of_a_head_that_trickles_only_what_is_new_is_looked_at(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    def counted(data: bytes, max_bytes: int, looked: int = 0) -> None:
        told.append((len(data), looked))
        check_partial_head(data, max_bytes, looked)

    monkeypatch.setattr(http1_connection, "check_partial_head", counted)
    head = GET + b"X: " + b"a" * 300 + b"\r\n\r\n"
    for request in (head, b"\r\n" + head, GET + b"\r\n" + head):  # empty lines and requests before it
        told.clear()
        responses = peer.send(request, pieces=range(1, len(request)))
        assert [response.status for response in responses] == [200] * request.count(b"GET")
        assert all(size - looked == 1 for size, looked in told[1:] if looked)
        assert sum(not looked for _size, looked in told) <= request.count(b"GET")
    peer.wire.over_high_water = True
    first, second = head[:200], head[200:] + GET + b"\r\n" + head[:100]
    assert not peer.send(first)
    assert not peer.send(second)
    peer.wire.over_high_water = False
    peer.http.drained()
    assert len(peer.wire.take()) == 2
    assert len(peer.send(head[100:])) == 1
