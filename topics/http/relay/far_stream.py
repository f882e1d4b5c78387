"""A stream of a client of this core that another core writes, as rows of its messages.

What the connection of the client has not taken is not reported as taken. So the other core stops
writing, as it does for a slow client of its own, and no other stream waits.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from topics.common.transitions import Transitions
from topics.http.plan.call import Call
from topics.http.relay.relay_message import COUNT, KEY_GONE, ORDER, STOP, TAKEN
from topics.http.streams.stream_slots import Slot
from topics.http.wire.stream import Block, Stream


class StreamAsker(Protocol):
    """The socket to the other core, as its streams see it. A stream is known there by a number."""

    def cancel(self, number: int) -> None:
        """Have the other core end the stream, because its client has left."""

    def tell(self, number: int, code: int, body: bytes = b"") -> None:
        """Send a row about a stream that is open."""


class OrderedStream:
    """A stream that is read on this core, whose reader may ask its writer for something."""

    def take_order(self, order: Callable[[bytes], None]) -> None:
        """Take what asks the writer, because the stream is open."""
        raise NotImplementedError


class FarState(enum.Enum):
    ASKED = enum.auto()
    """The other core has not opened it, and may refuse it."""
    LEFT = enum.auto()
    """The client left before: the other core gets a cancel once it opens the stream."""
    OPENING = enum.auto()
    """The other core has opened it; its head is sent in a turn."""
    OPEN = enum.auto()
    """Its head was sent, and chunks follow."""
    ENDED = enum.auto()
    """By the client, by the other core, or with the socket to it."""


FAR_STATES = Transitions(
    {
        FarState.ASKED: (FarState.LEFT, FarState.OPENING, FarState.ENDED),
        FarState.LEFT: (FarState.ENDED,),
        FarState.OPENING: (FarState.OPEN, FarState.ENDED),
        FarState.OPEN: (FarState.ENDED,),
        FarState.ENDED: (),
    }
)


class FarStream:
    """One stream. It counts here for the limit of all, and for that of its key.

    Without a slot the other core is asked, too, which refuses it after what it checks before.
    """

    __slots__ = (
        "_asker",
        "_call",
        "_in_flight",
        "_number",
        "_slot",
        "_state",
        "_step_bytes",
        "_stops",
        "_stream",
        "_unsent",
        "_untaken",
    )

    def __init__(self, call: Call, slot: Slot | None, number: int, asker: StreamAsker) -> None:
        """slot: None, if there is none for it. number: in what is asked by `asker`."""
        self._slot = slot
        if slot is not None:
            slot.on_key_gone = self._on_key_gone
        call.on_disconnect = self.leave
        self._call: Call | None = call
        """The call, until the stream opens."""
        self._in_flight = call.service.in_flight
        self._number = number
        self._asker = asker
        self._stream: Stream | None = None
        self._untaken = 0
        """Bytes that were written to the client, and not reported as taken."""
        self._step_bytes = max(1, call.service.config.stream_low_water_bytes // 2)
        """Fewer bytes are not reported. The other core continues at twice as many, and more."""
        self._unsent = 0 if call.principal.is_valid else KEY_GONE
        """The code of a row that is to be sent once the stream is open."""
        self._stops = False
        """Whether a stop of this core waits for the end."""
        self._state = FarState.ASKED
        if call.service.closing:
            self.shut_down()

    @property
    def has_ended(self) -> bool:
        """Whether the client has nothing to get any more."""
        return self._state is FarState.LEFT or self._state is FarState.ENDED

    @property
    def is_open(self) -> bool:
        """Whether the other core has opened it, of one that it knows."""
        return self._state is not FarState.ASKED and self._state is not FarState.LEFT

    # --- what the other core says ------------------------------------------------------------------------------------
    def note_open(self) -> None:
        """Note that the stream is open, before its head is sent in a turn."""
        if self._state is FarState.LEFT:
            self._enter(FarState.ENDED)
            self._asker.cancel(self._number)
            return
        self._enter(FarState.OPENING)
        if self._unsent:
            self._asker.tell(self._number, self._unsent)

    def open(self, status: int, content_type: bytes, headers: bytes) -> None:
        """Send the head, unless the client has left."""
        call = self._call
        if call is not None:
            self._enter(FarState.OPEN)
            stream = self._stream = call.open_stream(content_type, headers, self._on_drained, self.leave, status)
            if isinstance(stream, OrderedStream):
                stream.take_order(self._order)
            self._call = None

    def refuse(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Answer with an error instead of a stream."""
        call, self._call = self._call, None
        self._finish()
        if call is not None:
            call.pass_on(status, body, content_type, headers)

    def write(self, block: Block) -> None:
        """Send a chunk, unless the client has left."""
        stream = self._stream
        if stream is not None:
            stream.write_block(block)
            self._untaken += len(block.data)
            if not stream.over_high_water:
                self._report()

    def end(self) -> None:
        """End as the other core has."""
        stream, self._stream = self._stream, None
        self._finish()
        if stream is not None:
            stream.end()

    def drop(self) -> None:
        """End without the end of the answer: what follows is unknown."""
        stream, self._stream = self._stream, None
        call, self._call = self._call, None
        self._finish()
        if stream is not None:
            stream.drop()
        elif call is not None:
            call.drop()

    # --- what happens here -------------------------------------------------------------------------------------------
    def leave(self) -> None:
        """End, because the client has left."""
        self._stream = self._call = None
        if self._state is FarState.ASKED:
            self._enter(FarState.LEFT)
            self._release()
        elif not self.has_ended:
            self._finish()
            self._asker.cancel(self._number)

    def shut_down(self) -> None:
        """Have the other core end it with what it says to a client when the server stops."""
        if not self.has_ended and not self._stops:
            self._stops = True
            self._in_flight.await_end()
            self._tell(STOP)

    def _on_key_gone(self) -> None:
        self._tell(KEY_GONE)

    def _order(self, body: bytes) -> None:
        self._asker.tell(self._number, ORDER, body)

    def _on_drained(self) -> None:
        self._report()

    def _report(self) -> None:
        if self._untaken >= self._step_bytes:
            self._asker.tell(self._number, TAKEN, COUNT.pack(self._untaken))
            self._untaken = 0

    def _tell(self, code: int) -> None:
        if self.is_open:
            self._asker.tell(self._number, code)
        else:
            self._unsent = code

    def _enter(self, state: FarState) -> None:
        self._state = FAR_STATES.check(self._state, state)

    def _finish(self) -> None:
        """End, if it has not ended before."""
        if self._state is not FarState.ENDED:
            self._enter(FarState.ENDED)
        self._release()

    def _release(self) -> None:
        if self._slot is not None:
            self._slot.release()
        if self._stops:
            self._stops = False
            self._in_flight.leave(None)
