"""Routers read, copy and ask no more than their steps need."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim.whole.scenarios.routed import route, routers
from topics.engine.index.index import Index
from topics.engine.routers import forward_steps
from topics.engine.routers.copies import copies_of
from topics.engine.routers.evidence import Evidence
from topics.engine.state.hops import Hops

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("acked", [False, True])
def test_a_router_without_room_neither_reads_nor_copies_again_and_again(
    acked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-13. It is tried ten times a second, at each read of its destination and at each ack in its source."""
    made: list[int] = []
    monkeypatch.setattr(forward_steps, "copies_of", lambda *given: (made.append(1), copies_of(*given))[1])  # type: ignore[func-returns-value]
    world = SimWorld()
    world.start()
    world.put("s", type="queue")
    world.put("d", discard="reject", cap_bytes=10)
    route(world, "s", "d", guarantee="exactly_once")
    world.write("s", *(f"a job of some length, number {at}" for at in range(20)))
    claimed = world.request("POST", "/v0/topics/s/claim", {"node": "n", "max": 20}).json["claimed"]
    for job in claimed if acked else ():
        assert world.request("POST", "/v0/topics/s/ack", {"node": "n", "seqs": [job["$seq"]]}).json["acked"] == 1
    world.advance_ms(2000)
    assert (made, world.data("d")) == ([], [])
    world.put("d")
    assert len(world.data("d")) == 20
    world.close()


def test_the_first_look_at_a_destination_takes_turns_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-EO-3. All of it may be in memory, and would be read in one pass."""
    passes: list[int] = []
    look = Evidence._round

    def counted(self: Evidence) -> None:
        assert world.loop is not None
        passes.append(world.loop._stats.passes)
        look(self)

    monkeypatch.setattr(Evidence, "_round", counted)
    world = SimWorld(hot_tail_bytes=8 << 20, wal_file_bytes=8 << 20, pass_read_bytes=50_000)
    world.start()
    for _ in range(10):
        world.write_records("d", [{"data": 1, "meta": {"k": "v"}}] * 1000)
    route(world, "s", "d", guarantee="exactly_once")
    world.write("s", "new")
    world.advance_ms(500)
    assert len(passes) >= 10
    assert max(Counter(passes).values()) <= 2
    assert world.diff("d", 10_000)["records"][0]["data"] == "new"
    world.close()


def test_a_slot_that_becomes_free_costs_no_look_at_all_that_a_router_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-RTR-18. Of 16 MiB of small jobs, one at a time."""
    monkeypatch.setattr(forward_steps, "_STEP_ROWS", 10)
    looked_at: list[int] = []
    alive = Index.alive
    monkeypatch.setattr(Index, "alive", lambda self, seqs: (looked_at.append(len(seqs)), alive(self, seqs))[1])  # type: ignore[func-returns-value]
    made: list[int] = []
    monkeypatch.setattr(
        forward_steps,
        "copies_of",
        lambda *given: (made.append(len(given[1][0][2].seqs)), copies_of(*given))[1],  # type: ignore[func-returns-value]
    )
    world = SimWorld()
    world.start()
    world.put("s", type="queue")
    world.put("d", discard="reject", cap_records=1)
    route(world, "s", "d")
    world.write("s", *range(1, 301))
    assert world.request("POST", "/v0/topics/s/claim", {"node": "n", "max": 300}).json["count"] == 300
    for first in (201, 101, 1):  # in no order
        seqs = list(range(first, min(first + 200, 301)))
        assert world.request("POST", "/v0/topics/s/ack", {"node": "n", "seqs": seqs}).status == 200
    looked_at.clear()
    made.clear()
    for seq in range(1, 21):
        assert world.data("d", seq - 1) == [seq]
        world.delete("d", before_seq=seq + 1)
    assert max(looked_at) <= 10
    assert set(made) == {1}
    world.put("d")
    assert world.data("d", 20) == [*range(21, 301)]
    world.close()


def test_a_step_of_one_router_does_not_ask_all_others_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-RTR-12. What hops they still need was asked of each by each."""
    forgotten: list[int] = []
    forget = Hops.forget
    monkeypatch.setattr(Hops, "forget", lambda self, upto: (forgotten.append(upto), forget(self, upto))[1])  # type: ignore[func-returns-value]
    world = SimWorld()
    world.start()
    route(world, "s", "a", "sa")
    for number in range(30):
        route(world, "a", f"d{number}", f"r{number}")
    world.write("s", 1)
    world.advance_ms(1000)
    assert [router["forwarded_total"] for router in routers(world)] == [1] * 31
    assert len(forgotten) <= 2
    world.close()
