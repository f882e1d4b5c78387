"""A WebSocket client over a world's connection."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.world.world import Connection, World
from tests.ws.frame_client import CLOSE, TEXT, Incoming, close_code, frame

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
HEADERS = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}


class WebSocket:
    """Messages in both directions. `seen` holds what has come and was not asked for yet."""

    def __init__(self, world: World, **headers: str) -> None:
        self.world = world
        self.connection: Connection = world.connect()
        self.connection.start("GET", "/v0/ws", headers={**HEADERS, **headers})
        answer = self.connection.head()
        assert answer.status == 101, answer
        self._incoming = Incoming()
        self.seen: list[tuple[int, bytes]] = []

    # --- out ---------------------------------------------------------------------------------------------------------
    def say(self, message: Any) -> WebSocket:
        """Send a JSON message; a str is sent as it is."""
        text = message if isinstance(message, str) else json.dumps(message)
        return self.send(frame(TEXT, text.encode()))

    def send(self, data: bytes) -> WebSocket:
        self.connection.send(data)
        return self

    # --- in ----------------------------------------------------------------------------------------------------------
    def frames(self, count: int, within_ms: int = 5000) -> list[tuple[int, bytes]]:
        """The next frames."""

        def arrived() -> bool:
            self._take()
            return len(self.seen) >= count or self.connection.over

        self.world.wait_for(arrived, within_ms)
        assert len(self.seen) >= count, f"only {self.seen}"
        found, self.seen = self.seen[:count], self.seen[count:]
        return found

    def next(self, within_ms: int = 5000) -> Any:
        """The next message."""
        ((opcode, payload),) = self.frames(1, within_ms)
        assert opcode == TEXT, (opcode, payload)
        return json.loads(payload)

    def take(self, count: int) -> list[Any]:
        return [self.next() for _ in range(count)]

    def ask(self, message: Any) -> Any:
        """Says it and returns the next message."""
        return self.say(message).next()

    def subscribe(self, topic: str, from_seq: int = 0, **fields: Any) -> Any:
        answer = self.ask({"op": "subscribe", "topic": topic, "from_seq": from_seq, **fields})
        assert answer["op"] == "subscribed", answer
        return answer

    def heard(self) -> list[Any]:
        """All messages that have come so far; lets no time pass."""
        self._take()
        found, self.seen = self.seen, []
        assert all(opcode == TEXT for opcode, _ in found), found
        return [json.loads(payload) for _, payload in found]

    @property
    def silent(self) -> bool:
        """Nothing has come, after time enough."""
        self.world.settle()
        self._take()
        return not self.seen

    def closed_with(self, within_ms: int = 5000) -> int | None:
        """The code of the close frame that comes next, after which the server closes; None for a frame without one."""
        ((opcode, payload),) = self.frames(1, within_ms)
        assert opcode == CLOSE, (opcode, payload)
        assert self.connection.ends(within_ms)
        assert self.seen == []
        return close_code(payload)

    def _take(self) -> None:
        self.seen += self._incoming.feed(self.connection.take_bytes())


def upgrade(world: World, method: str = "GET", **headers: str | None) -> Any:
    """The answer to an upgrade request with other headers; None leaves one out."""
    fields = {name: value for name, value in {**HEADERS, **headers}.items() if value is not None}
    return world.request(method, "/v0/ws", headers=fields)
