"""Two cores without sockets: what one asks and the other answers are bytes between them, which a test passes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.fake_store import FakeLoop
from tests.http.byte_stream import Echo, FakeCores, Peer, make_service
from tests.http.http2.h2_peer import H2Peer
from topics.http.access.keyring import NO_KEYS, Keyring
from topics.http.plan.call import Call
from topics.http.relay.relay_client import RelayClient
from topics.http.relay.relay_server import RelayServer
from topics.http.relay.relayed_head import RelayedPlans


class End:
    """One end of a socket between two cores. What is written waits in `sent`."""

    def __init__(self) -> None:
        self.peer = ("", 0)
        self.sent = b""
        self.over_high_water = False
        self.is_paused = False
        self.is_aborted = False

    def write(self, data: bytes | memoryview) -> None:
        self.sent += data

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def take(self) -> bytes:
        data, self.sent = self.sent, b""
        return data


class LinkedCores:
    """Core 0, whose clients ask for topics of core 1, and core 1, whose handlers are those of `echo`.

    keyring: of both. settings: of core 1. is_there: whether core 1 can be asked.
    """

    def __init__(self, keyring: Keyring = NO_KEYS, **settings: Any) -> None:
        self.loop = FakeLoop()
        self.echo = Echo()
        self.is_there = True
        self.ends: list[tuple[End, End, RelayServer]] = []
        self._due: dict[Callable[[], None], None] = {}
        cores = FakeCores(self._ask)
        cores.gives = False
        self.service = make_service(self.echo.routes(), keyring=keyring, loop=self.loop, cores=cores, **settings)
        self._owners_loop = FakeLoop()
        there = Keyring([*keyring._entries])
        self.owner = make_service(self.echo.routes(), keyring=there, loop=self._owners_loop, **settings)
        self.asked = RelayClient(1, self._connect, self._note_due, self.loop.call_later, self.service.answer_turns)

    def _ask(self, call: Call) -> None:
        self.asked.ask(call)

    def _connect(self) -> End | None:
        if not self.is_there:
            return None
        here, there = End(), End()
        plans = RelayedPlans(self.owner.routes, self.owner.key_id_of)
        asking = RelayServer(self.owner, there, plans, lambda _topic: None, self._note_due)
        self.ends.append((here, there, asking))
        return here

    def _note_due(self, flush: Callable[[], None]) -> None:
        self._due[flush] = None

    def http1(self) -> Peer:
        return Peer(self.service)

    def http2(self) -> H2Peer:
        return H2Peer(self.service)

    def flush(self) -> None:
        """End a pass of both."""
        due, self._due = self._due, {}
        for flush in due:
            flush()

    def ask(self) -> None:
        """Pass on what core 0 has asked."""
        self.flush()
        here, _, asking = self.ends[-1]
        asking.receive(memoryview(here.take()))

    def answer(self) -> None:
        """Pass on what core 1 has answered."""
        self.flush()
        self.asked.receive(memoryview(self.ends[-1][1].take()))

    def work(self) -> None:
        self.ask()
        self.answer()
        self.flush()

    def end_pass(self) -> None:
        """Give those their turns that wait for a pass."""
        for service, loop in ((self.service, self.loop), (self.owner, self._owners_loop)):
            loop.advance_ms(0)
            service.turns.next_pass()
            service.answer_turns.next_pass()

    def die(self) -> None:
        """End the socket of both."""
        here, there, asking = self.ends[-1]
        self.asked.lost(here)
        asking.lost(there)

    @property
    def parked(self) -> list[Call]:
        return self.echo.parked
