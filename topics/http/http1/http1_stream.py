"""The body of a streamed HTTP/1 answer: chunks for HTTP/1.1, bytes until the close for HTTP/1.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.http.wire.stream import LAST_CHUNK, Block, chunked
from topics.http.wire.transport import Transport


class StreamOwner(Protocol):
    """The connection of a streamed answer, which continues after its end."""

    transport: Transport

    def on_stream_ended(self, *, kept: bool) -> None: ...


class Http1Stream:
    """The `topics.http.wire.stream.Stream` of HTTP/1.

    The connection reports events of the client: `on_drained`, `leave`.
    """

    __slots__ = ("_chunked", "_connection", "_kept", "_on_disconnect", "_transport", "on_drained")

    def __init__(
        self,
        connection: StreamOwner,
        *,
        chunks: bool,
        kept: bool,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._connection: StreamOwner | None = connection
        self._transport = connection.transport
        self._chunked = chunks
        self._kept = kept
        self.on_drained = on_drained
        self._on_disconnect = on_disconnect

    @property
    def over_high_water(self) -> bool:
        return self._transport.over_high_water

    @property
    def shared_connection(self) -> Transport | None:
        return self._transport if self._chunked and self._connection is not None else None

    def write(self, data: bytes) -> None:
        if self._connection is not None:
            self._transport.write(chunked(data) if self._chunked else data)

    def write_block(self, block: Block) -> None:
        if self._connection is not None:
            self._transport.write(block.chunk if self._chunked else block.data)

    def end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._chunked:
                self._transport.write(LAST_CHUNK)
            connection.on_stream_ended(kept=self._kept)

    def drop(self) -> None:
        """Close without the last chunk."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.on_stream_ended(kept=False)

    def leave(self) -> None:
        """End the stream, because the client has left."""
        if self._connection is not None:
            self._connection = None
            self._on_disconnect()
