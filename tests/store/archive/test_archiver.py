"""The archive of an open store: it follows the log, delays no writer, and says where something is missing."""

from __future__ import annotations

import errno
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.sim.world.sim_disk import SimDirectory
from tests.store.archive.archive_world import (
    ARCHIVE,
    after_many_batches,
    archive_config,
    archived,
    filled,
    grow,
    held,
    note,
    restored,
    stats,
    wait,
)
from tests.store.repair.rebuilding import rebuilt
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.engine.recovery.archived_seqs import known_seqs
from topics.errors import UsageError
from topics.store.archive import archive_bases
from topics.store.archive.archive_note import BASES, timeline_names
from topics.store.archive.archive_retention import remove_old, remove_old_timelines
from topics.store.archive.restore_archive import copy_point
from topics.store.archive.restore_point import END, point_at
from topics.store.archive.timelines import find_timelines
from topics.store.archive.unbroken_log import restorable_ranges
from topics.store.archive.verify_archive import verify_timelines
from topics.store.backup.backup_manifest import backup_names
from topics.store.disk.whole_files import FileCalls, list_if_there
from topics.store.format.log_format import wal_file_name, wal_file_no


def waiting(world: StoreWorld) -> list[str]:
    return [name for name in world.files("wal/shard-00") if name.startswith("waiting-")]


def break_target(world: StoreWorld) -> None:
    world.ring.faults.fail("write", errno.ENOSPC, times=10_000, path_part=f"{ARCHIVE}/")
    world.ring.faults.fail("open", errno.ENOSPC, times=10_000, path_part=f"{ARCHIVE}/")


def test_a_target_that_fails_delays_no_writer_and_catches_up() -> None:
    world = filled()
    break_target(world)
    grow(world)
    wait(world, 100)
    assert stats(world).error.startswith(f"{ARCHIVE}/20")
    assert stats(world).error.endswith(": No space left on device")
    assert len(waiting(world)) > 1
    assert stats(world).waiting_bytes > 0
    world.ring.faults.clear()
    at = archived(world)
    wait(world, 100)
    assert waiting(world) == []
    assert stats(world).waiting_bytes == 0
    assert note(world).holes == ()
    assert held(restored(world, at)) == held(world)


def test_more_than_may_wait_is_a_hole_with_a_base_after_it() -> None:
    world = filled(archive_keep_bytes=131_072)
    known = note(world).upto_ms
    break_target(world)
    grow(world, 8)
    wait(world, 1000)
    assert stats(world).waiting_bytes < 231_072
    world.ring.faults.clear()
    wait(world, 25_000)
    at = archived(world)
    (hole,) = note(world).holes
    assert known <= hole.from_ms < (hole.to_ms or 0) <= at
    assert stats(world).holes == 1
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    first_ms = timeline.bases[0].manifest.taken_ms
    assert restorable_ranges(timeline) == [(first_ms, hole.from_ms), (hole.to_ms, timeline.note.upto_ms)]
    assert held(restored(world, at)) == held(world)


def test_a_hole_counts_and_is_logged_once_while_the_target_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Its note is on the target, so it counted once that worked again."""
    world = filled(archive_keep_bytes=131_072)
    break_target(world)
    for _ in range(8):
        grow(world, 2)
        wait(world, 100)
    assert stats(world).holes == 1
    assert caplog.text.count("the archive gets a hole") == 1
    world = world.next_life()
    wait(world, 100)
    assert stats(world).holes == 1
    world.ring.faults.clear()
    wait(world, 25_000)
    archived(world)
    assert stats(world).holes == 1


def test_what_waits_when_a_server_is_killed_is_archived_by_the_next() -> None:
    world = filled()
    break_target(world)
    grow(world)
    assert waiting(world)
    world.ring.faults.clear()
    world = world.next_life()
    at = archived(world)
    wait(world, 100)
    assert (waiting(world), note(world).holes) == ([], ())
    assert held(restored(world, at)) == held(world)


def test_what_is_copied_and_not_noted_is_kept() -> None:
    world = filled()
    world.ring.faults.fail("rename", errno.EIO, times=10_000, path_part=f"{ARCHIVE}/")
    for _ in range(4):
        world.append(1, 20, size=1500)
        wait(world, 30_000)
        world.checkpoint()
    world.ring.faults.clear()
    world = world.next_life()
    at = archived(world)
    assert note(world).holes == ()
    assert held(restored(world, at)) == held(world)


def test_a_file_that_a_killed_checkpoint_did_not_free_is_archived() -> None:
    world = filled()
    break_target(world)
    world.append(1, 20, size=1500)
    before = set(world.files("snapshots"))
    world.loop.spawn(world.store.checkpointer.run(), "killed")
    world.loop.run_until(
        lambda: not before & set(world.files("snapshots"))
    )  # both copies of the next snapshot are there
    world.ring.faults.clear()
    world = world.next_life()
    at = archived(world)
    assert note(world).holes == ()
    assert held(restored(world, at)) == held(world)


def test_the_first_note_of_a_start_that_joined_batches_states_the_last_one() -> None:
    """The start writes its tail again as one batch, so the log's numbers are lower than before."""
    world = filled(archive_base_every_ms=0, checkpoint_every_ms=1 << 30)
    file_no = note(world).shards[0].file_no
    world.append(1, 1, size=60_000)
    for _ in range(3):
        world.append(1, 1, size=2000, fsync=False)
    world = world.next_life()
    assert waiting(world), "the tail was in a file of its own"
    while note(world).shards[0].file_no == file_no:
        world.passes(1)
    assert note(world).shards[0].batch_no == world.store.log.shards[0].last_batch_no
    assert held(restored(world, END)) == held(world)


def fill_few_batches(world: StoreWorld) -> None:
    """Fill files, which checkpoints free, with fewer batches than the start has joined."""
    before = world.store.log.shards[0].last_batch_no
    for _ in range(5):
        world.append(1, 20, size=1500)
    grow(world, 3)
    assert world.store.log.shards[0].last_batch_no < before + 15


@pytest.mark.parametrize("ends", ["stays", "is killed", "is closed"])
def test_given_up_log_is_a_hole_also_if_the_numbers_of_batches_do_not_show_it(ends: str) -> None:
    """A start numbers the batches again that no later one knows to be synced, so later numbers follow on."""
    world = after_many_batches(archive_keep_bytes=131_072).next_life()
    break_target(world)
    fill_few_batches(world)
    wait(world, 1000)
    if ends == "is killed":
        world = world.next_life()
    elif ends == "is closed":
        world.close()
        world = world.next_life()
    world.ring.faults.clear()
    wait(world, 25_000)
    at = archived(world)
    assert len(note(world).holes) == 1
    assert held(restored(world, at)) == held(world)


def test_a_time_without_an_archive_is_a_hole_also_if_the_numbers_of_batches_do_not_show_it() -> None:
    world = after_many_batches()
    config = world.config
    world = world.next_life(config=replace(config, archive_dir=""))
    fill_few_batches(world)
    world = world.next_life(config=config)
    wait(world, 1000)
    at = archived(world)
    assert len(note(world).holes) == 1
    assert held(restored(world, at)) == held(world)


def test_a_log_file_that_a_person_removed_before_it_was_archived_is_a_hole() -> None:
    """A checkpoint has copied what was in it, so the store misses nothing."""
    world = filled()
    break_target(world)
    grow(world)
    wait(world, 100)
    world.close()
    world.ring.disk.unlink(f"{DIRECTORY}/wal/shard-00/{sorted(waiting(world))[1]}")
    world = world.next_life()
    world.ring.faults.clear()
    wait(world, 25_000)
    at = archived(world)
    assert len(note(world).holes) == 1
    assert held(restored(world, at)) == held(world)


def test_log_that_came_while_there_was_no_archive_is_a_hole(caplog: pytest.LogCaptureFixture) -> None:
    world = filled()
    for _ in range(2):
        world = world.next_life(config=replace(world.config, archive_dir=""))
    assert caplog.text.count("up to its next base: the log was opened without it: TOPICS_ARCHIVE_DIR is not set") == 1
    grow(world)
    world = world.next_life(config=archive_config())
    wait(world, 1000)
    at = archived(world)
    assert len(note(world).holes) == 1
    assert held(restored(world, at)) == held(world)


def test_a_power_cut_is_followed_by_a_base() -> None:
    """Losses that a start has found are in its snapshot, and in no log."""
    world = filled()
    world = world.next_life(power_cut=True)
    wait(world, 1000)
    assert len(note(world).holes) == 1
    assert held(restored(world, archived(world))) == held(world)


def test_a_start_that_is_killed_leaves_word_of_losses() -> None:
    """The next start finds none, because the snapshot of the killed one has them."""
    world = filled()
    world = world.next_life(power_cut=True)
    world = world.next_life()
    wait(world, 1000)
    assert len(note(world).holes) == 1


def test_a_restart_continues_where_the_note_ends() -> None:
    world = filled()
    world.append(1, 20, size=1500)
    archived(world)
    world.close()
    world = world.next_life()
    world.append(1, 1)
    archived(world)
    assert stats(world).copied_bytes < 20_000
    assert len(timeline_names(world.loop.files, ARCHIVE)) == 1
    assert note(world).holes == ()


def test_a_copy_of_the_data_directory_begins_a_line_of_its_own() -> None:
    world = filled()
    ring = world.end(power_cut=False)
    ring.disk.root.live["copy"] = deepcopy(ring.disk.find("data"))
    original = StoreWorld(ring, config=world.config).open()
    grow(original)
    at = archived(original)
    expected = held(original)
    copy = StoreWorld(original.end(power_cut=False), config=replace(world.config, data_dir="copy")).open()
    copy.append(1, 50, size=1500)
    wait(copy, 1000)
    archived(copy)
    assert len(timeline_names(copy.loop.files, ARCHIVE)) == 2
    assert held(restored(copy, archived(copy))) == held(copy)
    assert held(restored(copy, at)) == expected


def test_what_is_older_than_the_retention_is_removed() -> None:
    world = filled(archive_base_every_ms=1000, archive_retain_ms=3000)
    for _ in range(12):
        world.append(1, 20, size=1500)
        world.checkpoint()
        wait(world, 500)
    at = archived(world)
    (timeline,) = timeline_names(world.loop.files, ARCHIVE)
    kept = backup_names(world.loop.files, f"{ARCHIVE}/{timeline}/{BASES}")
    assert 2 <= len(kept) <= 6
    log = list_if_there(world.loop.files, f"{ARCHIVE}/{timeline}/log/shard-00")
    assert "wal-0000000000000001.log" not in log
    assert held(restored(world, at - 2500))
    assert held(restored(world, at)) == held(world)


def test_a_clock_that_is_ahead_for_a_while_removes_nothing_of_the_archive() -> None:
    """All bases but the newest one were removed, and the timelines of before."""
    world = filled(archive_base_every_ms=3000, archive_retain_ms=20_000)
    moments = []
    for _ in range(4):
        world.append(1, 3)
        moments.append((archived(world), held(world)))
        wait(world, 3100)
    world.ring.clock.step_wall_ms(86_400_000)
    wait(world, 2000)
    ahead = world.run(find_timelines(world.loop, ARCHIVE))[0].bases[-1].manifest.taken_ms
    world.ring.clock.step_wall_ms(-86_400_000)
    wait(world, 5000)
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert ahead in [base.manifest.taken_ms for base in timeline.bases]
    assert ahead > world.ring.clock.now_ms(), "it was made while the clock was ahead"
    for at, expected in moments:
        assert held(restored(world, at)) == expected


@pytest.mark.parametrize("bases_ahead", [1, 2, 5])
def test_bases_of_a_clock_that_is_ahead_remove_nothing_that_is_not_old(bases_ahead: int) -> None:
    """The second one was believed: all that the archive kept until then was removed."""
    world = filled(archive_base_every_ms=3000, archive_retain_ms=20_000)
    moments = []
    for _ in range(10):
        world.append(1, 3)
        moments.append((archived(world), held(world), world.ring.clock.monotonic_ns()))
        wait(world, 3100)
    world.ring.clock.step_wall_ms(86_400_000)
    for _ in range(bases_ahead):
        wait(world, 3100)
    world.ring.clock.step_wall_ms(-86_400_000)
    wait(world, 7000)
    now_ns = world.ring.clock.monotonic_ns()
    kept = [(at, expected) for at, expected, made_ns in moments if now_ns - made_ns < 20_000_000_000]
    removed = [at for at, _expected, made_ns in moments if now_ns - made_ns > 40_000_000_000]
    for at, expected in kept:
        assert held(restored(world, at)) == expected
    for at in removed:
        with pytest.raises(UsageError, match="not in the archive|the archive begins at"):
            restored(world, at)


def test_timelines_of_before_stay_until_the_current_one_has_all_that_is_kept() -> None:
    """A clock that is ahead made them look old."""
    world = filled(archive_every_ms=50, archive_base_every_ms=3000, archive_retain_ms=20_000)
    disk = put_another_disk(world, None)
    wait(world, 4000)
    archived(world)
    (before,) = disk.live
    current = world.ring.disk.root.live[ARCHIVE]
    assert isinstance(current, SimDirectory)
    current.live[before] = current.durable[before] = disk.live[before]
    world.ring.clock.step_wall_ms(86_400_000)
    wait(world, 8000)
    assert before in timeline_names(world.loop.files, ARCHIVE)
    world.ring.clock.step_wall_ms(-86_400_000)
    wait(world, 30_000)
    assert before not in timeline_names(world.loop.files, ARCHIVE)


def named_bases(world: StoreWorld) -> tuple[list[str], list[str]]:
    """The bases that the archive states, and those that are there."""
    state = world.store.archive.state
    assert state is not None
    return list(state.bases), backup_names(world.loop.files, f"{ARCHIVE}/{state.timeline}/{BASES}")


def test_bases_are_listed_only_after_one_was_made_or_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []

    def names(files: FileCalls, root: str) -> list[str]:
        listed.append(root)
        return backup_names(files, root)

    monkeypatch.setattr(archive_bases, "backup_names", names)
    world = filled()
    for _ in range(20):
        world.append(1, 2)
        wait(world, 100)
    assert len(listed) == 2, "at the start, and after the first base"
    stated, there = named_bases(world)
    assert stated == there != []


@pytest.mark.parametrize(("kind", "part"), [("unlink", f"/{BASES}/"), ("write", "archive.json"), ("open", BASES)])
def test_bases_are_as_stated_after_a_removal_that_failed(kind: str, part: str) -> None:
    world = filled(archive_every_ms=50, archive_base_every_ms=1000, archive_retain_ms=1000)
    for _ in range(4):
        world.append(1, 2)
        wait(world, 500)
    world.ring.faults.fail(kind, errno.EIO, times=3, path_part=part)
    world.append(1, 2)
    wait(world, 1100)
    world.ring.faults.clear()
    archived(world)
    wait(world, 150)
    stated, there = named_bases(world)
    assert stated == there
    assert len(there) > 1


@pytest.mark.parametrize("kind", ["unlink", "remove_directory"])
@pytest.mark.parametrize("nth", [1, 2, 7])
def test_an_interrupted_removal_leaves_an_archive_that_can_be_restored(kind: str, nth: int) -> None:
    world = filled(archive_every_ms=50, archive_base_every_ms=200)
    for _ in range(5):
        world.append(1, 2)
        wait(world, 200)
    at = archived(world)
    expected = held(world)
    world.close()
    world = StoreWorld(world.ring.next_life(power_cut=False))
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    world.ring.faults.fail(kind, errno.EIO, nth=nth, times=10_000, path_part=f"{ARCHIVE}/")
    with pytest.raises(OSError, match="Input/output error"):
        world.run(remove_old(world.loop, timeline.path, at))
    assert held(restored(world, at)) == expected
    world = StoreWorld(world.ring.next_life(power_cut=False))
    world.ring.faults.clear()
    world.run(remove_old(world.loop, timeline.path, at))
    (kept,) = world.run(find_timelines(world.loop, ARCHIVE))
    times = [base.manifest.taken_ms for base in kept.bases if base.manifest.taken_ms <= at]
    assert len(times) == 1, "what the first one left is gone"
    world.ring.faults.fail(kind, errno.EIO, nth=nth, times=10_000, path_part=f"{ARCHIVE}/")
    with pytest.raises(OSError, match="Input/output error"):
        world.run(remove_old_timelines(world.loop, f"{ARCHIVE}/another", timeline.note.line, at + 10_000))
    assert world.run(find_timelines(world.loop, ARCHIVE)) == []
    world.ring.faults.clear()
    world.run(remove_old_timelines(world.loop, f"{ARCHIVE}/another", timeline.note.line, at + 10_000))
    assert world.loop.files.list_directory(ARCHIVE) == []


def put_another_disk(world: StoreWorld, archive: SimDirectory | None) -> SimDirectory:
    """Put another directory in the archive's place, as a mount does; None: an empty one. Return the one before."""
    root = world.ring.disk.root
    before = root.live.pop(ARCHIVE)
    assert isinstance(before, SimDirectory)
    root.live[ARCHIVE] = root.durable[ARCHIVE] = archive if archive is not None else SimDirectory()
    return before


@pytest.mark.parametrize("restarts", [False, True])
def test_the_log_of_a_time_without_the_archives_disk_is_a_gap_that_is_refused(restarts: bool) -> None:
    world = filled(archive_every_ms=50)
    with_disk = archived(world)
    expected = held(world)
    if restarts:
        world.close()
    disk = put_another_disk(world, None)
    if restarts:
        world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config).open()
    grow(world)
    without_disk = archived(world)
    without = held(world)
    empty = put_another_disk(world, disk)
    grow(world)
    at = archived(world)
    assert held(restored(world, at)) == held(world)
    assert held(restored(world, with_disk)) == expected
    with pytest.raises(UsageError, match="is not in the archive"):
        restored(world, without_disk)
    put_another_disk(world, empty)
    assert held(restored(world, without_disk)) == without


@pytest.mark.parametrize("restarts", [False, True])
def test_an_archive_whose_disk_is_mounted_late_has_no_gap(restarts: bool) -> None:
    """A server that began before the mount made the directory on another disk, and began another timeline."""
    world = filled(archive_every_ms=50)
    if restarts:
        world.close()
    root = world.ring.disk.root
    (disk,) = {root.live.pop(ARCHIVE), root.durable.pop(ARCHIVE)}
    if restarts:
        world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config).open()
        root = world.ring.disk.root
    grow(world)
    wait(world, 1000)
    assert f"{ARCHIVE} is not there, and the log has a timeline in its archive, 20" in stats(world).error
    assert f"mount its disk, or make it (mkdir {ARCHIVE}) to begin another" in stats(world).error
    assert waiting(world)
    root.live[ARCHIVE] = root.durable[ARCHIVE] = disk
    at = archived(world)
    assert note(world).holes == ()
    assert len(timeline_names(world.loop.files, ARCHIVE)) == 1
    assert held(restored(world, at)) == held(world)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_mount_point_without_its_disk_is_no_archive(restarts: bool) -> None:
    """The log was archived in the directory below, in another timeline: there was a gap that is refused."""
    world = StoreWorld(config=archive_config(archive_every_ms=50))
    disk = SimDirectory()
    disk.device = 7
    world.ring.disk.root.live[ARCHIVE] = world.ring.disk.root.durable[ARCHIVE] = disk
    world.open().create(1)
    archived(world)
    if restarts:
        world.close()
    put_another_disk(world, None)
    if restarts:
        world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config).open()
    grow(world)
    wait(world, 1000)
    assert stats(world).error.startswith(f"{ARCHIVE} was the mount point of a disk, and is none now: mount it, or name")
    assert stats(world).failures > 0
    below = put_another_disk(world, disk)
    assert below.live == {}
    at = archived(world)
    assert (note(world).holes, stats(world).holes) == ((), 0)
    assert len(timeline_names(world.loop.files, ARCHIVE)) == 1
    assert held(restored(world, at)) == held(world)


def test_a_disk_that_is_mounted_over_an_archive_is_reported_and_counts_as_a_hole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """From then on the directory below is no archive, also after a restart."""
    world = filled(archive_every_ms=50)
    disk = SimDirectory()
    disk.device = 7
    put_another_disk(world, disk)
    wait(world, 1000)
    at = archived(world)
    assert "a disk may have been mounted over it, which hides what was archived before" in caplog.text
    assert stats(world).holes == 1
    expected = held(world)
    world.close()
    put_another_disk(world, None)
    world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config).open()
    wait(world, 1000)
    assert "was the mount point of a disk" in stats(world).error
    put_another_disk(world, disk)
    assert held(restored(world, at)) == expected


def test_another_directory_is_an_archive_also_if_the_one_before_was_a_mount_point() -> None:
    world = filled(archive_every_ms=50)
    disk = SimDirectory()
    disk.device = 7
    put_another_disk(world, disk)
    archived(world)
    world.close()
    put_another_disk(world, None)
    config = replace(world.config, archive_dir="elsewhere")
    world = StoreWorld(world.ring.next_life(power_cut=False), config=config)
    world.ring.disk.root.live["elsewhere"] = SimDirectory()
    world.open()
    wait(world, 1000)
    assert (stats(world).error, stats(world).lag_ms < 500) == ("", True)


def test_an_archive_that_was_removed_begins_anew() -> None:
    world = filled()
    put_another_disk(world, None)
    grow(world)
    at = archived(world)
    assert held(restored(world, at)) == held(world)


def test_log_that_was_removed_from_an_archive_begins_another_timeline() -> None:
    world = filled()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    path = f"{timeline.path}/log/shard-00"
    world.run(world.loop.files.unlink(f"{path}/{max(world.loop.files.list_directory(path))}"))
    world.append(1, 5)
    at = archived(world)
    wait(world, 1000)
    assert len(timeline_names(world.loop.files, ARCHIVE)) == 2
    assert held(restored(world, archived(world))) == held(world)
    assert at


def test_a_clock_that_is_set_back_loses_no_base_and_no_records() -> None:
    """A base of the hour ahead counts, another one is made, and a time leads to all that was written by then."""
    world = StoreWorld(config=archive_config(archive_base_every_ms=60_000)).open()
    world.create(1)
    world.ring.clock.step_wall_ms(3_600_000)
    world.append(1, 8)
    archived(world)
    world.ring.clock.step_wall_ms(-3_600_000)
    world.append(1, 20)
    wait(world, 2000)
    at = world.ring.clock.now_ms() - 1
    expected = held(world)
    wait(world, 5)
    world.append(1, 10)
    wait(world, 2000)
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert len(timeline.bases) >= 2
    everything = held(world)
    world.close()
    assert held(restored(world, END)) == everything
    assert held(restored(world, at)) == expected


def test_a_restored_log_is_the_newest_after_the_clock_was_set_back_or_the_choice_is_refused() -> None:
    """Its timeline is named after that of the log before, whose times are later."""
    world = StoreWorld(config=archive_config()).open()
    world.ring.clock.step_wall_ms(3_600_000)
    world.create(1)
    archived(world)
    world.append(1, 5)
    wait(world, 500)
    at = archived(world)
    wait(world, 5)
    world.append(1, 1)
    archived(world)
    world.close()
    restored(world, at).close()
    world.ring.clock.step_wall_ms(-3_600_000)
    config = replace(world.config, data_dir=f"restored-{at}")
    world = StoreWorld(world.ring.next_life(power_cut=False), config=config).open()
    world.append(1, 3)
    archived(world)
    expected = held(world)
    world.close()
    before, after = world.run(find_timelines(world.loop, ARCHIVE))
    assert before.note.upto_ms > after.note.upto_ms
    with pytest.raises(UsageError, match=rf"{after.path} was begun last .* and {before.path} has later times"):
        point_at([before, after], END)
    assert point_at([before, after], after.note.upto_ms).timeline == after
    made = StoreWorld(world.ring.next_life(power_cut=False), config=small_config(data_dir="new"))
    made.run(copy_point(made.loop, point_at([after], END), "new"))
    assert held(made.open()) == expected


@pytest.mark.parametrize("restarts", [False, True])
def test_the_lag_grows_while_nothing_is_archived_also_after_the_clock_was_ahead(restarts: bool) -> None:
    world = StoreWorld(config=archive_config()).open()
    world.ring.clock.step_wall_ms(3_600_000)
    world.create(1)
    archived(world)
    world.ring.clock.step_wall_ms(-3_600_000)
    if restarts:
        world = world.next_life(power_cut=False)
    wait(world, 2000)
    assert 0 <= stats(world).lag_ms < 1000
    world.ring.faults.fail("write", errno.EIO, times=10_000, path_part=f"{ARCHIVE}/")
    world.append(1, 1)
    wait(world, 60_000)
    assert stats(world).failures
    assert stats(world).lag_ms >= 59_000


def test_a_base_leaves_the_outcome_of_the_last_backup_as_it_is() -> None:
    """Clients ask for it until it is there; a base may be made before that."""
    world = filled(archive_base_every_ms=200)
    answers: list[object] = []
    wait(world, 150)  # no base is being made
    number = world.store.backups.begin("backups", answers.append)
    while not answers:
        wait(world, 1)
    outcome, done_ms = world.store.backups.progress, world.store.backups.counters.done_ms
    (before,) = world.run(find_timelines(world.loop, ARCHIVE))
    world.append(1, 5)
    wait(world, 2000)
    (after,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert len(after.bases) > len(before.bases)
    assert outcome.number == number == 1
    assert world.store.backups.progress == outcome
    assert world.store.backups.counters.done_ms == done_ms


def test_the_lag_of_an_archive_that_never_worked_counts_from_the_start() -> None:
    world = StoreWorld(config=archive_config()).open()
    world.ring.faults.fail("make_directory", errno.ENOENT, times=10_000, path_part=f"{ARCHIVE}/")
    world.passes(5)
    wait(world, 30_000)
    assert stats(world).upto_ms == 0
    assert stats(world).lag_ms >= 30_000
    assert "No such file" in stats(world).error


def test_an_archive_below_a_directory_that_is_missing_begins_once_it_is_made() -> None:
    world = StoreWorld(config=archive_config(archive_dir="disk/archive")).open()
    wait(world, 1_000)
    assert stats(world).error == "disk is not there: mount its disk, or make it (mkdir -p disk)"
    world.ring.make_directory("disk")
    wait(world, 30_000)
    assert stats(world).error == ""
    assert stats(world).lag_ms < 2_000


def test_a_close_waits_for_the_step_that_was_just_begun() -> None:
    world = filled()
    archiver = world.store.archiver
    assert archiver is not None
    steps, most = [0], [0]
    step = archiver._step

    async def counted() -> None:
        steps[0] += 1
        most[0] = max(most[0], steps[0])
        await step()
        steps[0] -= 1

    async def begin_and_end() -> None:
        archiver._begin()
        archiver.stop()
        await archiver.end()
        assert not steps[0]

    archiver._step = counted  # type: ignore[method-assign]
    world.run(begin_and_end())
    assert most == [1]


def test_a_step_is_repeated_and_counted_whatever_it_raises() -> None:
    world = filled(archive_every_ms=50)
    archiver = world.store.archiver
    assert archiver is not None
    step = archiver._step

    async def fails() -> None:
        raise ValueError("byte 0xff")

    archiver._step = fails  # type: ignore[method-assign]
    wait(world, 1000)
    assert stats(world).failures > 1
    assert stats(world).error == "byte 0xff"
    archiver._step = step  # type: ignore[method-assign]
    world.append(1, 3)
    at = archived(world)
    assert stats(world).error == ""
    assert held(restored(world, at)) == held(world)


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename", "make_directory", "list_directory", "file_size"])
def test_a_close_waits_a_bounded_time_for_a_target_that_never_answers(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = filled(archive_close_wait_ms=5000, archive_base_every_ms=1000)
    world.ring.faults.hang(kind, path_part=f"{ARCHIVE}/")
    for _ in range(3):
        world.append(1, 20, size=1500)
        world.checkpoint()
        wait(world, 500)
    world.append(1, 5, fsync=True)
    expected = held(world)

    async def closed_in_ms() -> int:
        began_ms = world.ring.clock.now_ms()
        await world.store.close()
        return world.ring.clock.now_ms() - began_ms

    assert world.run(closed_in_ms()) < 5500
    assert "TOPICS_ARCHIVE_CLOSE_WAIT_MS" in caplog.text
    assert "has not ended: its disk does not answer, or is slow" in caplog.text
    world.loop.close()
    world.ring.faults.clear()
    world = world.next_life()
    assert world.store.recovery.frames == 1, "the checkpoint was made: only its mark is replayed"
    at = archived(world)
    assert note(world).holes == ()
    assert held(world) == expected
    assert held(restored(world, at)) == expected


def break_bases(world: StoreWorld) -> None:
    for kind in ("make_directory", "rename"):
        world.ring.faults.fail(kind, errno.EIO, times=10_000, path_part=f"/{BASES}/")


def test_the_lag_counts_from_the_begin_of_an_open_hole() -> None:
    world = filled(archive_every_ms=50)
    world = world.next_life(power_cut=True)
    break_bases(world)
    wait(world, 30_000)
    (hole,) = note(world).holes
    assert hole.to_ms is None
    world.append(1, 1)
    wait(world, 200)
    assert stats(world).upto_ms > world.ring.clock.now_ms() - 1000
    assert stats(world).lag_ms >= world.ring.clock.now_ms() - hole.from_ms >= 30_000
    world.ring.faults.clear()
    wait(world, 15_000)
    assert stats(world).lag_ms < 1000


def test_the_lag_of_an_archive_without_a_base_counts_from_the_start() -> None:
    world = StoreWorld(config=archive_config())
    break_bases(world)
    world.open()
    wait(world, 30_000)
    assert stats(world).upto_ms
    assert stats(world).lag_ms >= 30_000


def settings_of_retention() -> dict[str, int]:
    return {"archive_base_every_ms": 500, "archive_retain_ms": 1000}


def test_retention_leaves_the_timelines_of_other_data_directories(caplog: pytest.LogCaptureFixture) -> None:
    other = filled()
    at, expected = archived(other), held(other)
    config = replace(archive_config(**settings_of_retention()), data_dir="mine")
    mine = StoreWorld(other.end(power_cut=False), config=config).open()
    mine.create(1)
    for _ in range(8):
        mine.append(1, 1)
        wait(mine, 500)
    assert len(timeline_names(mine.loop.files, ARCHIVE)) == 2
    assert held(restored(mine, at)) == expected
    assert "is removed" not in caplog.text.replace("/bases/", "")


def test_retention_removes_the_timelines_that_a_data_directory_continues(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = filled(**settings_of_retention())
    (first,) = timeline_names(world.loop.files, ARCHIVE)
    world.ring.faults.fail("sync", errno.EIO, path_part=f"{first}/log/")
    for _ in range(8):
        world.append(1, 1)
        wait(world, 500)
    (second,) = timeline_names(world.loop.files, ARCHIVE)
    assert second != first
    assert note(world).line == first
    assert f"{first} is removed" in caplog.text
    assert held(restored(world, archived(world))) == held(world)


def test_fewer_bytes_than_two_log_files_may_not_wait() -> None:
    with pytest.raises(UsageError, match="archive_keep_bytes is 7: use 131072 at least"):
        archive_config(archive_keep_bytes=7)


def test_holes_that_follow_each_other_get_one_base_in_ten_seconds() -> None:
    world = filled(archive_keep_bytes=131_072)
    (timeline,) = timeline_names(world.loop.files, ARCHIVE)
    began = len(backup_names(world.loop.files, f"{ARCHIVE}/{timeline}/{BASES}"))
    for _ in range(5):
        break_target(world)
        grow(world, 8)
        wait(world, 200)
        world.ring.faults.clear()
        wait(world, 1000)
    assert note(world).open_hole is not None
    assert len(backup_names(world.loop.files, f"{ARCHIVE}/{timeline}/{BASES}")) == began + 1
    wait(world, 25_000)
    assert held(restored(world, archived(world))) == held(world)


def test_an_idle_archive_writes_a_note_a_minute_and_its_lag_is_true() -> None:
    world = filled(archive_every_ms=50)
    archived(world)
    idle_since = note(world)
    syncs = world.ring.faults.seen["sync"]
    wait(world, 50_000)
    assert note(world) == idle_since
    assert world.ring.faults.seen["sync"] - syncs < 10
    assert stats(world).lag_ms <= 100
    with pytest.raises(UsageError, match="is not in the archive: name .* or earlier"):
        point_at(world.run(find_timelines(world.loop, ARCHIVE)), world.ring.clock.now_ms())
    wait(world, 20_000)
    assert note(world).upto_ms >= idle_since.upto_ms + 60_000
    world.append(1, 1)
    wait(world, 200)
    assert note(world).shards != idle_since.shards
    world.close()
    world = StoreWorld(world.ring.next_life(power_cut=False))
    assert note(world).upto_ms >= world.ring.clock.now_ms() - 1000, "the last step notes the time"


def test_the_log_after_an_open_hole_is_sound_and_its_seqs_are_known() -> None:
    """Log files that were copied after the hole follow those before it in their directory."""
    world = filled(archive_keep_bytes=131_072)
    break_target(world)
    grow(world, 8)
    wait(world, 1000)
    world.ring.faults.clear()
    break_bases(world)
    for _ in range(3):
        grow(world, 2)
        archived(world)
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert timeline.note.open_hole is not None
    assert world.run(verify_timelines(world.loop, [timeline])).findings == []
    hole = timeline.note.open_hole
    assert hole.last_files is not None
    directory = f"{timeline.path}/log/shard-00"
    numbers = [wal_file_no(name) or 0 for name in world.ring.disk.list_directory(directory)]
    _first, missing, *later = sorted(number for number in numbers if number > hole.last_files[0])
    assert later
    world.run(world.loop.files.unlink(f"{directory}/{wal_file_name(missing)}"))
    known, damage = world.run(known_seqs(world.loop, [timeline], [point_at([timeline], END)], lambda _base: {}))
    assert known.by_id[1] == world.topic(1).head
    assert not damage, "more may be missing there"


def test_a_log_that_is_closed_at_once_has_a_base_in_its_archive() -> None:
    """Else a program that opens its log for a moment at a time could never be restored."""
    world = StoreWorld(config=archive_config()).open()
    world.create(1)
    world.append(1, 10)
    expected = held(world)
    world.close()
    world = world.next_life()
    world.append(1, 5)
    later = held(world)
    world.close()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert len(timeline.bases) == 1
    assert held(restored(world, timeline.bases[0].manifest.taken_ms)) == expected
    assert held(restored(world, END)) == later


def test_what_is_copied_and_not_noted_is_no_damage() -> None:
    """A start numbers its last batches again, so the file that is not noted ends those of the one before early."""
    world = after_many_batches().next_life()
    world.ring.faults.fail("rename", errno.EIO, times=10_000, path_part="archive.json")
    noted, before = note(world), stats(world).copied_bytes
    world.append(1, 1)
    while stats(world).copied_bytes == before:
        world.passes(1)
    wait(world, 1000)
    world = world.next_life()
    assert note(world) == noted
    assert findings(world) == []


def findings(world: StoreWorld) -> list[str]:
    found: list[str] = world.run(verify_timelines(world.loop, world.run(find_timelines(world.loop, ARCHIVE)))).findings
    return found


def test_the_log_before_a_hole_ends_there_also_if_numbers_of_batches_come_again() -> None:
    """After the hole comes a lower number than before it, as after a start that has joined batches."""
    world = after_many_batches()
    for _ in range(80):
        world.append(1, 1, size=200, fsync=False)
    at, before = archived(world), held(world)
    batch_no = note(world).shards[0].batch_no
    config = world.config
    world = world.next_life(config=replace(config, archive_dir=""))
    world.append(1, 1)
    world = world.next_life(config=config)
    wait(world, 1000)
    later = archived(world)
    assert len(note(world).holes) == 1
    assert note(world).shards[0].batch_no < batch_no
    assert findings(world) == []
    assert held(restored(world, at)) == before
    assert held(restored(world, later)) == held(world)


def test_a_clock_that_is_set_back_before_a_hole_leads_to_the_part_of_the_time() -> None:
    """Times before the hole are of the log before it, although some come again after it."""
    world = filled(archive_base_every_ms=0)
    config = world.config
    world.ring.clock.step_wall_ms(3_600_000)
    world.append(1, 5)
    at, before = archived(world), held(world)
    world = world.next_life(config=replace(config, archive_dir=""))
    world.ring.clock.step_wall_ms(-3_600_000)
    world.append(1, 7)
    world = world.next_life(config=config)
    wait(world, 12_000)
    world.append(1, 3)
    wait(world, 1000)
    (hole,) = note(world).holes
    assert hole.to_ms is not None
    assert hole.from_ms < hole.to_ms
    assert findings(world) == []
    expected = held(world)
    world.close()
    assert held(restored(world, END)) == expected
    assert held(restored(world, at)) == before
    assert held(restored(world, at - 1_800_000)) == {1: list(range(1, 11))}


def test_a_rebuild_without_a_snapshot_is_followed_by_a_base() -> None:
    """The rebuild has lost something, and found other things again, of which no log knows."""
    world = filled()
    world.append(1, 5)
    archived(world)
    world, _result = rebuilt(world.end(power_cut=False), world.config, snapshots=False)
    wait(world, 1000)
    at = archived(world)
    assert len(note(world).holes) == 1
    assert held(restored(world, at)) == held(world)
