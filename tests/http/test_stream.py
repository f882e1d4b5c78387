"""Answers that stay open: their bytes, the client's leaving, back-pressure, their end."""

from tests.http.byte_stream import Echo, Peer, make_service
from topics.http.http1.http1_connection import PIPELINED_BYTES
from topics.http.streams import sse
from topics.http.wire.stream import Block

STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET = b"GET /v0/topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _open(peer: Peer, request: bytes = STREAM) -> bytes:
    """The head of the stream's answer."""
    peer.http.receive(request)
    head, peer.wire.sent = peer.wire.sent, b""
    return head


def test_a_stream_is_chunked_and_has_no_length(peer: Peer, echo: Echo) -> None:
    head = _open(peer)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked\r\n" in head
    assert b"Content-Type: text/plain\r\n" in head
    assert b"X-Kind: stream\r\n" in head
    assert b"Content-Length" not in head
    echo.streams[0].write(b"seventeen bytes..")
    echo.streams[0].write_block(Block(b"x"))
    assert peer.wire.sent == b"11\r\nseventeen bytes..\r\n1\r\nx\r\n"


def test_a_block_is_framed_once_for_all_its_streams() -> None:
    block = Block(b"abc")
    assert block.chunk == b"3\r\nabc\r\n"
    assert block.chunk is block.chunk


def test_after_a_stream_the_connection_goes_on_with_what_was_pipelined(peer: Peer, echo: Echo) -> None:
    _open(peer, STREAM + GET)
    assert peer.wire.marks == (65_536, 16_384)
    echo.streams[0].end()
    assert peer.wire.sent.startswith(b"0\r\n\r\n")
    peer.wire.sent = peer.wire.sent[5:]
    assert [response.json["name"] for response in peer.wire.take()] == ["a"]
    assert peer.wire.marks == (1 << 20, 1 << 18)
    assert peer.ask("GET", "/v0/topics/b").json["name"] == "b"
    assert not peer.wire.closed


def test_http_1_0_gets_the_bytes_and_then_the_close(peer: Peer, echo: Echo) -> None:
    head = _open(peer, b"GET /stream HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"Connection: close\r\n" in head
    echo.streams[0].write(b"abc")
    echo.streams[0].end()
    assert peer.wire.sent == b"abc"
    assert peer.wire.closed


def test_a_client_that_asked_for_the_close_gets_it_after_the_last_chunk(peer: Peer, echo: Echo) -> None:
    head = _open(peer, b"GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"Connection: close\r\n" in head
    assert b"Transfer-Encoding: chunked\r\n" in head
    echo.streams[0].end()
    assert peer.wire.sent == b"0\r\n\r\n"
    assert peer.wire.closed


def test_a_stream_learns_that_the_client_left_and_writes_nowhere(peer: Peer, echo: Echo) -> None:
    """R-NET-11."""
    _open(peer)
    peer.http.lost()
    assert echo.told == ["gone"]
    echo.streams[0].write(b"late")
    echo.streams[0].write_block(Block(b"late"))
    echo.streams[0].end()
    assert echo.told == ["gone"]
    assert peer.wire.sent == b""


def test_a_client_that_ends_its_side_has_left(peer: Peer, echo: Echo) -> None:
    _open(peer)
    peer.http.end_of_stream()
    assert echo.told == ["gone"]
    assert peer.wire.closed


def test_a_client_that_leaves_after_the_end_is_not_reported(peer: Peer, echo: Echo) -> None:
    _open(peer)
    echo.streams[0].end()
    peer.http.lost()
    assert echo.told == []


def test_the_writer_hears_when_the_client_has_read_on(peer: Peer, echo: Echo) -> None:
    _open(peer)
    peer.wire.over_high_water = True
    assert echo.streams[0].over_high_water
    peer.wire.over_high_water = False
    peer.http.drained()
    assert echo.told == ["drained"]


def test_a_client_that_floods_a_stream_is_not_read(peer: Peer, echo: Echo) -> None:
    _open(peer)
    peer.http.receive(b"x" * (PIPELINED_BYTES + 1))
    assert peer.wire.paused


def test_a_stream_is_no_request_in_progress_and_its_last_bytes_close_when_the_server_stops(
    peer: Peer, echo: Echo
) -> None:
    _open(peer)
    assert peer.service.in_flight.requests == 0
    peer.service.closing = True
    echo.streams[0].end()
    assert peer.wire.closed


def test_head_is_not_taken_where_get_streams(peer: Peer) -> None:
    """2.1: HEAD on SSE paths is 405."""
    response = peer.ask("HEAD", "/stream")
    assert response.status == 405
    assert response.headers["allow"] == "GET"


def test_plans_of_streams_are_not_kept(peer: Peer) -> None:
    _open(peer)
    assert not peer.service.planner.kept


def test_frames_have_their_fields_in_order() -> None:
    """R-SSE-3, R-SSE-4."""
    assert sse.frame(b"record", b"{}", b"abc") == b"id: abc\nevent: record\ndata: {}\n\n"
    assert sse.frame_without_id(b"job", b"{}") == b"event: job\ndata: {}\n\n"
    assert sse.RETRY.data == b"retry: 2000\n\n"
    assert sse.HEARTBEAT.data == b": hb\n\n"


def test_water_marks_of_streams_are_settings() -> None:
    echo = Echo()
    peer = Peer(make_service(echo.routes(), stream_high_water_bytes=10, stream_low_water_bytes=3))
    _open(peer)
    assert peer.wire.marks == (10, 3)
