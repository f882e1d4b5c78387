"""Connections to a server in an event loop: some are kept for later requests of the same loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

from topics.client.attempts import Lost, Send, closed
from topics.client.client_options import Address, ClientOptions
from topics.client.exchange import BadAnswerError, ClientExchange, ServerAnswer
from topics.client.sockets import is_quiet, not_connected, why_lost

_PIECE = 256 << 10
_PAUSE_S = 0.25
"""Longest sleep in a pause; after each one a closed client ends the pause."""


class _CountingReader(asyncio.StreamReader):
    """A reader that counts the bytes that have come."""

    came = 0

    def feed_data(self, data: Any) -> None:
        self.came += len(data)
        super().feed_data(data)


class AioWire:
    """One connection."""

    def __init__(
        self, reader: _CountingReader, writer: asyncio.StreamWriter, exchange: ClientExchange, now: float
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.exchange = exchange
        self.used = now
        self.taken = 0
        """Bytes that belonged to answers."""

    def is_fresh(self) -> bool:
        sock = self.writer.get_extra_info("socket")
        has_more = self.reader.came > self.taken or self.reader.at_eof()
        return not has_more and sock is not None and is_quiet(sock)

    def drop(self) -> None:
        self.writer.transport.abort()


class AioSockets:
    """The connections of one client, which belong to the running event loop.

    Another loop gets new connections.
    """

    def __init__(self, address: Address, options: ClientOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._options = options
        self._now = now
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[AioWire] = []
        self._busy: dict[AioWire, None] = {}
        self.closed = False
        self._context = options.ssl_context

    def _check(self) -> None:
        if self.closed:
            raise closed()

    async def pause(self, seconds: float) -> None:
        """Wait. Raises: UsageError, the client is closed."""
        self._check()
        until = self._now() + seconds
        while (left := until - self._now()) > 0:
            await asyncio.sleep(min(left, _PAUSE_S))
            self._check()

    async def exchange(self, send: Send) -> ServerAnswer | Lost:
        """Send a request and return its answer. A cancelled await drops the connection.

        Raises: UsageError, the client is closed.
        """
        self._check()
        until = self._now() + send.whole_s
        try:
            wire = self._take()
            if wire is None:
                async with asyncio.timeout(min(send.quiet_s, send.whole_s)):
                    wire = await self._connect()
        except (OSError, ValueError) as error:
            return not_connected(error)
        self._busy[wire] = None
        keeps = False
        try:
            answer = await self._ask(wire, send, until)
            if isinstance(answer, Lost):
                self._check()
            else:
                keeps = wire.exchange.renew()
            return answer
        finally:
            self._busy.pop(wire, None)
            is_ours = self._loop is asyncio.get_running_loop()  # else another loop took over
            if keeps and is_ours and not self.closed and len(self._idle) < self._options.idle_connections:
                wire.used = self._now()
                self._idle.append(wire)
            else:
                wire.drop()

    async def _ask(self, wire: AioWire, send: Send, until: float) -> ServerAnswer | Lost:
        try:
            wire.writer.write(wire.exchange.send(send.request))
            # No drain: a refusal may come before the whole request is sent.
            unsent = wire.writer.transport.get_write_buffer_size()
            while True:
                try:
                    async with asyncio.timeout(max(min(send.quiet_s, until - self._now()), 0.001)):
                        data = await wire.reader.read(_PIECE)
                except TimeoutError:
                    left = wire.writer.transport.get_write_buffer_size()
                    if left == unsent or self._now() >= until:
                        raise
                    unsent = left
                    continue
                wire.taken += len(data)
                answer = wire.exchange.receive(data)
                if answer is not None:
                    return answer
                if self._now() >= until:
                    return Lost(True, "the answer took too long")
        except BadAnswerError as error:
            return Lost(True, str(error), error.is_final)
        except OSError as error:
            return Lost(True, why_lost(error))

    def _take(self) -> AioWire | None:
        """Return an idle connection of this event loop that the server has not closed."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # connections of another loop cannot be used
            self._loop, self._idle = loop, []
        while self._idle:
            wire = self._idle.pop()
            if self._now() - wire.used < self._options.idle_seconds and wire.is_fresh():
                return wire
            wire.drop()
        return None

    async def _connect(self) -> AioWire:
        if self._address.is_secure:
            self._context = self._context or ssl.create_default_context()
        context = self._context if self._address.is_secure else None
        loop = asyncio.get_running_loop()
        reader = _CountingReader(_PIECE, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.create_connection(
            lambda: protocol, self._address.host, self._address.port, ssl=context
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return AioWire(reader, writer, ClientExchange(self._address, self._options), self._now())

    def close(self) -> None:
        """Drop all connections, from any thread; calls in progress end with UsageError."""
        self.closed = True
        loop, idle, self._idle = self._loop, self._idle, []
        wires = [*idle, *self._busy]
        if loop is None or loop.is_closed() or not wires:
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        for wire in wires:
            if running is loop:
                wire.drop()
            else:
                loop.call_soon_threadsafe(wire.drop)
