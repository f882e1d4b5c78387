"""Framing: bytes in, messages out, and the frames that the server sends.

wsproto parses all frames except the usual short text, which is parsed here; frames to send are
built here. The server does not mask its frames, so one bytes object serves a thousand readers of
the same text. Source: RFC 6455 section 5, wire contract 11.6.
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
"""Bytes of the extended length, by the 7-bit length that announces it."""
_HEAD_BYTES_MAX = 14
_REASON_BYTES_MAX = 123
_LOOKED_AT_BYTES = 65_536
"""Parsed input is dropped between two turns once it exceeds this size and half of the input.

A smaller limit would copy the unparsed rest too often.
"""


class Received(NamedTuple):
    """A message of the peer: TEXT (UTF-8) or BINARY as a whole, a PING's payload, or CLOSED.

    After CLOSED nothing more is received. Its `data` is the close frame that is left to send, or
    empty if the close handshake is complete; `code` is the code of the close frame, received or
    sent.
    """

    kind: int
    data: bytes | bytearray | memoryview
    """A memoryview if the message is long."""
    code: int = 0


def text_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """Build one unmasked frame with a whole message. payload: UTF-8 if `opcode` is TEXT."""
    size = len(payload)
    first = 0x80 | opcode
    if size < 126:
        return _SHORT.pack(first, size) + payload
    if size < 65_536:
        return _MEDIUM.pack(first, 126, size) + payload
    return _LONG.pack(first, 127, size) + payload


class Framing:
    """The frames of one connection, on the server's side.

    Any input gives messages or a close, never an exception. A text in a single frame, by far the
    most common message, is parsed here. wsproto gets all other frames one at a time, so that a text
    after them can be parsed here again.
    """

    __slots__ = (
        "_at",
        "_connection",
        "_events",
        "_fragmented",
        "_input",
        "_later",
        "_later_bytes",
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
        """0 = unlimited.

        turns: the budget that frames are charged to; parsing stops when the turn has ended.
        long_bytes: a longer message is passed on as a view, without a copy.
        """
        self._turns = turns
        self._limits = max_frame_bytes, max_message_bytes
        self._long_bytes = long_bytes
        self._input = b""
        self._at = 0
        """Bytes of `_input` that are parsed."""
        self._later: deque[bytes] = deque()
        """Input that arrived while `_input` was not fully parsed."""
        self._later_bytes = 0
        self._refusals: _Limits | None = None
        """The limits as a wsproto extension, created with its connection."""
        self._missing = 0
        """Bytes that wsproto still needs of its current frame."""
        self._fragmented = False
        """Whether wsproto is between two frames of a message."""
        self._connection: Connection | None = None
        self._events: Generator[Event, None, None] | None = None
        """Events of wsproto for the bytes it was given; None if all are taken."""
        self._partial = GrowingBytes()
        """The received part of an incomplete message."""
        self.closed = False
        """Whether the connection is closed: nothing more is received or sent."""

    @property
    def held_bytes(self) -> int:
        """Bytes held: of an incomplete message, and of input that is not parsed."""
        return len(self._partial) + len(self._input) - self._at + self._later_bytes

    @property
    def unread(self) -> bool:
        """Whether there is input that is not parsed, possibly less than a frame."""
        return self._at < len(self._input) or bool(self._later)

    def feed(self, data: bytes) -> None:
        """Add bytes of the peer. `take` returns the messages in them."""
        if self.closed:
            return
        if self.unread:
            self._later.append(data)
            self._later_bytes += len(data)
        else:
            self._input = data
            self._at = 0

    def take(self) -> Received | None:
        """Return the next message of the peer.

        Returns: None if more bytes are needed or, while `unread`, if the turn has ended.
        """
        while (received := self._take()) is None:
            over = self._turns.over
            if not over or self._at > max(_LOOKED_AT_BYTES, len(self._input) // 2):
                # Parsed input is dropped, so that an idle connection does not hold its last input.
                self._input = self._input[self._at :]
                self._at = 0
            if over or not self._later:
                return None
            piece = self._later.popleft()
            self._later_bytes -= len(piece)
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
        """Return the next frame if it is a whole, masked text of up to 64 KiB in UTF-8."""
        data, at = self._input, self._at
        if self._fragmented or len(data) - at < 6 or data[at] != _FIN_TEXT:
            return None
        size, start = data[at + 1] - 128, at + 6
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
            if size < 126:
                return None  # The length has more bytes than it needs, which wsproto refuses.
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
        """Give wsproto the received bytes of the next frame; False if its head is incomplete."""
        data, at = self._input, self._at
        have = len(data) - at
        if have < 2:
            return False
        first, second = data[at], data[at + 1]
        if not second & 0x80:
            # wsproto refuses an unmasked frame by its head, before it parses any byte after it.
            self._hand_over(_HEAD_BYTES_MAX)
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
        """Give wsproto the next `size` bytes, or as many of them as are received."""
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
        """Answer the peer's close with its own code, or a violation with the code for it."""
        self.closed = True
        connection = self._connection
        if connection is not None and connection.state is ConnectionState.REMOTE_CLOSING:
            return Received(CLOSED, bytes(connection.send(event.response())), int(event.code))
        code = int(event.code)
        refusal = "" if self._refusals is None else self._refusals.refusal
        reason = "not valid UTF-8" if code == CloseReason.INVALID_FRAME_PAYLOAD_DATA else refusal or event.reason or ""
        return Received(CLOSED, close_frame(code, reason), code)

    def close(self, code: int, reason: str = "") -> bytes:
        """Return the server's close frame, or b"" if the connection is closed already."""
        if self.closed:
            return b""
        self.closed = True
        return close_frame(code, reason)


def close_frame(code: int, reason: str) -> bytes:
    """Build a close frame. reason: cut to 123 bytes of UTF-8."""
    text = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore").encode()
    return text_frame(struct.pack("!H", code) + text, CLOSED)


def pong_frame(payload: bytes) -> bytes:
    return text_frame(payload, 10)


class _Limits(Extension):
    """The limits on sizes, in the form of a wsproto extension.

    No extension is negotiated: wsproto shows the header of each frame to its extensions, and
    accepts a refusal from them.
    """

    name = "limits"

    def __init__(self, max_frame_bytes: int, max_message_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_message_bytes = max_message_bytes
        self._message_bytes = 0
        self.refusal = ""
        """The close reason of a refusal, at most 123 bytes.

        wsproto would send "error in extension".
        """

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
