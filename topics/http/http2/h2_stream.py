"""One request of an HTTP/2 connection, from its header list to the end of its answer.

It is the call's `Exchange`, and the `topics.http.wire.stream.Stream` of an answer that goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from topics.common.memory import GrowingBytes
from topics.errors import RequestError
from topics.http.access.principal import Principal
from topics.http.plan.call import SHARED_BYTES_MIN, Call
from topics.http.plan.plan import Plan
from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.h2_request import SHORT_BODY
from topics.http.wire.response import JSON
from topics.http.wire.stream import Block
from topics.http.wire.upgrade import OpenUpgraded

if TYPE_CHECKING:
    from topics.http.http2.h2_connection import Http2Connection


class Http2Stream:
    """What is written waits here until the peer's windows and the socket have room; `Sender` takes it frame by frame.

    plan: None for a header list that is no request.
    """

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
        "since",
        "streaming",
    )

    def __init__(self, connection: Http2Connection, number: int, plan: Plan | None, *, input_ended: bool) -> None:
        self.id = number
        self.plan = plan
        self.body: GrowingBytes | None = None
        """What has come of the request's body, while it is wanted."""
        self.call: Call | None = None
        """In a handler's hands, not answered."""
        self.since = connection.service.tick
        """When the present wait began: for more of the body, for room to send, or after the answer for the body's
        end."""
        self._counted: Principal | None = None
        """Whose request is in flight while its body arrives, or it waits its turn; a call counts itself."""
        self.input_ended = input_ended
        self.dropped_bytes = 0
        """Of the body, dropped after the answer; a frame counts as `h2_connection.DROPPED_FRAME_BYTES` at least."""
        self.ending = False
        """What is queued is the last of the answer."""
        self.finished = False
        """The last of the answer was sent."""
        self.ready = False
        """In the sender's round."""
        self.blocked = False
        """Waits for the peer to open the stream's window."""
        self.out_bytes = 0
        self.streaming = False
        """The answer goes on."""
        self.over_high_water = False
        self.on_drained: Callable[[], None] | None = None
        self.on_disconnect: Callable[[], None] | None = None
        """None once whoever writes has ended the stream, or was told that it is over."""
        self._connection = connection
        self._out: deque[bytes] = deque()
        self._first = 0
        """Bytes of the first of `_out` that were taken already."""

    upgrades = False

    # --- the Exchange ------------------------------------------------------------------------------------------------
    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """The whole answer, once."""
        self.call = None
        self._connection.answer(self, status, (body,), content_type, headers)

    def respond_in_parts(self, parts: Sequence[bytes]) -> None:
        """The whole answer, 200 and JSON."""
        self.call = None
        self._connection.answer(self, 200, parts, JSON, b"")

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Http2Stream:
        """The head of an answer that goes on."""
        self.call = None
        self.streaming = True
        self.on_drained, self.on_disconnect = on_drained, on_disconnect
        self._connection.open_stream(self, status, content_type, headers)
        return self

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        raise AssertionError("HTTP/2 has no upgrade")

    @property
    def waits(self) -> bool:
        """What is under way may take long, and ends with its client (R-NET-11)."""
        return self.streaming or (self.call is not None and self.call.on_disconnect is not None)

    def shortage(self, size: int) -> RequestError | None:
        """What a body that ends after so many bytes lacks."""
        short = self.plan is not None and size < self.plan.content_length
        return BadRequestError(SHORT_BODY).as_request_error() if short else None

    # --- what its key may have in flight -----------------------------------------------------------------------------
    def count(self) -> None:
        """Without a call the request is in flight."""
        assert self.plan is not None, "counted for nobody"
        assert self._counted is None, "counted twice"
        self._counted = self.plan.counted
        self._connection.service.in_flight.occupy(self._counted)

    def uncount(self) -> None:
        """Harmless again."""
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

    def take(self, most: int) -> bytes:
        """Up to `most` of the bytes queued; small writes are joined."""
        out = self._out
        parts: list[bytes] = []
        room = most
        while out and room:
            first = self._first
            part = out[0][first : first + room] if first or len(out[0]) > room else out[0]
            if first + len(part) == len(out[0]):
                out.popleft()
                self._first = 0
            else:
                self._first = first + len(part)
            room -= len(part)
            parts.append(part)
        self.out_bytes -= most - room
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def large_writes(self) -> list[bytes]:
        """Of what is queued, that which other answers may be sending, too."""
        return [part for part in self._out if len(part) >= SHARED_BYTES_MIN]

    def clear(self) -> None:
        self._out.clear()
        self.out_bytes = self._first = 0
