"""Frames: bytes in, messages out, and the frames of what is sent. wsproto parses; limits and fast sends are ours.

A frame of the server is not masked, so a text that goes to a thousand readers is one and the same bytes for all.
Source: RFC 6455 section 5, wire contract 11.6.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final, NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

TEXT: Final = 1
BINARY: Final = 2
PING: Final = 9
CLOSED: Final = 8

_FIN_TEXT = 0x81
_SHORT = struct.Struct("!BB")
_MEDIUM = struct.Struct("!BBH")
_LONG = struct.Struct("!BBQ")
_REASON_BYTES_MAX = 123


class Received(NamedTuple):
    """What the peer said: a whole message (TEXT as UTF-8, BINARY), a PING's payload, or the end (CLOSED).

    CLOSED: `data` is what still has to be sent (a close frame, or nothing when the closing is complete), and nothing
    more is received; `code` is that of the close frame, received or sent.
    """

    kind: int
    data: bytes
    code: int = 0


def text_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """A whole message of the server in one frame. payload: of a text, UTF-8."""
    size = len(payload)
    first = 0x80 | opcode
    if size < 126:
        return _SHORT.pack(first, size) + payload
    if size < 65_536:
        return _MEDIUM.pack(first, 126, size) + payload
    return _LONG.pack(first, 127, size) + payload


class Framing:
    """One connection's frames, as the server. Any bytes give messages or a close, never an exception."""

    __slots__ = ("_connection", "_events", "_partial", "_untaken", "closed")

    def __init__(self, max_frame_bytes: int, max_message_bytes: int) -> None:
        """0 is no limit."""
        limits = _Limits(max_frame_bytes, max_message_bytes)
        self._connection = Connection(ConnectionType.SERVER, extensions=[limits])
        self._events: Generator[Event, None, None] = self._connection.events()
        self._partial = bytearray()
        """Of the message that is not whole."""
        self._untaken = 0
        """Bytes fed since everything was taken."""
        self.closed = False
        """Nothing is received or sent any more."""

    @property
    def held_bytes(self) -> int:
        """Of a message that is not whole, and what was not looked at yet."""
        return len(self._partial) + self._untaken

    def feed(self, data: bytes) -> None:
        """Bytes of the peer; `take` says what they mean."""
        if not self.closed:
            self._untaken += len(data)
            self._connection.receive_data(data)

    def take(self) -> Received | None:
        """The next thing the peer said, None until more bytes come."""
        while not self.closed:
            event = next(self._events, None)
            if isinstance(event, TextMessage | BytesMessage):
                kind, data = (TEXT, event.data.encode()) if isinstance(event, TextMessage) else (BINARY, event.data)
                if not event.message_finished:
                    self._partial += data
                    continue
                if self._partial:
                    data = bytes(self._partial) + data
                    self._partial.clear()
                return Received(kind, bytes(data))
            if isinstance(event, Ping):
                return Received(PING, bytes(event.payload))
            if isinstance(event, CloseConnection):
                return self._on_close(event)
            if event is None:
                self._events = self._connection.events()
                self._untaken = 0
                return None
        return None

    def _on_close(self, event: CloseConnection) -> Received:
        """The peer's close is answered with its own code; a violation with the code it has."""
        self.closed = True
        if self._connection.state is ConnectionState.REMOTE_CLOSING:
            return Received(CLOSED, bytes(self._connection.send(event.response())), int(event.code))
        return Received(CLOSED, close_frame(int(event.code), event.reason or ""), int(event.code))

    def close(self, code: int, reason: str = "") -> bytes:
        """The server's close frame, once; b"" when the connection is closed."""
        if self.closed:
            return b""
        self.closed = True
        return close_frame(code, reason)


def close_frame(code: int, reason: str) -> bytes:
    """reason: cut at 123 bytes."""
    text = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore").encode()
    return text_frame(struct.pack("!H", code) + text, CLOSED)


def pong_frame(payload: bytes) -> bytes:
    return text_frame(payload, 10)


class _Limits(Extension):
    """Not an extension of the protocol: wsproto shows those each frame's header, and takes a refusal from them."""

    name = "limits"

    def __init__(self, max_frame_bytes: int, max_message_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_message_bytes = max_message_bytes
        self._message_bytes = 0

    def offer(self) -> bool:
        return False

    def enabled(self) -> bool:
        return True

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        if opcode.iscontrol():
            return RsvBits(False, False, False)
        if opcode is not Opcode.CONTINUATION:
            self._message_bytes = 0
        self._message_bytes += payload_length
        if 0 < self._max_frame_bytes < payload_length or 0 < self._max_message_bytes < self._message_bytes:
            return CloseReason.MESSAGE_TOO_BIG
        return RsvBits(False, False, False)
