"""Connections to a server by blocking sockets, kept for later requests of any thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Protocol

from topics.client.attempts import Lost, Send, closed
from topics.client.client_options import Address, ClientOptions
from topics.client.exchange import BadAnswerError, ClientExchange, ServerAnswer
from topics.errors import NoAnswerError

_SENT = 256 << 10
_RECEIVED = 64 << 10
"""Bytes asked for at once: a buffer of 128 KiB or more is mapped, and each of its pages faults."""

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
"""The reasons of OpenSSL for an answer without TLS; which one depends on its version."""


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def is_quiet(sock: HasDescriptor) -> bool:
    """Whether nothing has come on a socket, not even its end."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return not poll.poll(0)
        return not select.select([sock], [], [], 0)[0]
    except (OSError, ValueError):
        return False


class Wire:
    """One connection."""

    def __init__(self, sock: socket.socket, exchange: ClientExchange, now: float) -> None:
        self.socket = sock
        self.exchange = exchange
        self.used = now

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


class Sockets:
    """The connections of one client."""

    def __init__(self, address: Address, options: ClientOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._options = options
        self._now = now
        self._idle: list[Wire] = []
        self._busy: dict[Wire, None] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._context = options.ssl_context

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    def _check(self) -> None:
        if self._ended.is_set():
            raise closed()

    def pause(self, seconds: float) -> None:
        """Wait. Raises: UsageError, the client is closed."""
        if self._ended.wait(seconds):
            raise closed()

    def exchange(self, send: Send) -> ServerAnswer | Lost:
        """Send a request and return its answer. Any exception drops the connection, a signal's too.

        Raises: UsageError, the client is closed.
        """
        until = self._now() + send.whole_s
        try:
            wire = self._take() or self._connect(min(send.quiet_s, send.whole_s))
        except (OSError, ValueError) as error:
            return not_connected(error)
        self._busy[wire] = None
        keeps = False
        try:
            self._check()
            answer = self._ask(wire, send, until)
            keeps = isinstance(answer, ServerAnswer) and wire.exchange.renew()
            if isinstance(answer, Lost):
                self._check()
            return answer
        finally:
            self._busy.pop(wire, None)
            self._give(wire) if keeps else wire.close()

    def _ask(self, wire: Wire, send: Send, until: float) -> ServerAnswer | Lost:
        data = wire.exchange.send(send.request)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered
                self._upload(wire, memoryview(data), send.quiet_s, until)
            while True:
                wire.socket.settimeout(max(min(send.quiet_s, until - self._now()), 0.001))
                answer = wire.exchange.receive(wire.socket.recv(_RECEIVED))
                if answer is not None:
                    return answer
                if self._now() >= until:
                    return Lost(True, "the answer took too long")
        except BadAnswerError as error:
            return Lost(True, str(error), error.is_final)
        except OSError as error:
            return Lost(True, why_lost(error))

    def _upload(self, wire: Wire, left: memoryview, quiet_s: float, until: float) -> None:
        """Send bytes as long as some are taken. Raises: TimeoutError."""
        while left:
            time_left = until - self._now()
            if time_left <= 0:
                raise TimeoutError
            wire.socket.settimeout(max(min(quiet_s, time_left), 0.001))
            left = left[wire.socket.send(left[:_SENT]) :]

    def _renew_after_fork(self) -> None:
        """Begin anew in a forked child: the connections are its parent's, the lock may be held."""
        if self._pid != os.getpid():
            for wire in self._idle:
                wire.close()
            self._idle, self._busy, self._lock, self._pid = [], {}, threading.Lock(), os.getpid()

    def _take(self) -> Wire | None:
        """Return a connection that is kept and of use."""
        self._renew_after_fork()
        with self._lock:
            while self._idle:
                wire = self._idle.pop()
                if self._now() - wire.used < self._options.idle_seconds and is_quiet(wire.socket):
                    return wire
                wire.close()
        return None

    def _give(self, wire: Wire) -> None:
        wire.used = self._now()
        with self._lock:
            if not self.closed and len(self._idle) < self._options.idle_connections:
                self._idle.append(wire)
                return
        wire.close()

    def _connect(self, timeout: float) -> Wire:
        sock = socket.create_connection((self._address.host, self._address.port), timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._address.is_secure:
                self._context = self._context or ssl.create_default_context()
                sock = self._context.wrap_socket(sock, server_hostname=self._address.host)
        except BaseException:
            sock.close()
            raise
        return Wire(sock, ClientExchange(self._address, self._options), self._now())

    def close(self) -> None:
        """Drop all connections; calls in progress end with UsageError."""
        self._renew_after_fork()
        self._ended.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()
        for wire in list(self._busy):
            with contextlib.suppress(OSError):
                wire.socket.shutdown(socket.SHUT_RDWR)


def not_connected(error: Exception) -> Lost:
    """Return the outcome of a request without a connection. Raises: NoAnswerError, do not retry."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = getattr(error, "verify_message", "") or why_lost(error)
        raise NoAnswerError(
            f"the server's certificate is not trusted ({why}): give connect an ssl_context that trusts it, or name "
            "its authority in the variable SSL_CERT_FILE"
        ) from error
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        raise NoAnswerError(
            "the server answered without TLS: write http:// in the place of https://, or name the port that has TLS"
        ) from error
    return Lost(False, why_lost(error))


def why_lost(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
