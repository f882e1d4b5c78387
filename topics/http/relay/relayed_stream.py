"""A stream to a client of another core: what is written are rows of messages to that core.

Its marks are those of a stream to a client of this core. Bytes count until the other core reports
that its client has taken them. Streams also stop while that core itself takes too little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.config import Config
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.streams.stream_slots import Slot
from topics.http.wire.stream import Block


class StreamRows(Protocol):
    """The core of the client, as its streams see it."""

    @property
    def is_full(self) -> bool:
        """Whether that core has to take some of what was written, to all streams together."""

    def add_chunk(self, number: int, data: bytes) -> None: ...

    def hold(self, stream: RelayedStream) -> None:
        """Have `resume` called once it is not full any more."""

    def end_stream(self, number: int, *, is_whole: bool) -> None:
        """Send the end of a stream. is_whole: of the answer, too."""


class RelayedStream:
    """One stream; see `Stream`."""

    shared_connection = None

    __slots__ = (
        "_high_bytes",
        "_is_held",
        "_low_bytes",
        "_number",
        "_on_disconnect",
        "_on_drained",
        "_on_order",
        "_rows",
        "_untaken",
        "over_high_water",
        "slot",
    )

    def __init__(
        self,
        rows: StreamRows,
        number: int,
        marks: Config,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._rows: StreamRows | None = rows
        """The core of the client; None after the end."""
        self._number = number
        self._high_bytes, self._low_bytes = marks.stream_high_water_bytes, marks.stream_low_water_bytes
        self._on_drained = on_drained
        self._on_disconnect: Callable[[], None] | None = on_disconnect
        self._untaken = 0
        self._is_held = False
        """Whether it waits for the core of its client, beside the client itself."""
        self.over_high_water = False
        self.slot: Slot | None = None
        """The slot that its writer has taken, which knows how to end it."""
        self._on_order: Callable[[bytes], None] | None = None

    # --- what its writer calls ---------------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        rows = self._rows
        if rows is None:
            return
        self._untaken += len(data)
        rows.add_chunk(self._number, data)
        if rows.is_full and not self._is_held:
            self._is_held = True
            rows.hold(self)
        if self._is_held or self._untaken > self._high_bytes:
            self.over_high_water = True

    def write_block(self, block: Block) -> None:
        self.write(block.data)

    def end(self) -> None:
        self._end(is_whole=True)

    def drop(self) -> None:
        self._end(is_whole=False)

    def _end(self, *, is_whole: bool) -> None:
        rows = self._rows
        if rows is not None:
            self.cut()
            self._on_disconnect = None
            rows.end_stream(self._number, is_whole=is_whole)

    def take_orders(self, on_order: Callable[[bytes], None]) -> None:
        """Have what the reader asks for passed to the writer. It raises DamagedRelayError."""
        self._on_order = on_order

    # --- what the core of the client says ----------------------------------------------------------------------------
    def take(self, count: int) -> None:
        """Note that the client has taken bytes.

        Raises: DamagedRelayError, so many were not written.
        """
        if count > self._untaken:
            raise DamagedRelayError(f"{count} bytes of {self._untaken} were taken of stream {self._number}")
        self._untaken -= count

    def order(self, body: bytes) -> None:
        """Pass on what the reader asks for. Raises: DamagedRelayError, it is nothing to ask for."""
        if self._on_order is None:
            raise DamagedRelayError(f"an order for stream {self._number}, which takes none")
        self._on_order(body)

    def resume(self) -> None:
        """Continue: the core of the client has taken enough of all streams."""
        self._is_held = False
        self.settle()

    def settle(self) -> None:
        """Have the writer continue, if it may."""
        if self.over_high_water and not self._is_held and self._untaken <= self._low_bytes and self._rows is not None:
            self.over_high_water = False
            self._on_drained()

    def cut(self) -> None:
        """Take nothing more of the writer, which is not called for it."""
        self._rows = self.slot = self._on_order = None

    def leave(self) -> None:
        """Report to the writer that the client has left, after `cut`."""
        on_disconnect, self._on_disconnect = self._on_disconnect, None
        if on_disconnect is not None:
            on_disconnect()

    def on_key_gone(self) -> None:
        if self.slot is not None:
            self.slot.on_key_gone()

    def shut_down(self) -> None:
        if self.slot is not None:
            self.slot.on_shutdown()
