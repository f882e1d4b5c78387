"""Clients in turn: a pass of the loop has one budget, in whatever part of it they come."""

from __future__ import annotations

from tests.loop.fake_ring import fake_loop
from topics.engine.values.turns import Turns
from topics.loop.loop import PassEnd


def test_clients_that_come_in_a_pass_spend_no_second_budget_at_its_end() -> None:
    """A pass had the budget of its receives, and that of its end, and was twice as long."""
    loop, ring = fake_loop()
    turns = Turns(loop, 3, 3)
    loop.on_pass_end(turns.next_pass, PassEnd.WAITERS)
    served: list[int] = []
    waiting = list(range(8))

    def serve() -> None:
        while waiting and not turns.over:
            served.append(waiting.pop(0))
            turns.left -= 1
        if waiting:
            turns.wait(serve)

    loop.files.fdatasync_nowait(7, lambda _res: serve())
    ring.complete(ring.one("fsync"), 0)
    counts = []
    while waiting:
        loop.run_pass(0)
        counts.append(len(served))
        assert not waiting or not loop.is_quiet(loop.clock.monotonic_ns()), "each pass asks for the next one"
    assert counts == [3, 6, 8]
