"""A client in the simulated network: HTTP/1.1 requests out, answers in, driven by the arrival of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.sim.whole.clients import payloads
from tests.sim.world.network import Endpoint, SimListener, SimNetwork

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_PART_BYTES = 5000
Answered = Callable[[int, Any], None]
"""A callback that takes the status and the JSON; status 0: the connection ended before the answer.
"""


def request_bytes(method: str, path: str, body: dict[str, Any] | None) -> bytes:
    if body is None:
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n".encode()
    content = _encode(body)
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode() + content


class Wire:
    """One connection with requests in flight, answered in order.

    `on_lost` is called once when it has ended.

    stall_ns: the client takes received bytes up to so much later, and then only a part; 0: all, at
    once. among: it is to one of these listeners; without them, to any.
    """

    def __init__(
        self,
        network: SimNetwork,
        port: int,
        on_lost: Callable[[], None],
        stall_ns: int = 0,
        among: Sequence[SimListener] = (),
    ) -> None:
        endpoint = network.connect("127.0.0.1", port, among)
        if isinstance(endpoint, int):
            raise OSError(endpoint, "connect")
        self._endpoint: Endpoint = endpoint
        self._on_lost = on_lost
        self._network = network
        self._stall_ns = stall_ns
        self._stalls = False
        self._unsent = bytearray()
        self._received = bytearray()
        self._waiting: deque[Answered] = deque()
        self.over = False
        endpoint.on_readable = self._readable
        endpoint.on_writable = self._push

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    def ask(self, method: str, path: str, body: dict[str, Any] | None, answered: Answered) -> None:
        self._waiting.append(answered)
        self._unsent += request_bytes(method, path, payloads.written(body))
        self._push()

    def reset(self) -> None:
        """Reset the connection; requests in flight are answered 0."""
        if not self.over:
            self._endpoint.reset()
            self._end()

    def forget(self) -> None:
        """Forget the requests: the machine has gone, and no callback is called any more."""
        self.over = True
        self._waiting.clear()
        self._endpoint.reset()

    def _push(self) -> None:
        while self._unsent and not self.over:
            count = self._endpoint.send(bytes(self._unsent))
            if count <= 0:
                return
            del self._unsent[:count]

    def _readable(self) -> None:
        if self.over:
            return
        if self._stall_ns:
            self._stall()
        else:
            self._take(1 << 30)

    def _stall(self) -> None:
        if not self._stalls:
            self._stalls = True
            self._network.events.after(self._network.rng.randrange(self._stall_ns), self._go_on)

    def _go_on(self) -> None:
        self._stalls = False
        if not self.over:
            self._take(_PART_BYTES)
            if self._endpoint.incoming and not self.over:
                self._stall()

    def _take(self, size: int) -> None:
        received = self._received
        received += self._endpoint.take(size)
        while received and self._waiting:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                break
            at = received.find(b"Content-Length: ", 0, end)
            stop = received.find(b"\r", at)
            body_bytes = int(received[at + 16 : stop])
            if len(received) < end + 4 + body_bytes:
                break
            status = int(received[9:12])
            text = bytes(received[end + 4 : end + 4 + body_bytes])
            del received[: end + 4 + body_bytes]
            self._waiting.popleft()(status, payloads.read(_decode(text)))
            if self.over:
                return
        if self._endpoint.error or (self._endpoint.end_of_stream and not self._endpoint.incoming):
            self._endpoint.close()
            self._end()

    def _end(self) -> None:
        self.over = True
        waiting, self._waiting = self._waiting, deque()
        for answered in waiting:
            answered(0, None)
        self._on_lost()
