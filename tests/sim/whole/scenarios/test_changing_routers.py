"""Routers that are made, changed and deleted, also while the log fails."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim.whole.scenarios.routed import route, routers, topics_by_shard
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_MS = 1_000_000


def test_a_deleted_router_stays_deleted_when_the_log_of_its_source_outlasts_that_of_its_destination() -> None:
    """R-RTR-11, R-DUR-13. A checkpoint on a full disk empties only one shard of the log."""
    world = SimWorld(
        wal_shards=2, checkpoint_wal_bytes=1 << 30, checkpoint_every_ms=1 << 40, disk_low_water_bytes=200_000
    )
    world.start()
    (source, *_), (dest, big, *_) = topics_by_shard(world, durability="disk")
    route(world, source, dest)
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
    assert routers(world) == []
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
    (source, beside_source), (dest, beside_dest) = (names[:2] for names in topics_by_shard(world))
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
    assert len(routers(world)) == 1
    world.write(source, 1, 2, 3)
    assert world.data(dest) == [1, 2, 3]
    for _ in range(2):
        world.crash_and_start()
        world.advance_ms(500)
        assert world.data(dest) == [1, 2, 3]
    world.close()


def test_a_router_whose_making_failed_is_not_there_after_a_restart_either() -> None:
    """R-DUR-13. It is written to two shards of the log, of which one failed."""
    world = SimWorld(wal_shards=2)
    world.start()
    (source, *_), (dest, *_) = topics_by_shard(world)
    for shard in (0, 1):
        world.fail_storage("write", errno.ENOSPC, path_part=f"/shard-0{shard}/")
        assert world.request("PUT", "/v0/routers/r", {"source": source, "dest": dest}).status == 500
        world.heal_storage()
        world.advance_ms(5000)
        assert routers(world) == []
        world.write(source, "never routed")
        world.crash_and_start()
        world.advance_ms(500)
        assert routers(world) == []
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
    """R-RTR-5. What was written meanwhile comes without another write or request."""
    world = SimWorld(wal_shards=2)
    world.start()
    (source, *_), (dest, *_) = topics_by_shard(world)
    route(world, source, dest)
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


@pytest.mark.parametrize("shards", [1, 2])
def test_routers_that_are_gone_are_forgotten_with_the_log_that_told_of_them(shards: int) -> None:
    """Programs that make topics and a router for each session: each snapshot named all there had ever been."""
    world = SimWorld(wal_shards=shards, checkpoint_wal_bytes=1)
    world.start()
    assert world.server is not None
    assert world.server.engine is not None
    engine: Any = world.server.engine
    gone = engine._core.routers
    for session in range(12):
        route(world, f"s{session}", f"d{session}")
        world.write(f"s{session}", session)
        assert world.data(f"d{session}") == [session]
        assert world.drop(f"s{session}")["routers_removed"] == ["r"]
        world.advance_ms(1500)
        assert len(gone.gone) <= 4
    world.crash_and_start()
    assert [world.data(f"d{session}") for session in range(12)] == [[session] for session in range(12)]
    world.close()


@pytest.mark.parametrize("wanted", ["t", None])
def test_a_step_that_reads_while_a_change_is_acknowledged_goes_by_the_new_settings(
    wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-8. After the answer nothing is forwarded, or left out, by the filter of before."""
    world = SimWorld(hot_tail_bytes=4096)
    world.start()
    world.put("s")
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    route(world, "s", "d", filter=None if wanted else "t")
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
    """R-RTR-8. It would be applied after the answer."""
    world = SimWorld(commit_in_place_max_us=0, router_delay_ms=20)
    world.start()
    route(world, "s", "d", filter=None if wanted else "t")
    world.write_records("s", [{"data": at, "tag": tag} for at, tag in enumerate("tut", 1)])
    monkeypatch.setitem(LATENCY_NS, "write", 40 * _MS)
    changed = world.ask("PUT", "/v0/routers/r", {"source": "s", "dest": "d", "filter": wanted})
    assert changed.answer().status == 200
    monkeypatch.undo()
    world.advance_ms(500)
    assert world.data("d") == ([1, 3] if wanted else [1, 2, 3])
    world.close()
