"""One connection to a server as bytes in and out, without a socket: requests, and their answers."""

from __future__ import annotations

from typing import NamedTuple

import h11

from topics.client.client_options import Address, ClientOptions


class ServerRequest(NamedTuple):
    """A request to a server."""

    method: str
    path: str
    """From `/v0` on, escaped, with its query."""
    body: bytes | None = None


class ServerAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    retry_after: float
    """Seconds that the server asks to wait; 0: none."""
    content_type: str
    body: bytes
    location: str = ""
    """Where a redirect points to."""


class BadAnswerError(Exception):
    """Bytes that are no HTTP, or an answer that was cut. The connection is of no more use."""

    is_final = False
    """Whether the same request is going to be answered so again."""


class LargeAnswerError(BadAnswerError):
    """An answer with more bytes than the client takes."""

    is_final = True


class ClientExchange:
    """The bytes of one connection. One request is in progress at a time."""

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self._base = address.base
        self._most = options.max_answer_bytes
        self._headers = [
            ("Host", address.host_field),
            ("User-Agent", "topics"),
            ("Accept", "application/json"),
            ("Prefer", "handling=strict"),
        ]
        if options.key is not None:
            self._headers.append(("Authorization", f"Bearer {options.key}"))
        self._http = h11.Connection(h11.CLIENT)
        self._status = 0
        self._retry_after, self._content_type, self._location = 0.0, "", ""
        self._pieces: list[bytes] = []
        self._size = 0

    def send(self, request: ServerRequest) -> bytes:
        """Return the bytes of a request."""
        headers = list(self._headers)
        if request.body is not None:
            headers.append(("Content-Type", "application/json"))
            headers.append(("Content-Length", str(len(request.body))))
        elif request.method in {"POST", "PUT", "PATCH"}:
            headers.append(("Content-Length", "0"))
        head = self._http.send(h11.Request(method=request.method, target=self._base + request.path, headers=headers))
        assert head is not None, "a request has a head"
        body = self._http.send(h11.Data(data=request.body)) if request.body else b""
        end = self._http.send(h11.EndOfMessage())
        return head + (body or b"") + (end or b"")

    def receive(self, data: bytes) -> ServerAnswer | None:
        """Take bytes of the answer; b"": the server has closed. Return the answer once it is whole.

        Raises: BadAnswerError.
        """
        if not data and self._http.their_state is not h11.SEND_BODY:
            raise BadAnswerError("the connection was closed without an answer")
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    if not data:
                        raise BadAnswerError("the connection was closed before the answer was whole")
                    return None
                if isinstance(event, h11.Response):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._size += len(event.data)
                    if self._size > self._most:
                        raise LargeAnswerError(
                            f"the answer has more than {self._most} bytes: "
                            "raise max_answer_bytes of connect, or ask for less (limit, max_bytes)"
                        )
                    self._pieces.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return self._end()
        except (h11.RemoteProtocolError, h11.LocalProtocolError) as error:
            raise BadAnswerError(f"the answer is no HTTP, or was cut ({error})") from None

    def _begin(self, head: h11.Response) -> None:
        self._status = head.status_code
        for name, value in head.headers:
            if name == b"retry-after" and value.isdigit():
                self._retry_after = float(value)
            elif name == b"content-type":
                self._content_type = value.decode("latin-1")
            elif name == b"location":
                self._location = value.decode("latin-1")

    def _end(self) -> ServerAnswer:
        body = b"".join(self._pieces)
        answer = ServerAnswer(self._status, self._retry_after, self._content_type, body, self._location)
        self._status, self._retry_after, self._content_type, self._location = 0, 0.0, "", ""
        self._pieces, self._size = [], 0
        return answer

    def renew(self) -> bool:
        """Make ready for another request. Return whether the connection may be used for one."""
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE or http.trailing_data[0]:
            return False
        http.start_next_cycle()
        return True
