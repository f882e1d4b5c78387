"""A mirror of an archive: what a promotion gives is the log at the instant that the mirror states."""

from __future__ import annotations

import errno

import pytest

from tests.store.archive.archive_world import held
from tests.store.archive.test_restore_archive import bytes_of
from tests.store.mirror.mirror_sweep import Kill
from tests.store.mirror.mirror_world import MIRROR, Followed, MirrorRun
from topics.errors import CorruptError, NoAnswerError, UsageError
from topics.loop import Loop
from topics.store.archive.archive_note import ArchiveNote, write_note
from topics.store.archive.timelines import find_timelines
from topics.store.archive.verify_archive import verify_timelines
from topics.store.mirror.mirror import newest_timeline
from topics.store.mirror.promotion import Promotion, note_promotion, promotion_of


@pytest.mark.parametrize("seed", range(5))
def test_a_promotion_is_what_was_there_at_the_instant_that_the_mirror_states(seed: int) -> None:
    assert MirrorRun(seed).mirrored().equal


def test_a_mirror_without_a_whole_base_has_nothing_to_promote() -> None:
    run = MirrorRun(seed=4)
    run.world.create(1)
    run.world.run(run.world.loop.sleep(1_000_000_000))
    run.loop.run_task(run.mirror.step(0))
    with pytest.raises(UsageError, match="mirror has nothing to promote: its first base was not copied"):
        run.loop.run_task(newest_timeline(run.loop, MIRROR))


def test_a_mirror_has_all_that_was_written_before_it_came_to_the_end() -> None:
    run = Followed()
    run.world.append(1, 40, size=2000)
    run.catch_up()
    assert run.promoted() == {1: list(range(1, 41))}
    timelines = run.loop.run_task(find_timelines(run.loop, MIRROR))
    assert run.loop.run_task(verify_timelines(run.loop, timelines)).findings == []


def test_what_was_copied_after_the_note_is_not_in_a_promotion() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    run.world.append(1, 3)
    run.world.run(run.world.loop.sleep(200_000_000))
    run.ring.faults.fail("rename", errno.EIO, path_part="archive.json")
    with pytest.raises(OSError, match="Input/output"):
        run.loop.run_task(run.mirror.step(5))
    assert run.promoted() == {1: [1, 2, 3]}


def test_a_full_disk_harms_nothing_and_the_mirror_continues_when_there_is_space() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    run.world.append(1, 3, size=2000)
    run.world.run(run.world.loop.sleep(200_000_000))
    run.ring.faults.fail("write", errno.ENOSPC, path_part=MIRROR)
    with pytest.raises(OSError, match="No space"):
        run.loop.run_task(run.mirror.step(5))
    run.catch_up()
    assert run.promoted() == {1: [1, 2, 3, 4, 5, 6]}


def test_a_server_that_does_not_answer_leaves_the_mirror_as_it_was() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    run.cut_share = 1.0
    with pytest.raises(NoAnswerError):
        run.loop.run_task(run.mirror.step(5))
    assert run.promoted() == {1: [1, 2, 3]}


def test_another_log_is_refused_with_the_remedy() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    run.world.ring.disk.unlink("data/archive")  # as in a directory that was restored
    run.world = run.world.next_life()
    run.world.append(1, 1)
    run.world.run(run.world.loop.sleep(12_000_000_000))
    with pytest.raises(UsageError, match=r"another log now, \S+, and mirror follows .*--timeline"):
        run.loop.run_task(run.mirror.step(5))
    assert run.promoted() == {1: [1, 2, 3]}
    state = run.world.store.archive.state
    assert state is not None
    run.mirror = run.opened(state.timeline)
    run.catch_up()
    assert run.promoted() == {1: [1, 2, 3, 4]}


def test_a_log_that_is_named_is_that_of_the_server_or_one_that_was_followed_before() -> None:
    """The one before was followed, and nothing said that the name is of no log."""
    run = Followed()
    run.world.append(1, 3)
    other = "2026-11-30T02-23-01Z-00000000"
    for _has_followed in (False, True):
        run.mirror = run.opened(other)
        with pytest.raises(UsageError, match=rf"log of the server is \S+, and --timeline is {other}: give the former"):
            run.loop.run_task(run.mirror.step(5))
        run.mirror = run.opened()
        run.catch_up()
    before = run.mirror.end.timeline
    run.world.ring.disk.unlink("data/archive")
    run.world = run.world.next_life()
    run.world.append(1, 1)
    run.world.run(run.world.loop.sleep(12_000_000_000))
    state = run.world.store.archive.state
    assert state is not None
    for timeline in (state.timeline, before):  # a unit may have the name of the switch before
        run.mirror = run.opened(timeline)
        run.catch_up()
        assert run.promoted() == {1: [1, 2, 3, 4]}


def test_a_promotion_is_of_the_log_that_is_followed_also_if_that_before_is_later() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    before = run.mirror.end
    run.world.ring.disk.unlink("data/archive")
    run.world = run.world.next_life()
    run.world.append(1, 1)
    run.world.run(run.world.loop.sleep(12_000_000_000))
    state = run.world.store.archive.state
    assert state is not None
    run.mirror = run.opened(state.timeline)
    run.loop.run_task(run.mirror.step(0))
    assert run.loop.run_task(newest_timeline(run.loop, MIRROR)) == MIRROR, "nothing of the other is here yet"
    run.catch_up()
    later = ArchiveNote(upto_ms=run.mirror.end.upto_ms + 5, line=before.timeline)
    run.loop.run_task(write_note(run.loop.files, f"{MIRROR}/{before.timeline}", later))
    assert run.loop.run_task(newest_timeline(run.loop, MIRROR)) == f"{MIRROR}/{state.timeline}"


def test_log_that_the_server_has_removed_is_a_hole_and_the_mirror_begins_with_a_newer_base() -> None:
    run = Followed(archive_retain_ms=1000, archive_base_every_ms=2000)
    run.world.append(1, 3)
    run.catch_up()
    late_ms = run.mirror.end.upto_ms
    said = set()
    for _ in range(20):
        run.world.append(1, 10, size=2000)
        run.world.checkpoint()
        run.world.run(run.world.loop.sleep(1_000_000_000))
    for _ in range(400):
        run.loop.run_task(run.mirror.step(5))
        said.add(run.mirror.end.waits_for.partition("/")[0])
        if run.mirror.end.upto_ms > late_ms:
            break
    assert "a base, because the server's archive has no more log" in said
    (hole,) = run.mirror.end.holes
    assert hole.from_ms == late_ms
    run.catch_up()
    assert run.promoted() == held(run.world)


def test_a_clock_of_the_server_that_is_ahead_for_a_while_removes_no_kept_past() -> None:
    run = Followed(archive_base_every_ms=20_000)
    run.mirror = run.opened(retain_ms=5 * 86_400_000)
    for _ in range(3):
        run.world.append(1, 2)
        run.world.run(run.world.loop.sleep(21_000_000_000))
        run.catch_up()
    (before,) = run.loop.run_task(find_timelines(run.loop, MIRROR))
    run.world.ring.clock.step_wall_ms(10 * 86_400_000)
    run.world.run(run.world.loop.sleep(2_000_000_000))
    run.catch_up()
    run.world.ring.clock.step_wall_ms(-10 * 86_400_000)
    run.world.run(run.world.loop.sleep(3_000_000_000))
    run.loop.run_task(run.mirror.step(1000))
    (after,) = run.loop.run_task(find_timelines(run.loop, MIRROR))
    assert after.note.upto_ms > before.note.upto_ms + 86_400_000
    assert {base.path for base in before.bases} < {base.path for base in after.bases}


def test_a_promotion_that_was_killed_is_none_until_its_directory_is_there() -> None:
    run = Followed()
    begun = Promotion("new", 1)
    run.loop.run_task(note_promotion(run.loop, MIRROR, begun))
    assert run.loop.run_task(promotion_of(run.loop, MIRROR)) is None
    run.opened()  # it follows on, and removes the note
    run.loop.run_task(note_promotion(run.loop, MIRROR, begun))
    run.ring.make_directory("new")
    assert run.loop.run_task(promotion_of(run.loop, MIRROR)) == begun
    with pytest.raises(UsageError, match=r"mirror was promoted to new at .*`topics restore --from mirror`"):
        run.opened()
    run.loop.run_task(note_promotion(run.loop, MIRROR, Promotion("moved", 1, is_made=True)))
    with pytest.raises(UsageError, match="was promoted to moved"):
        run.opened()


def test_a_hole_of_the_archive_is_one_of_the_mirror_and_ends_with_the_next_base() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    run.world = run.world.next_life(power_cut=True)
    run.world.append(1, 2)
    run.catch_up()
    (hole,) = run.mirror.end.holes
    assert hole.to_ms is not None
    assert hole.from_ms < hole.to_ms <= run.mirror.end.upto_ms
    assert run.promoted() == {1: sorted(run.world.topic(1).rows)}


def test_a_log_that_does_not_continue_what_is_there_is_not_noted() -> None:
    run = Followed()
    run.world.append(1, 3)
    run.catch_up()
    before = run.mirror.end.upto_ms
    run.world.append(1, 3)
    run.world.run(run.world.loop.sleep(200_000_000))
    state = run.world.store.archive.state
    assert state is not None
    end = state.shards[0]
    path = f"archive/{state.timeline}/log/shard-00/wal-{end.file:016x}.log"
    bytes_of(run.world, path)[end.bytes - 40] ^= 1
    with pytest.raises(CorruptError, match="does not continue what this mirror has"):
        run.loop.run_task(run.mirror.step(5))
    assert run.mirror.end.upto_ms == before
    assert run.promoted() == {1: [1, 2, 3]}


def test_a_mirror_needs_nothing_of_before_its_newest_base() -> None:
    run = Followed()
    first = run.ring.disk.list_directory(f"{MIRROR}/{run.mirror.end.timeline}/bases")
    for _ in range(6):
        run.world.append(1, 10, size=2000)
        run.world.checkpoint()
        run.catch_up()
    run.world = run.world.next_life(power_cut=True)  # the archive begins anew with a base
    run.catch_up()
    left = run.ring.disk.list_directory(f"{MIRROR}/{run.mirror.end.timeline}/bases")
    assert len(left) == 1
    assert left != first
    assert run.promoted() == {1: sorted(run.world.topic(1).rows)}


def test_a_mirror_that_is_opened_again_copies_only_what_is_new() -> None:
    run = Followed()
    run.world.append(1, 40, size=2000)
    run.catch_up()
    run.ring = run.ring.next_life(power_cut=True)
    run.loop = Loop(run.ring, run.ring.clock)
    run.mirror = run.opened()
    run.catch_up()
    assert run.mirror.end.copied_bytes < 20_000
    assert held(run.world) == run.promoted()


@pytest.mark.parametrize(
    "kill",
    [
        *(Kill("mirror", after % 2 == 0, after) for after in (1, 40, 75, 110, 145, 180)),
        Kill("server", False, 6),
        Kill("server", True, 15),
    ],
    ids=str,
)
def test_a_kill_after_any_operation_loses_nothing(kill: Kill) -> None:
    """`make mirror` has them all."""
    assert kill.run(), "the life was not that long"
