"""The server's side of the opening handshake. Source: RFC 6455 section 4.2, wire contract 11.1."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from topics.errors import RequestError

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16


def accept_key(headers: Mapping[bytes, bytes], version_minor: int) -> bytes:
    """Return the value of Sec-WebSocket-Accept for a GET with these headers (names in lower case).

    version_minor: the minor version of HTTP/1.
    Raises: RequestError invalid_request, naming the header. Offered subprotocols and extensions are
        ignored.
    """
    if version_minor < 1:
        raise _refuse("a WebSocket needs HTTP/1.1")
    if not _has_token(headers.get(b"connection"), b"upgrade"):
        raise _refuse("the header Connection: upgrade is missing")
    if not _has_token(headers.get(b"upgrade"), b"websocket"):
        raise _refuse("the header Upgrade: websocket is missing")
    if headers.get(b"sec-websocket-version", b"").strip() != b"13":
        raise _refuse("Sec-WebSocket-Version must be 13")
    key = headers.get(b"sec-websocket-key", b"").strip()
    if not _is_key(key):
        raise _refuse("Sec-WebSocket-Key must be 16 random bytes in base64")
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def switching_protocols(accept: bytes, headers: bytes = b"") -> bytes:
    """Return the complete 101 response. headers: further whole lines."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accept, headers)
    )


def _has_token(value: bytes | None, token: bytes) -> bool:
    return value is not None and any(part.strip().lower() == token for part in value.split(b","))


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False


def _refuse(message: str) -> RequestError:
    return RequestError("invalid_request", f"this path speaks WebSocket: {message}")
