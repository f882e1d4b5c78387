"""The output of an HTTP/2 connection's streams.

DATA is sent in turns, within both windows and the room in the socket. A stream whose own window is
shut leaves the round until the peer opens it, so a peer with a thousand such streams costs no more
than a peer with none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from h2.connection import H2Connection
from h2.exceptions import H2Error

from topics.http.http2.h2_stream import Http2Stream
from topics.http.wire.transport import Transport

FRAME_BYTES_MAX = 65_536
"""Most bytes of a DATA frame, even if the peer accepts more: larger ones delay other streams."""
_FLUSH_BYTES = 262_144
"""Bytes that are framed before the socket is asked for room."""


class Sender:
    """The output of one connection.

    on_sent(stream): bytes of it were sent, the last ones if `stream.finished`.
    """

    __slots__ = ("_h2", "_on_sent", "_round", "_transport", "frames", "held_bytes", "held_streaming_bytes")

    def __init__(self, h2: H2Connection, transport: Transport, on_sent: Callable[[Http2Stream], None]) -> None:
        self._h2 = h2
        self._transport = transport
        self._on_sent = on_sent
        self._round: deque[Http2Stream] = deque()
        self.held_bytes = 0
        """Bytes queued on all streams."""
        self.held_streaming_bytes = 0
        """Part of `held_bytes`: bytes of streamed answers."""
        self.frames = 0
        """DATA frames sent; the peer may answer each with WINDOW_UPDATE."""

    def close(self) -> None:
        """Drop all output, because the connection has ended, and the reference to it."""
        self._round.clear()
        self._on_sent = _nothing

    def queue(self, stream: Http2Stream, data: bytes) -> None:
        """Queue more of an answer; with `stream.ending` its last part, which may be empty."""
        if data:
            stream.queue(data)
            self._hold(stream, len(data))
        if not stream.ready and (not stream.blocked or not stream.out_bytes):
            stream.ready = True
            self._round.append(stream)

    def unblock(self, stream: Http2Stream) -> None:
        """Put a stream back into the round, because its window may have opened."""
        if stream.blocked:
            stream.blocked = False
            self.queue(stream, b"")

    def discard(self, stream: Http2Stream) -> None:
        """Drop the rest of a stream's output."""
        self._hold(stream, -stream.out_bytes)
        stream.clear()
        stream.ending = stream.blocked = False

    def pump(self) -> None:
        """Frame what may be sent now, and pass it all to the transport."""
        round_, h2 = self._round, self._h2
        framed = 0
        while round_ and not self._transport.over_high_water:
            stream = round_.popleft()
            stream.ready = False
            if not stream.out_bytes and not stream.ending:
                continue  # discarded
            try:
                window = h2.local_flow_control_window(stream.id)
                if window <= 0 < stream.out_bytes:
                    if h2.outbound_flow_control_window <= 0:
                        stream.ready = True
                        round_.appendleft(stream)
                        # No stream may send until the peer opens the connection's window.
                        break
                    stream.blocked = True
                    continue
                data = (
                    stream.take(min(window, h2.max_outbound_frame_size, FRAME_BYTES_MAX)) if stream.out_bytes else b""
                )
                self._hold(stream, -len(data))
                last = stream.ending and not stream.out_bytes
                h2.send_data(stream.id, data, end_stream=last)
            except H2Error:
                # The stream may be reset, by an event that is still to be handled.
                self.discard(stream)
                continue
            self.frames += 1
            framed += len(data)
            if stream.out_bytes:
                stream.ready = True
                round_.append(stream)
            if last:
                stream.ending = False
                stream.finished = True
            self._on_sent(stream)
            if framed >= _FLUSH_BYTES:
                framed = 0
                self.flush()
        self.flush()

    def _hold(self, stream: Http2Stream, size: int) -> None:
        self.held_bytes += size
        if stream.streaming:
            self.held_streaming_bytes += size

    def flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._transport.write(data)


def _nothing(_stream: Http2Stream) -> None:
    pass
