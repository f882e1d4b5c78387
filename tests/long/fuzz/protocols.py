"""Connections, messages and whole servers fed with any bytes: nothing is raised, and they have one meaning."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence

from tests.contract.world.sim_world import SimWorld
from tests.http.byte_stream import Echo, Peer, Wire, make_service
from tests.server.lane_streams import without_chance
from tests.ws.test_framing import as_wsproto_has_it, receive
from topics.config import Config
from topics.engine.bodies.write_body import WriteScanner
from topics.errors import RequestError
from topics.http.access.routes import Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.http2.h2_connection import PREFACE
from topics.http.protocol_choice import FirstBytes
from topics.http.streams.watch_cursors import read_cursor_id
from topics.http.wire.cursor import decode_cursor
from topics.http.wire.query import parse_query, unsigned
from topics.ws.commands import parse_command
from topics.ws.framing import CLOSED

SCANNER = WriteScanner(Config())
_HEADS = {"max_head_bytes": 400, "max_head_fields": 8}
"""Limits that small inputs can reach."""
_MESSAGE = re.compile(rb'"message":"(?:[^"\\]|\\.)*"')
_INPUTS_A_SERVER = 2000


def http1(parser: str, data: bytes) -> None:
    """A connection's bytes, whole and in two pieces."""
    for pieces in ((), (len(data) // 2,)):
        echo = Echo()
        peer = Peer(make_service(_routes(echo), http_parser=parser))
        _send(peer.http.receive, peer.wire, data, pieces)
        _answer(echo)
        assert peer.wire.sent.startswith(b"HTTP/1.1 ") or not peer.wire.sent


def http1_by_both(data: bytes) -> None:
    """One meaning of every byte stream, whichever parser reads it."""
    said = []
    for parser in ("httptools", "h11"):
        peer = Peer(make_service(_routes(Echo()), http_parser=parser, **_HEADS))
        _send(peer.http.receive, peer.wire, data, ())
        answers = without_chance(_MESSAGE.sub(b'"message":""', peer.wire.sent))
        said.append((answers, peer.wire.closed, str(peer.http.phase)))
    assert said[0] == said[1], f"{said[0]}\n{said[1]}"


def http2(data: bytes) -> None:
    """Feed bytes after the preface, whole and in two pieces."""
    for pieces in ((), (len(data) // 2,)):
        echo, wire = Echo(), Wire()
        wire.state = FirstBytes(make_service(_routes(echo), **_HEADS), wire)
        wire.state.receive(PREFACE)
        _send(wire.state.receive, wire, data, pieces)
        _answer(echo)
        _check_frames(wire.sent)


def _routes(echo: Echo) -> RouteTable:
    """Some that answer at once, and some that make what follows wait."""
    return RouteTable(
        [
            Route("GET", "/v0/topics/:topic", Scope.READ, echo.echo),
            Route("POST", "/v0/topics/:topic", Scope.WRITE, echo.echo, Body.JSON, large=True),
            Route("PUT", "/v0/topics/:topic", Scope.ADMIN, echo.echo, Body.JSON_OR_EMPTY, large=True),
            Route("GET", "/park", Scope.READ, echo.park),
            Route("GET", "/wait", Scope.READ, echo.wait),
            Route("GET", "/stream", Scope.READ, echo.stream, stream=True),
        ]
    )


def _send(receive: Callable[[memoryview], None], wire: Wire, data: bytes, pieces: Sequence[int]) -> None:
    start = 0
    for end in [*pieces, len(data)]:
        if start < end and not wire.closed:
            receive(memoryview(data[start:end]))
        start = end


def _answer(echo: Echo) -> None:
    """Answer the waiting, though some have left; later requests on their connections are handled then."""
    while echo.parked:
        echo.parked.pop(0).reply(b"1")


def _check_frames(data: bytes) -> None:
    """Whole frames of known kinds."""
    at = 0
    while at < len(data):
        assert data[at + 3] <= 9, "a frame of an unknown kind"
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    assert at == len(data), "a frame that is cut"


def websocket_frames(data: bytes) -> None:
    """Check for equal messages however the bytes arrive, equal to those of wsproto by itself."""
    whole = receive(data)
    assert receive(data, 3) == whole
    found = [(kind, bytes([code & 255]) if kind == CLOSED else payload) for kind, payload, code in whole]
    wanted = as_wsproto_has_it(data)
    if found != wanted:  # a head that is not whole may be refused by wsproto already; here when it is whole
        assert found == wanted[:-1]
        assert wanted[-1][0] == receive(data + bytes(14))[-1].kind == CLOSED
    receive(data, max_frame=100, max_message=150)


def websocket_message(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return  # refused by the framing
    parse_command(data, SCANNER, Config())


def query(data: bytes) -> None:
    """A query string, the cursors of lists and of streams."""
    text = data.decode("latin-1")
    fields = parse_query(text)
    for key, value in fields.items():
        assert 0 <= unsigned(fields, key, 0) < 1 << 64
        _cursors(value)
    _cursors(text)


def _cursors(text: str) -> None:
    for seq in read_cursor_id(text.encode("latin-1", "replace")).values():
        assert 0 <= seq < 1 << 64
    with contextlib.suppress(RequestError):
        decode_cursor(text)


class WholeServer:
    """A server on a simulated machine: what one input did is there for the next. No answer is a 500."""

    def __init__(self) -> None:
        self._world: SimWorld | None = None
        self._inputs = 0

    def feed(self, data: bytes) -> None:
        if self._world is None:
            self._world = SimWorld(http_lane="off")
            self._world.start()
            for name, config in (("log", {}), ("queue", {"type": "queue"})):
                self._world.connect().request("PUT", f"/v0/topics/{name}", config)
        conn = self._world.connect()
        conn.send(data)
        answers = conn.receive()
        conn.reset()
        assert b"HTTP/1.1 500" not in answers, answers
        self._inputs += 1
        if self._inputs % _INPUTS_A_SERVER == 0:
            self._world.close()
            self._world = None
