"""Files that nothing needs any more and that cannot be removed at once, as on a full copy-on-write file system."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from tests.sim import SimRing
from tests.store.log_world import LogWorld
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.store.disk.whole_files import write_new_file

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _end_all_worlds() -> Iterator[None]:
    yield
    LogWorld.end_all()


def written(**changes: int) -> StoreWorld:
    world = StoreWorld(config=small_config(**changes)).open()
    world.create(1)
    for _ in range(10):
        world.append(1, 10, size=300)
    return world


@pytest.mark.parametrize(
    ("kind", "path_part", "no_spares"),
    [("unlink", "/wal-", {"wal_spare_files": 0, "checkpoint_wal_bytes": 65_535}), ("rename", "/spare-", {})],
    ids=["removed", "kept as a spare"],
)
def test_a_log_file_that_could_not_be_retired_is_retired_by_the_next_checkpoint(
    kind: str, path_part: str, no_spares: dict[str, int]
) -> None:
    world = written(**no_spares)
    oldest = "wal-0000000000000001.log"
    world.ring.faults.fail(kind, errno.ENOSPC, path_part=path_part)
    with pytest.raises(OSError, match="No space"):
        world.checkpoint()
    assert oldest in world.files("wal/shard-00")
    world.append(1, 1)
    world.checkpoint()
    assert oldest not in world.files("wal/shard-00")
    assert not world.store.log.read_only
    world.check_every_record()


def test_a_segment_that_could_not_be_removed_goes_with_the_next_checkpoint() -> None:
    world = written()
    world.checkpoint()
    world.drop(1)
    world.ring.faults.fail("unlink", errno.ENOSPC, path_part="/seg-", times=2)
    world.checkpoint()
    world.passes(20)
    assert world.files("topics/0000000000000001")
    world.create(2)
    world.checkpoint()
    world.passes(20)
    assert world.ring.faults.struck["unlink"] == 2
    assert world.files("topics/0000000000000001") == []


@pytest.mark.parametrize("path", ["topics/0000000000000001/seg-00000000000000000999.idx", "wal/shard-00/a.tmp"])
def test_a_start_serves_though_what_a_killed_one_left_cannot_be_removed(path: str) -> None:
    world = written()
    world.checkpoint()
    world.run(write_new_file(world.loop.files, f"{DIRECTORY}/{path}", b"left over"))
    directory, _, name = path.rpartition("/")
    world.ring.faults.fail("unlink", errno.ENOSPC, path_part=name)
    world = world.next_life()
    assert world.ring.faults.struck["unlink"] == 1
    world.check_every_record()
    world.close()
    world = world.next_life()
    assert name not in world.files(directory)
    world.check_every_record()


def test_a_snapshot_that_cannot_be_removed_is_no_obstacle_to_those_that_follow() -> None:
    world = written()
    oldest = world.files("snapshots")
    world.ring.faults.fail("unlink", errno.ENOSPC, path_part="/snapshot-", times=len(oldest))
    world.checkpoint()
    assert set(oldest) < set(world.files("snapshots"))
    assert "wal-0000000000000001.log" not in world.files("wal/shard-00"), "the log is given back all the same"
    world.append(1, 1)
    world.checkpoint()
    assert not set(oldest) & set(world.files("snapshots"))
    world.check_every_record()


def test_a_spare_that_cannot_be_removed_stays_a_spare() -> None:
    world = LogWorld()
    while world.log.counters.rotations < 2:
        world.write(count=20, bytes_each=1000)
        world.settle()
    world.loop.run_task(world.log.retire(world.log.left_files()[0]))
    world.ring.faults.fail("unlink", errno.ENOSPC, path_part="/spare-")
    world.loop.run_task(world.log.drop_spares())
    assert world.ring.faults.struck["unlink"] == 1
    while world.log.counters.rotations < 5:
        world.write(count=20, bytes_each=1000)
        world.settle()
    assert not any(name.startswith("spare-") for name in world.ring.list_directory("data/wal/shard-00")), "it was used"


def test_a_spare_that_is_about_to_be_removed_is_given_to_no_other() -> None:
    world = StoreWorld(config=small_config(checkpoint_wal_bytes=1 << 40, pack_run_bytes=0)).open()
    ready = world.store.log.shards[0].preallocation.ready
    world.create(1)
    for _ in range(12):
        world.append(1, 1, size=15_000)
    world.checkpoint()
    world.loop.run_until(lambda: len(ready) == 1)
    world.append(1, 3, size=15_000)
    world.ring.faults.fail("write", errno.ENOSPC, path_part="/seg-")
    with pytest.raises(OSError, match="No space"):
        world.checkpoint()
    for _ in range(3):
        world.append(1, 1, size=14_000)
    world.loop.run_until(lambda: len(ready) == 1)
    checkpoint = world.loop.spawn(world.store.checkpointer.run(), "checkpoint")
    checkpoint.when_done(lambda: None)
    world.append(1, 1, size=40_000)  # the log continues in the next file, and takes a spare for the one after it
    world.loop.run_until(lambda: checkpoint.done)
    checkpoint.result()
    world.check_every_record()


def test_the_directories_of_topics_that_are_gone_go_with_the_next_start() -> None:
    world = written(pack_run_bytes=0)
    world.create(2)
    world.append(2, 1)
    world.checkpoint()
    assert world.files("topics") == [f"{number:016x}" for number in (1, 2)]
    world.drop(1)
    world.checkpoint()
    world = world.next_life()
    assert world.files("topics") == [f"{2:016x}"]
    world.append(2, 1)
    world.checkpoint()
    world = world.next_life(power_cut=True)
    world.check_every_record()


@pytest.mark.parametrize("seed", range(8))
def test_what_a_stop_removes_is_removed_before_the_next_process_may_use_its_name(seed: int) -> None:
    """It was unlinked after the lock was given up: perhaps another process's pack of the same number."""
    world = StoreWorld(SimRing(seed, shuffle=True)).open()
    unlinked: list[str] = []
    for topic_id in (1, 2, 3):
        world.create(topic_id)
        world.append(topic_id, 5)
    world.checkpoint()
    for topic_id in (1, 2, 3):
        world.drop(topic_id)
    released = world.store._directory.release
    unlink = world.ring.disk.unlink
    world.ring.disk.unlink = lambda path: (unlinked.append(path), unlink(path))[1]  # type: ignore[method-assign]
    world.store._directory.release = lambda: (unlinked.append("released"), released())[1]  # type: ignore[method-assign]
    world.close()
    world.passes(50)
    assert any("/packs/" in path for path in unlinked)
    assert unlinked[-1] == "released"
