"""A log that failed refuses what it cannot promise, and the next start knows of the failure."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_the_config_of_before_is_not_acknowledged_by_itself_after_a_change_that_failed() -> None:
    """R-DUR-1, R-DUR-16: the failed change may be found after a restart, so this one has to be written, too."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.fail_storage("sync", errno.EIO)
    assert world.request("PUT", "/v0/topics/a", {"durability": "disk"}).status == 500
    assert world.request("PUT", "/v0/topics/a", {"durability": "fsync"}).status == 500


def test_a_sync_that_fails_while_the_server_stops_is_noted_like_any_other() -> None:
    """R-DUR-6: the seqs of what it lost are reported as lost, and are not given out again."""
    world = SimWorld(commit="link")
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1)
    world.advance_ms(2000)
    assert world.write("a", 2, 3)["last_seq"] == 3
    world.fail_storage("sync", errno.EIO, path_part="/wal-")
    world.begin_stop()
    world.finish_stop()
    assert world.ring.faults.struck["sync"] == 1
    world.heal_storage()
    world.start()
    assert world.write("a", 4)["first_seq"] > 3
    assert world.diff("a", 1)["tombstone"]["reason"] == "crash"


def test_a_put_that_changes_nothing_is_refused_by_a_log_that_failed() -> None:
    """R-DUR-16: the deletion that failed with the log may be found after a restart."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.fail_storage("sync", errno.EIO)
    assert world.request("DELETE", "/v0/topics/a").status == 500
    world.heal_storage()
    answer = world.request("PUT", "/v0/topics/a", {"durability": "fsync"})
    assert (answer.status, answer.json["error"]["detail"]) == (500, {"reason": "read_only"})


def test_a_deletion_of_what_was_not_made_is_refused_by_a_log_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-DUR-16. The creation was on its way when another shard failed, and is found after a restart."""
    world = SimWorld(wal_shards=2, commit_in_place_max_us=0, commit="link")
    world.start()
    for name in "abcd":
        world.put(name)
    assert world.server is not None
    assert world.server.engine is not None
    engine: Any = world.server.engine
    core = engine._core
    shard_of: Callable[[int], int] = core.log.shard_of
    coming = shard_of(core.registry.last_id + 1)
    other = next(name for name in "abcd" if shard_of(core.registry.by_name[name].id) != coming)
    monkeypatch.setitem(LATENCY_NS, "write", 5_000_000)
    monkeypatch.setitem(LATENCY_NS, "sync", 5_000_000)
    world.fail_storage("write", errno.EIO, path_part=f"/shard-0{1 - coming}/")
    failed = world.ask("PUT", f"/v0/topics/{other}", {"priority": 1})
    world.advance_ms(3)
    made = world.ask("PUT", "/v0/topics/new", {})
    assert (failed.answer().status, made.answer().status) == (500, 500)
    world.heal_storage()
    for path in ("/v0/topics/new", "/v0/routers/new"):
        answer = world.request("DELETE", path)
        assert (answer.status, answer.json["error"]["detail"]) == (500, {"reason": "read_only"})
    world.crash_and_start()
    assert world.drop("new")["deleted"]
