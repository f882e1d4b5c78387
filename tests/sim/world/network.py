"""Sockets in memory: listeners, byte streams with bounded buffers, and clients a test drives by hand."""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial

from tests.sim.world.events import Events

Address = tuple[str, int]
_FACTORS = (0.1, 0.5, 1, 1, 2, 10)
"""Factors of the usual time of travel, drawn for each piece when there is jitter."""


def _nothing() -> None:
    pass


class Endpoint:
    """One side of a connection. `incoming` holds what the peer sent and this side has not yet received."""

    def __init__(self, network: SimNetwork, address: Address) -> None:
        self.network = network
        self.address = address
        self.peer: Endpoint | None = None
        self.incoming = bytearray()
        self.travelling_bytes = 0
        self.end_of_stream = False
        """Nothing comes after `incoming`: the peer has finished sending, or this side has shut down."""
        self.error = 0
        """errno every further use of this side gets."""
        self.write_closed = False
        self.closed = False
        self.vanished = False
        """Nothing reaches it any more, and it says nothing."""
        self.keepalive_ms = 0
        """For how long the peer may be silent before it is asked, and then until it is given up; 0: for ever."""
        self.on_readable: Callable[[], None] = _nothing
        self.on_writable: Callable[[], None] = _nothing
        self._arrives_ns = 0

    def room_bytes(self) -> int:
        """How much a send may take now."""
        peer = self.peer
        assert peer is not None
        if peer.closed:
            return self.network.socket_buffer_bytes
        return max(0, self.network.socket_buffer_bytes - len(peer.incoming) - self.travelling_bytes)

    def send(self, data: bytes) -> int:
        """Puts bytes on the wire; the count taken, or -errno."""
        assert self.peer is not None
        if self.error:
            return -self.error
        if self.write_closed:
            return -errno.EPIPE
        count = min(len(data), self.room_bytes())
        self.travelling_bytes += count
        for piece in self.network.pieces(data[:count]):
            self._travel(partial(self._arrive, piece))
        return count

    def take(self, size: int) -> bytes:
        """Receives up to `size` bytes."""
        data = bytes(self.incoming[:size])
        del self.incoming[: len(data)]
        if data and self.peer is not None:
            self.peer.on_writable()
        return data

    def finish_sending(self) -> None:
        """FIN: the peer sees the end after what is already on its way."""
        if not self.write_closed and not self.error:
            self.write_closed = True
            self._travel(self._end_peer)

    def shutdown(self) -> None:
        """shutdown(SHUT_RDWR): this side receives what came, then the end."""
        self.finish_sending()
        self.end_of_stream = True
        self.on_readable()
        self.on_writable()

    def close(self) -> None:
        """Closing with unread bytes is a reset, as TCP has it."""
        if self.closed:
            return
        self.closed = True
        if self.incoming:
            self.reset()
        else:
            self.finish_sending()

    def reset(self) -> None:
        """RST: both sides are done at once, and what was under way is gone."""
        self.closed = True
        self._travel(self._reset_peer)

    def _travel(self, action: Callable[[], None]) -> None:
        """Deliver what one side does to the other later, in the same order."""
        events = self.network.events
        due = events.clock.monotonic_ns() + self.network.delay_ns()
        self._arrives_ns = events.at(max(due, self._arrives_ns), action)

    def _arrive(self, data: bytes) -> None:
        peer = self.peer
        assert peer is not None
        self.travelling_bytes -= len(data)
        if peer.closed:
            peer._travel(peer._reset_peer)
        elif not peer.error and not peer.vanished:
            peer.incoming += data
            peer.on_readable()

    def _end_peer(self) -> None:
        assert self.peer is not None
        self.peer.end_of_stream = True
        self.peer.on_readable()

    def _reset_peer(self) -> None:
        assert self.peer is not None
        self.peer.fail(errno.ECONNRESET)

    def fail(self, error: int) -> None:
        """From now on every use of this side gets this errno."""
        if not self.error and not self.closed:
            self.error = error
            self.incoming.clear()
            self.on_readable()
            self.on_writable()

    def vanish(self) -> None:
        """Gone without a word, as a machine that lost its power: the peer finds out by keep-alive, or never."""
        peer, events = self.peer, self.network.events
        assert peer is not None
        self.vanished = True
        if peer.keepalive_ms:
            gone_ns = events.clock.monotonic_ns() + 2 * peer.keepalive_ms * 1_000_000
            events.at(gone_ns, lambda: peer.fail(errno.ETIMEDOUT))


class SimMailbox:
    """A datagram socket that takes descriptors: what came and was not taken, at most so many as the kernel holds."""

    ROOM = 11

    def __init__(self, network: SimNetwork, path: str) -> None:
        self.network = network
        self.path = path
        self.waiting: deque[tuple[Callable[[], None], object, bytes]] = deque()
        """How to give up each open socket, the socket, and its bytes. A message without a socket has None."""
        self.on_readable: Callable[[], None] = _nothing

    def send(self, data: bytes) -> bool:
        """Send a message without a socket. Return whether there was room for it."""
        if len(self.waiting) >= self.ROOM:
            return False
        self.waiting.append((_nothing, None, data))
        self.on_readable()
        return True

    def close(self) -> None:
        """Connections that were not taken are lost with their bytes."""
        if self.network.mailboxes.get(self.path) is self:
            del self.network.mailboxes[self.path]
        self.network.left.add(self.path)
        for give_up, _handle, _data in self.waiting:
            give_up()
        self.waiting.clear()


class SimListener:
    """A bound port. `waiting` are connections established and not yet accepted."""

    def __init__(self, network: SimNetwork, address: Address, backlog: int, *, shared: bool) -> None:
        self.network = network
        self.address = address
        self.backlog = backlog
        self.shared = shared
        """Other shared ones may be bound to the same port."""
        self.only_binds = False
        """It gets no connections."""
        self.waiting: deque[Endpoint] = deque()
        self.closed = False
        self.keepalive_ms = 0
        self.on_connection: Callable[[], None] = _nothing

    def shutdown(self) -> None:
        """Ends listening; a pending accept ends with EINVAL."""
        if self.closed:
            return
        self.closed = True
        self.network.listeners[self.address[1]].remove(self)
        for endpoint in self.waiting:
            endpoint.reset()
        self.waiting.clear()
        self.on_connection()

    close = shutdown


class SimNetwork:
    """All sockets of a simulated world.

    Args: split, whether bytes arrive in pieces and a ring's sends may be short, by the seed; jitter, whether travel
    takes an uneven time.
    """

    def __init__(
        self,
        events: Events,
        rng: random.Random,
        *,
        split: bool = False,
        jitter: bool = False,
        socket_buffer_bytes: int = 1 << 18,
        travel_ns: int = 20_000,
    ) -> None:
        self.events = events
        self.rng = rng
        self.split = split
        self.jitter = jitter
        self.socket_buffer_bytes = socket_buffer_bytes
        self.travel_ns = travel_ns
        self.listeners: defaultdict[int, list[SimListener]] = defaultdict(list)
        """The listeners of each port: several if all are shared."""
        self.mailboxes: dict[str, SimMailbox] = {}
        self.left: set[str] = set()
        """Paths of mailboxes that no process has open any more."""
        self.datagrams: dict[str, list[bytes]] = {}
        """The datagrams that were sent to each datagram socket that a test has put here, by its address."""
        self._next_port = 20_000

    def listen(self, host: str, port: int, backlog: int, keepalive_ms: int = 0, *, shared: bool = False) -> SimListener:
        port = port or self._new_port()
        bound = self.listeners[port]
        if any(not (shared and other.shared) for other in bound):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = SimListener(self, (host, port), backlog, shared=shared)
        listener.keepalive_ms = keepalive_ms
        bound.append(listener)
        return listener

    def connect(self, host: str, port: int, among: Sequence[SimListener] = ()) -> Endpoint | int:
        """This side of a new connection, or an errno. among: to one of these, if there are any."""
        bound = [each for each in self.listeners[port] if not each.only_binds and (not among or each in among)]
        if not bound:
            return errno.ECONNREFUSED
        listener = bound[0] if len(bound) == 1 else self.rng.choice(bound)
        if len(listener.waiting) > listener.backlog:
            return errno.ECONNREFUSED
        here, there = Endpoint(self, (host, self._new_port())), Endpoint(self, listener.address)
        here.peer, there.peer = there, here
        there.keepalive_ms = listener.keepalive_ms
        listener.waiting.append(there)
        here._travel(listener.on_connection)
        return here

    def pair(self) -> tuple[Endpoint, Endpoint]:
        """Two sides that are connected."""
        one, other = Endpoint(self, ("", 0)), Endpoint(self, ("", 0))
        one.peer, other.peer = other, one
        return one, other

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut by the seed if asked for: usually whole, at times byte by byte at the start."""
        if not self.split or len(data) < 2 or self.rng.random() < 0.3:
            return [data] if data else []
        cuts = sorted({self.rng.randrange(1, len(data)) for _ in range(self.rng.randint(1, 4))})
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def delay_ns(self) -> int:
        return int(self.travel_ns * _FACTORS[int(self.rng.random() * len(_FACTORS))]) if self.jitter else self.travel_ns

    def client(self, port: int, host: str = "127.0.0.1") -> SimClient:
        """Connects a test's client. Raises ConnectionRefusedError."""
        endpoint = self.connect(host, port)
        if isinstance(endpoint, int):
            raise OSError(endpoint, os.strerror(endpoint))
        return SimClient(endpoint)

    def _new_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimClient:
    """A client in the hands of a test. Nothing here waits: the ring's waiting is what moves time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._unsent = bytearray()
        endpoint.on_writable = self._push

    @property
    def address(self) -> Address:
        return self.endpoint.address

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that wait for room in the server's receive buffer."""
        return len(self._unsent)

    @property
    def reset_by_server(self) -> bool:
        return self.endpoint.error != 0

    @property
    def ended(self) -> bool:
        """The server has closed its side (or reset) and everything it sent has been received here."""
        return (self.endpoint.end_of_stream or self.reset_by_server) and not self.endpoint.incoming

    def send(self, data: bytes) -> None:
        self._unsent += data
        self._push()

    def receive(self, size: int = 1 << 30) -> bytes:
        """Return what has arrived; empty when nothing has. A client that does not call it is a slow reader."""
        return self.endpoint.take(size)

    def finish_sending(self) -> None:
        """Half-close: the server sees the end of the stream and may continue to answer."""
        assert not self._unsent, "bytes still wait for the server to read"
        self.endpoint.finish_sending()

    def close(self) -> None:
        self.endpoint.close()

    def vanish(self) -> None:
        """The client is gone and says nothing; for connections on which nothing is on its way."""
        self.endpoint.vanish()

    def reset(self) -> None:
        self.endpoint.reset()

    def _push(self) -> None:
        while self._unsent:
            most = max(1, self.endpoint.room_bytes())  # A copy of all that waits, each time, takes quadratic time.
            count = self.endpoint.send(bytes(self._unsent[:most]))
            if count <= 0:
                return
            del self._unsent[:count]
