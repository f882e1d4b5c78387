"""Connections to a server in an event loop: some are kept for later requests of the same loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable

from topics.client.attempts import Lost, Send, closed
from topics.client.client_options import Address, ClientOptions
from topics.client.exchange import BadAnswerError, ClientExchange, ServerAnswer
from topics.client.sockets import is_quiet, why_lost

_PIECE = 256 << 10
_PAUSE_S = 0.25
"""Longest part of a pause, after which it is seen that the client was closed."""


class AioWire:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: ClientExchange, now: float
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.exchange = exchange
        self.used = now

    def is_fresh(self) -> bool:
        sock = self.writer.get_extra_info("socket")
        return not self.reader.at_eof() and sock is not None and is_quiet(sock)

    def drop(self) -> None:
        self.writer.transport.abort()


class AioSockets:
    """The connections of one client. The event loop that runs uses them; another one gets others."""

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
            return Lost(False, why_lost(error))
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
            if keeps and not self.closed and len(self._idle) < self._options.idle_connections:
                wire.used = self._now()
                self._idle.append(wire)
            else:
                wire.drop()

    async def _ask(self, wire: AioWire, send: Send, until: float) -> ServerAnswer | Lost:
        try:
            async with asyncio.timeout(max(min(send.quiet_s, until - self._now()), 0.001)):
                wire.writer.write(wire.exchange.send(send.request))
                await wire.writer.drain()
            while True:
                async with asyncio.timeout(max(min(send.quiet_s, until - self._now()), 0.001)):
                    data = await wire.reader.read(_PIECE)
                answer = wire.exchange.receive(data)
                if answer is not None:
                    return answer
                if self._now() >= until:
                    return Lost(True, "the answer took too long")
        except (OSError, BadAnswerError) as error:
            return Lost(True, why_lost(error))

    def _take(self) -> AioWire | None:
        """Return a connection of this event loop that is kept and of use."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the connections of one that has ended are of no use
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
        reader, writer = await asyncio.open_connection(
            self._address.host, self._address.port, limit=_PIECE, ssl=context
        )
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
