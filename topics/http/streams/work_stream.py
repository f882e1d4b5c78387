"""One open stream of jobs: from the engine's push stream to frames on a connection.

Source: wire contract, 8.6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from topics.engine.queue.push import PushStream
from topics.errors import TopicsError
from topics.http.streams import sse
from topics.http.streams.heartbeats import Heartbeats
from topics.http.wire.stream import Stream

_log = logging.getLogger("topics.http")

HEARTBEAT_NS = 15_000_000_000


class WorkStream:
    """A sink of jobs, and a stream with heartbeats. name_json: the queue's name as JSON."""

    __slots__ = ("_heartbeats", "_name_json", "_now_ns", "_on_end", "_push", "_stream", "interval_ns", "last_ns")

    def __init__(self, name_json: bytes, heartbeats: Heartbeats, now_ns: Callable[[], int]) -> None:
        self._name_json = name_json
        self._heartbeats = heartbeats
        self._now_ns = now_ns
        self._push: PushStream | None = None
        self._stream: Stream | None = None
        self._on_end: Callable[[], None] | None = None
        self.interval_ns = HEARTBEAT_NS
        self.last_ns = now_ns()

    # --- life --------------------------------------------------------------------------------------------------------
    def open(self, push: PushStream, stream: Stream, on_end: Callable[[], None]) -> None:
        """Begin to push, once the head is sent. on_end(): releases the stream's slot."""
        self._on_end = on_end
        self._push = push
        self._stream = stream
        stream.write_block(sse.RETRY)
        self._heartbeats.add(self)
        push.open()

    def on_drained(self) -> None:
        if self._push is not None:
            self._push.resume()

    def on_disconnect(self) -> None:
        self._leave()

    def _leave(self) -> None:
        """Release the resources of the stream, its jobs among them. Later calls do nothing."""
        push, self._push = self._push, None
        on_end, self._on_end = self._on_end, None
        self._stream = None
        if push is not None and on_end is not None:
            self._heartbeats.remove(self)
            on_end()
            push.close()

    def _end_with(self, code: bytes, text: bytes) -> None:
        """Send one frame without an id that states the reason, and end the stream."""
        stream = self._stream
        self._leave()
        if stream is not None:
            told = b'{"code":%b,"error":"%b","topic":%b}' % (code, text, self._name_json)
            stream.write(sse.frame_without_id(b"error", told))
            stream.end()

    # --- events of the engine --------------------------------------------------------------------------------------
    def deliver(self, seq: int, job: bytes) -> bool:
        """Send a job as one frame. Return whether the stream takes more."""
        stream = self._stream
        if stream is None:
            return False
        self.last_ns = self._now_ns()
        stream.write(sse.frame(b"job", b'{"topic":%b,%b' % (self._name_json, job[1:]), b"%d" % seq))
        return not stream.over_high_water

    def on_gone(self) -> None:
        self._end_with(b"409", b"the topic was deleted, or is no longer a queue")

    def on_shutdown(self) -> None:
        self._end_with(b'"server_shutting_down"', b"the server is shutting down: connect again in a moment")

    def on_key_gone(self) -> None:
        self._end_with(b'"unauthorized"', b"the key was taken away, or may do something else now: connect again")

    def on_error(self, error: TopicsError) -> None:
        _log.error("a stream of jobs ends: %s", error)
        self._end_with(b'"internal"', b"jobs cannot be leased any more: storage failed")

    def beat(self) -> None:
        """Send a heartbeat, except to a client that does not read."""
        if self._stream is not None and not self._stream.over_high_water:
            self._stream.write_block(sse.HEARTBEAT)
