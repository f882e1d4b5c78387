"""Streams that another core writes: the bytes of each in order, no more than its client takes, and one end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.http.byte_stream import Peer
from tests.http.relay.linked_cores import LinkedCores
from topics.config import tiny_config
from topics.http.access.keyring import parse_keys
from topics.http.plan import answer_turns
from topics.http.relay.relay_client import CANCEL, NONE, WAITS, WHOLE
from topics.http.relay.relay_message import (
    ANSWERS,
    CHUNK,
    COUNT,
    END,
    OPENS,
    REQUESTS,
    SEPARATE_BYTES,
    TAKEN,
    DamagedRelayError,
    RelayDecoder,
    RelayRow,
    encoded,
)
from topics.http.wire.stream import LAST_CHUNK, Block, chunked

HIGH, LOW = tiny_config("/").stream_high_water_bytes, tiny_config("/").stream_low_water_bytes


@pytest.fixture
def cores() -> LinkedCores:
    return LinkedCores()


def get(path: str = "far/work", *lines: str) -> bytes:
    return "\r\n".join([f"GET /v0/topics/{path} HTTP/1.1", "Host: localhost", *lines]).encode() + b"\r\n\r\n"


def opened(cores: LinkedCores, *lines: str) -> Peer:
    """A client whose stream is open; the head is taken off its wire."""
    peer = cores.http1()
    peer.send(get("far/work", *lines))
    cores.work()
    head, end, rest = peer.wire.sent.partition(b"\r\n\r\n")
    assert end
    assert head.startswith(b"HTTP/1.1 200")
    peer.wire.sent = rest
    return peer


def told(cores: LinkedCores) -> list[tuple[int, int, bytes]]:
    """Rows that core 0 sends about streams: number, code, body. They are not passed on."""
    cores.flush()
    (message,) = RelayDecoder(REQUESTS).feed(cores.ends[-1][0].take())
    return [(row.number, row.code, bytes(row.body)) for row in message.rows()]


def answers_of(*rows: RelayRow, begun: int) -> memoryview:
    return memoryview(b"".join(encoded(ANSWERS, begun, rows)))


def test_a_stream_has_its_head_its_bytes_and_its_end(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(get("far/work", "Accept: text/event-stream", "Last-Event-ID: 7", "Authorization: Bearer secret"))
    cores.work()
    (stream,) = cores.echo.streams
    assert b"Transfer-Encoding: chunked\r\nX-Kind: stream\r\n" in peer.wire.sent
    assert b"Content-Type: text/plain" in peer.wire.sent
    peer.wire.sent = b""
    stream.write(b"one")
    stream.write_block(Block(b"two"))
    cores.answer()
    assert peer.wire.sent == chunked(b"one") + chunked(b"two")
    stream.write(b"three")
    stream.end()
    cores.answer()
    assert peer.wire.sent.endswith(chunked(b"three") + LAST_CHUNK)
    peer.wire.sent = b""
    (answer,) = peer.send(get("near"))
    assert answer.status == 200, "the connection is used again"
    assert (cores.asked.relayed, cores.asked.in_doubt) == (1, 0)
    assert cores.service.streams.slots.open == 0
    assert cores.service.in_flight.requests == cores.owner.in_flight.requests == 0


def test_over_http_2_each_stream_gets_its_own_bytes(cores: LinkedCores) -> None:
    peer = cores.http2()
    numbers = [peer.begin("GET", "/v0/topics/far/work") for _ in range(3)]
    cores.work()
    for count, stream in enumerate(cores.echo.streams):
        stream.write(b"%d" % count * 3)
    cores.answer()
    cores.echo.streams[1].end()
    cores.answer()
    seen = [peer.seen(number) for number in numbers]
    assert [(each.status, each.body, each.ended) for each in seen] == [
        (200, b"000", False),
        (200, b"111", True),
        (200, b"222", False),
    ]


def test_the_owner_gets_the_fields_of_streams_and_no_secret(cores: LinkedCores) -> None:
    opened(cores, "Accept: */*", "Last-Event-ID: 7", "Authorization: Bearer s", "Cookie: c", "X-Other: x")
    cores.http1().send(get("far/work", "Accept: */*", "Last-Event-ID: 8", "Authorization: Bearer s"))
    cores.flush()
    (message,) = RelayDecoder(REQUESTS).feed(cores.ends[0][0].take())
    (head,) = message.heads
    plan = cores.ends[0][2]._plans.plan(head)
    assert plan.request.headers == {b"accept": b"*/*", b"last-event-id": b"8"}


def test_a_refusal_comes_as_it_was_made_and_frees_the_slot(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(get("far-refused/work"))
    cores.work()
    (answer,) = peer.wire.take()
    assert (answer.status, answer.code) == (404, "topic_not_found")
    assert cores.service.streams.slots.open == 0


def test_streams_are_counted_by_both_cores_and_limited_where_the_connection_is() -> None:
    cores = LinkedCores(max_sse_connections=1)
    cores.service.streams.slots.limit.most = 2
    peers = [opened(cores) for _ in range(2)]
    assert (cores.service.streams.slots.open, cores.owner.streams.slots.open) == (2, 2)
    refused = cores.http1()
    refused.send(get())
    cores.work()
    assert refused.wire.take()[0].code == "throttled"
    for peer, stream, slot in zip(peers, cores.echo.streams, cores.echo.slots, strict=True):
        peer.http.lost()
        slot.release()
        assert stream.over_high_water is False
    assert cores.service.streams.slots.open == 0


def test_a_key_has_its_limit_where_the_connection_is() -> None:
    cores = LinkedCores(parse_keys("secret-secret-secret"), max_sse_connections_per_key=1)
    key = "Authorization: Bearer secret-secret-secret"
    opened(cores, key)
    refused = cores.http1()
    refused.send(get("far/work", key))
    cores.work()
    (answer,) = refused.wire.take()
    assert (answer.code, answer.json["error"]["message"][:25]) == ("throttled", "this key has 1 streams op")
    refused.send(get("far-refused/work", key))
    cores.work()
    assert refused.wire.take()[0].code == "topic_not_found", "the other core checks what comes before"
    assert (cores.service.streams.slots.open, cores.owner.streams.slots.open) == (1, 1)


def test_a_limit_that_is_not_known_yet_is_no_limit_that_is_reached(cores: LinkedCores) -> None:
    limit = cores.service.streams.slots.limit
    limit.waits_for, limit.most = 1, 0
    peer = cores.http1()
    peer.send(get())
    cores.work()
    (answer,) = peer.wire.take()
    assert (answer.status, answer.code, answer.json["error"]["detail"]) == (503, "not_ready", {"core": 1})


def test_a_body_that_comes_with_a_request_for_a_stream_is_no_reason_to_refuse_it(cores: LinkedCores) -> None:
    body = b'{"error":{"code":"throttled","message":"by its client"}}'
    peer = cores.http1()
    peer.send(get("far/work", f"Content-Length: {len(body)}") + body)
    cores.work()
    assert peer.wire.sent.startswith(b"HTTP/1.1 200")


def test_streams_that_are_not_sent_hold_their_slots_until_they_are_refused(cores: LinkedCores) -> None:
    cores.is_there = False
    peer = cores.http1()
    peer.send(get())
    assert cores.service.streams.slots.open == 1
    cores.flush()
    assert cores.service.streams.slots.open == 0
    cores.end_pass()
    assert peer.wire.take()[0].status == 503


def test_a_client_that_does_not_read_stops_its_stream_and_no_other(cores: LinkedCores) -> None:
    slow, _ = opened(cores), opened(cores)
    of_slow, of_quick = cores.echo.streams
    slow.wire.over_high_water = True
    while not of_slow.over_high_water:
        of_slow.write(bytes(LOW))
        of_quick.write(bytes(LOW))
        cores.work()
    assert HIGH < len(slow.wire.sent) <= HIGH + 2 * LOW + 200
    assert not of_quick.over_high_water
    for _ in range(100):
        of_quick.write(bytes(LOW))
        cores.work()
        cores.end_pass()
        assert not of_quick.over_high_water
    assert cores.echo.told == []
    slow.wire.over_high_water = False
    slow.http.drained()
    cores.ask()
    assert cores.echo.told == ["drained"]
    assert not of_slow.over_high_water


def test_what_the_client_has_taken_is_told_by_halves_of_the_low_mark(cores: LinkedCores) -> None:
    opened(cores)
    (stream,) = cores.echo.streams
    stream.write(bytes(LOW // 2 - 1))
    cores.answer()
    cores.flush()
    assert not cores.ends[0][0].sent
    stream.write(b"xy")
    cores.answer()
    assert told(cores) == [(1, TAKEN, COUNT.pack(LOW // 2 + 1))]


def test_a_client_that_leaves_ends_the_stream_at_the_owner(cores: LinkedCores) -> None:
    peer = opened(cores)
    (stream,) = cores.echo.streams
    stream.write(b"on its way")
    peer.http.lost()
    cores.answer()
    cores.ask()
    assert cores.echo.told == ["gone"]
    stream.write(b"too late")
    stream.end()
    cores.answer()
    assert cores.asked._asked is not None
    assert not cores.asked._asked.streams
    assert cores.asked.in_doubt == 0
    assert cores.echo.told == ["gone"]


def test_a_client_that_has_left_before_the_stream_opens_ends_it_too(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(get())
    cores.ask()
    peer.http.end_of_stream()
    assert peer.wire.closed, "a stream ends with the end of its client's data"
    cores.answer()
    cores.ask()
    assert cores.echo.told == ["gone"]
    assert cores.service.in_flight.requests == 0
    assert cores.service.streams.slots.open == 0


def test_a_client_that_leaves_before_its_stream_is_asked_for_asks_for_nothing(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(get())
    peer.http.end_of_stream()
    cores.flush()
    assert not cores.ends or not cores.ends[0][0].sent
    assert cores.service.in_flight.requests == cores.service.streams.slots.open == 0


def test_an_end_and_a_leave_that_cross_are_one_end(cores: LinkedCores) -> None:
    peer = opened(cores)
    cores.echo.streams[0].end()
    cores.flush()
    peer.http.lost()
    cores.work()
    cores.work()
    assert cores.echo.told == []
    assert cores.asked._asked is not None
    assert not cores.asked._asked.streams


def test_the_end_of_the_pair_closes_over_http_1_and_resets_over_http_2(cores: LinkedCores) -> None:
    peer, over_2 = opened(cores), cores.http2()
    number = over_2.begin("GET", "/v0/topics/far/work")
    cores.work()
    for stream in cores.echo.streams:
        stream.write(b"some")
    cores.answer()
    cores.die()
    cores.end_pass()
    assert peer.wire.closed
    assert peer.wire.sent == chunked(b"some"), "without the last chunk"
    seen = over_2.seen(number)
    assert (seen.body, seen.reset) == (b"some", 2)
    assert cores.echo.told == ["gone", "gone"]
    assert cores.asked.in_doubt == 2
    assert cores.service.streams.slots.open == 0


def test_a_stream_that_the_owner_has_not_opened_is_in_doubt_too(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(get())
    cores.flush()
    cores.die()
    assert peer.wire.closed
    assert not peer.wire.sent
    assert (cores.asked.in_doubt, cores.service.in_flight.requests) == (1, 0)


def test_a_core_that_is_not_there_refuses(cores: LinkedCores) -> None:
    cores.is_there = False
    peer = cores.http1()
    peer.send(get())
    cores.flush()
    assert peer.wire.take()[0].code == "not_ready"
    assert cores.service.streams.slots.open == 0


def test_the_ends_and_the_chunks_of_many_streams_take_turns(cores: LinkedCores) -> None:
    most = answer_turns.ANSWERS_A_PASS
    peers = []
    while len(peers) < most + 10:
        peers.append(opened(cores))
        cores.end_pass()
    block = Block(b"shared")
    for stream in cores.echo.streams:
        stream.write_block(block)
    cores.answer()
    assert sum(bool(peer.wire.sent) for peer in peers) == most
    cores.end_pass()
    assert all(peer.wire.sent == chunked(b"shared") for peer in peers)
    cores.end_pass()
    cores.die()
    assert sum(peer.wire.closed for peer in peers) == most
    cores.end_pass()
    assert all(peer.wire.closed for peer in peers)


def test_a_block_of_many_streams_is_in_a_message_once(cores: LinkedCores) -> None:
    for _ in range(5):
        opened(cores)
    block = Block(bytes(1000))
    for stream in cores.echo.streams:
        stream.write_block(block)
    cores.flush()
    assert 1000 < len(cores.ends[0][1].sent) < 1300


def test_a_large_chunk_comes_whole(cores: LinkedCores) -> None:
    peer = opened(cores)
    data = bytes(SEPARATE_BYTES + 1)
    cores.echo.streams[0].write(data)
    cores.answer()
    assert peer.wire.sent == chunked(data)


def test_the_end_of_a_key_is_told_to_the_owner_once_the_stream_is_open() -> None:
    cores = LinkedCores(parse_keys("secret-secret-secret"))
    key = "Authorization: Bearer secret-secret-secret"
    opened(cores, key)
    early = cores.http1()
    early.send(get("far/work", key))
    cores.ask()
    cores.service.on_keys_changed(frozenset())
    cores.answer()
    cores.ask()
    assert cores.echo.told == ["key", "key"]
    assert not early.wire.closed, "the owner says its last words and ends it"


def test_a_stop_asks_the_owner_for_the_ends_and_waits_for_them(cores: LinkedCores) -> None:
    peer, leaves = opened(cores), opened(cores)
    assert [None for _ in cores.asked.end_streams()] == [None, None]
    assert [None for _ in cores.asked.end_streams()] == [None, None]
    assert cores.service.in_flight.requests == 2
    cores.ask()
    assert cores.echo.told == ["stop", "stop"]
    cores.echo.streams[0].write(b"goodbye")
    cores.echo.streams[0].end()
    leaves.http.lost()
    cores.answer()
    assert peer.wire.sent == chunked(b"goodbye") + LAST_CHUNK
    assert cores.service.in_flight.requests == 0


def test_a_stream_that_was_not_sent_before_its_key_or_its_core_has_gone_ends_once_it_is_open() -> None:
    keyring = parse_keys("secret-secret-secret")
    cores = LinkedCores(keyring)
    opened(cores, "Authorization: Bearer secret-secret-secret")
    cores.ends[0][0].over_high_water = True
    for _ in range(2):
        cores.http1().send(get("far/work", "Authorization: Bearer secret-secret-secret"))
    cores.flush()
    keyring.change_to(parse_keys("another-another-another"))
    cores.service.on_keys_changed(keyring.key_ids)
    cores.ends[0][0].over_high_water = False
    cores.asked.drained()
    cores.work()
    cores.work()
    assert cores.echo.told == ["key"] * 3


def test_a_stream_that_was_not_sent_before_a_stop_ends_once_it_is_open(cores: LinkedCores) -> None:
    opened(cores)
    cores.ends[0][0].over_high_water = True
    cores.http1().send(get())
    cores.flush()
    cores.service.drain()
    cores.ends[0][0].over_high_water = False
    cores.asked.drained()
    cores.work()
    cores.work()
    assert cores.echo.told == ["stop"]
    assert cores.service.in_flight.requests == 1
    cores.echo.streams[1].end()
    cores.answer()
    assert cores.service.in_flight.requests == 0


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda: [RelayRow(2, CHUNK, b"x", b"")], id="a chunk of one that was not opened"),
        pytest.param(lambda: [RelayRow(2, END, b"", b"")], id="the end of one that was not opened"),
        pytest.param(lambda: [RelayRow(1, CHUNK, b"", b"")], id="an empty chunk"),
        pytest.param(lambda: [RelayRow(1, OPENS + 200, b"a\0", b"")], id="one that is open"),
        pytest.param(lambda: [RelayRow(1, 200, b"a\0", b"")], id="an answer to one that is open"),
        pytest.param(lambda: [RelayRow(1, WAITS, b"", b"")], id="one that waits"),
        pytest.param(lambda: [RelayRow(1, WHOLE, b"", b"")], id="a write"),
        pytest.param(lambda: [RelayRow(1, END, b"", b""), RelayRow(1, CHUNK, b"x", b"")], id="a chunk after the end"),
        pytest.param(lambda: [RelayRow(1, NONE, b"", b""), RelayRow(1, END, b"", b"")], id="two ends"),
        pytest.param(lambda: [RelayRow(3, OPENS + 200, b"a\0", b"")], id="of a request that is none"),
    ],
)
def test_a_row_that_cannot_be_ends_the_pair(cores: LinkedCores, rows: Callable[[], list[RelayRow]]) -> None:
    opened(cores)
    for path in ("far/work", "far/claim"):
        cores.http1().send(get(path) if path == "far/work" else get(path).replace(b"GET", b"POST"))
    cores.flush()
    with pytest.raises(DamagedRelayError):
        cores.asked.receive(answers_of(*rows(), begun=1))


def test_a_cancel_of_a_stream_is_sent_once_it_is_open(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(get())
    cores.ask()
    peer.http.lost()
    cores.flush()
    assert not cores.ends[0][0].sent
    cores.answer()
    assert told(cores) == [(1, CANCEL, b"")]
