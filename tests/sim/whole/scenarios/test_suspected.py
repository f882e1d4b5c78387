"""What readers of the code suspected, each as the scenario it is: it was mended, or it is shown here to hold."""

from __future__ import annotations

import errno

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_DAY_MS = 86_400_000
_MS = 1_000_000
_LOSES_ALL = 7
"""A seed with which a power cut leaves nothing that is not synced."""


def test_a_wait_whose_time_is_over_while_a_router_is_held_up_is_answered_once_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-WAIT-5, R-WAIT-4, R-RTR-4: it shows no less than a wait without time, which waits for the router, too."""
    world = SimWorld()
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    world.write("a", 1)
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "write", 400_000_000)
        slowly.setitem(LATENCY_NS, "sync", 400_000_000)
        asked = world.ask("POST", "/v0/wait", {"topics": {"b": 0}, "wait_ms": 100})
        world.advance_ms(200)
        assert asked.waiting
        assert asked.answer(within_ms=1000).json["topics"]["b"]["head_seq"] == 1


def test_a_record_deleted_while_a_router_reads_it_and_then_passed_by_an_eviction_is_not_forwarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-9: the step that read it is planned again."""
    world = SimWorld(checkpoint_wal_bytes=1, hot_tail_bytes=0)
    world.start()
    world.put("a", cap_records=3)
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "d"})
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.advance_ms(_CHECKPOINT_MS)
    assert world.data("d") == ["full"]
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "read", 500 * _MS)
        world.put("d")
        world.advance_ms(200)
        assert world.request("POST", "/v0/topics/a/delete", {"match": "gone"}).status == 200
        world.write("a", 4, 5, 6)
    world.advance_ms(1000)
    assert world.data("d") == ["full", 4, 5, 6]


def test_a_key_that_a_checkpoint_found_too_old_by_a_clock_far_ahead_is_new_after_a_kill() -> None:
    """R-IDEM-3, R-IDEM-4: a limit (docs/reliability.md). Until the kill the key is known, once the clock is back."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1, idempotency_key="k")
    world.step_clock_ms(_DAY_MS)
    world.write("a", 2)
    world.advance_ms(_CHECKPOINT_MS)
    world.step_clock_ms(-_DAY_MS)
    assert world.write("a", 1, idempotency_key="k")["deduped"]
    world.crash_and_start()
    assert not world.write("a", 1, idempotency_key="k")["deduped"]


@pytest.mark.parametrize("class_between", ["ephemeral", "memory"])
@pytest.mark.parametrize("how", ["at once", "killed", "killed between"])
def test_a_job_that_a_router_keeps_is_forwarded_once_though_its_queue_was_of_another_class_meanwhile(
    class_between: str, how: str
) -> None:
    """R-RTR-18, R-DUR-5. A kill takes what is ephemeral by then, but not the frame that the router keeps."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue")
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    world.request("PUT", "/v0/routers/r", {"source": "q", "dest": "d"})
    world.write("q", 1, 2, 3)
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 3}).json["count"] == 3
    assert world.request("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [2]}).json["acked"] == 1
    world.put("q", type="queue", durability=class_between)
    if how == "killed between":
        world.crash_and_start()
    world.put("q", type="queue", durability="disk")
    world.write("q", 4)
    if how == "killed":
        world.crash_and_start()
    world.put("d")
    world.advance_ms(500)
    is_lost = class_between == "ephemeral" and how == "killed between"
    assert world.data("d") == (["full", 2, 4] if is_lost else ["full", 1, 2, 3, 4])


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


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EINTR, errno.EAGAIN])
@pytest.mark.parametrize("kind", ["open", "sync"])
def test_a_directory_or_file_of_a_checkpoint_that_cannot_be_opened_or_synced_costs_no_record(
    kind: str, error: int
) -> None:
    """R-DUR-1, R-DUR-16: whatever the error, and wherever it comes; a sync that failed latches the log."""
    struck = 0
    for nth in range(1, 8):
        world = SimWorld(_LOSES_ALL, checkpoint_wal_bytes=1)
        world.start()
        world.put("a", durability="fsync")
        world.write("a", 1, 2)
        for path_part in ("/packs", "/snapshots"):
            world.fail_storage(kind, error, nth=nth, path_part=path_part)
        world.advance_ms(_CHECKPOINT_MS)
        struck += world.ring.faults.struck[kind]
        world.heal_storage()
        kept = [1, 2]
        if world.request("POST", "/v0/topics/a", {"records": [{"data": 3}]}).status == 200:
            kept.append(3)
        world.advance_ms(_CHECKPOINT_MS)
        world.power_cut()
        world.start()
        assert world.data("a") == kept, nth
        assert world.write("a", 4)["last_seq"] > len(kept)
        world.close()
    assert struck >= 4
