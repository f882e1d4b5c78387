"""Jobs of a queue that is the source of a router: an acknowledged one is forwarded, a deleted one is not."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from tests.contract.world.queue_client import Queue
from tests.contract.world.sim_world import SimWorld
from tests.sim.whole.scenarios.routed import route, topics_by_shard
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_MS = 1_000_000


@pytest.mark.parametrize("what", ["topic", "router"])
def test_a_job_acknowledged_during_a_deletion_that_fails_is_forwarded(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-18. The deletion of its router, or of that one's destination."""
    world = SimWorld(wal_shards=2, commit_in_place_max_us=0)
    world.start()
    (queue, *_), (dest, other, *_) = topics_by_shard(world, type="queue", discard="reject")
    world.put(dest, type="queue", discard="reject", cap_records=1)
    route(world, queue, dest)
    world.write(queue, 1, 2)
    assert world.data(dest) == [1]
    assert world.request("POST", f"/v0/topics/{queue}/claim", {"node": "n", "max": 2}).json["count"] == 2
    monkeypatch.setitem(LATENCY_NS, "sync", 20 * _MS)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    world.ask("PUT", f"/v0/topics/{other}", {"type": "queue", "priority": 1})
    world.advance_ms(1)
    world.fail_storage("write", errno.ENOSPC, path_part="/shard-01/")
    gone = world.ask("DELETE", f"/v0/topics/{dest}" if what == "topic" else "/v0/routers/r")
    world.advance_ms(1)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    acked = world.ask("POST", f"/v0/topics/{queue}/ack", {"node": "n", "seqs": [2]})
    assert acked.answer().status in (200, 500)
    assert gone.answer().status == 500
    world.heal_storage()
    monkeypatch.setitem(LATENCY_NS, "sync", 100_000)
    world.advance_ms(2500)
    world.delete(dest, before_seq=2)
    world.advance_ms(500)
    assert world.data(dest) == [2]
    world.close()


def test_a_job_leased_while_an_ack_waits_for_the_router_is_not_acknowledged_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-RTR-18. A late ack of an earlier lease of that node, say; nothing was kept for the router."""
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    world.put("q", type="queue")
    world.put("d", discard="reject", cap_records=1)
    route(world, "q", "d")
    world.put("q2", type="queue")
    world.write("q2", 0)
    world.request("POST", "/v0/topics/q2/claim", {"node": "n"})
    for kind in ("write", "sync"):
        monkeypatch.setitem(LATENCY_NS, kind, 30 * _MS)
    assert world.request("POST", "/v0/topics/q", {"records": [{"data": 1}, {"data": 2}]}).status == 200
    world.ask("GET", "/v0/routers/r")  # drives the router: its step is on its way
    world.advance_ms(2)
    acked = world.ask("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [2]})
    world.advance_ms(2)
    claimed = world.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 2})
    world.advance_ms(200)
    assert claimed.answer().json["count"] == 2
    assert acked.answer().json["skipped"] == [2]
    monkeypatch.undo()
    world.delete("d", before_seq=2)
    world.advance_ms(500)
    assert world.data("d") == [2]
    assert world.data("q") == [1, 2]
    world.close()


def test_on_a_full_disk_jobs_before_a_router_are_acknowledged_and_forwarded_when_there_is_room() -> None:
    """R-DUR-16, R-RTR-18. The router cannot continue, so it keeps them, in the reserve; up to half of it."""
    world = SimWorld(disk_reserve_bytes=64 * 1024)
    world.start()
    world.put("q", type="queue")
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    route(world, "q", "d")
    jobs = ["x" * 16_000, "y" * 16_000]
    world.write("q", *jobs)
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 2}).json["count"] == 2
    world.fill_disk()
    assert world.request("POST", "/v0/topics/q", {"records": [{"data": "z" * 200_000}] * 20}).status == 500
    ack = partial(world.request, "POST", "/v0/topics/q/ack")
    assert ack({"node": "n", "seqs": [1]}).json["acked"] == 1
    assert ack({"node": "n", "seqs": [2]}).json["error"]["detail"]["reason"] == "disk_full"
    assert world.data("q") == [jobs[1]]
    world.free_disk()
    world.advance_ms(3000)
    world.put("d")
    world.advance_ms(500)
    assert world.data("d") == ["full", *jobs]
    world.close()


def test_an_acknowledged_job_is_forwarded_though_a_cap_has_taken_later_ones() -> None:
    """R-RTR-18, R-TRIM-1. What the cap took is lost, what was acknowledged is kept."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", cap_records=2)
    world.put("d", discard="reject", cap_records=1)
    route(world, "q", "d")
    world.write("q", 1)
    world.advance_ms(500)
    world.write("q", 2, 3)
    assert world.data("d") == [1]
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 2}).json["count"] == 2
    world.write("q", 4)
    assert world.request("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [3]}).json["acked"] == 1
    world.write("q", 5, 6)
    assert world.data("q") == [5, 6]
    world.crash_and_start()
    world.put("d")
    world.advance_ms(500)
    assert world.data("d") == [1, 3, 5, 6]
    assert world.request("GET", "/v0/routers/r").json["forwarded_total"] == 6
    world.close()


@pytest.mark.parametrize("how", ["at once", "killed", "killed twice", "stopped"])
def test_a_deleted_record_is_not_forwarded_though_it_was_kept_for_an_ack_that_came_too_late(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-DEL-9. Its frame is kept before the ack is staged, and the lease ran out meanwhile."""
    world = SimWorld(wal_shards=2)
    world.start()
    (queue, *_), (dest, *_) = topics_by_shard(world, type="queue", lease_ms=100)
    world.put(dest, type="queue", discard="reject", cap_records=1)
    route(world, queue, dest)
    world.write(queue, 1, 2, 3)
    assert world.data(dest) == [1]
    assert world.request("POST", f"/v0/topics/{queue}/claim", {"node": "n", "max": 3}).json["count"] == 3
    assert world.request("POST", f"/v0/topics/{queue}/ack", {"node": "n", "seqs": [3]}).json["acked"] == 1
    world.advance_ms(90)
    monkeypatch.setitem(LATENCY_NS, "sync", 30 * _MS)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    assert world.request("POST", f"/v0/topics/{queue}/ack", {"node": "n", "seqs": [2]}).json["skipped"] == [2]
    monkeypatch.undo()
    if how == "killed twice":
        world.crash_and_start()
    world.delete(queue, before_seq=10)
    if how == "stopped":
        world.restart()
    elif how != "at once":
        world.crash_and_start()
    world.delete(dest, before_seq=2)
    world.advance_ms(500)
    assert world.data(dest) == [3]
    world.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_deleted_job_that_was_kept_is_not_forwarded_by_an_ack_that_names_it_beside_others(
    killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-DEL-9, R-DEL-10. Its lease may still be answered for; its frame was kept for an ack that came too late."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", lease_ms=100)
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    route(world, "q", "d")
    world.write_records("q", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 3}).json["count"] == 3
    world.advance_ms(90)
    monkeypatch.setitem(LATENCY_NS, "sync", 30 * _MS)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    assert world.request("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [2]}).json["skipped"] == [2]
    monkeypatch.undo()
    claimed = world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 3, "lease_ms": 60_000})
    assert claimed.json["count"] == 3
    world.delete("q", match="gone")
    assert world.request("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [2, 3]}).json["acked"] == 2
    if killed:
        world.crash_and_start()
    world.put("d")
    world.advance_ms(500)
    assert world.data("d") == ["full", 1, 3]
    world.close()


def test_jobs_acked_while_their_router_was_blocked_are_forwarded_after_a_power_cut() -> None:
    """R-RTR-18: the frames that a router keeps are synced before the acks that consume the jobs, in whatever shard."""
    for seed in range(6):
        world = SimWorld(seed, wal_shards=4, sync_every_ms=60_000)
        world.start()
        queues = [Queue(world, f"jobs{number}", durability="fsync") for number in range(6)]
        for number in range(6):
            world.put(f"full{number}", cap_records=1, discard="reject", durability="disk")
            world.write(f"full{number}", "before")
            router = {"source": f"jobs{number}", "dest": f"full{number}"}
            assert world.request("PUT", f"/v0/routers/r{number}", router).status == 201
        for queue in queues:
            queue.put("job")
            queue.claim()
            queue.ack(1)
        world.power_cut()
        world.start()
        for number in range(6):
            world.delete(f"full{number}", before_seq=2)
            assert world.data(f"full{number}") == ["job"], (seed, number)
        world.close()


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
