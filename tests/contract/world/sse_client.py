"""A client of event streams: frames as they come, and the bytes they are made of."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, NamedTuple

from tests.contract.world.answer import Answer
from tests.contract.world.world import Connection, World

_STRING = re.compile(r'"(\\.|[^"\\])*"')
ACCEPT = {"Accept": "text/event-stream"}


class Frame(NamedTuple):
    event: str
    data: Any
    id: str | None

    @property
    def cursors(self) -> dict[str, int]:
        """The cursors that the id stands for."""
        assert self.id is not None
        assert "=" not in self.id
        cursors = json.loads(base64.urlsafe_b64decode(self.id + "=" * (-len(self.id) % 4)))
        assert list(cursors) == sorted(cursors), "keys ascend"
        return dict(cursors)


class EventStream:
    """One open stream; every frame is checked against R-SSE-3 as it is taken apart."""

    def __init__(self, world: World, path: str, headers: dict[str, str] | None = None) -> None:
        self._world = world
        self.connection: Connection = world.ask("GET", path, headers=ACCEPT if headers is None else headers)
        self._wire = bytearray()
        self.text = bytearray()
        """The body so far, without transfer coding."""
        self._taken = 0
        self.head = b""
        self.complete = False
        """The last chunk has come."""

    def pull(self) -> None:
        """Takes what has come, without waiting."""
        ended = self.connection.take_into(self._wire)
        if not self.head:
            end = self._wire.find(b"\r\n\r\n")
            if end < 0:
                return
            self.head = bytes(self._wire[: end + 4])
            assert self.head.startswith(b"HTTP/1.1 200 "), bytes(self._wire[:300])
            del self._wire[: end + 4]
        if b"transfer-encoding: chunked" not in self.head.lower():
            self.text += self._wire
            self._wire.clear()
            self.complete = ended
            return
        while not self.complete:
            line = self._wire.find(b"\r\n")
            size = int(bytes(self._wire[:line]), 16) if line >= 0 else 0
            if line < 0 or len(self._wire) < line + 2 + size + 2:
                return
            self.text += self._wire[line + 2 : line + 2 + size]
            del self._wire[: line + 2 + size + 2]
            self.complete = size == 0

    def frames(self, count: int, within_ms: int = 5000) -> list[Frame]:
        """The next `count` frames; heartbeats and `retry` are passed over. Fails when they do not come."""
        found: list[Frame] = []

        def here() -> bool:
            self.pull()
            while len(found) < count:
                frame = self._take()
                if frame is None:
                    return self.complete
                found.append(frame)
            return True

        self._world.wait_for(here, within_ms)
        assert len(found) == count, (
            f"{len(found)} frames of {count}: {found}; unread {bytes(self.text[self._taken :])!r}"
        )
        return found

    def one(self, within_ms: int = 5000) -> Frame:
        return self.frames(1, within_ms)[0]

    def rest(self) -> list[Frame]:
        """All frames that came and were not taken, after time enough for what happens at once."""
        self._world.settle()
        self.pull()
        frames = []
        while (frame := self._take()) is not None:
            frames.append(frame)
        return frames

    def ends(self, within_ms: int = 5000) -> bool:
        """The last chunk comes within a time."""

        def ended() -> bool:
            self.pull()
            return self.complete

        self._world.wait_until(ended, within_ms)
        return self.complete

    def leave(self) -> None:
        """The client is gone."""
        self.connection.reset()

    @property
    def heartbeats(self) -> int:
        self.pull()
        return bytes(self.text).count(b": hb\n\n")

    def _take(self) -> Frame | None:
        while True:
            end = self.text.find(b"\n\n", self._taken)
            if end < 0:
                return None
            block = bytes(self.text[self._taken : end])
            begins = self._taken == 0
            self._taken = end + 2
            assert b"\r" not in block
            if begins:
                assert block == b"retry: 2000"
            elif block != b": hb":
                return _frame(block)


def _frame(block: bytes) -> Frame:
    fields = [line.split(": ", 1) for line in block.decode().split("\n")]
    names = [name for name, _ in fields]
    assert names in (["id", "event", "data"], ["event", "data"]), block
    values = dict(fields)
    data = json.loads(values["data"])
    assert not re.search(r"\s", _STRING.sub("", values["data"])), "compact, but for the spelling of records"
    return Frame(values["event"], data, values.get("id"))


def create(
    world: World, topics: Any, *, query: str = "", headers: dict[str, str] | None = None, **fields: Any
) -> Answer:
    """POST /v0/watch. topics: names, or a dict of name to start."""
    if isinstance(topics, str):
        topics = {topics: {}}
    elif isinstance(topics, list):
        topics = {name: {} for name in topics}
    return world.request("POST", f"/v0/watch{query}", {"topics": topics, **fields}, headers=headers)


def session(world: World, topics: Any, **fields: Any) -> str:
    """The path of a new session's stream."""
    answer = create(world, topics, **fields)
    assert answer.status == 200, answer.text
    return str(answer.json["stream_url"])


def watch(world: World, topics: Any, **fields: Any) -> EventStream:
    """A stream on a new session."""
    return EventStream(world, session(world, topics, **fields))


def resume(world: World, path: str, last_event_id: str | None = None) -> EventStream:
    """Another stream on a session."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    return EventStream(world, path, ACCEPT | headers)


def encode_id(cursors: Any) -> str:
    text = json.dumps(cursors, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
