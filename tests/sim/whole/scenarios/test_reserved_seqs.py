"""Seqs that were given out once are not given out again, for whatever reason their records are gone."""

from __future__ import annotations

import contextlib
import errno

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_seqs_that_a_router_has_copied_are_not_given_out_again_after_a_failed_sync_without_a_note() -> None:
    """R-SEQ-4, R-RTR-2: the router would take the new records for those it had copied."""
    world = SimWorld(wal_shards=2, commit="link")
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="disk")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b", "guarantee": "exactly_once"})
    world.write("a", 1)
    world.advance_ms(2000)
    world.write("a", 2, 3)
    assert world.data("b") == [1, 2, 3]
    world.fail_storage("sync", errno.EIO, path_part="/shard-00/")
    while not world.ring.faults.struck["sync"]:
        world.ring.stop_at(world.ring.effects + 1)
        with contextlib.suppress(SimStoppedError):
            world.advance_ms(1000)
    world.crash_and_start()
    assert world.write("a", 4)["first_seq"] == 4
    for _ in range(2):
        page = world.diff("a", 1)
        assert [page["tombstone"][name] for name in ("gap_from", "gap_to", "reason")] == [2, 3, "crash"]
        world.crash_and_start()
    assert world.data("b") == [1, 2, 3, 4]


@pytest.mark.parametrize("between", ["memory", "ephemeral", "fsync"])
@pytest.mark.parametrize("seed", range(1, 3))
def test_a_class_that_leaves_disk_and_is_back_before_it_was_another_reserves_seqs_anew(seed: int, between: str) -> None:
    """R-SEQ-4, R-DUR-6. The change released the reservations there were."""
    world = SimWorld(seed, sync_every_ms=60_000, commit="link")
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1)
    asked = [world.ask("PUT", "/v0/topics/a", {"durability": durability}) for durability in (between, "disk")]
    assert [connection.answer().status for connection in asked] == [200, 200]
    for at in range(2, 6):
        world.write("a", at)
    world.power_cut()
    world.start()
    assert world.state("a")["head_seq"] >= 5


def test_a_reservation_that_found_no_space_is_made_again_by_the_next_write() -> None:
    """R-DUR-6."""
    for seed in range(8):
        world = SimWorld(seed, sync_every_ms=60_000)
        world.start()
        world.put("a", durability="disk")
        world.fail_storage("write", errno.ENOSPC, path_part="/wal-")
        assert world.request("POST", "/v0/topics/a", {"records": [{"data": 1}]}).status == 500
        world.advance_ms(1100)
        last = world.write("a", 2)["last_seq"]
        world.power_cut()
        world.start()
        assert world.write("a", 3)["first_seq"] > last, f"seed {seed}"
        world.close()


@pytest.mark.parametrize("all_deleted", [False, True])
def test_seqs_of_a_time_in_class_ephemeral_are_not_given_out_again(all_deleted: bool) -> None:
    """R-SEQ-4, R-CFG-3: nothing of that time is in the log but the change that ended it.

    Records that are there when it ends are named by a frame, as gone; of deleted ones, only the change knows.
    """
    world = SimWorld()
    world.start()
    world.put("a", durability="ephemeral")
    last = world.write("a", 1, 2)["last_seq"]
    if all_deleted:
        world.request("POST", "/v0/topics/a/delete", {"before_seq": last + 1})
    world.put("a", durability="disk")
    world.crash_and_start()
    assert world.write("a", 3)["first_seq"] == last + 1
