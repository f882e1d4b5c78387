"""Requests that one core asks another one: in order, bounded, each with one end, also if the other one dies."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from tests.http.byte_stream import Peer, Response
from tests.http.relay.linked_cores import LinkedCores
from topics.http.plan import answer_turns
from topics.http.relay import relay_client
from topics.http.relay.relay_client import BEGIN_NS
from topics.http.relay.relay_message import ANSWERS, DamagedRelayError, RelayRow, encoded

JSON = b"application/json\0"


@pytest.fixture
def cores() -> LinkedCores:
    return LinkedCores()


def post(path: str, body: bytes = b"{}", *lines: str) -> bytes:
    head = [f"POST /v0/topics/{path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body


def asked(cores: LinkedCores, data: bytes) -> tuple[Peer, list[Response]]:
    peer = cores.http1()
    peer.send(data)
    cores.work()
    return peer, peer.wire.take()


def answers_of(*rows: RelayRow, begun: int = 0) -> memoryview:
    return memoryview(b"".join(encoded(ANSWERS, begun, rows)))


def test_a_request_gets_there_as_it_was_made(cores: LinkedCores) -> None:
    request = post("far%2Fa?x=1&y=%20", b'{"a":1}', "Idempotency-Key: k", "Authorization: Bearer secret", "Accept: */*")
    peer, (answer,) = asked(cores, request)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {
        "method": "POST",
        "name": "far/a",
        "query": {"x": "1", "y": " "},
        "body": '{"a":1}',
        "headers": {"idempotency-key": "k"},
    }
    assert not peer.wire.closed
    assert (cores.asked.relayed, cores.asked.in_doubt) == (1, 0)


def test_an_answer_is_compressed_and_marked_where_the_connection_is(cores: LinkedCores) -> None:
    lines = ("Accept-Encoding: gzip", "Origin: http://localhost")
    _, (answer,) = asked(cores, post("far", b'"%b"' % (b"x" * 5000), *lines))
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"x" * 5000 in gzip.decompress(answer.body)


def test_a_body_gets_there_decompressed(cores: LinkedCores) -> None:
    _, (answer,) = asked(cores, post("far", gzip.compress(b'{"a":2}'), "Content-Encoding: gzip"))
    assert answer.json["body"] == '{"a":2}'


def test_a_head_has_no_body_in_its_answer(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(b"HEAD /v0/topics/far HTTP/1.1\r\nHost: localhost\r\n\r\n")
    cores.work()
    (answer,) = peer.wire.take(heads_only=(0,))
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post("far", b"{}", "Prefer: handling=strict").replace(b"/far", b"/far?x=1"), 400),
        (post("far").replace(b"application/json", b"text/plain"), 415),
        (b"GET /v0/topics/far/none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    ],
)
def test_what_the_head_or_the_body_decides_is_refused_where_the_connection_is(
    cores: LinkedCores, request_: bytes, status: int
) -> None:
    assert [answer.status for answer in cores.http1().send(request_)] == [status]
    assert not cores.ends


def test_an_error_comes_with_its_code_and_fields(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far/claim"))
    cores.ask()
    cores.parked[0].fail(ValueError("a bug"))
    cores.answer()
    (answer,) = peer.wire.take()
    assert (answer.status, answer.code) == (500, "internal")


def test_requests_of_a_pass_are_one_message_and_get_their_own_answers_whatever_their_order(cores: LinkedCores) -> None:
    peers = [cores.http1() for _ in range(5)]
    for number, peer in enumerate(peers):
        peer.send(post("far/claim", b"%d" % number))
    cores.ask()
    assert [call.body for call in cores.parked] == [b"0", b"1", b"2", b"3", b"4"]
    for call in reversed(cores.parked):
        call.reply(b'["%b"]' % bytes(call.body))
    cores.answer()
    assert [peer.wire.take()[0].json for peer in peers] == [["0"], ["1"], ["2"], ["3"], ["4"]]


def test_a_connection_asks_for_the_next_one_after_an_answer(cores: LinkedCores) -> None:
    peer, answers = asked(cores, post("far", b"1") + post("far", b"2") + post("near", b"3"))
    assert [answer.json["body"] for answer in answers] == ["1"]
    cores.work()
    assert [answer.json["body"] for answer in peer.wire.take()] == ["2", "3"]


def test_a_core_that_is_not_there_has_taken_nothing_and_is_asked_again(cores: LinkedCores) -> None:
    cores.is_there = False
    peer = cores.http1()
    peer.send(post("far"))
    cores.flush()
    (answer,) = peer.wire.take()
    assert (answer.code, answer.headers["retry-after"]) == ("not_ready", "1")
    cores.is_there = True
    peer.send(post("far"))
    cores.work()
    assert [answer.status for answer in peer.wire.take()] == [200]


def test_a_request_in_doubt_gets_no_answer_and_one_that_was_not_sent_a_refusal(
    cores: LinkedCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_client, "NOT_BEGUN_BYTES", 10)
    first, second, over_2 = cores.http1(), cores.http1(), cores.http2()
    first.send(post("far", b"0123456789"))
    stream = over_2.begin("GET", "/v0/topics/far")
    cores.flush()
    second.send(post("far", b"1"))
    cores.die()
    assert first.wire.closed
    assert not first.wire.sent
    (answer,) = second.wire.take()
    assert (answer.code, second.wire.closed) == ("not_ready", False)
    assert over_2.seen(stream).response.code == "not_ready"


def test_over_http_2_the_stream_of_a_request_in_doubt_is_reset(cores: LinkedCores) -> None:
    peer = cores.http2()
    streams = [peer.begin("GET", "/v0/topics/far") for _ in range(2)]
    cores.flush()
    cores.die()
    for stream in streams:
        seen = peer.seen(stream)
        assert (seen.status, seen.reset) == (0, 2)
    cores.is_there = True
    assert peer.ask("GET", "/v0/topics/near").status == 200
    assert cores.asked.in_doubt == 2


def test_the_end_of_many_takes_turns(cores: LinkedCores, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [cores.http1() for _ in range(2 * answer_turns.ANSWERS_A_PASS)]
    for peer in peers:
        peer.send(post("far"))
    cores.flush()
    cores.die()
    assert sum(peer.wire.closed for peer in peers) == answer_turns.ANSWERS_A_PASS
    cores.end_pass()
    assert all(peer.wire.closed for peer in peers)


def test_a_core_that_begins_nothing_is_taken_for_dead(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far/claim"))
    cores.work()
    for _ in range(3):
        cores.loop.advance_ms(BEGIN_NS // 1_000_000)
        assert not peer.wire.closed, "it was begun, and may take long"
    other = cores.http1()
    other.send(post("far"))
    cores.flush()
    cores.loop.advance_ms(BEGIN_NS // 1_000_000 - 1)
    assert not other.wire.closed
    cores.loop.advance_ms(1)
    assert other.wire.closed
    assert peer.wire.closed
    assert cores.ends[0][0].is_aborted


def test_what_is_sent_and_not_begun_is_bounded(cores: LinkedCores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_client, "NOT_BEGUN_BYTES", 10)
    peers = [cores.http1() for _ in range(6)]
    for peer in peers:
        peer.send(post("far/claim", b"123456"))
    bodies = []
    for _ in range(6):
        cores.work()
        bodies.append(len(cores.parked))
    assert bodies == [2, 4, 6, 6, 6, 6]


def test_nothing_is_sent_to_a_socket_that_is_full(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far"))
    cores.work()
    cores.ends[0][0].over_high_water = True
    assert len(peer.send(post("far"))) == 1, "the answer to the first one"
    cores.flush()
    assert not cores.ends[0][0].sent
    cores.ends[0][0].over_high_water = False
    cores.asked.drained()
    cores.work()
    assert len(peer.wire.take()) == 1


def test_too_many_in_flight_are_refused(cores: LinkedCores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_client, "IN_FLIGHT_MAX", 3)
    peers = [cores.http1() for _ in range(3)]
    for peer in peers:
        peer.send(post("far/claim"))
        cores.work()
    (answer,) = cores.http1().send(post("far"))
    assert answer.code == "not_ready"


def test_the_body_of_one_that_waits_counts_as_memory_of_its_connection(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far", bytes(5000)))
    assert peer.http.held_bytes == 5000
    cores.flush()
    assert peer.http.held_bytes == 0


def test_a_client_that_leaves_before_its_request_is_sent_asks_for_nothing(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far"))
    peer.http.lost()
    cores.flush()
    assert not cores.ends
    assert cores.service.in_flight.requests == 0


def test_a_wait_ends_with_its_client(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far/diff"))
    cores.work()
    assert not peer.wire.closed
    peer.http.end_of_stream()
    assert peer.wire.closed, "it waits, so that its client is not answered any more"
    cores.work()
    assert cores.echo.abandoned == cores.parked
    cores.work()
    assert cores.owner.in_flight.requests == cores.service.in_flight.requests == 0


def test_a_client_that_has_left_before_the_wait_is_known_ends_it_too(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far/diff"))
    cores.ask()
    peer.http.lost()
    cores.answer()
    cores.work()
    assert cores.echo.abandoned == cores.parked


def test_a_request_that_does_not_wait_is_answered_after_the_end_of_its_client_s_data(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far/claim"))
    cores.work()
    peer.http.end_of_stream()
    cores.parked[0].reply(b"[]")
    cores.answer()
    assert [answer.status for answer in peer.wire.take()] == [200]


def test_a_wait_whose_core_dies_has_nothing_to_do_with_the_next_pair(cores: LinkedCores) -> None:
    waits = cores.http1()
    waits.send(post("far/diff"))
    cores.work()
    for _ in range(answer_turns.ANSWERS_A_PASS):
        cores.service.answer_turns.answer(lambda: None)
    cores.die()
    assert not waits.wire.closed, "others come before it"
    other = cores.http1()
    other.send(post("far/diff"))
    cores.work()
    waits.http.lost()
    cores.work()
    assert cores.echo.abandoned == cores.parked[:1]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda: answers_of(RelayRow(2, 200, JSON, b"{}"), begun=1), id="of one that was not asked"),
        pytest.param(lambda: answers_of(RelayRow(1, 7, JSON, b"{}"), begun=1), id="no status"),
        pytest.param(lambda: answers_of(begun=2), id="begun that were not asked"),
        pytest.param(
            lambda: answers_of(RelayRow(1, 200, JSON, b"{}"), RelayRow(1, 200, JSON, b"{}"), begun=1), id="twice"
        ),
        pytest.param(lambda: memoryview(bytes(40)), id="no message"),
    ],
)
def test_an_answer_that_cannot_be_ends_the_pair(cores: LinkedCores, rows: Callable[[], memoryview]) -> None:
    cores.http1().send(post("far/claim"))
    cores.flush()
    with pytest.raises(DamagedRelayError):
        cores.asked.receive(rows())
