"""What was found around routers, each as the scenario it is."""

from __future__ import annotations

import errno
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import tombstone
from tests.sim.world.ring_core import LATENCY_NS
from topics.engine.index.index import Index
from topics.engine.routers import forward_steps
from topics.engine.routers.copies import copies_of
from topics.engine.routers.evidence import Evidence
from topics.engine.state.hops import Hops
from topics.store.recovery.log_replay import ShardReplay

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_MS = 1_000_000


def _route(world: SimWorld, source: str, dest: str, name: str = "r", **fields: Any) -> None:
    answer = world.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields})
    assert answer.status == 201, answer.text


def _routers(world: SimWorld) -> list[Any]:
    found: list[Any] = world.request("GET", "/v0/routers").json["routers"]
    return found


def _topics_by_shard(world: SimWorld, **config: Any) -> tuple[list[str], list[str]]:
    """Eight new topics, as two shards have them: at least two each."""
    assert world.server is not None
    assert world.server.engine is not None
    core = world.server.engine._core
    shards: tuple[list[str], list[str]] = ([], [])
    for name in "abcdefgh":
        world.put(name, **config)
        shards[core.log.shard_of(core.registry.by_name[name].id)].append(name)  # type: ignore[attr-defined]
    assert min(map(len, shards)) >= 2
    return shards


# --- copies by position ----------------------------------------------------------------------------------------------
def test_copies_of_records_on_their_way_when_the_router_was_made_survive_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-RTR-16, R-DUR-3. Their frames lie before the router's, perhaps in a piece of the log that was read before."""
    monkeypatch.setitem(ShardReplay.__init__.__kwdefaults__, "chunk_bytes", 32768)  # type: ignore[arg-type]
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    for name in "sdo":
        world.put(name)
    world.write("o", 0)
    world.write("s", 0)
    world.advance_ms(100)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    body = {"records": [{"data": "x" * 5000}] * 4}
    early = world.ask("POST", "/v0/topics/s", body)
    world.advance_ms(2)
    world.ask("POST", "/v0/topics/o", body)
    world.advance_ms(1)
    made = world.ask("PUT", "/v0/routers/r", {"source": "s", "dest": "d"})
    assert (early.answer().status, made.answer().status) == (200, 201)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    assert len(world.data("d")) == 4
    world.crash_and_start()
    assert len(world.data("d")) == 4
    world.close()


def test_a_direct_write_goes_with_the_copy_behind_it_though_its_original_lies_in_an_older_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DUR-2, R-RTR-16: a checkpoint empties the original's file, and a start skips what is below the copy's seq."""
    world = SimWorld(wal_shards=2, checkpoint_wal_bytes=1, commit_in_place_max_us=0)
    world.start()
    (source, *_), (dest, *_) = _topics_by_shard(world)
    _route(world, source, dest)
    world.write(source, 0)
    world.write(dest, 0)
    world.advance_to_ms(world.now_ms() + 900 - world.now_ms() % 1000)
    monkeypatch.setitem(LATENCY_NS, "write", 150 * _MS)
    asked = [world.ask("POST", f"/v0/topics/{dest}", {"records": [{"data": 1}]})]
    world.advance_ms(1)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    asked += [world.ask("POST", f"/v0/topics/{dest}", {"records": [{"data": 2}]})]  # waits for the write on its way
    world.advance_ms(1)
    asked += [world.ask("POST", f"/v0/topics/{source}", {"records": [{"data": 3}]})]  # its copy does, too
    world.advance_ms(200)  # the checkpoint's cut sends both to the next file
    assert [each.answer().status for each in asked] == [200] * 3
    assert world.data(dest)[-3:] == [1, 2, 3]
    world.crash_and_start()
    assert world.data(dest)[-3:] == [1, 2, 3]
    world.close()


def _lose_originals(caps: dict[str, Any], seed: int, chained: bool) -> tuple[SimWorld, str]:
    """A world after a power cut, and the topic whose seqs 4 and 5 were copies of records that it took."""
    world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, commit="link")
    world.start()
    (source, *_), (dest, last, *_) = _topics_by_shard(world, durability="disk")
    world.put(dest, durability="fsync", **({} if chained else caps))
    world.put(last, durability="fsync", **caps)
    _route(world, source, dest)
    if chained:
        _route(world, dest, last, "r2")
        dest = last
    world.write(source, "0")
    world.advance_ms(100)
    world.write(dest, "d1", "d2")
    assert world.data(dest) == ["d1", "d2"]
    world.write(source, "12", "2")
    page = world.diff(dest)
    assert page["tombstone"] == tombstone(1, 3, "cap", 5)
    assert [record["data"] for record in page["records"]] == ["12", "2"]
    world.power_cut()
    world.start()
    return world, dest


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("caps", [{"cap_records": 2}, {"cap_bytes": 8}])
def test_copies_whose_originals_a_power_cut_took_are_told_and_what_they_evicted_stays_so(
    caps: dict[str, Any], chained: bool
) -> None:
    """R-RTR-16, R-FLOOR-2, R-FLOOR-5, R-DUR-8. Also in a restart later, and where copies were copied again."""
    lost = 0
    for seed in range(1, 6):
        world, dest = _lose_originals(caps, seed, chained)
        for _ in range(2):
            page = world.diff(dest)
            assert page["head_seq"] == 5
            if page["records"]:  # written back in time, that is
                assert [record["data"] for record in page["records"]] == ["12", "2"]
                assert page["tombstone"] == tombstone(1, 3, "cap", 5)
            else:
                lost += 1
                assert page["tombstone"] == tombstone(1, 5, "cap", 5, 6)
                assert world.diff(dest, 3)["tombstone"] == tombstone(4, 5, "crash", 5, 6)
            world.crash_and_start()
        world.write(dest, "later")
        assert world.data(dest)[-1] == "later"
        world.close()
    assert lost


# --- routers that come and go ----------------------------------------------------------------------------------------
def test_a_deleted_router_stays_deleted_when_the_log_of_its_source_outlasts_that_of_its_destination() -> None:
    """R-RTR-11, R-DUR-13. A checkpoint on a full disk empties one shard of the log alone."""
    world = SimWorld(
        wal_shards=2, checkpoint_wal_bytes=1 << 30, checkpoint_every_ms=1 << 40, disk_low_water_bytes=200_000
    )
    world.start()
    (source, *_), (dest, big, *_) = _topics_by_shard(world, durability="disk")
    _route(world, source, dest)
    assert world.request("DELETE", "/v0/routers/r").json["deleted"]
    for name in (source, big):
        for _ in range(8):
            world.write(name, "x" * 40_000)
    world.delete(big, before_seq=100)
    world.advance_ms(1500)
    disk = world.ring.disk
    disk.capacity_bytes = disk.used_bytes + 100_000
    world.advance_ms(4000)
    disk.capacity_bytes = None
    world.crash()
    emptied, lasting = (f"/srv/topics/wal/shard-0{shard}" for shard in (1, 0))
    first = "wal-0000000000000001.log"
    assert first in world.ring.disk.list_directory(lasting), "the scenario is another by now"
    assert first not in world.ring.disk.list_directory(emptied), "the scenario is another by now"
    world.start()
    assert _routers(world) == []
    world.advance_ms(500)
    assert world.data(dest) == []
    world.close()


@pytest.mark.parametrize("told_by", ["source", "dest"])
def test_a_router_that_one_shard_tells_of_copies_once_and_for_good(
    told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-16. A kill came between its two frames: a replay met what it had forwarded before it met the router."""
    world = SimWorld(wal_shards=2, commit_in_place_max_us=0)
    world.start()
    (source, beside_source), (dest, beside_dest) = (names[:2] for names in _topics_by_shard(world))
    late = beside_dest if told_by == "source" else beside_source
    world.write(late, 0)
    world.advance_ms(200)
    monkeypatch.setitem(LATENCY_NS, "write", 20 * _MS)
    world.ask("POST", f"/v0/topics/{late}", {"records": [{"data": 1}]})
    world.advance_ms(1)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    made = world.ask("PUT", "/v0/routers/r", {"source": source, "dest": dest})
    world.advance_ms(5)
    assert made.nothing_came
    world.crash_and_start()
    assert len(_routers(world)) == 1
    world.write(source, 1, 2, 3)
    assert world.data(dest) == [1, 2, 3]
    for _ in range(2):
        world.crash_and_start()
        world.advance_ms(500)
        assert world.data(dest) == [1, 2, 3]
    world.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_later_cap_of_bytes_counts_copies_whose_originals_a_power_cut_took(seed: int) -> None:
    """R-DUR-8, R-FLOOR-5. What they evicted stays so: their sizes are told though no cap counted them at the time."""
    world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, commit="link")
    world.start()
    (source, *_), (dest, *_) = _topics_by_shard(world)
    world.put(dest, durability="fsync")
    world.write(dest, "a" * 10, "b" * 10)
    _route(world, source, dest)
    world.write(source, "x" * 10)
    assert len(world.data(dest)) == 3
    world.write(source, "y" * 10, "z" * 20)
    assert len(world.data(dest)) == 5
    world.put(dest, durability="fsync", cap_bytes=56)
    told = world.diff(dest)["tombstone"]
    assert (told["reason"], told["gap_to"]) == ("cap", 2)
    world.power_cut()
    world.start()
    again = world.diff(dest)["tombstone"]
    assert (again["reason"], again["gap_to"]) == ("cap", 2) or again["gap_to"] == 5
    world.close()


def test_a_router_whose_making_failed_is_not_there_after_a_restart_either() -> None:
    """R-DUR-13. It is written to two shards of the log, of which one failed."""
    world = SimWorld(wal_shards=2)
    world.start()
    (source, *_), (dest, *_) = _topics_by_shard(world)
    for shard in (0, 1):
        world.fail_storage("write", errno.ENOSPC, path_part=f"/shard-0{shard}/")
        assert world.request("PUT", "/v0/routers/r", {"source": source, "dest": dest}).status == 500
        world.heal_storage()
        world.advance_ms(5000)
        assert _routers(world) == []
        world.write(source, "never routed")
        world.crash_and_start()
        world.advance_ms(500)
        assert _routers(world) == []
        assert world.data(dest) == []
    world.close()


def test_a_router_whose_deletion_failed_while_it_was_made_is_there_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-RTR-4, R-DUR-13."""
    world = SimWorld()
    world.start()
    world.put("s")
    world.put("d")
    monkeypatch.setitem(LATENCY_NS, "sync", 20 * _MS)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    made = world.ask("PUT", "/v0/routers/r", {"source": "s", "dest": "d"})
    world.advance_ms(1)
    gone = world.ask("DELETE", "/v0/routers/r")
    world.advance_ms(1)
    world.fail_storage("write", errno.ENOSPC, nth=2)
    assert (made.answer().status, gone.answer().status) == (201, 500)
    world.heal_storage()
    world.advance_ms(3000)
    assert world.request("GET", "/v0/routers/r").status == 200
    world.write("s", 1)
    assert world.data("d") == [1]
    world.close()


@pytest.mark.parametrize("what", ["topic", "router"])
def test_a_deletion_that_fails_leaves_routers_that_forward(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-RTR-5. What was written meanwhile comes without anybody writing or asking again."""
    world = SimWorld(wal_shards=2)
    world.start()
    (source, *_), (dest, *_) = _topics_by_shard(world)
    _route(world, source, dest)
    world.write(source, 0)
    assert world.data(dest) == [0]
    reader = world.ask("POST", f"/v0/topics/{dest}/diff", {"from_seq": 1, "wait_ms": 3000})
    world.advance_ms(50)
    monkeypatch.setitem(LATENCY_NS, "sync", 20 * _MS)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    world.fail_storage("write", errno.ENOSPC, path_part="/shard-01/")
    gone = world.ask("DELETE", f"/v0/topics/{dest}" if what == "topic" else "/v0/routers/r")
    world.advance_ms(1)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    written = world.ask("POST", f"/v0/topics/{source}", {"records": [{"data": 1}]})
    assert (written.answer().status, gone.nothing_came) == (200, True)
    assert gone.answer().status == 500
    world.heal_storage()
    monkeypatch.setitem(LATENCY_NS, "sync", 100_000)
    assert [record["data"] for record in reader.answer().json["records"]] == [1]
    world.close()


# --- jobs ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["topic", "router"])
def test_a_job_acknowledged_during_a_deletion_that_fails_is_forwarded(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-18. The deletion of its router, or of that one's destination."""
    world = SimWorld(wal_shards=2, commit_in_place_max_us=0)
    world.start()
    (queue, *_), (dest, other, *_) = _topics_by_shard(world, type="queue", discard="reject")
    world.put(dest, type="queue", discard="reject", cap_records=1)
    _route(world, queue, dest)
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
    _route(world, "q", "d")
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
    """R-DUR-16, R-RTR-18. The router cannot go on, so it keeps them, in the reserve; up to half of it."""
    world = SimWorld(disk_reserve_bytes=64 * 1024)
    world.start()
    world.put("q", type="queue")
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    _route(world, "q", "d")
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
    _route(world, "q", "d")
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
    (queue, *_), (dest, *_) = _topics_by_shard(world, type="queue", lease_ms=100)
    world.put(dest, type="queue", discard="reject", cap_records=1)
    _route(world, queue, dest)
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
    _route(world, "q", "d")
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


@pytest.mark.parametrize("shards", [1, 2])
def test_routers_that_are_gone_are_forgotten_with_the_log_that_told_of_them(shards: int) -> None:
    """Programs that make topics and a router for each session: each snapshot named all there had ever been."""
    world = SimWorld(wal_shards=shards, checkpoint_wal_bytes=1)
    world.start()
    assert world.server is not None
    assert world.server.engine is not None
    gone = world.server.engine._core.routers
    for session in range(12):
        _route(world, f"s{session}", f"d{session}")
        world.write(f"s{session}", session)
        assert world.data(f"d{session}") == [session]
        assert world.drop(f"s{session}")["routers_removed"] == ["r"]
        world.advance_ms(1500)
        assert len(gone.gone) <= 4
    world.crash_and_start()
    assert [world.data(f"d{session}") for session in range(12)] == [[session] for session in range(12)]
    world.close()


# --- seqs of a former life -------------------------------------------------------------------------------------------
def test_what_comes_into_an_ephemeral_source_after_a_kill_is_forwarded_whatever_its_class_becomes() -> None:
    """R-RTR-1. The router's position is of the life before: seqs up to there are not given out again."""
    world = SimWorld()
    world.start()
    world.put("s", durability="ephemeral")
    world.put("d", durability="disk")
    _route(world, "s", "d")
    world.write("s", 1, 2, 3, 4, 5)
    assert world.data("d") == [1, 2, 3, 4, 5]
    world.crash_and_start()
    world.put("s", durability="disk")
    world.write("s", "a", "b", "c")
    world.crash_and_start()
    assert world.data("s") == ["a", "b", "c"]
    assert world.data("d") == [1, 2, 3, 4, 5, "a", "b", "c"]
    world.close()


@pytest.mark.parametrize("seed", range(6))
def test_what_comes_into_a_source_after_a_power_cut_is_forwarded_whatever_the_router_had_seen(seed: int) -> None:
    """R-RTR-1, R-RTR-16. Class `memory`, and a kill before the router has come that far again."""
    world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, commit="link")
    world.start()
    (source, *_), (dest, *_) = _topics_by_shard(world, durability="memory")
    world.put(dest, durability="fsync")
    _route(world, source, dest)
    world.write(source, 1, 2, 3, 4, 5)
    assert world.data(dest) == [1, 2, 3, 4, 5]
    world.power_cut()
    world.start()
    world.write(source, "a", "b", "c")
    world.crash_and_start()
    world.advance_ms(500)
    assert world.data(source)[-3:] == ["a", "b", "c"]
    assert world.data(dest) == [1, 2, 3, 4, 5, "a", "b", "c"]
    world.close()


def test_frames_kept_of_an_ephemeral_queue_do_not_take_the_place_of_what_comes_after_a_kill() -> None:
    """R-RTR-1, R-RTR-18."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", durability="ephemeral")
    world.put("d", discard="reject", cap_records=1)
    _route(world, "q", "d")
    world.write("q", 1, 2, 3)
    assert world.data("d") == [1]
    world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 3})
    assert world.request("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [2, 3]}).json["acked"] == 2
    world.crash_and_start()
    last = world.write("q", "gone")["last_seq"]
    world.delete("q", before_seq=last + 1)
    world.put("d")
    world.advance_ms(500)
    assert world.data("d") == [1, 2, 3]
    world.write("q", "new 2", "new 3", "new 4")
    assert world.data("d") == [1, 2, 3, "new 2", "new 3", "new 4"]
    world.close()


def test_what_is_written_to_ephemeral_mirrors_after_a_kill_has_no_hops_of_what_was_there_before() -> None:
    """R-RTR-12."""
    world = SimWorld()
    world.start()
    for name in "ab":
        world.put(name, durability="ephemeral")
    _route(world, "a", "b", "ab", allow_cycle=True)
    _route(world, "b", "a", "ba", allow_cycle=True)
    world.write("a", "x")
    world.advance_ms(1000)
    world.crash_and_start()
    world.write("a", *range(5))
    world.advance_ms(2000)
    assert Counter(world.data("a")) == dict.fromkeys(range(5), 5)
    assert Counter(world.data("b")) == dict.fromkeys(range(5), 4)
    world.close()


# --- when they forward -----------------------------------------------------------------------------------------------
def test_a_stop_drives_a_chain_to_its_end_on_a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-LIFE-7. What comes into the second router's source while it is driven goes on, too."""
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    for name, durability in (("a", "disk"), ("b", "ephemeral"), ("c", "disk"), ("d", "ephemeral"), ("e", "disk")):
        world.put(name, durability=durability)
    for source, dest in ("de", "cd", "bc", "ab"):
        _route(world, source, dest, source + dest)
    world.advance_ms(200)
    monkeypatch.setitem(LATENCY_NS, "write", 300 * _MS)
    assert world.request("POST", "/v0/topics/a", {"records": [{"data": 1}]}).status == 200
    assert world.stop() == 0
    monkeypatch.undo()
    world.start()
    assert [world.data(name) for name in "abcde"] == [[1], [], [1], [], [1]]
    world.close()


def test_records_that_expired_unread_do_not_hold_a_router_under_the_quota() -> None:
    """R-RTR-13, R-TTL-3. Nobody asks for the topic they are in."""
    world = SimWorld(max_total_bytes=100)
    world.start()
    world.put("x", ttl_ms=500)
    world.put("s")
    world.put("d")
    _route(world, "s", "d")
    world.write("x", "x" * 78)
    world.write("s", "0123456789")
    assert world.data("d") == []
    world.advance_ms(5000)
    assert world.data("d") == ["0123456789"]
    world.close()


def test_a_loss_goes_down_a_chain_by_itself_and_wakes_who_waits_at_its_end() -> None:
    """R-RTR-5, R-TRIM-1, 7.6. A step that brings nothing but holes brings something to forward, too."""
    world = SimWorld()
    world.start()
    world.put("s", ttl_ms=1000)
    world.put("a", discard="reject", cap_bytes=10)
    world.put("b")
    _route(world, "s", "a", "sa")
    _route(world, "a", "b", "ab")
    poll = world.ask("POST", "/v0/topics/b/diff", {"wait_ms": 30_000})
    world.write("s", "x" * 50, "y" * 50)
    assert poll.waiting
    world.advance_ms(2000)
    assert [router["forwarded_total"] for router in _routers(world)] == [2, 2]
    assert poll.answer(within_ms=100).json["tombstone"] == tombstone(1, 2, "source_trim", 2)
    world.close()


@pytest.mark.parametrize("wanted", ["t", None])
def test_a_step_that_reads_while_a_change_is_acknowledged_goes_by_the_new_settings(
    wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-8. Behind the answer nothing is forwarded, or left out, by the filter of before."""
    world = SimWorld(hot_tail_bytes=4096)
    world.start()
    world.put("s")
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    _route(world, "s", "d", filter=None if wanted else "t")
    world.write_records("s", [{"data": at, "tag": tag} for at, tag in enumerate("tut", 1)])
    world.restart()  # nothing is in memory any more, and the file of the records is not written to
    world.put("d")
    monkeypatch.setitem(LATENCY_NS, "read", 200 * _MS)
    world.advance_ms(150)
    assert world.request("PUT", "/v0/routers/r", {"source": "s", "dest": "d", "filter": wanted}).status == 200
    monkeypatch.undo()
    world.advance_ms(500)
    assert world.data("d") == (["full", 1, 3] if wanted else ["full", 1, 2, 3])
    world.close()


@pytest.mark.parametrize("wanted", ["t", None])
def test_a_step_planned_while_a_change_is_written_goes_by_the_new_settings(
    wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-8. It would be applied behind the answer."""
    world = SimWorld(commit_in_place_max_us=0, router_delay_ms=20)
    world.start()
    _route(world, "s", "d", filter=None if wanted else "t")
    world.write_records("s", [{"data": at, "tag": tag} for at, tag in enumerate("tut", 1)])
    monkeypatch.setitem(LATENCY_NS, "write", 40 * _MS)
    changed = world.ask("PUT", "/v0/routers/r", {"source": "s", "dest": "d", "filter": wanted})
    assert changed.answer().status == 200
    monkeypatch.undo()
    world.advance_ms(500)
    assert world.data("d") == ([1, 3] if wanted else [1, 2, 3])
    world.close()


@pytest.mark.parametrize("acked", [False, True])
def test_a_router_without_room_neither_reads_nor_copies_again_and_again(
    acked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-13. It is tried ten times a second, at each read of its destination and at each ack in its source."""
    made: list[int] = []
    monkeypatch.setattr(forward_steps, "copies_of", lambda *given: (made.append(1), copies_of(*given))[1])
    world = SimWorld()
    world.start()
    world.put("s", type="queue")
    world.put("d", discard="reject", cap_bytes=10)
    _route(world, "s", "d", guarantee="exactly_once")
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
    _route(world, "s", "d", guarantee="exactly_once")
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
    monkeypatch.setattr(Index, "alive", lambda self, seqs: (looked_at.append(len(seqs)), alive(self, seqs))[1])
    made: list[int] = []
    monkeypatch.setattr(
        forward_steps, "copies_of", lambda *given: (made.append(len(given[1][0][2].seqs)), copies_of(*given))[1]
    )
    world = SimWorld()
    world.start()
    world.put("s", type="queue")
    world.put("d", discard="reject", cap_records=1)
    _route(world, "s", "d")
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
    monkeypatch.setattr(Hops, "forget", lambda self, upto: (forgotten.append(upto), forget(self, upto))[1])
    world = SimWorld()
    world.start()
    _route(world, "s", "a", "sa")
    for number in range(30):
        _route(world, "a", f"d{number}", f"r{number}")
    world.write("s", 1)
    world.advance_ms(1000)
    assert [router["forwarded_total"] for router in _routers(world)] == [1] * 31
    assert len(forgotten) <= 2
    world.close()


def test_a_loss_goes_round_in_a_mirror_no_further_than_records_do() -> None:
    """R-TRIM-1, R-RTR-12. Each side told the other, for ever, of what the other had told it: 20 steps a second."""
    world = SimWorld()
    world.start()
    world.put("a", ttl_ms=1000)
    world.put("b", discard="reject", cap_bytes=10)
    _route(world, "a", "b", "ab", allow_cycle=True)
    _route(world, "b", "a", "ba", allow_cycle=True)
    world.write("a", "x" * 50, "y" * 50)
    for _ in range(2):
        world.advance_ms(10_000)
        assert [world.diff(name)["head_seq"] for name in "ab"] == [10, 10]
        assert [router["forwarded_total"] for router in _routers(world)] == [10, 8]
    world.crash_and_start()
    world.advance_ms(10_000)
    assert [world.diff(name)["head_seq"] for name in "ab"] == [10, 10]
    world.close()
