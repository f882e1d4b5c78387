"""Frames without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.events import Ping as WsPing

from tests.amount import examples
from tests.ws import frame_client
from tests.ws.frame_client import Incoming, close_code, frame
from tests.ws.passes import no_turns
from topics.ws.framing import BINARY, CLOSED, PING, TEXT, Framing, Received, text_frame


def receive(data: bytes, pieces: int = 0, max_frame: int = 0, max_message: int = 0) -> list[Received]:
    """Return what a connection takes from these bytes; pieces: bytes a receive, 0 for all at once."""
    framing = Framing(max_frame, max_message, no_turns())
    found: list[Received] = []
    step = pieces or max(1, len(data))
    for at in range(0, len(data), step):
        framing.feed(data[at : at + step])
        while (received := framing.take()) is not None:
            found.append(received)
    return found


MESSAGES = (
    frame(frame_client.TEXT, b"one")
    + frame(frame_client.TEXT, "tw\u00f6 \U0001f600".encode(), fin=False)
    + frame(frame_client.PING, b"beat")
    + frame(0, "\u20ac".encode())
    + frame(frame_client.PONG, b"")
    + frame(frame_client.BINARY, bytes(range(256)) * 300)
    + frame(frame_client.TEXT, b"")
)
EXPECTED = [
    (TEXT, b"one"),
    (PING, b"beat"),
    (TEXT, "tw\u00f6 \U0001f600\u20ac".encode()),
    (BINARY, bytes(range(256)) * 300),
    (TEXT, b""),
]


@pytest.mark.parametrize("pieces", [0, 1, 2, 7, 1000])
def test_messages_come_whole_however_their_bytes_arrive(pieces: int) -> None:
    assert [(kind, data) for kind, data, _ in receive(MESSAGES, pieces)] == EXPECTED


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(frame_client.TEXT, b"x", mask=b""), 1002),
        (frame(frame_client.TEXT, b"x", rsv=4), 1002),
        (frame(3, b"x"), 1002),
        (frame(0, b"x"), 1002),
        (frame(frame_client.PING, b"x", fin=False), 1002),
        (frame(frame_client.PING, b"x" * 126), 1002),
        (frame(frame_client.CLOSE, b"x"), 1002),
        (frame(frame_client.CLOSE, b"\x03\xed"), 1002),
        (frame(frame_client.TEXT, b"\xff"), 1007),
        (frame(frame_client.TEXT, b"\xc3", fin=False) + frame(0, b"x"), 1007),
        (frame(frame_client.TEXT, b"\xe2\x82"), 1007),
        (frame(frame_client.CLOSE, b"\x03\xe8\xff"), 1007),
    ],
)
def test_a_violation_is_closed_with_its_code_and_nothing_more_is_taken(data: bytes, code: int) -> None:
    found = receive(data + frame(frame_client.TEXT, b"late"))
    assert [received.kind for received in found] == [CLOSED]
    ((opcode, payload),) = Incoming().feed(found[0].data)
    assert (opcode, close_code(payload), found[0].code) == (frame_client.CLOSE, code, code)


@pytest.mark.parametrize("head", [b"\x82\x7e", b"\x82\x7e\x01", b"\x82\x7f", b"\x82\x7f\0\0\0\0\0\0\x01"])
def test_nothing_behind_a_frame_that_is_not_masked_is_taken_though_its_head_comes_in_pieces(head: bytes) -> None:
    framing = Framing(0, 0, no_turns())
    framing.feed(head)
    assert framing.take() is None
    framing.feed(frame(frame_client.TEXT, b"the rest of the head, and behind it"))
    received = framing.take()
    assert received is not None
    assert (received.kind, received.code) == (CLOSED, 1002)
    assert framing.take() is None


@pytest.mark.parametrize(
    ("payload", "reply"), [(b"", b""), (b"\x03\xe8bye", b"\x03\xe8bye"), (b"\x0b\xb8", b"\x0b\xb8")]
)
def test_a_close_is_answered_with_the_same(payload: bytes, reply: bytes) -> None:
    (received,) = receive(frame(frame_client.CLOSE, payload))
    assert received.kind == CLOSED
    assert Incoming().feed(received.data) == [(frame_client.CLOSE, reply)]


def test_a_frame_over_its_limit_is_refused_by_its_head_alone() -> None:
    whole = frame(frame_client.TEXT, b"x" * 1001)
    assert [received.code for received in receive(whole[:8], max_frame=1000)] == [1009]
    assert [received.kind for received in receive(frame(frame_client.TEXT, b"x" * 1000), max_frame=1000)] == [TEXT]


def test_a_message_over_its_limit_is_refused_however_many_frames_it_has() -> None:
    parts = frame(frame_client.TEXT, b"x" * 500, fin=False) + frame(frame_client.PING, b"y" * 100)
    assert [received.kind for received in receive(parts + frame(0, b"x" * 500), max_message=1000)] == [PING, TEXT]
    refused = receive(parts + frame(0, b"x" * 501)[:8], max_message=1000)
    assert [received.code for received in refused] == [0, 1009]
    both = receive(parts + frame(0, b"x" * 500) + frame(frame_client.TEXT, b"x" * 1000), max_message=1000)
    assert [received.kind for received in both] == [PING, TEXT, TEXT]


def test_the_close_after_too_much_says_what_was_too_long() -> None:
    """11.6."""
    (frame_,) = receive(frame(frame_client.TEXT, b"x" * 1001), max_frame=1000, max_message=1000)
    assert frame_.data[4:] == b"a frame is over 1000 bytes: send it in fragments, or less of it"
    parts = frame(frame_client.TEXT, b"x" * 900, fin=False) + frame(0, b"x" * 101)
    (message,) = receive(parts, max_frame=1000, max_message=1000)
    assert message.data[4:] == b"a message is over 1000 bytes: send less at once"
    (other,) = receive(frame(frame_client.TEXT, b"x", mask=b""), max_frame=1000)
    assert b"over" not in other.data


def test_what_is_kept_of_a_message_is_counted_and_let_go() -> None:
    framing = Framing(0, 0, no_turns())
    framing.feed(frame(frame_client.TEXT, b"x" * 300, fin=False))
    assert framing.held_bytes > 300
    assert framing.take() is None
    assert framing.held_bytes == 300
    framing.feed(frame(0, b""))
    assert framing.take() == Received(TEXT, b"x" * 300)
    assert framing.take() is None
    assert framing.held_bytes == 0


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 100_000])
def test_a_text_is_one_frame_of_the_shortest_head(size: int) -> None:
    payload = b"x" * size
    assert Incoming().feed(text_frame(payload)) == [(frame_client.TEXT, payload)]
    assert len(text_frame(payload)) - size == (2 if size < 126 else 4 if size < 65_536 else 10)


def as_wsproto_has_it(data: bytes) -> list[tuple[int, bytes]]:
    """Return the messages without limits, as wsproto by itself reads them."""
    connection = Connection(ConnectionType.SERVER)
    connection.receive_data(data)
    found: list[tuple[int, bytes]] = []
    partial = b""
    for event in connection.events():
        if isinstance(event, TextMessage | BytesMessage):
            kind, piece = (TEXT, event.data.encode()) if isinstance(event, TextMessage) else (BINARY, bytes(event.data))
            partial += piece
            if event.message_finished:
                found.append((kind, partial))
                partial = b""
        elif isinstance(event, WsPing):
            found.append((PING, bytes(event.payload)))
        elif isinstance(event, CloseConnection):
            return [*found, (CLOSED, bytes([event.code & 255]))]
    return found


frames = st.builds(
    frame,
    st.integers(0, 15),
    st.binary(max_size=200),
    fin=st.booleans(),
    mask=st.sampled_from([b"\1\2\3\4", b"\1\2\3\4", b"\1\2\3\4", b""]),
    rsv=st.sampled_from([0, 0, 0, 4]),
)


@examples(150)
@given(st.lists(frames | st.binary(max_size=40), max_size=8), st.integers(1, 50))
def test_any_bytes_give_messages_or_one_close(parts: list[bytes], pieces: int) -> None:
    data = b"".join(parts)
    whole = receive(data, max_frame=150, max_message=300)
    assert receive(data, pieces, max_frame=150, max_message=300) == whole
    assert [received.kind for received in whole[:-1]].count(CLOSED) == 0
    for kind, payload, _ in whole:
        if kind == TEXT:
            payload.decode()
            assert len(payload) <= 300


masks = st.binary(min_size=4, max_size=4)
texts = st.builds(frame, st.just(frame_client.TEXT), st.text(max_size=200).map(str.encode), mask=masks)


@examples(150)
@given(st.lists(texts | frames, max_size=8), st.integers(0, 30))
def test_what_is_taken_here_is_what_wsproto_has(parts: list[bytes], pieces: int) -> None:
    data = b"".join(parts)
    found = [
        (kind, bytes([code & 255]) if kind == CLOSED else payload) for kind, payload, code in receive(data, pieces)
    ]
    assert found == as_wsproto_has_it(data)


def test_what_was_taken_is_not_kept() -> None:
    framing = Framing(0, 0, no_turns())
    framing.feed(frame(frame_client.TEXT, b"x" * 60_000) + frame(frame_client.TEXT, b"y")[:3])
    assert framing.take() is not None
    assert framing.take() is None
    assert len(framing._input) == framing.held_bytes == 3
