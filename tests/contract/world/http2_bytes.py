"""The suite's connection speaking HTTP/2: requests out as streams, answers back as the HTTP/1.1 bytes they would be.

So every test that does not look at HTTP/1 itself runs over either. Bytes a test sends as they are stay HTTP/1.
"""

from __future__ import annotations

import json
from typing import Any

from tests.contract.world.world import ABSENT, Connection, Stream, World
from tests.http.http2.h2_peer import H2Client, Seen

_NOT_IN_HTTP_2 = ("connection", "transfer-encoding", "keep-alive")


class Http2Connection(Connection):
    """One connection; answers come in the order of the requests, whatever the order of their streams."""

    def __init__(self, world: World, stream: Stream) -> None:
        super().__init__(world, stream)
        self._client: H2Client | None = None
        self._raw = False
        """Bytes of a test's own have chosen HTTP/1."""
        self._streams: list[tuple[int, Told]] = []

    def send(self, data: bytes) -> Connection:
        self._raw = self._raw or self._client is None
        return super().send(data)

    def start(self, method: str, path: str, body: Any = ABSENT, headers: dict[str, str] | None = None) -> Connection:
        if self._raw:
            return super().start(method, path, body, headers)
        if self._client is None:
            self._client = H2Client()
        fields = {"host": "127.0.0.1"}
        content = b""
        if isinstance(body, bytes):
            content = body
            fields["content-length"] = str(len(content))
        elif body is not ABSENT:
            content = json.dumps(body).encode()
            fields |= {"content-type": "application/json", "content-length": str(len(content))}
        fields |= {name.lower(): value.strip() for name, value in (headers or {}).items()}
        fields = {name: value for name, value in fields.items() if name not in _NOT_IN_HTTP_2}
        number = self._client.begin(method, path, None, fields, end=not content)
        self._streams.append((number, Told(method)))
        self._exchange()
        while content and not self._stream.ended:
            rest = self._client.send_body(number, content)
            if len(rest) == len(content):
                if self._client.seen[number].status:
                    break  # answered without reading on
                self._world.settle()
            content = rest
            self._exchange()
        return self

    def finish_sending(self) -> Connection:
        if self._client is not None:
            self._exchange()
        return super().finish_sending()

    def _exchange(self) -> None:
        client = self._client
        assert client is not None
        client.feed(self._stream.receive())
        data = client.take()
        if data:
            self._stream.send(data)

    def _take(self) -> bool:
        if self._client is None:
            return super()._take()
        self._exchange()
        while self._streams:
            number, told = self._streams[0]
            self._received += told.more(self._client.seen[number])
            if not told.done:
                break
            del self._streams[0]
        return self._stream.ended


class Told:
    """How much of a stream has been passed on as HTTP/1.1."""

    def __init__(self, method: str) -> None:
        self.done = False
        self._without_body = method == "HEAD"
        self._head = False
        self._chunks = False
        self._informed = 0
        self._body = 0

    def more(self, seen: Seen) -> bytes:
        data = b""
        for status in seen.informational[self._informed :]:
            data += b"HTTP/1.1 %d Continue\r\n\r\n" % status
        self._informed = len(seen.informational)
        if seen.status and not self._head:
            self._head = True
            self._chunks = "content-length" not in seen.headers
            fields = dict(seen.headers) | ({"transfer-encoding": "chunked"} if self._chunks else {})
            data += b"HTTP/1.1 %d Status\r\n" % seen.status
            data += (
                "".join(f"{name.title()}: {value}\r\n" for name, value in fields.items()).encode("latin-1") + b"\r\n"
            )
        part = seen.body[self._body :]
        self._body = len(seen.body)
        if part:
            data += b"%x\r\n%b\r\n" % (len(part), part) if self._chunks else part
        self.done = seen.ended or seen.reset is not None
        if seen.ended and self._chunks and not self._without_body:
            data += b"0\r\n\r\n"
        return data
