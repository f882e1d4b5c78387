"""The client's side of frames, for tests: masked frames out, whole messages in."""

from __future__ import annotations

import json
import struct
from typing import Any

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(opcode: int, payload: bytes, *, fin: bool = True, mask: bytes = b"\x11\x22\x33\x44", rsv: int = 0) -> bytes:
    """A client's frame; `mask` b"" leaves it unmasked, which no client may."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    size = len(payload)
    masked = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", first, masked | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, masked | 126, size)
    else:
        head = struct.pack("!BBQ", first, masked | 127, size)
    if not mask:
        return head + payload
    repeated = mask * (size // 4 + 1)
    xored = int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:size], "big")
    return head + mask + xored.to_bytes(size, "big")


def text(message: Any) -> bytes:
    """A text frame: JSON of a value, or a str as it is."""
    raw = message if isinstance(message, str) else json.dumps(message)
    return frame(TEXT, raw.encode())


class Incoming:
    """Frames of the server, cut out of its bytes. They are whole messages: it does not fragment."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        self._buffer += data
        found: list[tuple[int, bytes]] = []
        while len(self._buffer) >= 2:
            first, second = self._buffer[:2]
            assert first & 0xF0 == 0x80, "fragmented or with reserved bits"
            assert not second & 0x80, "a server's frames are not masked"
            size, at = second, 2
            if second == 126:
                size, at = struct.unpack_from("!H", self._buffer, 2)[0] if len(self._buffer) >= 4 else 1 << 62, 4
            elif second == 127:
                size, at = struct.unpack_from("!Q", self._buffer, 2)[0] if len(self._buffer) >= 10 else 1 << 62, 10
            if len(self._buffer) < at + size:
                break
            found.append((first & 15, self._buffer[at : at + size]))
            self._buffer = self._buffer[at + size :]
        return found

    @property
    def rest(self) -> bytes:
        return self._buffer


def close_code(payload: bytes) -> int | None:
    return int(struct.unpack("!H", payload[:2])[0]) if payload else None
