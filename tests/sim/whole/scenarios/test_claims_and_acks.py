"""Claims, acks and streams of jobs, while jobs are moved, deleted or expire."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_MS = 1_000_000


def claim_while_a_poison_job_is_read(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[SimWorld, Connection]:
    """A queue of three jobs, the first of them poison; a claim of all three waits for the disk."""
    world = SimWorld(hot_tail_bytes=4096, **settings)
    world.start()
    world.put("q", type="queue", lease_ms=100, cap_records=3, max_deliveries=1, dead_letter="dl", leases_durable=True)
    world.write("q", 1, 2, 3)
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n"}).json["count"] == 1
    world.advance_ms(200)
    world.restart()  # nothing is in memory any more
    monkeypatch.setitem(LATENCY_NS, "read", 20_000_000)
    claim = world.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 3})
    world.advance_ms(5)
    assert claim.nothing_came
    return world, claim


@pytest.mark.parametrize("by_cap", [False, True])
def test_jobs_that_go_while_a_poison_job_cannot_be_moved_are_not_handed_out(
    monkeypatch: pytest.MonkeyPatch, by_cap: bool
) -> None:
    """R-DEL-7, R-TTL-3, R-Q-26. There is no room for the dead-letter topic."""
    world, claim = claim_while_a_poison_job_is_read(monkeypatch, max_topics=1)
    if by_cap:
        world.write("q", 4, 5, 6)
    else:
        assert world.delete("q", before_seq=4)["deleted"] == 3
    answer = claim.answer().json
    assert (answer["claimed"], answer["ready"]) == ([], 3 if by_cap else 0)


def test_a_poison_job_that_is_deleted_while_it_is_read_becomes_no_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-7. The other jobs are handed out."""
    world, claim = claim_while_a_poison_job_is_read(monkeypatch)
    assert world.delete("q", before_seq=2)["deleted"] == 1
    assert [job["data"] for job in claim.answer().json["claimed"]] == [2, 3]
    assert world.request("GET", "/v0/topics/dl").status == 404


def test_a_job_whose_ack_failed_goes_to_a_stream_with_a_free_slot_at_once() -> None:
    """R-Q-28, R-DUR-7."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", lease_ms=20_000, durability="fsync")
    world.write("q", 1)
    assert world.request("POST", "/v0/topics/q/claim", {"node": "b"}).json["count"] == 1
    stream = world.ask("GET", "/v0/topics/q/work?node=a&max=1")
    world.advance_ms(100)
    world.fail_storage("write", errno.ENOSPC)
    assert world.request("POST", "/v0/topics/q/ack", {"node": "b", "seqs": [1]}).status == 500
    world.heal_storage()
    world.advance_ms(250)
    assert b"event: job" in stream.take_bytes()


def test_a_poison_job_that_could_not_be_moved_is_tried_again_by_an_open_stream() -> None:
    """R-Q-26, R-Q-28: the stream is a claim that does not end. There is no room for the dead-letter topic at first."""
    world = SimWorld(max_topics=2)
    world.start()
    world.put("other")
    world.put("q", type="queue", lease_ms=100, max_deliveries=1, dead_letter="dl")
    world.write("q", "poison")
    assert world.request("POST", "/v0/topics/q/claim", {"node": "b"}).json["count"] == 1
    world.ask("GET", "/v0/topics/q/work?node=a&max=1")
    world.advance_ms(1000)
    assert world.request("GET", "/v0/topics/dl").status == 404
    world.drop("other")
    world.advance_ms(6000)
    assert (world.data("dl"), world.data("q")) == (["poison"], [])


@pytest.mark.parametrize("poison", [False, True])
def test_a_job_that_comes_while_a_stream_reads_one_that_goes_is_pushed_at_once(
    monkeypatch: pytest.MonkeyPatch, poison: bool
) -> None:
    """R-Q-28. The stream is notified of the new job while its claim, which brings nothing, is on its way."""
    world = SimWorld(hot_tail_bytes=4096)
    world.start()
    world.put("q", type="queue", lease_ms=100, leases_durable=True, max_deliveries=1, dead_letter="dl")
    world.write("q", "gone")
    if poison:
        assert world.request("POST", "/v0/topics/q/claim", {"node": "b"}).json["count"] == 1
        world.advance_ms(200)
    world.restart()
    monkeypatch.setitem(LATENCY_NS, "read", 20_000_000)
    stream = world.ask("GET", "/v0/topics/q/work?node=a&max=1&lease_ms=60000")
    world.advance_ms(5)
    if not poison:
        assert world.delete("q", before_seq=2)["deleted"] == 1
    world.write("q", "new")
    world.advance_ms(250)
    assert b'"data":"new"' in stream.take_bytes()


@pytest.mark.parametrize("ack_at_ms", [150, 190, 199])
def test_an_ack_on_its_way_when_its_job_expires_leaves_the_same_before_a_kill_and_after_it(
    ack_at_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-Q-10, R-TTL: whichever of the two comes first."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", durability="fsync", ttl_ms=200)
    world.write("q", 1, 2, 3)
    written_ms = world.now_ms()
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 2}).json["count"] == 2
    world.advance_to_ms(written_ms + ack_at_ms)
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "write", 20 * _MS)
        slowly.setitem(LATENCY_NS, "sync", 40 * _MS)
        ack = world.ask("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [1, 2]})
        world.advance_to_ms(written_ms + 205)
        read = world.ask("POST", "/v0/topics/q/diff", {"from_seq": 0})
        assert ack.answer(within_ms=1000).status == 200
        assert read.answer(within_ms=1000).status == 200

    def shown() -> object:
        page, state = world.diff("q"), world.state("q")
        told = page["records"], page["tombstone"], page["head_seq"], page["earliest_seq"]
        return told, state["count"], state["queue"]["ready"], state["queue"]["in_flight"]

    before = shown()
    world.crash_and_start()
    assert shown() == before
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 3}).json["count"] == 0
