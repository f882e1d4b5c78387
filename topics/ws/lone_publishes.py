"""Lone publishes of one connection to one topic, with nothing between: a streak.

The first ones are executed as any command; the next repeat what was decided for them. One call in C
unmasks a frame, scans its message and frames the records as the next batch of the log
(engine/write/write_streak.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from topics.config import Config
from topics.engine.bodies.write_columns import PUBLISH_FOUND, MakeFraming, WriteColumns
from topics.engine.json._records import ffi
from topics.engine.state.topic import Topic
from topics.engine.values.results import AppendResult
from topics.engine.values.write_answer import one_lone_json
from topics.engine.write.write_streak import WriteStreak
from topics.ws import replies
from topics.ws.framing import text_frame

_MESSAGE_BYTES = 65_535
"""The most bytes of a message. Longer ones are executed as any command."""


class StreakEngine(Protocol):
    """The part of the engine that a streak needs."""

    def plain_topic(self, name: str) -> Topic | None: ...

    def write_streak(self, framing: MakeFraming) -> WriteStreak: ...


class LonePublishes:
    """The streak of the only connection that sends. It belongs to the session that began it."""

    def __init__(self, config: Config, engine: StreakEngine, now_ns: Callable[[], int]) -> None:
        limits = config.ws_max_frame_bytes, config.ws_max_message_bytes, config.pass_body_bytes
        self._most = most = min(_MESSAGE_BYTES, *(limit for limit in limits if limit))
        self._request_id_most = config.ws_max_request_id_bytes or most
        self._engine = engine
        self._now_ns = now_ns
        self._text = ffi.new("unsigned char[]", most)
        self._text_view: Any = ffi.buffer(self._text)
        self._publish = publish = ffi.new("struct tp_publish *")
        self._found: Any = ffi.buffer(ffi.addressof(publish, "id_off"), PUBLISH_FOUND.size)
        self._columns = WriteColumns(config, 0, command=True)
        self._streak = engine.write_streak(partial(self._columns.publishing, publish))
        self._name, self._name_json = "", b""
        self._write: Callable[[bytes], None] | None = None
        self._started_ns = 0
        self._on_committed = self._answer
        self.owner: object = None
        """The session whose publishes it takes; None: of no session."""
        self.taken = 0
        """Publishes that were committed and answered here."""

    def begin(self, owner: object, write: Callable[[bytes], None], name: str, *, strict: bool) -> None:
        """Note that a publish to a topic was committed and delivered, and nothing is left to do.

        owner: its session, which has the right to such publishes. write: sends to its client.
        """
        topic, publish = self._engine.plain_topic(name), self._publish
        text = msgspec.json.encode(name)
        if topic is None or len(text) > len(publish.topic):
            self.owner = None
            return
        if name != self._name or owner is not self.owner:
            publish[0] = {
                "text": self._text,
                "most": self._most,
                "request_id_most": self._request_id_most,
                "strict": strict,
                "topic_len": len(text),
                "topic": text,
            }
            self._name, self._name_json, self._write, self.owner = name, text, write, owner
        self._streak.begin(topic)

    def take(self, data: bytes | memoryview) -> bool:
        """Commit and answer a publish of the streak. False: it is none, and nothing was done."""
        self._started_ns = self._now_ns()
        if self._streak.write(self._name, ffi.from_buffer(data), len(data), self._on_committed) is None:
            return False
        self.taken += 1
        return True

    def _answer(self, result: AppendResult) -> None:
        """Answer the publish that is committed and not published yet."""
        assert self._write is not None, "a streak of no session"
        id_off, id_len, without_seqs = PUBLISH_FOUND.unpack(self._found)
        request_id = self._text_view[id_off : id_off + id_len] if id_len else b"null"
        total_ns = self._now_ns() - self._started_ns
        if result.count == 1 and not without_seqs:
            text = one_lone_json(replies.ACK % request_id, self._name_json, result, total_ns, 0)
        else:
            text = replies.ack(request_id, self._name, result, total_ns, 0, with_seqs=not without_seqs)
        self._write(text_frame(text))

    def end(self, owner: object) -> None:
        """Give up what it refers to, if it is this session that ends."""
        if owner is self.owner:
            self.owner = self._write = None
