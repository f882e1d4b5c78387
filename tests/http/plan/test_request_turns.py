"""Requests of a pass within a budget: what is beyond it waits for later passes, in turn, and nothing is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.byte_stream import Echo, Peer, make_service
from tests.http.http2.h2_peer import H2Peer
from tests.ws.passes import Passes
from topics.http.http1.http1_connection import PIPELINED_BYTES
from topics.http.plan.request_turns import RequestTurns
from topics.http.plan.service import Service
from topics.http.wire.transport import Waits

GET = b"GET /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = (
    b"POST /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)
CHUNKED = (
    b"POST /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n%b0\r\nTrailer: x\r\n\r\n"
)
WAITS = Waits(head=60, idle=75, ping_after=20, ping_timeout=20, stall=30, drain=10)


class Server:
    """Connections that share `requests` requests a pass; time stands still, so each counts as the least there is."""

    def __init__(self, requests: int) -> None:
        self.echo = Echo()
        self.passes = Passes()
        self.service: Service = make_service(self.echo.routes())
        self.service.turns = RequestTurns(self.passes, self.service.now_ns, requests * 10)  # type: ignore[arg-type]

    def peer(self) -> Peer:
        return Peer(self.service)

    def end_pass(self) -> None:
        self.passes.end(self.service.turns)


def names(peer: Peer | H2Peer) -> list[str]:
    """Return the topics whose requests were answered since the last call."""
    if isinstance(peer, Peer):
        return [response.json["name"] for response in peer.wire.take()]
    peer.flush()
    seen, peer.client.seen = peer.client.seen, {n: s for n, s in peer.client.seen.items() if not s.ended}
    return [stream.response.json["name"] for stream in seen.values() if stream.ended]


def test_pipelined_requests_are_answered_in_order_so_many_a_pass() -> None:
    server = Server(requests=3)
    peer = server.peer()
    peer.http.receive(b"".join(GET % b"%d" % number for number in range(8)))
    assert names(peer) == ["0", "1", "2"]
    assert peer.wire.paused, "what the client sends behind them stays in the kernel"
    server.end_pass()
    assert names(peer) == ["3", "4", "5"]
    server.end_pass()
    assert names(peer) == ["6", "7"]
    assert not peer.wire.paused
    assert server.passes.asked == 2, "the loop comes back while somebody waits, and no more often"


def test_a_connection_with_one_request_does_not_wait_for_all_of_a_flood() -> None:
    server = Server(requests=8)  # of which one connection takes one while others wait
    flood, other = server.peer(), server.peer()
    flood.http.receive((GET % b"flood") * 50)
    other.http.receive(GET % b"other")
    assert names(other) == []
    server.end_pass()
    assert names(other) == ["other"]
    assert len(names(flood)) == 8 + 7


def test_those_that_came_first_go_first() -> None:
    server = Server(requests=2)
    order: list[str] = []
    peers = [server.peer() for _ in range(7)]
    for number, peer in enumerate(peers):
        peer.http.receive(GET % b"%d" % number)
        server.service.turns.charge()
    while len(order) < 7:
        found = [name for peer in peers for name in names(peer)]
        assert len(found) <= 2
        order += found
        server.end_pass()
    assert order == [str(number) for number in range(7)]


def test_a_body_whose_end_comes_when_the_pass_is_spent_waits() -> None:
    server = Server(requests=1)
    writer, other = server.peer(), server.peer()
    request = POST % (b"w", 4, b"1234")
    writer.http.receive(request[:-2])
    other.http.receive((GET % b"o") * 2)
    writer.http.receive(request[-2:] + GET % b"behind")
    assert names(writer) == []
    server.end_pass()
    server.end_pass()
    assert names(writer) == ["w"]
    server.end_pass()
    assert (names(writer), writer.wire.paused) == (["behind"], False)


def test_a_body_of_very_small_chunks_takes_turns_while_it_arrives() -> None:
    """A megabyte of them takes a hundred milliseconds, and came in one pass."""
    server = Server(requests=4)
    writer, other = server.peer(), server.peer()
    writer.http.receive(CHUNKED % (b"w", b"1\r\nx\r\n" * 20_000) + GET % b"behind")
    assert writer.wire.paused
    other.http.receive(GET % b"o")
    assert (names(writer), names(other)) == ([], [])
    server.end_pass()
    assert (names(writer), names(other)) == ([], ["o"])
    passes = 1
    while len(server.service.turns):
        server.end_pass()
        passes += 1
    first, behind = writer.wire.take()
    assert (first.json["name"], len(first.json["body"]), behind.json["name"]) == ("w", 20_000, "behind")
    assert passes == pytest.approx(len(b"1\r\nx\r\n") * 20_000 / 4096 / 4, abs=2)
    assert not writer.wire.paused


def test_what_comes_of_a_body_before_its_end_is_taken_at_once() -> None:
    """Nothing begins with it; kept apart, it would be copied twice."""
    server = Server(requests=1)
    writer, other = server.peer(), server.peer()
    request = POST % (b"w", 4, b"1234")
    writer.http.receive(request[:-4])
    other.http.receive(GET % b"o")
    server.service.turns.charge()
    writer.http.receive(request[-4:-2])
    writer.http.receive(request[-2:-1])
    assert (writer.wire.paused, len(writer.http._pending), writer.http.held_bytes) == (False, 0, 3)
    writer.http.receive(request[-1:])
    assert names(writer) == []
    server.end_pass()
    assert names(writer) == ["w"]


@pytest.mark.parametrize("begun", [b"GE", b"GET /v0/topics/a HTTP/1.1\r\n", POST % (b"w", 90_000, b"")])
def test_what_comes_in_line_is_put_behind_what_is_here(begun: bytes) -> None:
    """Many receives of a pass were copied again with each of them."""
    server = Server(requests=1)
    peer, other = server.peer(), server.peer()
    other.http.receive(GET % b"o")
    server.service.turns.charge()
    peer.http.receive(begun)
    kept = peer.http._pending
    for _ in range(40):
        peer.http.receive(b"x" * 2000)
    assert peer.http._pending is kept
    assert kept == begun + b"x" * 80_000


def test_so_does_what_comes_over_http2() -> None:
    server = Server(requests=1)
    other, peer = server.peer(), H2Peer(server.service)
    peer.flush()
    other.http.receive(GET % b"o")
    server.service.turns.charge()
    ping = b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)
    peer.server.receive(ping)
    kept = peer.server._unread
    for _ in range(40):
        peer.server.receive(ping)
    assert peer.server._unread is kept
    assert kept.endswith(ping * 41)


def test_what_is_here_when_the_client_has_finished_is_answered() -> None:
    server = Server(requests=1)
    peer = server.peer()
    peer.http.receive((GET % b"a") * 3)
    peer.http.end_of_stream()
    assert not peer.wire.closed
    server.end_pass()
    server.end_pass()
    assert names(peer) == ["a"] * 3
    assert peer.wire.closed


def test_what_is_behind_the_end_of_a_body_is_answered_though_the_client_has_finished() -> None:
    server = Server(requests=1)
    writer, other = server.peer(), server.peer()
    request = POST % (b"w", 4, b"1234")
    writer.http.receive(request[:-2])
    other.http.receive(GET % b"o")
    server.service.turns.charge()
    writer.http.receive(request[-2:] + GET % b"behind")
    writer.http.end_of_stream()
    for _ in range(4):
        server.end_pass()
    assert names(writer) == ["w", "behind"]
    assert writer.wire.closed


def test_a_connection_that_waits_is_busy_and_never_overdue() -> None:
    server = Server(requests=1)
    peer = server.peer()
    peer.http.receive((GET % b"a") * 2)
    assert peer.http.busy, "a graceful stop waits for it"
    server.service.tick += 1000
    assert not peer.http.overdue(WAITS)
    server.end_pass()
    assert not peer.http.busy


def test_a_connection_that_was_lost_while_it_waited_is_passed_over() -> None:
    server = Server(requests=1)
    peer, other = server.peer(), server.peer()
    peer.http.receive((GET % b"a") * 3)
    other.http.receive(GET % b"o")
    peer.http.lost()
    server.end_pass()
    assert (len(names(peer)), names(other)) == (1, ["o"])


def test_input_behind_a_connection_that_waits_is_kept() -> None:
    """Receives of the pass in which reading was paused."""
    server = Server(requests=1)
    peer = server.peer()
    peer.http.receive((GET % b"a") * 2)
    peer.http.receive((GET % b"b")[:10])
    peer.http.receive((GET % b"b")[10:] * 1)
    for _ in range(3):
        server.end_pass()
    assert names(peer) == ["a", "a", "b"]


def test_streams_of_http2_take_turns_with_all_connections() -> None:
    server = Server(requests=6)
    peer, other = H2Peer(server.service), server.peer()
    peer.flush()
    server.end_pass()
    for number in range(9):
        peer.client.begin("GET", f"/v0/topics/{number}")
    peer.flush()
    other.http.receive(GET % b"o")
    found = names(peer)
    assert len(found) < 9
    assert names(other) == []
    while len(found) < 9:
        server.end_pass()
        found += names(peer)
    assert sorted(found) == [str(number) for number in range(9)]
    assert names(other) == ["o"]
    assert not peer.wire.paused


def test_frames_that_no_request_comes_of_are_charged_too() -> None:
    """HEADERS and RST_STREAM by turns were decoded to the end of what had come, in one pass."""
    server = Server(requests=10)
    peer = H2Peer(server.service)
    peer.flush()
    server.end_pass()
    flood = b""
    for _ in range(40):
        stream = peer.client.begin("GET", "/v0/topics/a")
        peer.client.h2.reset_stream(stream)
        flood += peer.client.take()
    peer.server.receive(flood)
    held = peer.server.held_bytes
    assert held > len(flood) // 2
    server.end_pass()
    assert 0 < peer.server.held_bytes < held
    for _ in range(8):
        server.end_pass()
    assert peer.server.held_bytes == 0


def test_an_http2_peer_that_has_finished_gets_what_it_asked_for() -> None:
    server = Server(requests=4)
    peer = H2Peer(server.service)
    peer.flush()
    server.end_pass()
    for number in range(6):
        peer.client.begin("GET", f"/v0/topics/{number}")
    peer.server.receive(peer.client.take())
    peer.server.end_of_stream()
    found: list[str] = []
    for _ in range(12):
        peer.client.feed(peer.wire.sent)
        peer.wire.sent = b""
        server.end_pass()
    found = [stream.response.json["name"] for stream in peer.client.seen.values() if stream.ended]
    assert sorted(found) == [str(number) for number in range(6)]
    assert peer.wire.closed


@given(st.integers(0, 2**32))
def test_turns_change_no_answer(seed: int) -> None:
    """However the bytes are cut and however little a pass may do."""
    rng = random.Random(seed)
    requests = [
        rng.choice((GET % name, POST % (name, size, b"1" * size), CHUNKED % (name, b"2\r\n11\r\n" * size)))
        for name, size in ((b"%d" % number, rng.choice((1, 50, 3000))) for number in range(rng.randrange(1, 15)))
    ]
    data = b"".join(requests)
    whole, cut = Server(requests=0), Server(requests=rng.randrange(1, 4))
    expected = whole.peer()
    expected.http.receive(data)
    peer, at = cut.peer(), 0
    while at < len(data) or len(cut.service.turns):
        if at < len(data) and not peer.wire.paused and rng.random() < 0.7:
            size = rng.choice((1, 5, 200, PIPELINED_BYTES))
            peer.http.receive(data[at : at + size])
            at += size
        if rng.random() < 0.5:
            cut.end_pass()
    assert names(peer) == names(expected)
    assert (peer.http.held_bytes, peer.wire.paused) == (0, False)
