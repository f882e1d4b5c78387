"""Crash anywhere: what was acknowledged is there, nothing that was deleted comes back, and recovery can be repeated.

Goal: no point of a write, a checkpoint, a snapshot, a close or a recovery at which a kill or a power cut loses or
invents anything. Method: one scripted run on the simulated ring is stopped after its n-th effect, for many n; the next
life must agree with what the script knew to be acknowledged; it is stopped in turn while it recovers, and the life
after that must say the same.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest

from tests.amount import stride
from tests.sim import Faults, SimDisk, SimRing, SimStalledError, SimStoppedError
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.clock import ManualClock
from topics.config import Config
from topics.errors import StorageError
from topics.store.format.log_format import FrameType

CONFIG = small_config(segment_max_events=20, pack_run_bytes=2048)
COLD = replace(CONFIG, cold_dir="cold", hot_retain_segments=0)
ANEW = replace(COLD, compact_below=1.0, segment_codec="zstd")
CONFIGS = pytest.mark.parametrize(
    "config", [CONFIG, COLD, ANEW], ids=["one directory", "cold directory", "written anew"]
)


class Script:
    """A run that keeps book: what is certain (answered), and what was being done when it stopped."""

    def __init__(self, world: StoreWorld) -> None:
        self.world = world
        self.live: dict[int, set[int]] = {}
        """Acknowledged, durable, not deleted."""
        self.gone: dict[int, set[int]] = {}
        """Acknowledged as deleted or evicted."""
        self.dropped: set[int] = set()
        self.doubtful: tuple[int, set[int]] = (0, set())
        """Topic and seqs of the operation in progress: there or not there."""
        self.doubtful_topic = 0

    def create(self, topic_id: int) -> None:
        self.doubtful_topic = topic_id
        self.world.create(topic_id)
        self.live[topic_id], self.gone[topic_id] = set(), set()
        self.doubtful_topic = 0

    def append(self, topic_id: int, count: int, size: int = 40, tag: bytes | None = None) -> None:
        first = self.world.topic(topic_id).head + 1
        seqs = set(range(first, first + count))
        self.doubtful = (topic_id, seqs)
        self.world.append(topic_id, count, size=size, tag=tag)
        self.live[topic_id] |= seqs
        self.doubtful = (0, set())

    def delete(self, topic_id: int, seqs: list[int]) -> None:
        self.doubtful = (topic_id, set(seqs))
        self.live[topic_id] -= set(seqs)
        self.world.delete(topic_id, seqs)
        self.gone[topic_id] |= set(seqs)
        self.doubtful = (0, set())

    def evict(self, topic_id: int, floor: int) -> None:
        seqs = {seq for seq in self.live[topic_id] if seq <= floor}
        self.doubtful = (topic_id, seqs)
        self.live[topic_id] -= seqs
        self.world.evict(topic_id, floor)
        self.gone[topic_id] |= seqs
        self.doubtful = (0, set())

    def drop(self, topic_id: int) -> None:
        self.doubtful_topic = topic_id
        self.world.drop(topic_id)
        self.dropped.add(topic_id)
        del self.live[topic_id]
        self.doubtful_topic = 0

    def run(self) -> None:
        world = self.world
        world.open()
        for topic_id in (1, 2, 3):
            self.create(topic_id)
        self.append(1, 30, size=120)
        self.append(2, 2, tag=b"a")
        self.append(3, 3)
        world.checkpoint()
        self.delete(1, [2, 25])
        self.delete(2, [1])
        self.append(1, 15, size=120)
        self.append(2, 2, tag=b"b")
        world.checkpoint()
        self.evict(1, 22)
        self.drop(3)
        self.append(1, 3)
        self.create(4)
        self.append(4, 1)
        world.checkpoint()
        self.delete(4, [1])
        self.append(2, 1)
        world.close()

    def check(self, world: StoreWorld) -> None:
        topics = world.catalog.topics
        for topic_id, live in self.live.items():
            found = set(topics[topic_id].rows) if topic_id in topics else set()
            allowed = set(self.doubtful[1]) if self.doubtful[0] == topic_id else set()
            if topic_id == self.doubtful_topic:
                continue
            assert topic_id in topics, f"topic {topic_id} is gone"
            assert live <= found, f"topic {topic_id} lost {sorted(live - found)}"
            assert found <= live | allowed, f"topic {topic_id}: {sorted(found - live - allowed)} came back"
            in_doubt = found & allowed
            assert in_doubt in (set(), allowed), "a request is there whole or not at all"
        assert not (self.dropped & set(topics)), "a deleted topic came back"
        world.check_every_record()


def end_of(seed: int, config: Config) -> int:
    world = StoreWorld(seed=seed, config=config)
    Script(world).run()
    return world.ring.effects


def frozen_state(ring: SimRing, config: Config) -> dict[int, object]:
    """Return the state that an open finds which changes nothing; {} where there is no log."""
    disk = ring.disk.copy()
    before = disk.contents(DIRECTORY) if DIRECTORY in disk.list_directory("") else None
    frozen = StoreWorld(SimRing(ring.seed, disk=disk, clock=ManualClock()), config=config)
    snapshots = disk.list_directory(f"{DIRECTORY}/snapshots") if f"{DIRECTORY}/snapshots" in (before or {}) else []
    if any(not name.endswith(".tmp") for name in snapshots):
        frozen.open_frozen()
        frozen.check_every_record()
        frozen.close()
    else:
        with pytest.raises(StorageError, match="there is no log in"):
            frozen.open_frozen()
    assert (disk.contents(DIRECTORY) if DIRECTORY in disk.list_directory("") else None) == before
    return frozen.catalog.state()


def crash_at(effect: int, *, power_cut: bool, seed: int, config: Config) -> None:
    world = StoreWorld(seed=seed, config=config)
    script = Script(world)
    world.ring.stop_at(effect)
    with contextlib.suppress(SimStoppedError):
        script.run()
    second = StoreWorld(world.end(power_cut=power_cut), config=config)
    second.ring.stop_at(1 + effect % 60)  # and again while it recovers
    with contextlib.suppress(SimStoppedError):
        second.open()
    ring = second.end(power_cut=power_cut)
    frozen = frozen_state(ring, config)
    third = StoreWorld(ring, config=config).open()
    script.check(third)
    state = third.catalog.state()
    assert frozen == state
    fourth = third.next_life()
    assert fourth.catalog.state() == state
    if script.live:
        topic_id = min(script.live)
        if topic_id in fourth.catalog.topics:
            fourth.append(topic_id, 3)
            fourth.checkpoint()
            fourth.check_every_record()


STRIDE = 23


@CONFIGS
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("offset", range(0, STRIDE, 6))
def test_nothing_acknowledged_is_lost_at_any_crash_point(offset: int, power_cut: bool, config: Config) -> None:
    for effect in range(1 + offset, end_of(offset, config) + 1, stride(STRIDE * 9)):
        crash_at(effect, power_cut=power_cut, seed=offset, config=config)


@CONFIGS
@pytest.mark.slow
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_nothing_acknowledged_is_lost_at_every_crash_point(power_cut: bool, config: Config) -> None:
    for effect in range(1, end_of(7, config) + 1):
        crash_at(effect, power_cut=power_cut, seed=7, config=config)


@CONFIGS
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_nothing_acknowledged_is_lost_at_the_removal_of_a_segment_or_pack(power_cut: bool, config: Config) -> None:
    for effect in removals(config):
        crash_at(effect, power_cut=power_cut, seed=7, config=config)


def removals(config: Config) -> list[int]:
    """Return the numbers of the effects that remove the data of records from the disk."""
    world, found = StoreWorld(seed=7, config=config), []
    unlink = world.ring.disk.unlink

    def note(path: str) -> None:
        if path.endswith(".data"):
            found.append(world.ring.effects + 1)
        unlink(path)

    world.ring.disk.unlink = note  # type: ignore[method-assign]
    Script(world).run()
    assert found
    return found


def run_with(faults: Faults, config: Config, *, seed: int = 3) -> None:
    """The script under faults, to its end or to the first error; then a power cut, and a life without faults."""
    world = StoreWorld(SimRing(seed, faults=faults), config=config)
    script = Script(world)
    with contextlib.suppress(OSError, StorageError, SimStalledError):
        script.run()
    faults.clear()
    script.check(StoreWorld(world.end(power_cut=True), config=config).open())


@CONFIGS
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_one_failing_file_operation_loses_nothing_acknowledged(error: int, config: Config) -> None:
    counting = Faults()
    run_with(counting, config)
    for kind in ("write", "sync", "open", "rename"):
        for nth in range(1 if error == errno.EIO else 10, counting.seen[kind] + 1, stride(19)):
            faults = Faults()
            faults.fail(kind, error, nth=nth)
            try:
                run_with(faults, config)
            except BaseException as problem:
                problem.add_note(f"{kind} number {nth}")
                raise


def test_what_recovery_served_survives_although_an_earlier_sync_had_failed() -> None:
    """After a failed sync the page cache shows bytes the disk will never get; a kill and a restart later they are read
    as if all were well. What is served then must also be there after the power fails."""
    faults = Faults()
    world = StoreWorld(SimRing(1, faults=faults, disk=SimDisk(direct_block_bytes=0)), config=CONFIG).open()
    world.create(1)
    world.append(1, 5, fsync=False)
    faults.fail("sync", errno.EIO, path_part="wal-0000000000000001.log")
    with contextlib.suppress(StorageError):
        world.append(1, 1)
    assert world.store.log.read_only
    faults.clear()
    second = world.next_life()
    served = second.catalog.state()
    assert len(second.topic(1).rows) >= 5
    second.check_every_record()
    third = second.next_life(power_cut=True)
    assert third.catalog.state() == served


def test_seqs_that_a_failed_sync_may_have_lost_are_not_given_out_again() -> None:
    """R-DUR-6: the machine stayed up, but acknowledged bytes may be gone, as after a power cut."""
    faults = Faults()
    world = StoreWorld(SimRing(1, faults=faults), config=CONFIG).open()
    world.create(1)
    world.control(1, FrameType.HEAD_RESERVATION, 0, {"upto": 64})
    faults.fail("sync", errno.EIO, path_part="wal-")
    world.append(1, 5, fsync=False)
    world.loop.run_until(lambda: bool(world.store.log.read_only))
    faults.clear()
    with contextlib.suppress(StorageError):
        world.close()
    second = world.next_life()
    assert second.catalog.power_lost
    assert second.topic(1).gaps[-1][1] == 64


def test_a_snapshot_whose_name_a_killed_process_left_unsynced_stays_after_a_power_cut() -> None:
    """The next life reuses files that such a snapshot makes unneeded: without its name, no other copy exists."""
    for seed in range(12):
        world = StoreWorld(SimRing(seed), config=CONFIG).open()
        world.create(1)
        world.append(1, 30, size=200)
        before = whole_snapshots(world)
        world.loop.spawn(world.store.checkpointer.run())
        world.loop.run_until(lambda: whole_snapshots(world) != before)  # noqa: B023
        third = world.next_life().next_life(power_cut=True)
        assert set(range(1, 31)) <= set(third.topic(1).rows)
        third.check_every_record()


def whole_snapshots(world: StoreWorld) -> list[str]:
    return [name for name in world.files("snapshots") if not name.endswith(".tmp")]


def test_a_snapshot_whose_name_is_not_synced_yet_does_not_make_the_one_before_give_way() -> None:
    """A checkpoint found no descriptor to sync the name with, and the next one no space for a file."""
    for seed in range(30):
        world = StoreWorld(SimRing(seed), config=CONFIG).open()
        world.create(1)
        world.append(1, 30, size=200)
        world.checkpoint()
        before = whole_snapshots(world)
        world.append(1, 30, size=200)
        world.ring.faults.fail("open", errno.EMFILE, path_part="/snapshots", nth=2)  # after the file itself
        with pytest.raises(OSError, match="Too many open files"):
            world.checkpoint()
        assert len(whole_snapshots(world)) == len(before) + 1
        world.ring.faults.fail("write", errno.ENOSPC, path_part="/snapshots", times=2)
        with pytest.raises(OSError, match="No space left"):
            world.checkpoint()
        again = world.next_life(power_cut=True)
        assert set(range(1, 61)) <= set(again.topic(1).rows)
        again.check_every_record()


def test_a_snapshot_whose_name_finds_no_space_to_be_synced_stops_the_log() -> None:
    """A full device's answer to a sync is no reason for another one, which would succeed."""
    world = StoreWorld(config=CONFIG).open()
    world.create(1)
    world.append(1, 30, size=200)
    world.ring.faults.fail("sync", errno.ENOSPC, path_part="/snapshots", nth=2)  # after the file itself
    with pytest.raises(OSError, match="a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only
