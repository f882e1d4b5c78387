"""WebSockets of clients in the simulated network: one that only publishes, and the part that all share."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from tests.sim.whole.clients import payloads
from tests.sim.whole.clients.http_client import Answered
from tests.sim.whole.seed_plan import PORT
from tests.sim.world.network import SimNetwork
from tests.ws.frame_client import CLOSE, TEXT, Incoming, text
from topics.http.wire.error_answers import STATUS

_UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_REASONS = {"no log file could be opened": "no_log_file", "no space": "disk_full"}
"""The reason of a failure by a part of its message: over HTTP it is in the detail of the error."""


class WebSocketWire:
    """A connection that asks to be upgraded at once. Its messages are JSON."""

    def __init__(self, network: SimNetwork) -> None:
        endpoint = network.connect("127.0.0.1", PORT)
        if isinstance(endpoint, int):
            raise OSError(endpoint, "connect")
        self._endpoint = endpoint
        self._head = bytearray()
        self._incoming: Incoming | None = None
        self.over = False
        endpoint.on_readable = self._readable
        endpoint.send(_UPGRADE)

    def reset(self) -> None:
        """Reset the connection, without another callback."""
        self.over = True
        self._endpoint.reset()

    def send(self, message: dict[str, Any]) -> None:
        self._endpoint.send(text(message))

    def _readable(self) -> None:
        if self.over:
            return
        data = self._endpoint.take(1 << 30)
        if self._incoming is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end >= 0:
                if not self._head.startswith(b"HTTP/1.1 101 "):
                    self._finish()
                    return
                self._incoming, data = Incoming(), bytes(self._head[end + 4 :])
                self._begin()
        if self._incoming is not None:
            for opcode, payload in self._incoming.feed(data):
                if opcode == CLOSE:
                    self._finish()
                elif opcode == TEXT and not self.over:
                    self._take(payloads.read(json.loads(payload)))
        if not self.over and (self._endpoint.error or (self._endpoint.end_of_stream and not self._endpoint.incoming)):
            self._finish()

    def _finish(self) -> None:
        if not self.over:
            self.over = True
            self._endpoint.close()
            self._end()

    # --- of each kind ------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        """Begin: the connection is a WebSocket now."""
        raise NotImplementedError

    def _take(self, message: Any) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """Note the end, which no call of this side has caused."""
        raise NotImplementedError


class PublishWire(WebSocketWire):
    """A WebSocket that publishes, one record after another, answered as a write over HTTP.

    If the connection ends first, the status is 0. on_lost: called once when it has ended.
    """

    def __init__(self, network: SimNetwork, on_lost: Callable[[], None], last_words: Collection[str]) -> None:
        """last_words: the codes of errors, beside those of a publish, that announce the end."""
        self._on_lost = on_lost
        self._last_words = last_words
        self._is_open = False
        self._asked: tuple[dict[str, Any], Answered] | None = None
        super().__init__(network)

    @property
    def outstanding(self) -> int:
        return self._asked is not None

    def ask(self, _method: str, path: str, body: dict[str, Any] | None, answered: Answered) -> None:
        assert self._asked is None, "one after another"
        command = {"op": "publish", "request_id": 1, "topic": path.rpartition("/")[2], **(payloads.written(body) or {})}
        self._asked = command, answered
        if self._is_open:
            self.send(command)

    def reset(self) -> None:
        """Reset the connection; a publish in flight is answered 0."""
        if not self.over:
            super().reset()
            self._end()

    def forget(self) -> None:
        """Forget the publish: the machine has gone, and no callback is called any more."""
        self._asked = None
        super().reset()

    def _begin(self) -> None:
        self._is_open = True
        if self._asked is not None:
            self.send(self._asked[0])

    def _take(self, message: Any) -> None:
        if message.get("request_id") is None:
            assert message["code"] in self._last_words, message
        elif message["op"] == "ack":
            self._answer(201 if message["created"] else 200, message)
        else:
            for part, reason in _REASONS.items():
                if part in message["message"]:
                    message["detail"] = {"reason": reason}
            self._answer(STATUS[message["code"]], {"error": message})

    def _end(self) -> None:
        self._answer(0, None)
        self._on_lost()

    def _answer(self, status: int, answer: Any) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked[1](status, answer)
