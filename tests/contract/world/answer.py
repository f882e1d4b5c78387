"""One HTTP/1.1 response as a client sees it, and how to find it in a stream of bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: names in lower case, in their order; body: after chunked decoding, still compressed if it was."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    version: str = "HTTP/1.1"

    def header(self, name: str) -> str | None:
        """The only value of a header; fails when it came twice."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def error(self) -> dict[str, Any]:
        """The error object; fails when this is not the error envelope and nothing else."""
        envelope = self.json
        assert list(envelope) == ["error"], f"not an error: {self.status} {self.text[:300]}"
        error = envelope["error"]
        assert set(error) <= {"code", "message", "detail"}, error
        assert isinstance(error["message"], str), error
        assert error["message"], "a message says something"
        assert error["code"] != "internal" or "/" not in error["message"], "where files are is nobody's business"
        return error

    @property
    def refusal(self) -> tuple[int, str, dict[str, Any] | None]:
        """Status, code and detail (None when there is none): what a client can act on."""
        return self.status, self.error["code"], self.error.get("detail")


def take_answer(buffer: bytearray, method: str = "GET", *, ended: bool = False) -> Answer | None:
    """Cuts one whole response off the front of `buffer`; None while it is not all there.

    ended: the connection has ended, which completes a body without a length.
    """
    head_end = buffer.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    lines = bytes(buffer[:head_end]).decode("latin-1").split("\r\n")
    version, code, *_ = lines[0].split(" ", 2)
    pairs = [line.split(":", 1) for line in lines[1:]]
    headers = tuple((name.lower(), value.strip()) for name, value in pairs)
    fields = dict(headers)
    start, status = head_end + 4, int(code)
    if method == "HEAD" or status in (204, 304) or status < 200:
        end, body = start, b""
    elif fields.get("transfer-encoding") == "chunked":
        chunks = _take_chunks(buffer, start)
        if chunks is None:
            return None
        end, body = chunks
    elif "content-length" in fields:
        end = start + int(fields["content-length"])
        if len(buffer) < end:
            return None
        body = bytes(buffer[start:end])
    else:
        if not ended:
            return None
        end, body = len(buffer), bytes(buffer[start:])
    del buffer[:end]
    return Answer(status, headers, body, version)


def _take_chunks(buffer: bytearray, position: int) -> tuple[int, bytes] | None:
    """Where a chunked body without trailers ends, and its bytes."""
    body = b""
    while True:
        line_end = buffer.find(b"\r\n", position)
        if line_end < 0:
            return None
        size = int(bytes(buffer[position:line_end]), 16)
        position = line_end + 2
        if len(buffer) < position + size + 2:
            return None
        body += bytes(buffer[position : position + size])
        position += size + 2
        if size == 0:
            return position, body
