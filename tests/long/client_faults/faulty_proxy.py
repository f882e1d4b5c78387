"""A proxy on loopback that does to requests and answers what networks do: decided by a seed.

It takes HTTP apart, so that it repeats whole messages and never makes up others.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

_REPEATED_MOST = 16 << 10
"""Bytes of an answer that reach a client in one piece, so that it sees at once that it came twice."""
_RESET = struct.pack("ii", 1, 0)
_CONNECT_S = 5.0
_PIECE = 256 << 10


class ProxyFault(Enum):
    """The fate of one request and its answer."""

    PASS = "pass"
    DELAY_REQUEST = "delay request"
    DELAY_ANSWER = "delay answer"
    LOSE_REQUEST = "lose request"
    LOSE_ANSWER = "lose answer"
    CUT_REQUEST = "cut request"
    """A part of it arrives."""
    CUT_ANSWER = "cut answer"
    REPEAT_REQUEST = "repeat request"
    """It arrives again over another connection, at about the same time or later."""
    REPEAT_ANSWER = "repeat answer"
    HOLD_ANSWER = "hold answer"
    """It stays away until the client gives up."""


class Draw(NamedTuple):
    """A fault, and a number from 0 to 1: how much of a message is cut, or how long it is delayed."""

    fault: ProxyFault
    part: float


class FaultDeck:
    """All faults in random order, each once, between messages that pass; then again."""

    def __init__(self, seed: object, passes: int, without: Collection[ProxyFault]) -> None:
        self._rng = random.Random(str(seed))
        faults = [fault for fault in ProxyFault if fault not in without]
        self._cards = faults + [ProxyFault.PASS] * passes
        self._left: list[ProxyFault] = []

    def draw(self) -> Draw:
        if not self._left:
            self._left = self._rng.sample(self._cards, len(self._cards))
        return Draw(self._left.pop(), self._rng.random())


class _Messages:
    """The HTTP messages that come on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.data = b""
        """The bytes of the next one that have come."""

    def next(self) -> bytes | None:
        """Return the next message; None: the connection ended before its end."""
        size = 0
        while not size or len(self.data) < size:
            if not size and (end := self.data.find(b"\r\n\r\n")) >= 0:
                size = end + 4 + _body_size(self.data[:end])
                continue
            piece = self._socket.recv(_PIECE)
            if not piece:
                return None
            self.data += piece
        message, self.data = self.data[:size], self.data[size:]
        return message


def _body_size(head: bytes) -> int:
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        assert name != b"transfer-encoding", "the client asks for no streams"
        if name == b"content-length":
            return int(value)
    return 0


class FaultyProxy:
    """Give clients its `url`. It passes to `target`, and drops connections while there is none."""

    def __init__(
        self, seed: object, *, passes: int, longest_delay_s: float, without: Collection[ProxyFault] = ()
    ) -> None:
        """passes: messages that pass for one of each fault."""
        self.target: tuple[str, int] | None = None
        self.counts: Counter[ProxyFault] = Counter()
        self.error: BaseException | None = None
        self._deck = FaultDeck(seed, passes, without)
        self._longest_delay_s = longest_delay_s
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._ended = threading.Event()
        self._calm = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    # --- from outside ------------------------------------------------------------------------------------------------
    def calm(self) -> None:
        """Pass everything from now on. Connections are dropped, so that nothing is held any more."""
        self._calm.set()
        self._drop_all()

    def close(self) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._drop_all()

    def _drop_all(self) -> None:
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    # --- connections -------------------------------------------------------------------------------------------------
    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @contextlib.contextmanager
    def _kept(self, sock: socket.socket) -> Iterator[socket.socket]:
        with self._lock:
            self._open.add(sock)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield sock
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with self._kept(client), contextlib.suppress(OSError):
                if self.target is not None:
                    with self._kept(socket.create_connection(self.target, _CONNECT_S)) as server:
                        server.settimeout(None)
                        self._pass_on(client, server)
        except BaseException as error:
            self.error = error

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        requests, answers = _Messages(client), _Messages(server)
        while (request := requests.next()) is not None:
            fault, part = self._draw()
            delay = part * self._longest_delay_s
            if fault in {ProxyFault.LOSE_REQUEST, ProxyFault.CUT_REQUEST}:
                if fault is ProxyFault.CUT_REQUEST:
                    server.sendall(request[: int(part * len(request))])
                return _end(client, part)
            if fault is ProxyFault.DELAY_REQUEST:
                self._ended.wait(delay)
            elif fault is ProxyFault.REPEAT_REQUEST:
                threading.Thread(target=self._repeat, args=(request, delay), daemon=True).start()
            server.sendall(request)
            answer = answers.next()
            if answer is None:  # the server was killed
                client.sendall(answers.data)
                return None
            if fault is ProxyFault.HOLD_ANSWER:
                client.recv(1)
                return None
            if fault is ProxyFault.LOSE_ANSWER:
                return _end(client, part)
            if fault is ProxyFault.CUT_ANSWER:
                client.sendall(answer[: int(part * len(answer))])
                return _end(client, part)
            if fault is ProxyFault.DELAY_ANSWER:
                self._ended.wait(delay)
            twice = fault is ProxyFault.REPEAT_ANSWER and len(answer) <= _REPEATED_MOST
            client.sendall(answer * 2 if twice else answer)
        return None

    def _draw(self) -> Draw:
        with self._lock:
            draw = Draw(ProxyFault.PASS, 0.0) if self._calm.is_set() else self._deck.draw()
            self.counts[draw.fault] += 1
            return draw

    def _repeat(self, request: bytes, delay: float) -> None:
        self._ended.wait(delay)
        target = self.target
        if target is not None:
            with contextlib.suppress(OSError), self._kept(socket.create_connection(target, _CONNECT_S)) as server:
                server.settimeout(None)
                server.sendall(request)
                _Messages(server).next()


def _end(client: socket.socket, part: float) -> None:
    """End a connection by a reset, or in order."""
    if part < 0.5:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
