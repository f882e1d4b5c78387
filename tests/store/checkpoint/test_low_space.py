"""Checkpoints on a full disk, or with little space: they copy what fits, and give back the rest. Source: R-DUR-16."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest

from tests.sim.world.faults import FOREVER
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.errors import StorageError
from topics.store.checkpoint import low_space
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import FrameType


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC])
def test_a_checkpoint_that_finds_no_next_log_file_leaves_the_one_there_is_to_who_writes(error: int) -> None:
    """It has room, and on a full disk nothing would be deleted any more."""
    world = StoreWorld(config=small_config(wal_spare_files=0, checkpoint_wal_bytes=65_535)).open()
    world.create(1)
    world.append(1, 3)
    world.ring.faults.fail("open", error, times=FOREVER, path_part="/prepare-")
    world.checkpoint()  # continues in the file that was prepared
    world.append(1, 1)
    world.store.log.request_rotation()
    with pytest.raises(StorageError), world.store.log.use_reserve():
        world.delete(1, [1])
    with world.store.log.use_reserve():
        world.delete(1, [2])
    assert not world.store.log.read_only
    world.ring.faults.clear()
    assert list(world.next_life().topic(1).rows) == [1, 3, 4]


@pytest.mark.parametrize("copies", [1.0, 1.9])
def test_a_checkpoint_whose_copies_would_fill_the_disk_leaves_space_for_its_snapshot(copies: float) -> None:
    """Without one nothing is given back, not even after all was deleted."""
    world = StoreWorld(config=small_config(wal_spare_files=0, disk_low_water_bytes=4096)).open()
    world.create(1)
    for _ in range(30):
        world.append(1, 5, size=3000)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + int(30 * 5 * 3000 * copies)
    world.checkpoint()
    assert world.store.checkpointer.counters.copied_rows > 0
    assert not world.store.log.disk_full
    world.check_every_record()
    world.next_life().check_every_record()


def test_what_a_checkpoint_copies_leaves_space_for_two_snapshots_of_a_large_catalog() -> None:
    world = StoreWorld(config=small_config(wal_spare_files=0)).open()
    for topic_id in range(1, 200):
        world.create(topic_id, "n" * 500 + str(topic_id))
    world.checkpoint()
    snapshot = world.files("snapshots")[0]
    assert len(world.ring.file_bytes(f"{DIRECTORY}/snapshots/{snapshot}")) > 100_000
    for _ in range(30):
        world.append(1, 5, size=3000)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 700_000
    world.checkpoint()
    assert world.store.checkpointer.counters.copied_rows > 0
    world.check_every_record()


def test_a_look_for_space_asks_for_no_file_behind_the_last_one_that_holds_a_record_of_the_topic() -> None:
    world = StoreWorld(config=small_config(wal_spare_files=0)).open()
    for topic_id in range(1, 21):
        world.create(topic_id)
        world.append(topic_id)
    for _ in range(40):
        world.append(1, 5, size=3000)
    left = world.store.log.left_files()
    low_space, asked = world.store.checkpointer._low_space, Counter[int]()
    bytes_in = low_space._bytes_in

    async def counted(topic_id: int, *files: Any) -> tuple[int, int]:
        asked[topic_id] += 1
        return await bytes_in(topic_id, *files)

    low_space._bytes_in = counted  # type: ignore[method-assign]
    world.run(low_space.affordable(left, 0))
    assert asked.pop(1) == len(left) + 1 > 5
    assert set(asked.values()) == {2}, "all files together, and the first one"


def test_space_that_is_taken_during_a_look_for_space_is_not_promised_to_copies() -> None:
    world = StoreWorld(config=small_config(wal_spare_files=0)).open()
    world.create(1)
    for _ in range(40):
        world.append(1, 5, size=3000)
    left = world.store.log.left_files()
    low_space = world.store.checkpointer._low_space
    assert world.run(low_space.affordable(left, 0)) == left
    bytes_in = low_space._bytes_in

    async def filled(topic_id: int, *files: Any) -> tuple[int, int]:
        world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 4096
        return await bytes_in(topic_id, *files)

    low_space._bytes_in = filled  # type: ignore[method-assign]
    assert not world.run(low_space.affordable(left, 0))


def test_what_is_written_while_a_checkpoint_looks_for_space_is_news_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(low_space, "_ROWS_A_LOOK", 1)
    config = small_config(wal_spare_files=0, checkpoint_topics_per_pass=1, checkpoint_every_ms=10_000)
    world = StoreWorld(config=config).open()
    world.create(1)
    for _ in range(30):
        world.append(1, 5, size=3000)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 450_000
    checkpointer = world.store.checkpointer
    affordable, looks = checkpointer._low_space.affordable, []

    async def looked_for(left: list[StoredFile], least: int) -> list[StoredFile]:
        looks.append(len(left))
        return await affordable(left, least)

    monkeypatch.setattr(checkpointer._low_space, "affordable", looked_for)
    ended = world.loop.spawn(checkpointer.run())
    world.loop.run_until(lambda: bool(looks))
    world.append(1, 1)
    assert not checkpointer.counters.copied_rows, "it still looks"
    world.loop.run_until(lambda: ended.done)
    world.ring.disk.capacity_bytes = None
    count = checkpointer.counters.done
    world.run(world.loop.sleep(15_000_000_000))
    assert checkpointer.counters.done > count


def test_a_checkpoint_of_a_time_with_little_space_does_not_put_off_that_of_the_full_disk() -> None:
    """Both copy what there is space for; but what lived at the first says nothing of what died since the second."""
    world = StoreWorld(config=small_config(wal_spare_files=0)).open()
    world.create(1)
    for _ in range(30):
        world.append(1, 5, size=3000)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 450_000
    world.checkpoint()
    world.append(1, 5)
    world.store.log.space.note_full()
    assert world.store.checkpointer._is_space_wanted()


@pytest.mark.parametrize("topics", [0, 200])
def test_a_full_disk_is_given_back_also_what_one_checkpoint_had_no_space_to_copy(topics: int) -> None:
    """Little lives in each log file. With many topics none of it was copied, lest a snapshot as large as the one that
    had found no space find none again, though they were deleted, too; and nothing more died to have it tried again."""
    checkpoints_end = {"checkpoint_wal_bytes": 1 << 30, "checkpoint_every_ms": 1 << 40}
    config = small_config(wal_spare_files=0, disk_low_water_bytes=1 << 17, **checkpoints_end)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.create(2)
    world.checkpoint()
    for _ in range(12):
        for size in (20_000, 40 if topics else 15_000, *[20_000] * (2 if topics else 1)):
            world.append(1 + (size < 20_000), 1, size=size)
    for topic_id in range(10, 10 + topics):
        world.create(topic_id, "n" * 1000 + str(topic_id))
        world.append(topic_id)
    disk, log = world.ring.disk, world.store.log
    disk.capacity_bytes = disk.used_bytes + (100_000 if topics else 40_000)
    world.run(world.loop.sleep(3_000_000_000))
    assert world.store.log.disk_full
    upto = world.topic(1).head
    gone = [(topic_id, FrameType.TOPIC_DELETE, world.order + topic_id, b"{}") for topic_id in range(10, 10 + topics)]
    gone.append((1, FrameType.DELETE_RECORDS, 0, b'{"seqs":%a,"upto":%d}' % (list(range(1, upto + 1)), upto)))
    with log.use_reserve():
        for topic_id, kind, seq, payload in gone:
            log.stage_control(topic_id, kind, seq, 0, payload)
    world.commit(1)
    for topic_id, kind, seq, payload in gone:
        world.catalog.apply_control(kind, topic_id, seq, 0, payload)
    world.run(world.loop.sleep(20_000_000_000))
    assert not log.disk_full
    world.check_every_record()
    disk.capacity_bytes = None  # files whose removal was not synced come back, beside what took their space
    world.next_life(power_cut=True).check_every_record()


@pytest.mark.parametrize("copies", [0.5, 1.9])
def test_a_look_at_what_lives_in_the_log_takes_turns_with_other_work(
    copies: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes a bounded number of topics a pass, and of records of one."""
    monkeypatch.setattr(low_space, "_ROWS_A_LOOK", 3)
    config = small_config(wal_spare_files=0, disk_low_water_bytes=4096, checkpoint_topics_per_pass=8, pack_run_bytes=0)
    world = StoreWorld(config=config).open()
    for topic_id in range(1, 60):
        world.create(topic_id)
        world.append(topic_id, 1 + 20 * (topic_id == 7), size=500)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + int(80 * 500 * copies)
    catalog, looks = world.catalog, [0]
    bytes_in_files, run_pass = catalog.bytes_in_files, world.loop.run_pass
    most = total = rows_most = 0

    def look(*arguments: Any, **options: Any) -> Any:
        nonlocal rows_most
        looks[0] += "rows_max" in options
        found = bytes_in_files(*arguments, **options)
        rows_most = max(rows_most, found.rows * ("rows_max" in options))
        return found

    def counted(timeout_ns: int | None) -> None:
        nonlocal most, total
        looks[0] = 0
        run_pass(timeout_ns)
        most, total = max(most, looks[0]), total + looks[0]

    monkeypatch.setattr(catalog, "bytes_in_files", look)
    monkeypatch.setattr(world.loop, "run_pass", counted)
    world.checkpoint()
    assert total >= 59 + 20 // 3
    assert most <= 8
    assert rows_most <= 3
    world.check_every_record()
