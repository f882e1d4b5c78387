"""Responses as bytes. A common one is one format of a prepared prefix."""

from __future__ import annotations

from http import HTTPStatus

JSON = b"application/json"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NOT_MODIFIED = 304
"""The status of an answer without its body, whose length it states."""

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class ResponseWriter:
    """A renderer of responses.

    It holds the Date, which the loop's owner sets once a second, because this room has no clock.
    """

    __slots__ = ("_date", "_json", "date")

    def __init__(self) -> None:
        self.date = b""
        self._date = b""
        self._json: dict[int, bytes] = {}
        self.set_date(b"")

    def set_date(self, date: bytes) -> None:
        """Set the Date of the next responses: an RFC 9110 HTTP-date; empty leaves the field out."""
        self.date = date
        self._date = b"Date: %b\r\n" % date if date else b""
        self._json = {status: self._prefix(status, JSON) for status in (200, 201)}

    def json(self, status: int, body: bytes, headers: bytes = b"") -> bytes:
        """Return the common answer: JSON over a connection that stays open.

        status: 200 or 201. headers: whole lines.
        """
        return b"%b%d\r\n%b\r\n%b" % (self._json[status], len(body), headers, body)

    def json_start(self, size: int, headers: bytes) -> bytes:
        """Return the head of a JSON answer with status 200.

        size: bytes of the body that follows. headers: whole lines.
        """
        return b"%b%d\r\n%b\r\n" % (self._json[200], size, headers)

    @property
    def json_head(self) -> bytes:
        """The bytes that `json` puts before the length, for 200."""
        return self._json[200]

    def render(
        self,
        status: int,
        body: bytes,
        *,
        content_type: bytes = JSON,
        headers: bytes = b"",
        connection: bytes = b"",
        without_body: bool = False,
    ) -> bytes:
        """Return a whole response.

        headers: whole lines. connection: b"close", b"keep-alive" or b"" for the version's default.
        without_body: of a HEAD or a 304, whose Content-Length still states the length of the body.
        """
        if connection:
            headers = b"%bConnection: %b\r\n" % (headers, connection)
        head = b"%b%d\r\n%b\r\n" % (self._prefix(status, content_type), len(body), headers)
        return head if without_body else head + body

    def stream_head(self, status: int, content_type: bytes, headers: bytes, *, chunks: bool, close: bool) -> bytes:
        """Return the head of an answer of unknown length.

        chunks: the body is chunked; otherwise (HTTP/1.0) it ends where the connection closes.
        """
        coding = b"Transfer-Encoding: chunked\r\n" if chunks else b""
        connection = b"Connection: close\r\n" if close else b""
        parts = (status, _REASONS.get(status, b""), self._date, content_type, coding, connection, headers)
        return b"HTTP/1.1 %d %b\r\n%bContent-Type: %b\r\n%b%b%b\r\n" % parts

    def _prefix(self, status: int, content_type: bytes) -> bytes:
        reason = _REASONS.get(status, b"")
        parts = (status, reason, self._date, content_type)
        return b"HTTP/1.1 %d %b\r\n%bContent-Type: %b\r\nContent-Length: " % parts
