"""Frames: bytes in, messages out, and the frames of what is sent. wsproto parses; the usual text and sends are ours.

A frame of the server is not masked, so a text that goes to a thousand readers is one and the same bytes for all.
Source: RFC 6455 section 5, wire contract 11.6.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator
from typing import Final, NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

from topics.common.memory import GrowingBytes
from topics.common.tuples import make_tuple
from topics.ws.frame_turns import FrameTurns

TEXT: Final = 1
BINARY: Final = 2
PING: Final = 9
CLOSED: Final = 8

_FIN_TEXT = 0x81
_SHORT = struct.Struct("!BB")
_MEDIUM = struct.Struct("!BBH")
_LONG = struct.Struct("!BBQ")
_EXTENDED = {126: 2, 127: 8}
"""Bytes of the length behind a head that says so."""
_HEAD_BYTES_MAX = 14
_REASON_BYTES_MAX = 123
_LOOKED_AT_BYTES = 65_536
"""What waits for the next turn is moved to the front when so much lies before it, and as much as it is long itself."""


class Received(NamedTuple):
    """What the peer said: a whole message (TEXT as UTF-8, BINARY), a PING's payload, or the end (CLOSED).

    CLOSED: `data` is what still has to be sent (a close frame, or nothing when the closing is complete), and nothing
    more is received; `code` is that of the close frame, received or sent.
    """

    kind: int
    data: bytes | bytearray | memoryview
    """A view where a message is long."""
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
    """One connection's frames, as the server. Any bytes give messages or a close, never an exception.

    A text that came whole in one frame, which is nearly all there is, is taken here; everything else is wsproto's,
    frame by frame, so that behind it the next text can be taken here again.
    """

    __slots__ = (
        "_at",
        "_behind",
        "_behind_bytes",
        "_connection",
        "_events",
        "_fragmented",
        "_input",
        "_limits",
        "_long_bytes",
        "_missing",
        "_partial",
        "_refusals",
        "_turns",
        "closed",
    )

    def __init__(
        self, max_frame_bytes: int, max_message_bytes: int, turns: FrameTurns, long_bytes: int = 1 << 62
    ) -> None:
        """0 is no limit. turns: what frames are charged to; no more are looked at once the turn is over. long_bytes: a
        longer message is handed on as it is, not copied."""
        self._turns = turns
        self._limits = max_frame_bytes, max_message_bytes
        self._long_bytes = long_bytes
        self._input = b""
        self._at = 0
        """How much of it has been looked at."""
        self._behind: deque[bytes] = deque()
        """What came while some of it was yet to be looked at."""
        self._behind_bytes = 0
        self._refusals: _Limits | None = None
        """wsproto's view of the limits, made with its connection."""
        self._missing = 0
        """Bytes of the frame wsproto is in that it has not been given."""
        self._fragmented = False
        """wsproto is between the frames of a message."""
        self._connection: Connection | None = None
        self._events: Generator[Event, None, None] | None = None
        """What wsproto makes of what it was given; None: nothing more."""
        self._partial = GrowingBytes()
        """Of the message that is not whole."""
        self.closed = False
        """Nothing is received or sent any more."""

    @property
    def held_bytes(self) -> int:
        """Of a message that is not whole, and what was not looked at yet."""
        return len(self._partial) + len(self._input) - self._at + self._behind_bytes

    @property
    def unread(self) -> bool:
        """There are bytes that were not looked at, or not enough of them for a frame."""
        return self._at < len(self._input) or bool(self._behind)

    def feed(self, data: bytes) -> None:
        """Bytes of the peer; `take` says what they mean."""
        if self.closed:
            return
        if self.unread:
            self._behind.append(data)
            self._behind_bytes += len(data)
        else:
            self._input = data
            self._at = 0

    def take(self) -> Received | None:
        """The next thing the peer said, None until more bytes come or, with some `unread`, until its next turn."""
        while (received := self._take()) is None:
            over = self._turns.over
            if not over or self._at > max(_LOOKED_AT_BYTES, len(self._input) // 2):
                # What was looked at is not kept: an idle connection holds none of what came last.
                self._input = self._input[self._at :]
                self._at = 0
            if over or not self._behind:
                return None
            piece = self._behind.popleft()
            self._behind_bytes -= len(piece)
            self._input += piece
        return received

    def _take(self) -> Received | None:
        while not self.closed:
            if self._events is not None:
                received = self._take_event(self._events)
                if received is not None:
                    return received
            elif self._turns.over:
                return None
            elif self._missing:
                if self._at == len(self._input):
                    return None
                self._hand_over(self._missing)
            else:
                text = self._take_text()
                if text is not None:
                    return text
                if not self._begin_frame():
                    return None
        return None

    def _take_text(self) -> Received | None:
        """The next frame, if it is a whole text of up to 64 KiB, masked and UTF-8."""
        data, at = self._input, self._at
        if self._fragmented or len(data) - at < 6 or data[at] != _FIN_TEXT:
            return None
        size, start = data[at + 1] - 128, at + 6
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
            if size < 126:
                return None  # in more bytes than needed
        elif not 0 <= size < 126:
            return None
        end = start + size
        if end > len(data) or any(0 < limit < size for limit in self._limits):
            return None
        mask = data[start - 4 : start] * (size // 4 + 1)
        unmasked = int.from_bytes(data[start:end], "little") ^ int.from_bytes(mask[:size], "little")
        payload = unmasked.to_bytes(size, "little")
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                return None
        self._at = end
        self._turns.spend_frame(size)
        return make_tuple(Received, (TEXT, payload, 0))

    def _begin_frame(self) -> bool:
        """Gives wsproto what is here of the next frame; False when its head is not whole."""
        data, at = self._input, self._at
        have = len(data) - at
        if have < 2:
            return False
        first, second = data[at], data[at + 1]
        if not second & 0x80:
            self._hand_over(_HEAD_BYTES_MAX)  # refused when its head is whole, before anything behind it is looked at
            return True
        extended = _EXTENDED.get(second & 127, 0)
        if have < 6 + extended:
            return False
        size = int.from_bytes(data[at + 2 : at + 2 + extended], "big") if extended else second & 127
        if not first & 8:
            self._fragmented = not first & 0x80
        self._hand_over(6 + extended + size)
        return True

    def _hand_over(self, size: int) -> None:
        """Gives wsproto so many bytes, as far as they are here."""
        if self._connection is None:
            self._refusals = _Limits(*self._limits)
            self._connection = Connection(ConnectionType.SERVER, extensions=[self._refusals])
        piece = self._input[self._at : self._at + size]
        self._at += len(piece)
        self._missing = size - len(piece)
        self._turns.spend_frame(len(piece))
        self._connection.receive_data(piece)
        self._events = self._connection.events()

    def _take_event(self, events: Generator[Event, None, None]) -> Received | None:
        event = next(events, None)
        if isinstance(event, TextMessage | BytesMessage):
            kind, data = (TEXT, event.data.encode()) if isinstance(event, TextMessage) else (BINARY, event.data)
            self._partial += data
            if not event.message_finished:
                return None
            whole = self._partial.take()
            return Received(kind, whole if len(whole) > self._long_bytes else bytes(whole))
        if isinstance(event, Ping):
            return Received(PING, bytes(event.payload))
        if isinstance(event, CloseConnection):
            return self._on_close(event)
        if event is None:
            self._events = None
        return None

    def _on_close(self, event: CloseConnection) -> Received:
        """The peer's close is answered with its own code; a violation with the code it has."""
        self.closed = True
        connection = self._connection
        if connection is not None and connection.state is ConnectionState.REMOTE_CLOSING:
            return Received(CLOSED, bytes(connection.send(event.response())), int(event.code))
        code = int(event.code)
        refusal = "" if self._refusals is None else self._refusals.refusal
        reason = "not valid UTF-8" if code == CloseReason.INVALID_FRAME_PAYLOAD_DATA else refusal or event.reason or ""
        return Received(CLOSED, close_frame(code, reason), code)

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
        self.refusal = ""
        """The reason to close with after a refusal, at most 123 bytes; wsproto would say "error in extension"."""

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
        if 0 < self._max_frame_bytes < payload_length:
            self.refusal = f"a frame is over {self._max_frame_bytes} bytes: send it in fragments, or less of it"
        elif 0 < self._max_message_bytes < self._message_bytes:
            self.refusal = f"a message is over {self._max_message_bytes} bytes: send less at once"
        if self.refusal:
            return CloseReason.MESSAGE_TOO_BIG
        return RsvBits(False, False, False)
