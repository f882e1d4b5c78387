"""A stop with very many connections: a pass looks at some of them, and ends some."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sim import SimRing
from topics.config import tiny_config
from topics.http.wire.transport import Arriving
from topics.loop.connection import CLOSED, OPEN
from topics.loop.loop import Loop
from topics.server import shutdown
from topics.server.shutdown import ENDS_A_PASS, LOOKS_A_PASS, drain

STREAMS, PEERS = 5 * ENDS_A_PASS, 4 * LOOKS_A_PASS


class Served:
    """A server with peers; `calls` counts what the stop asks of them in this pass."""

    def __init__(self) -> None:
        self.loop = Loop(ring := SimRing(1), ring.clock)
        self.config = tiny_config("unused")
        self.calls: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.total: dict[str, int] = {}
        self.peers = [Peer(self, number) for number in range(PEERS)]
        self.service = SimpleNamespace(
            drain=lambda: None,
            streams=SimpleNamespace(at_drain=[self._end_streams]),
            in_flight=SimpleNamespace(requests=0),
        )
        self.gate = SimpleNamespace(drain=lambda: None)
        self.hurried = False
        self.engine = None
        self.listener = self

    @property
    def connections(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.phase != CLOSED]

    def stop_accepting(self) -> None:
        pass

    def _end_streams(self) -> Iterator[None]:
        for _ in range(STREAMS):
            self.count("stream ended")
            yield

    def count(self, what: str) -> None:
        self.calls[what] = self.calls.get(what, 0) + 1
        self.most[what] = max(self.most.get(what, 0), self.calls[what])
        self.total[what] = self.total.get(what, 0) + 1

    def stop(self) -> None:
        """Passes until the stop has ended."""
        task = self.loop.spawn(drain(cast(Any, self)))
        while not task.done:
            self.calls.clear()
            self.loop.run_pass(1_000_000)
        assert task.result() is None


class Peer:
    """A connection that has a body on the way until it is closed, and is not closed by its peer."""

    def __init__(self, served: Served, number: int) -> None:
        self._served = served
        self.id = number
        self.phase: int = OPEN
        self.state = self
        self.busy = False
        self.look_cost = 1

    @property
    def outbound_bytes(self) -> int:
        self._served.count("looked at")
        return 0

    @property
    def arriving(self) -> list[Arriving]:
        return [Arriving(1, 0)] if not self.id else []

    def begin_held(self) -> None:
        self._served.count("begun")

    def going_away(self) -> None:
        self._served.count("announced")

    def close(self) -> None:
        self._served.count("closed")

    def abort(self) -> None:
        self._served.count("aborted")
        self.phase = CLOSED


def test_a_stop_takes_some_streams_and_connections_a_pass_and_comes_to_all_of_them() -> None:
    served = Served()
    served.stop()
    looks = served.total.pop("looked at")
    assert served.total == {"stream ended": STREAMS, "announced": 2 * PEERS, "closed": PEERS, "aborted": PEERS}
    assert looks >= 3 * PEERS
    assert served.most.pop("looked at") == LOOKS_A_PASS
    assert set(served.most.values()) == {ENDS_A_PASS}


def test_a_stop_begins_some_requests_whose_heads_are_held_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them before new requests are refused."""
    served = Served()
    monkeypatch.setattr(shutdown, "HttpConnection", Peer)
    served.service.drain = lambda: served.count(f"drained after {served.total['begun']}")
    served.stop()
    assert (served.total["begun"], served.most["begun"]) == (PEERS, ENDS_A_PASS)
    assert served.total[f"drained after {PEERS}"] == 1


def test_a_look_of_a_stop_counts_the_streams_of_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may have a body on the way."""
    served = Served()

    def no_bodies(_peer: Peer) -> list[Arriving]:
        served.count("asked for bodies")
        return []

    monkeypatch.setattr(Peer, "arriving", property(no_bodies))
    for peer in served.peers:
        peer.look_cost = 64
    served.stop()
    assert served.total["asked for bodies"] >= PEERS
    assert served.most["asked for bodies"] == LOOKS_A_PASS // 64
