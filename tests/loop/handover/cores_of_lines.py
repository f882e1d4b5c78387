"""Several loops on one simulated network that share a port, and clients that ask them for lines.

A request is a line that names the core that owns it. That core answers `ok`; another one gives the connection away,
or answers `no` if it cannot. Requests that a core has executed are written down, as its log would, and outlive it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from tests.sim import SimClient, SimRing, SimStoppedError
from topics.loop import Connection, Loop
from topics.loop.doors.mailbox import Mailbox

PASSES_MAX = 20_000


@dataclass
class Lines:
    """The handler of one core."""

    core: int
    loop: Loop
    executed: Counter[bytes]
    seen: set[tuple[str, int]]
    """Addresses of the clients whose connection was here."""
    pending: dict[int, bytes] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)

    def connected(self, conn: Connection) -> None:
        self.pending[conn.id] = b""
        self.seen.add(conn.peer)

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        for conn, view in batch:
            self.pending[conn.id] += bytes(view)
            if conn.id not in self.leaving:
                self._advance(conn)

    def _advance(self, conn: Connection) -> None:
        while b"\n" in self.pending[conn.id]:
            line, _, rest = self.pending[conn.id].partition(b"\n")
            owner = int(line.split()[0])
            if owner == self.core:
                self.executed[line] += 1
                conn.write(b"ok %b\n" % line)
            elif self.loop.give_away(
                conn, mailbox(owner), lambda: self.pending[conn.id], lambda _error: self._no(conn)
            ):
                self.leaving.add(conn.id)
                return
            else:
                conn.write(b"no %b\n" % line)
            self.pending[conn.id] = rest

    def _no(self, conn: Connection) -> None:
        self.leaving.discard(conn.id)
        line, _, self.pending[conn.id] = self.pending[conn.id].partition(b"\n")
        conn.write(b"no %b\n" % line)
        self._advance(conn)

    def end_of_stream(self, conn: Connection) -> None:
        conn.close()

    def drained(self, conn: Connection) -> None:
        pass

    def lost(self, conn: Connection, error: int) -> None:
        del self.pending[conn.id]
        self.leaving.discard(conn.id)


def mailbox(core: int) -> str:
    return f"core-{core:02}/mailbox"


@dataclass
class Client:
    socket: SimClient
    lines: list[bytes]
    unsent: bytes
    finishes: bool
    """Whether it ends its direction as soon as all is sent."""
    got: bytes = b""

    @property
    def answers(self) -> list[bytes]:
        return self.got.split(b"\n")[:-1]

    @property
    def done(self) -> bool:
        return len(self.answers) == len(self.lines) or self.socket.ended

    def act(self, rng: random.Random) -> None:
        self.got += self.socket.receive(rng.randint(1, 200))
        if self.unsent and not self.socket.endpoint.closed and rng.random() < 0.5:
            size = rng.randint(1, len(self.unsent))
            self.socket.send(self.unsent[:size])
            self.unsent = self.unsent[size:]
            if self.finishes and not self.unsent and not self.socket.unsent_bytes:
                self.socket.finish_sending()


class Cores:
    """The world of one seed. `run` lets the clients ask until each has its answers, or its connection has ended."""

    def __init__(self, seed: int, cores: int = 2) -> None:
        self.rng = random.Random(seed)
        first = SimRing(seed, shuffle=True, split=True, receive_buffers=8, receive_buffer_bytes=64)
        others = [
            SimRing(seed + 1000 * core, network=first.network, shuffle=True, receive_buffers=8, receive_buffer_bytes=64)
            for core in range(1, cores)
        ]
        self.rings = [first, *others]
        self.executed = [Counter[bytes]() for _ in self.rings]
        self.seen: list[set[tuple[str, int]]] = [set() for _ in self.rings]
        self.loops: list[Loop] = []
        self.mailboxes: list[Mailbox] = []
        self.port = 0
        self.killed: set[int] = set()
        for core in range(cores):
            self._start(core)

    def _start(self, core: int) -> None:
        ring = self.rings[core]
        loop = Loop(ring, ring.clock)
        handler = Lines(core, loop, self.executed[core], self.seen[core])
        listener = loop.listen("127.0.0.1", self.port, handler, shared=True)
        self.port = listener.address[1]
        box = loop.open_mailbox(mailbox(core), listener)
        self.loops[core : core + 1] = [loop]
        self.mailboxes[core : core + 1] = [box]

    def client(self, owners: list[int], *, finishes: bool = False) -> Client:
        """Connect a client that asks these cores, one after the other."""
        socket = self.rings[0].network.client(self.port)
        name = socket.address[1]
        lines = [b"%d %d.%d %b" % (o, name, n, b"x" * self.rng.randint(0, 150)) for n, o in enumerate(owners)]
        return Client(socket, lines, b"".join(line + b"\n" for line in lines), finishes)

    def run(self, clients: list[Client], kill: int = -1) -> None:
        """kill: the core that is killed, and started again, when its ring raises SimStoppedError."""
        for _ in range(PASSES_MAX):
            for client in clients:
                client.act(self.rng)
            if all(client.done for client in clients):
                return
            try:
                self.rng.choice(self.loops).run_pass(0)
            except SimStoppedError:
                self.killed.add(kill)
                self.rings[kill] = self.rings[kill].next_life(power_cut=False)
                self._start(kill)
        raise AssertionError(f"no end: {[(client.answers, client.socket.ended) for client in clients]}")

    def check(self, clients: list[Client]) -> None:
        """Every answer is that of its request, from its owner, and every request was executed once at most."""
        for client in clients:
            name = client.socket.address
            for line, answer in zip(client.lines, client.answers, strict=False):
                verdict, _, text = answer.partition(b" ")
                times = [executed[line] for executed in self.executed]
                assert text == line, "the answers are in the order of the requests"
                owner = int(line.split()[0])
                assert times == [int(verdict == b"ok" and core == owner) for core in range(len(times))]
            for line in client.lines[len(client.answers) :]:
                assert sum(executed[line] for executed in self.executed) <= 1
            touched = {core for core, seen in enumerate(self.seen) if name in seen}
            if not touched:
                assert self.killed, "it was accepted by none"
                continue
            touched |= {int(line.split()[0]) for line in client.lines}  # it may have been in a mailbox
            if not touched & self.killed:
                assert len(client.answers) == len(client.lines), f"{name} was at {touched}, killed were {self.killed}"

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        assert [ring.open_fds for ring in self.rings] == [[]] * len(self.rings)
