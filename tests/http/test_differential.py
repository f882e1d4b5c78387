"""Goal: one meaning of every byte stream, whichever parser reads it and however it arrives.

Method: streams built from requests that are nearly right, then damaged; the same bytes go through a connection with
httptools and one with h11, whole and in pieces, and both must give the same requests or the same refusal. Our chunked
reader is compared with h11's, which may only be the more forgiving one.
"""

import h11
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.http.byte_stream import Echo, Peer, make_service
from topics.http.http1.chunked import ChunkedBody
from topics.http.wire.error_answers import BadRequestError

FIELDS = st.sampled_from(
    [
        b"Host: localhost",
        b"Host:localhost:1",
        b"Content-Type: application/json",
        b"Content-Length: 2",
        b"Content-Length: 002",
        b"content-length:\t2 ",
        b"Content-Length: 18446744073709551615",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: Chunked ",
        b"Transfer-Encoding: identity",
        b"Connection: close",
        b"Connection: keep-alive, upgrade",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Expect: 100-continue",
        b"X-\xc3: y",
        b"X: \xc3\xa9",
        b"X:",
        b"X: a\x7fb",
        b"Proxy-Connection: close",
        b" folded",
        b"\t",
        b"X : y",
        b"no colon",
    ]
)
LINES = st.sampled_from(
    [
        b"GET /v0/topics/a HTTP/1.1",
        b"POST /v0/topics/a HTTP/1.1",
        b"POST /v0/topics/a?x=%3E HTTP/1.0",
        b"BREW /v0/topics/a HTTP/1.1",
        b"CONNECT localhost:80 HTTP/1.1",
        b"PRI * HTTP/1.1",
        b"SOURCE /x HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET http://localhost/v0/topics/a HTTP/1.1",
        b"GET http://localhost HTTP/1.1",
        b"GET https://[::1]:80/x HTTP/1.1",
        b'GET /a>b"<\\^`{|}#f?x HTTP/1.1',
        b"GET // HTTP/1.1",
        b"get / HTTP/1.1",
        b"GET / HTTP/0.9",
        b"GET /",
        b"",
    ]
)
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r"])
BODIES = st.sampled_from([b"", b"{}", b"2\r\n{}\r\n0\r\n\r\n", b"2\r\n{}0\r\n\r\n", b"{}GET"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    lines = [draw(LINES), *(draw(st.permutations([b"Host: localhost"])) if draw(st.booleans()) else [])]
    lines += draw(st.lists(FIELDS, max_size=4))
    return b"".join(line + draw(ENDS) for line in lines) + draw(ENDS) + draw(BODIES)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 2)) :]
    return data


def outcome(parser: str, data: bytes, pieces: list[int]) -> tuple[list[tuple[int, object]], str, bool]:
    """Return what a client sees: statuses with bodies (of errors, only the code: wording is the parser's)."""
    peer = Peer(make_service(Echo().routes(), http_parser=parser, max_head_bytes=400, max_head_fields=8))
    start = 0
    for end in [*sorted(set(pieces)), len(data)]:
        if not peer.wire.closed:
            peer.http.receive(data[start:end])
        start = end
    sent = peer.wire.sent
    if sent.count(b"HTTP/1.1 ") and b"{" not in sent:
        return [], sent.decode("latin-1"), peer.wire.closed
    seen: list[tuple[int, object]] = []
    for response in peer.wire.take():
        seen.append((response.status, response.json if response.status == 200 else response.body and response.code))
    return seen, str(peer.http.phase), peer.wire.closed


@examples(200)
@given(streams(), st.lists(st.integers(0, 300), max_size=4))
def test_both_parsers_give_the_same_requests_or_the_same_refusal(data: bytes, pieces: list[int]) -> None:
    pieces = [piece for piece in pieces if piece < len(data)]
    assert outcome("httptools", data, pieces) == outcome("h11", data, pieces)


@examples(150)
@given(streams(), st.lists(st.integers(0, 300), max_size=4))
def test_a_stream_that_is_understood_is_understood_however_it_is_split(data: bytes, pieces: list[int]) -> None:
    def merged(pieces: list[int]) -> list[tuple[int, object]]:
        # Which of two faults is met first, a bad line or too many of them, may depend on where the
        # pieces end.
        seen = outcome("httptools", data, pieces)[0]
        return [(400, "malformed") if status in (400, 431) else (status, value) for status, value in seen]

    assert merged([piece for piece in pieces if piece < len(data)]) == merged([])


CHUNKS = st.lists(
    st.sampled_from(
        [b"2", b"02", b"0", b"a", b"F", b"\r\n", b"\r\n", b"\r\n", b"{}", b";x=y", b" ", b"\n", b"X: y", b"0123456789"]
    ),
    max_size=12,
).map(b"".join)


def by_h11(data: bytes) -> tuple[bytes, bytes] | None:
    """(body, rest) of a chunked body that h11 takes whole, else None."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return body, connection.trailing_data[0]
            elif event is h11.NEED_DATA:
                return None
    except h11.RemoteProtocolError:
        return None


@examples(250)
@given(CHUNKS, st.integers(0, 20))
def test_what_our_chunked_reader_takes_h11_takes_the_same_way(data: bytes, split: int) -> None:
    body = ChunkedBody()
    try:
        rest = body.feed(data[:split])
        rest = rest + data[split:] if body.done else body.feed(data[split:])
    except BadRequestError:
        return
    if body.done:
        assert by_h11(data) == (body.take(), rest)
