"""Records that expire by a ttl of their own: a bounded number a pass, however many commits it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.loop.fake_ring import fake_loop
from topics.engine.index.expiries import A_LOOK, Expiries
from topics.engine.shared.expiry_turns import A_PORTION, EXPIRED_A_PASS, ExpiryTurns
from topics.loop.loop import PassEnd

RECORDS = 5 * A_LOOK


def test_a_pass_whose_end_is_run_again_has_one_budget() -> None:
    """A commit in place ends within the pass, and what follows it comes in the same pass."""
    loop, _ring = fake_loop()
    turns = ExpiryTurns(loop, 3)
    loop.on_pass_end(turns.next_pass, PassEnd.WAITERS)
    found: list[int] = []

    def look(left: int) -> None:
        if turns.over:
            turns.wait(lambda: look(left))
        elif left:
            turns.spend(1)
            found.append(left)
            loop.again()
            look(left - 1)

    loop.call_soon(lambda: look(10))
    counts = []
    while len(found) < 10:
        loop.run_pass(0)
        counts.append(len(found))
    assert counts == [3, 6, 9, 10]


@pytest.fixture
def world() -> Iterator[SimWorld]:
    world = SimWorld(0)
    world.start()
    yield world
    world.close()


@pytest.fixture
def expired(world: SimWorld, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """The records whose loss each pass began, by its number."""
    passes, take_due = Counter[int](), Expiries.take_due

    def counted(self: Expiries, now_ms: int, held: int, most: int) -> list[int]:
        seqs = take_due(self, now_ms, held, most)
        assert world.loop is not None
        passes[world.loop.passes] += len(seqs)
        return seqs

    monkeypatch.setattr(Expiries, "take_due", counted)
    return passes


def let_expire(world: SimWorld, topics: int) -> None:
    """Write `RECORDS` records to each topic that expire, and let their time end."""
    for topic in range(topics):
        for first in range(0, RECORDS, 500):
            records = [{"data": 0, "ttl_ms": 60_000} for _ in range(min(500, RECORDS - first))]
            world.write_records(f"t{topic}", [{"data": 0}, *records])
    world.advance_ms(61_000)


@pytest.mark.parametrize("asks", ["read", "list"])
def test_all_topics_share_the_records_of_a_pass(world: SimWorld, expired: Counter[int], asks: str) -> None:
    let_expire(world, topics=2)
    if asks == "list":
        world.request("GET", "/v0/topics")
    else:
        polls = [world.ask("POST", f"/v0/topics/t{topic}/diff", {"from_seq": 0, "limit": 1}) for topic in (0, 1)]
        for poll in polls:
            poll.answer()
    assert sum(expired.values()) == 2 * RECORDS
    assert max(expired.values()) < EXPIRED_A_PASS + A_PORTION


def test_writes_of_one_pass_do_not_expire_a_thousand_each(world: SimWorld, expired: Counter[int]) -> None:
    """R-RTTL-1: the others go with a later request."""
    let_expire(world, topics=1)
    writes = [world.ask("POST", "/v0/topics/t0", {"records": [{"data": 0}]}) for _ in range(20)]
    for write in writes:
        write.answer()
    assert sum(expired.values()) >= A_LOOK
    assert max(expired.values()) <= A_LOOK
    assert world.state("t0")["count"] == 20 + -(-RECORDS // 500)


def test_records_that_expire_behind_many_deleted_ones_are_not_read(world: SimWorld) -> None:
    """R-RTTL-1: a look of a portion that finds only what was deleted is followed by others."""
    dead = [{"data": 0, "tag": "gone", "ttl_ms": 60_000} for _ in range(500)]
    for _ in range(2):
        world.write_records("t0", dead)
    world.write_records("t0", [{"data": 1, "ttl_ms": 60_001}, {"data": 2}])
    assert world.request("POST", "/v0/topics/t0/delete", {"match": "gone"}).json["deleted"] == 1000
    world.advance_ms(61_000)
    page = world.request("POST", "/v0/topics/t0/diff", {"from_seq": 0}).json
    assert [record["data"] for record in page["records"]] == [2]
