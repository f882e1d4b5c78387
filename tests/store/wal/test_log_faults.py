"""Every call the log makes to the disk fails once, or from then on: no write waits for ever, and no ack is false."""

import contextlib
import errno
import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.amount import stride
from tests.sim.world.faults import FOREVER, Faults
from tests.store.log_world import LogWorld, recover
from topics.errors import StorageError
from topics.store.format.log_format import wal_file_name

KINDS = ("write", "sync", "open", "close", "rename", "unlink", "allocate", "file_size")


def run(faults: Faults, plan: list[tuple[str, int, int, int]], seed: int) -> LogWorld:
    """A fixed workload over two rotations and a recycled file; faults are counted from after the opening."""
    world = LogWorld(
        seed, faults=faults, config=lambda config: replace(config, wal_file_bytes=64 * 1024, sync_every_ms=5)
    )
    faults.seen.clear()
    for kind, error, nth, times in plan:
        faults.fail(kind, error, nth=nth, times=times)
    rng = random.Random(5)
    for number in range(24):
        with contextlib.suppress(StorageError):
            fsync, size = number % 3 == 0, rng.choice([30, 1500, 4000])
            world.write(1 + number % 2, rng.randint(1, 6), fsync=fsync, bytes_each=size)
        world.advance(rng.choice([0, 1, 3]))
        if number == 16 and (left := world.log.left_files()) and not world.log.read_only:
            task = world.loop.spawn(world.log.retire(left[0]))
            task.when_done(lambda: None)
    world.advance(3000)
    return world


def check(world: LogWorld, what: str) -> None:
    names = world.ring.list_directory("data/wal/shard-00")
    assert len(names) <= 12, f"{what}: files pile up: {names}"
    assert all(write.commit is not None for write in world.writes), f"{what}: somebody still waits"
    orders = [write.order for write in world.writes]
    assert orders == sorted(orders), f"{what}: answers out of order"
    if wal_file_name(1) not in names:
        world.crash()
        return  # its records would be in a segment
    found = recover(world.crash())
    for write in world.writes:
        if write.acked and write.fsync:
            assert set(write.seqs) <= set(found.seqs.get(write.topic_id, [])), f"{what}: an acked sync is lost"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("times", [1, FOREVER])
def test_each_failing_call_is_answered(error: int, times: int) -> None:
    seen: Counter[str] = Counter(run(faults := Faults(), [], 0).ring.faults.seen)
    assert sum(faults.seen.values()) > 50
    LogWorld.end_all()
    for kind in KINDS:
        count = seen[kind]
        for nth in range(1, count + 1, stride(max(1, count // 6))):
            world = run(Faults(), [(kind, error, nth, times)], nth)
            check(world, f"{kind} {nth} of {count}: errno {error}, {times} times")
            LogWorld.worlds.clear()
