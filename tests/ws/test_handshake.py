"""The opening handshake."""

from __future__ import annotations

import pytest

from topics.errors import RequestError
from topics.ws.handshake import accept_key, switching_protocols

GOOD = {
    b"connection": b"keep-alive, Upgrade",
    b"upgrade": b"websocket",
    b"sec-websocket-version": b"13",
    b"sec-websocket-key": b"dGhlIHNhbXBsZSBub25jZQ==",
    b"sec-websocket-protocol": b"chat",
    b"sec-websocket-extensions": b"permessage-deflate",
}


def test_the_accept_key_is_that_of_the_rfc() -> None:
    assert accept_key(GOOD, 1) == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert b"\r\nSec-WebSocket-Accept: abc\r\n" in switching_protocols(b"abc")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (b"connection", None, "Connection"),
        (b"connection", b"keep-alive", "Connection"),
        (b"connection", b"upgraded", "Connection"),
        (b"upgrade", None, "Upgrade"),
        (b"upgrade", b"h2c", "Upgrade"),
        (b"sec-websocket-version", None, "Sec-WebSocket-Version"),
        (b"sec-websocket-version", b"8", "Sec-WebSocket-Version"),
        (b"sec-websocket-key", None, "Sec-WebSocket-Key"),
        (b"sec-websocket-key", b"c2hvcnQ=", "Sec-WebSocket-Key"),
        (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ", "Sec-WebSocket-Key"),
        (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=!", "Sec-WebSocket-Key"),
    ],
)
def test_what_is_missing_is_named(name: bytes, value: bytes | None, told: str) -> None:
    headers = {key: old for key, old in GOOD.items() if key != name} | ({} if value is None else {name: value})
    with pytest.raises(RequestError, match=told) as caught:
        accept_key(headers, 1)
    assert caught.value.code == "invalid_request"


def test_http_1_0_cannot_upgrade() -> None:
    with pytest.raises(RequestError, match=r"HTTP/1\.1"):
        accept_key(GOOD, 0)
