"""One request of an HTTP/2 connection, from its header list to the end of its answer.

It is the call's `Exchange`, and the `topics.http.wire.stream.Stream` of a streamed answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from topics.common.memory import GrowingBytes, let_go, note_held
from topics.errors import RequestError
from topics.http.access.principal import Principal
from topics.http.plan.call import SHARED_BYTES_MIN, Call
from topics.http.plan.in_flight import InFlight
from topics.http.plan.plan import Plan
from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.h2_request import SHORT_BODY
from topics.http.wire.response import JSON
from topics.http.wire.stream import Block
from topics.http.wire.transport import Transport
from topics.http.wire.upgrade import OpenUpgraded


class StreamService(Protocol):
    """The parts of the service that a stream uses."""

    tick: int
    in_flight: InFlight


class StreamHost(Protocol):
    """The connection of a stream, which frames what its calls and writers say."""

    transport: Transport

    @property
    def service(self) -> StreamService: ...

    def answer(
        self, stream: Http2Stream, status: int, body: Sequence[bytes], content_type: bytes, headers: bytes
    ) -> None: ...

    def open_stream(self, stream: Http2Stream, status: int, content_type: bytes, headers: bytes) -> None: ...

    def wait_began(self, stream: Http2Stream) -> None: ...

    def drop(self, stream: Http2Stream) -> None: ...

    def write(self, stream: Http2Stream, data: bytes) -> None: ...

    def end(self, stream: Http2Stream) -> None: ...


class Http2Stream:
    """One stream, with the output that waits for the peer's windows and the socket.

    `Sender` takes that frame by frame. plan: None for a header list that is not a request.
    """

    shared_connection = None

    __slots__ = (
        "_connection",
        "_counted",
        "_first",
        "_out",
        "blocked",
        "body",
        "call",
        "dropped_bytes",
        "ending",
        "finished",
        "id",
        "input_ended",
        "on_disconnect",
        "on_drained",
        "out_bytes",
        "over_high_water",
        "plan",
        "ready",
        "received_bytes",
        "since",
        "streaming",
    )

    def __init__(self, connection: StreamHost, number: int, plan: Plan | None, *, input_ended: bool) -> None:
        self.id = number
        self.plan = plan
        self.body: GrowingBytes | None = None
        """The received part of the request's body, while it is wanted."""
        self.call: Call | None = None
        """The call that a handler has, and has not answered."""
        self.since = connection.service.tick
        """Tick at which the current wait began.

        The wait is for more of the body, for room to send, or, after the answer, for the body's
        end.
        """
        self._counted: Principal | None = None
        """The principal that counts the request before its call, which counts itself."""
        self.input_ended = input_ended
        self.received_bytes = 0
        """Bytes of the request's body, once it is whole."""
        self.dropped_bytes = 0
        """Bytes of the body dropped after the answer, at least DROPPED_FRAME_BYTES a frame."""
        self.ending = False
        """Whether the queue ends with the last bytes of the answer."""
        self.finished = False
        """Whether the last bytes of the answer were sent."""
        self.ready = False
        """Whether the stream is in the sender's round."""
        self.blocked = False
        """Whether the stream waits for the peer to open its window."""
        self.out_bytes = 0
        self.streaming = False
        """Whether the answer is a stream."""
        self.over_high_water = False
        self.on_drained: Callable[[], None] | None = None
        self.on_disconnect: Callable[[], None] | None = None
        """Notifies the writer that the client has left.

        None once the writer has ended the stream, or was notified.
        """
        self._connection = connection
        self._out: deque[bytes] = deque()
        self._first = 0
        """Bytes taken already of the first item of `_out`."""

    upgrades = False

    @property
    def peer(self) -> tuple[str, int]:
        return self._connection.transport.peer

    # --- the Exchange ------------------------------------------------------------------------------------------------
    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Send the whole answer, once."""
        self.call = None
        self._connection.answer(self, status, (body,), content_type, headers)

    def respond_in_parts(self, parts: Sequence[bytes], headers: bytes) -> None:
        """Send the whole answer, with 200 and JSON."""
        self.call = None
        self._connection.answer(self, 200, parts, JSON, headers)

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Http2Stream:
        """Send the head of a streamed answer."""
        self.call = None
        self.streaming = True
        self.on_drained, self.on_disconnect = on_drained, on_disconnect
        self._connection.open_stream(self, status, content_type, headers)
        return self

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        raise AssertionError("HTTP/2 has no upgrade")

    def drop(self) -> None:
        """Reset the stream, also that of a streamed answer."""
        self.call = self.on_disconnect = None
        self._connection.drop(self)

    def wait_began(self) -> None:
        self._connection.wait_began(self)

    @property
    def waits(self) -> bool:
        """Whether the work in progress may take long, and ends with its client (R-NET-11)."""
        return self.streaming or (self.call is not None and self.call.on_disconnect is not None)

    def shortage(self, size: int) -> RequestError | None:
        """Return the error of a body that ends after `size` bytes; None if it is complete."""
        short = self.plan is not None and size < self.plan.content_length
        return BadRequestError(SHORT_BODY).as_request_error() if short else None

    # --- what its key may have in flight -----------------------------------------------------------------------------
    def count(self) -> None:
        """Count the request for its key while it has no call."""
        assert self.plan is not None, "only a planned request is in flight"
        assert self._counted is None, "counted twice"
        self._counted = self.plan.counted
        self._connection.service.in_flight.occupy(self._counted)

    def uncount(self) -> None:
        """Undo `count`. Later calls do nothing."""
        counted, self._counted = self._counted, None
        self._connection.service.in_flight.vacate(counted)

    # --- the Stream --------------------------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        if self.on_disconnect is not None:
            self._connection.write(self, data)

    def write_block(self, block: Block) -> None:
        self.write(block.data)

    def end(self) -> None:
        if self.on_disconnect is not None:
            self.on_disconnect = None
            self._connection.end(self)

    # --- for the sender ----------------------------------------------------------------------------------------------
    def queue(self, data: bytes) -> None:
        self._out.append(data)
        self.out_bytes += len(data)
        if len(data) >= SHARED_BYTES_MIN:
            note_held(data)

    def take(self, most: int) -> bytes:
        """Return up to `most` of the queued bytes; small writes are joined."""
        out = self._out
        parts: list[bytes] = []
        room = most
        while out and room:
            first = self._first
            part = out[0][first : first + room] if first or len(out[0]) > room else out[0]
            if first + len(part) == len(out[0]):
                let_go(out.popleft())
                self._first = 0
            else:
                self._first = first + len(part)
            room -= len(part)
            parts.append(part)
        self.out_bytes -= most - room
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def large_writes(self) -> list[bytes]:
        """Return those queued bytes that other answers may be sending, too."""
        return [part for part in self._out if len(part) >= SHARED_BYTES_MIN]

    def clear(self) -> None:
        for part in self._out:
            let_go(part)
        self._out.clear()
        self.out_bytes = self._first = 0
