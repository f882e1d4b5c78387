"""Order, waiting and ending: one connection's life."""

import pytest

from tests.http.byte_stream import Echo, FakeCores, Peer, make_service
from topics.errors import RequestError
from topics.http.access.keyring import parse_keys
from topics.http.http1.http1_connection import PIPELINED_BYTES
from topics.http.wire.transport import Waits

GET = b"GET /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
PARK = b"GET /park HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v0/topics/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
WAITS = Waits(head=60, idle=75, ping_after=20, ping_timeout=20, stall=30, drain=10)


def test_pipelined_requests_are_answered_in_order(peer: Peer) -> None:
    """R-NET-3."""
    responses = peer.send(b"".join(GET % name for name in (b"a", b"b", b"c")))
    assert [response.json["name"] for response in responses] == ["a", "b", "c"]


def test_a_pipelined_request_waits_for_the_answer_before_it(peer: Peer, echo: Echo) -> None:
    assert peer.send(PARK + GET % b"a") == []
    assert peer.send(GET % b"b") == []
    echo.parked[0].reply(b'"parked"')
    first, *rest = peer.wire.take()
    assert first.json == "parked"
    assert [response.json["name"] for response in rest] == ["a", "b"]


def test_reading_pauses_while_too_much_is_pipelined_and_resumes(peer: Peer, echo: Echo) -> None:
    peer.send(PARK)
    flood = (GET % b"a") * (PIPELINED_BYTES // len(GET % b"a") + 2)
    peer.send(flood)
    assert peer.wire.paused
    echo.parked[0].reply(b"1")
    assert not peer.wire.paused
    assert len(peer.wire.take()) == 1 + flood.count(b"GET")


def test_reading_resumes_when_what_was_pipelined_ends_inside_a_body(peer: Peer, echo: Echo) -> None:
    peer.send(PARK)
    gets = (GET % b"a") * (PIPELINED_BYTES // len(GET % b"a") + 2)
    peer.send(gets + POST + b'{"half')
    assert peer.wire.paused
    echo.parked[0].reply(b"1")
    peer.wire.take()
    assert not peer.wire.paused
    assert [response.json["body"] for response in peer.send(b'":1}')] == ['{"half":1}']


def test_a_half_closed_client_whose_last_body_is_cut_off_is_not_waited_for(peer: Peer, echo: Echo) -> None:
    peer.send(PARK + POST + b'{"half')
    peer.http.end_of_stream()
    echo.parked[0].reply(b"1")
    assert [response.json for response in peer.wire.take()] == [1]
    assert peer.wire.closed


def test_a_peer_that_does_not_read_its_answers_gets_no_more_of_them(peer: Peer) -> None:
    peer.wire.over_high_water = True
    assert peer.send(GET % b"a") == []
    assert peer.wire.paused
    peer.wire.over_high_water = False
    peer.http.drained()
    assert [response.json["name"] for response in peer.wire.take()] == ["a"]
    assert not peer.wire.paused


def test_any_split_of_the_stream_gives_the_same_answers(peer: Peer) -> None:
    data = GET % b"a" + b"POST /v0/topics/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    data += b"Content-Length: 2\r\n\r\n{}" + GET % b"c"
    whole = [response.body for response in peer.send(data)]
    for split in range(1, len(data)):
        assert [response.body for response in peer.send(data, pieces=[split])] == whole
    assert [response.body for response in peer.send(data, pieces=range(len(data)))] == whole


def test_a_half_closed_client_gets_all_its_answers_and_then_the_close(peer: Peer, echo: Echo) -> None:
    peer.send(PARK + GET % b"a")
    peer.http.end_of_stream()
    assert not peer.wire.closed
    echo.parked[0].reply(b"1")
    assert len(peer.wire.take()) == 2
    assert peer.wire.closed


def test_an_idle_connection_closes_with_its_peer(peer: Peer) -> None:
    assert peer.http.idle
    peer.http.end_of_stream()
    assert peer.wire.closed


def test_a_wait_is_abandoned_when_the_client_leaves(peer: Peer, echo: Echo) -> None:
    """R-NET-11."""
    peer.send(WAIT)
    assert peer.service.in_flight.requests == 1
    peer.http.end_of_stream()
    assert echo.abandoned == echo.parked
    assert peer.wire.closed
    assert peer.service.in_flight.requests == 0
    echo.parked[0].reply(b"too late, and harmless")
    assert peer.wire.sent == b""


def test_a_lost_connection_abandons_its_request(peer: Peer, echo: Echo) -> None:
    """R-NET-11."""
    peer.send(WAIT)
    peer.http.lost()
    assert echo.abandoned == echo.parked
    assert peer.service.in_flight.requests == 0
    peer.send(PARK)
    assert len(echo.parked) == 1, "nothing of a lost connection is handled"


def test_a_bug_in_a_handler_is_a_500_without_its_story(peer: Peer) -> None:
    response = peer.ask("GET", "/fail")
    assert response.status == 500
    assert response.code == "internal"
    assert b"a bug" not in response.body
    assert peer.ask("GET", "/v0/topics/a").status == 200


def test_a_wait_whose_client_has_gone_ends_as_soon_as_its_turn_comes(peer: Peer, echo: Echo) -> None:
    """R-NET-11: it was pipelined after a request that was still being answered when the client closed."""
    peer.send(PARK + WAIT + GET % b"a")
    peer.http.end_of_stream()
    echo.parked[0].reply(b"1")
    assert [response.json for response in peer.wire.take()] == [1]
    assert echo.abandoned == echo.parked[1:]
    assert (peer.wire.closed, peer.service.in_flight.requests) == (True, 0)


def test_a_stream_whose_client_has_gone_is_not_begun(peer: Peer, echo: Echo) -> None:
    """R-NET-11: one of jobs would lease them."""
    peer.send(PARK + STREAM)
    peer.http.end_of_stream()
    echo.parked[0].reply(b"1")
    assert [response.json for response in peer.wire.take()] == [1]
    assert (peer.wire.closed, echo.streams) == (True, [])


@pytest.mark.parametrize("waiting", [WAIT, STREAM])
@pytest.mark.parametrize("before", [b"", PARK])
def test_a_wait_with_too_much_behind_it_to_be_read_from_does_not_outlive_its_client(
    peer: Peer, echo: Echo, waiting: bytes, before: bytes
) -> None:
    """R-NET-11: unread, it could leave without our noticing."""
    peer.http.receive(before + waiting)
    peer.http.receive((GET % b"a") * (PIPELINED_BYTES // len(GET % b"a") + 2))
    if before:
        echo.parked[0].reply(b"1")
    assert peer.wire.paused
    for _ in range(2):
        assert not peer.wire.closed
        peer.service.tick += 1
        peer.http.overdue(WAITS)
    assert (peer.wire.closed, peer.service.in_flight.requests) == (True, 0)
    assert len(echo.abandoned) + len(echo.told) == 1


def test_a_short_wait_may_have_as_much_behind_it_as_any_request(peer: Peer, echo: Echo) -> None:
    peer.send(WAIT)
    gets = PIPELINED_BYTES // len(GET % b"a") + 2
    peer.send((GET % b"a") * gets)
    peer.service.tick += 1
    peer.http.overdue(WAITS)
    echo.parked[0].reply(b"1")
    assert len(peer.wire.take()) == 1 + gets
    assert not peer.wire.paused


def test_a_wait_is_read_from_again_when_what_was_before_it_is_answered(peer: Peer, echo: Echo) -> None:
    peer.send(PARK)
    peer.send((GET % b"a") * (PIPELINED_BYTES // len(GET % b"a") + 2) + WAIT + GET % b"b")
    assert peer.wire.paused
    echo.parked[0].reply(b"1")
    assert not peer.wire.paused
    peer.http.end_of_stream()
    assert (echo.abandoned, peer.wire.closed) == (echo.parked[1:], True)


@pytest.mark.parametrize("path", ["/healthz", "/nowhere"])
def test_the_gate_comes_before_the_path_and_lets_probes_through(peer: Peer, path: str) -> None:
    """2.4."""

    def gate(plan: object) -> RequestError | None:
        route = getattr(plan, "route", None)
        return None if route is not None and route.always else RequestError("not_ready", "recovering")

    peer.service.gate = gate
    response = peer.ask("GET", path)
    assert response.status == (200 if path == "/healthz" else 503)
    if response.status == 503:
        assert response.headers["retry-after"] == "1"
    response = peer.ask("POST", "/v0/topics/jobs", b"{}")
    assert response.code == "not_ready"
    assert peer.service.in_flight.requests == 0


def test_while_closing_every_answer_ends_its_connection(peer: Peer) -> None:
    """R-LIFE-7."""
    peer.service.closing = True
    response = peer.ask("GET", "/v0/topics/a")
    assert response.headers["connection"] == "close"
    assert peer.wire.closed


def test_the_date_is_sent_once_the_shell_has_set_it(peer: Peer) -> None:
    assert "date" not in peer.ask("GET", "/v0/topics/a").headers
    peer.service.writer.set_date(b"Sat, 21 Nov 2026 12:00:00 GMT")
    assert peer.ask("GET", "/v0/topics/a").headers["date"] == "Sat, 21 Nov 2026 12:00:00 GMT"
    assert peer.ask("GET", "/nowhere").headers["date"] == "Sat, 21 Nov 2026 12:00:00 GMT"


def test_a_connection_between_requests_holds_no_buffers(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes()))
    peer.ask("POST", "/v0/topics/a", b"{}")
    assert peer.http._pending == b""
    assert peer.http._body is None
    assert peer.http._plan is None
    assert not hasattr(peer.http, "__dict__")


# --- answers of several parts ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1\r\nHost: a",
        b"HTTP/1.1\r\nHost: a\r\nOrigin: http://a",
        b"HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nConnection: close",
        b"HTTP/1.0",
        b"HTTP/1.0\r\nConnection: keep-alive",
    ],
)
@pytest.mark.parametrize("size", [0, 100, 70_000])
def test_an_answer_around_shared_bytes_is_the_same_answer_as_from_one_piece(head: bytes, size: int) -> None:
    echo = Echo()
    peer = Peer(make_service(echo.routes()))
    assert not peer.send(b"GET /park %b\r\n\r\n" % head)
    echo.parked[0].reply_around(b"[", b"1" * size, b"]")
    around = peer.wire.take()
    closed = peer.wire.closed
    peer = Peer(make_service(echo.routes()))
    peer.send(b"GET /park %b\r\n\r\n" % head)
    echo.parked[1].reply(b"[%b]" % (b"1" * size))
    assert around == peer.wire.take()
    assert closed == peer.wire.closed


def test_large_shared_bytes_are_written_as_they_are_unless_they_are_compressed() -> None:
    echo = Echo()
    shared = b"1" * 100_000
    fields = ((b"", True), (b"Origin: http://a\r\n", True), (b"Accept-Encoding: gzip\r\n", False))
    for offer, is_itself in fields:
        peer = Peer(make_service(echo.routes(), gzip_level=1, gzip_max_bytes=1 << 20))
        written: list[bytes] = []
        peer.wire.write = written.append  # type: ignore[method-assign]
        peer.send(b"GET /park HTTP/1.1\r\nHost: a\r\n" + offer + b"\r\n")
        echo.parked.pop().reply_around(b"[", shared, b"]")
        assert any(part is shared for part in written) == is_itself
        peer.send(b"GET /park HTTP/1.1\r\nHost: a\r\n\r\n")
        assert echo.parked.pop().answered is False, "the next request is served"


@pytest.mark.parametrize("head", [b"1.1\r\nHost: a\r\nConnection: close", b"1.0", b"1.0\r\nConnection: keep-alive"])
def test_large_shared_bytes_are_not_copied_for_a_connection_that_closes_after_them(head: bytes) -> None:
    echo = Echo()
    shared = b"1" * 100_000
    peer = Peer(make_service(echo.routes()))
    written: list[bytes] = []
    peer.wire.write = written.append  # type: ignore[method-assign]
    peer.send(b"GET /park HTTP/%b\r\n\r\n" % head)
    echo.parked.pop().reply_around(b"[", shared, b"]")
    assert any(part is shared for part in written)
    assert peer.wire.closed is (b"keep-alive" not in head)


def test_a_client_that_left_is_not_answered_around_anything() -> None:
    echo = Echo()
    peer = Peer(make_service(echo.routes()))
    peer.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    peer.http.lost()
    echo.parked[0].reply_around(b"[", b"1" * 100_000, b"]")
    assert peer.wire.sent == b""


# --- topics of other cores -------------------------------------------------------------------------------------------
FAR, FAR_POST = GET % b"far", POST.replace(b"topics/b", b"topics/far")


@pytest.fixture
def cores() -> FakeCores:
    return FakeCores()


@pytest.fixture
def core(echo: Echo, cores: FakeCores, parser: str) -> Peer:
    """A client of a core that is not the only one."""
    return Peer(make_service(echo.routes(), cores=cores, http_parser=parser))


def test_a_connection_is_given_to_the_core_of_its_topic_with_all_bytes_from_the_head_on(
    core: Peer, cores: FakeCores
) -> None:
    assert core.send(FAR_POST[:30]) == []
    assert core.send(FAR_POST[30:] + b'{"ha') == []
    assert core.send(b'lf":1}' + FAR) == [], "what comes while it leaves is kept"
    ((number, unread, _stayed),) = cores.given
    assert (number, unread()) == (1, FAR_POST + b'{"half":1}' + FAR)
    assert core.http.busy, "a stop waits for it"
    core.http.lost()
    assert core.wire.sent == b""


def test_requests_of_its_own_before_it_are_answered_here_and_do_not_travel(core: Peer, cores: FakeCores) -> None:
    assert [response.json["name"] for response in core.send(GET % b"a" + FAR + GET % b"b")] == ["a"]
    assert cores.given[0].unread() == FAR + GET % b"b"


def test_one_that_its_core_does_not_take_is_refused_and_the_next_ones_are_answered(
    core: Peer, cores: FakeCores
) -> None:
    assert core.send(FAR_POST + b'{"half":1}' + GET % b"a") == []
    core.send(GET % b"b")
    cores.given[0].stayed(11)
    refusal, *others = core.wire.take()
    assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (503, "not_ready", "1")
    assert [response.json["name"] for response in others] == ["a", "b"]
    core.send(FAR)
    assert len(cores.given) == 2, "it is tried again at the next request"


def test_one_that_its_core_does_not_take_before_its_body_is_here_is_refused_after_it(
    core: Peer, cores: FakeCores
) -> None:
    core.send(FAR_POST + b'{"ha')
    cores.given[0].stayed(11)
    refusal, other = core.send(b'lf":1}' + GET % b"a")
    assert (refusal.code, other.json["name"]) == ("not_ready", "a")


def test_one_that_cannot_leave_is_refused_at_once(core: Peer, cores: FakeCores) -> None:
    cores.gives = False
    refusal, other = core.send(FAR + GET % b"a")
    assert (refusal.code, other.json["name"]) == ("not_ready", "a")


def test_the_end_of_the_stream_after_one_that_stays_closes_the_connection(core: Peer, cores: FakeCores) -> None:
    core.send(FAR)
    cores.given[0].stayed(11)
    core.http.end_of_stream()
    assert core.wire.closed


def test_a_body_that_awaits_a_word_is_asked_for_by_the_core_that_gets_it(core: Peer, cores: FakeCores) -> None:
    assert core.send(FAR_POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")) == []
    assert len(cores.given) == 1


@pytest.mark.parametrize(
    ("target", "status"), [(b"GET /v0/topics/far/none", 404), (b"PUT /v0/topics/far/delete", 405), (b"GET /none", 404)]
)
def test_a_request_without_a_route_is_refused_here(core: Peer, cores: FakeCores, target: bytes, status: int) -> None:
    (refusal,) = core.send(target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (refusal.status, cores.given) == (status, [])


def test_a_request_without_its_key_or_at_a_core_that_stops_is_refused_here(echo: Echo, cores: FakeCores) -> None:
    core = Peer(make_service(echo.routes(), cores=cores, keyring=parse_keys("secret", 2)))
    assert [response.status for response in core.send(FAR)] == [401]
    core = Peer(make_service(echo.routes(), cores=cores))
    core.service.gate = lambda _plan: RequestError("shutting_down", "it stops")
    assert [response.code for response in core.send(FAR)] == ["shutting_down"]
    assert cores.given == []


def test_a_key_travels_in_the_bytes(echo: Echo, cores: FakeCores) -> None:
    core = Peer(make_service(echo.routes(), cores=cores, keyring=parse_keys("secret", 2)))
    head = FAR.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer secret\r\n\r\n")
    for _ in range(2):
        core.send(head)
        assert cores.given.pop().unread() == head
        core = Peer(core.service)


def test_a_preflight_is_answered_by_any_core(echo: Echo, cores: FakeCores) -> None:
    core = Peer(make_service(echo.routes(), cores=cores, allowed_origins=("https://app.example",)))
    asks = b"Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n\r\n"
    (answer,) = core.send(b"OPTIONS /v0/topics/far HTTP/1.1\r\nHost: localhost\r\n" + asks)
    assert (answer.status, cores.given) == (200, [])
