"""The choice between HTTP/1 and HTTP/2 by the first bytes of a connection.

Source: wire contract, R-NET-1, R-NET-4.
"""

from __future__ import annotations

from collections.abc import Sequence

from topics.http.http1.http1_connection import HttpConnection
from topics.http.http2.h2_connection import PREFACE, Http2Connection
from topics.http.plan.service import Service
from topics.http.wire.transport import Arriving, ProtocolState, Transport, Waits

_UNDECIDED = tuple(PREFACE[:size] for size in range(4))


class FirstBytes:
    """The state of a connection without a protocol.

    It waits until the bytes are the HTTP/2 preface or cannot become it, then hands the connection
    over.
    """

    __slots__ = ("_received", "_since", "service", "transport")

    def __init__(self, service: Service, transport: Transport) -> None:
        self.service = service
        self.transport = transport
        self._received = b""
        self._since = service.tick

    @property
    def held_bytes(self) -> int:
        return len(self._received)

    def large_writes(self) -> Sequence[bytes]:
        return ()

    @property
    def arriving(self) -> Sequence[Arriving]:
        return ()

    @property
    def look_cost(self) -> int:
        return 1

    def cut_off(self, body: int) -> None:
        pass

    @property
    def busy(self) -> bool:
        return False

    @property
    def admitted(self) -> bool:
        return False

    @property
    def patient(self) -> bool:
        return False

    def begin_http1(self, data: bytes | memoryview) -> ProtocolState:
        """Return the state of the connection: that of HTTP/1 if `data` can only begin HTTP/1.

        The bytes are not taken.
        """
        if self._received or bytes(data[:3]) in _UNDECIDED:
            return self
        state = self.transport.state = HttpConnection(self.service, self.transport, since=self._since)
        return state

    def receive(self, data: bytes | memoryview) -> None:
        if self._received:
            data = self._received + data
        start = bytes(data[: len(PREFACE)])
        successor: ProtocolState
        if start == PREFACE:
            successor = Http2Connection(self.service, self.transport)
        elif PREFACE.startswith(start):
            self._received = start
            return
        else:
            successor = HttpConnection(self.service, self.transport, since=self._since)
        self.transport.state = successor
        successor.receive(data)

    def end_of_stream(self) -> None:
        self.transport.close()

    def drained(self) -> None:
        pass

    def lost(self) -> None:
        self._received = b""

    def overdue(self, waits: Waits) -> bool:
        limit = waits.head if self._received else waits.idle
        return self.service.tick - self._since > limit

    def going_away(self) -> None:
        pass
