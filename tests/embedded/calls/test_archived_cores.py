"""The archive of several cores: verified, restored to a time, and what of it is refused (R-CORE-16)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import topics
from tests.embedded.calls.archived_cores import NAMES, SKIPPED, Cores, next_seq
from tests.embedded.calls.test_stopped_cores import layout_of, write_two
from topics.cli.root_command import app
from topics.embedded.own_loop import own_loop
from topics.embedded.stopped_cores import backed_up_cores
from topics.engine.moves.set_cores import set_cores
from topics.loop.loop import Loop
from topics.store.archive.archive_note import unpack_note
from topics.store.archive.archive_retention import remove_old_joints, remove_old_timelines
from topics.store.archive.joint_timeline import leave_joint
from topics.store.archive.timelines import Timeline
from topics.store.archive.verify_archive import VerifiedTimelines, verify_timelines
from topics.store.backup.backup_files import pack_description
from topics.store.backup.backup_manifest import backup_age
from topics.uring.blocking import BlockingCalls


@pytest.fixture
def cores(tmp_path: Path) -> Cores:
    return Cores(tmp_path, "data")


@pytest.fixture
def times(cores: Cores) -> list[int]:
    """Three times after each of which all topics got two records more. The cores are stopped."""
    with cores.started():
        cores.archived()
        found = [cores.archived()]
        for _ in range(3):
            cores.write(*NAMES)
            found.append(cores.archived())
    return found[:-1]


def test_a_restore_leads_to_what_all_cores_had_and_gives_out_no_seq_twice(cores: Cores, times: list[int]) -> None:
    assert cores.counts() == [6] * len(NAMES)
    for number, at in enumerate(times[1:], 1):
        made = cores.restored(f"made-{number}", at)
        assert made.counts() == [2 * number] * len(NAMES)
        assert topics.fsck(made.config.data_dir).sound
        assert layout_of(Path(made.config.data_dir)).stored.id != layout_of(Path(cores.config.data_dir)).stored.id
        assert next_seq(made) > 6 + SKIPPED
    assert cores.restored("end").counts() == [6] * len(NAMES)


def test_it_is_verified_with_the_times_that_all_cores_have(cores: Cores, times: list[int]) -> None:
    found = topics.verify_backup(cores.archive)
    assert found.sound
    ((path, begin_ms, end_ms),) = found.ranges
    assert (path, begin_ms <= times[0], end_ms > times[-1]) == (str(cores.joint), True, True)
    assert found.log_records == 6 * len(NAMES)
    shown = CliRunner().invoke(app, ["verify", str(cores.archive)])
    assert f"{path}: can be restored as of" in shown.output
    log = max(cores.joint.glob("core-01/*/log/*/*.log"))
    log.write_bytes(log.read_bytes()[:4200] + b"?" + log.read_bytes()[4201:])
    assert any(str(log.parent) in finding for finding in topics.verify_backup(cores.archive).findings)


def test_the_command_prints_the_time_and_what_is_left_out(cores: Cores, times: list[int]) -> None:
    places = ["--from", str(cores.archive), "--to", str(cores.path / "made")]
    shown = CliRunner().invoke(app, ["restore", *places, "--at", str(times[1])]).output.splitlines()
    assert shown[0].startswith(f"{cores.path}/made: {len(NAMES)} topics, {2 * len(NAMES)} records of ")
    assert f"from {cores.joint}; each topic leaves out at least" in shown[0]
    assert shown[2].startswith("left out: what the archive has from then to ")
    assert len(shown) == 3


def test_a_server_of_one_core_does_not_remove_what_several_have_archived(cores: Cores, times: list[int]) -> None:
    """A joint timeline has no time in its own note, but those of its cores."""
    line = (Path(cores.config.data_dir) / "archive-of-cores").read_text().split()[1]
    with own_loop(cores.config) as loop:
        loop.run_task(remove_old_timelines(loop, f"{cores.archive}/{line}-of-one", line, before_ms=times[-1] + 1))
    assert topics.verify_backup(cores.archive).sound
    assert cores.restored("made", times[1]).counts() == [2] * len(NAMES)


def test_it_begins_anew_where_it_was_removed(cores: Cores, times: list[int]) -> None:
    assert times
    with cores.started():
        cores.archived()
        for path in cores.archive.iterdir():
            shutil.rmtree(path)
        for loop, stored in cores.running:
            loop.run_until(lambda stored=stored: stored.archive.holes == 1)
        cores.archived()
        cores.write(*NAMES)
        at = cores.archived()
    assert cores.restored("made", at).counts() == [8] * len(NAMES)
    assert topics.verify_backup(cores.archive).sound


def test_an_archive_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    cores = Cores(tmp_path / "mount", "data")
    cores.config = replace(cores.config, data_dir=f"{tmp_path}/data")
    with cores.started():
        for loop, stored in cores.running:
            loop.run_until(lambda stored=stored: "mount its disk, or make it" in stored.archive.error)
        (tmp_path / "mount").mkdir()
        cores.archived()
        at = cores.archived()
    assert [begin <= at <= end for _, begin, end in topics.verify_backup(cores.archive).ranges] == [True]


def test_another_time_is_refused_with_the_nearest_ones(cores: Cores, times: list[int]) -> None:
    for at in (1, times[-1] + 1_000_000):
        with pytest.raises(topics.UsageError, match="does not have it of all cores, or more than once: name "):
            cores.restored("no", at)
    assert not [*cores.path.glob("no*")]


def test_a_part_of_it_is_refused(cores: Cores, times: list[int]) -> None:
    timeline = next(cores.joint.glob("core-01/*Z-*"))
    for part in (cores.joint / "core-01", timeline):
        with pytest.raises(topics.UsageError, match=f"a part of {cores.joint}, which has all cores: name that"):
            cores.restored("no", source=part)
    with pytest.raises(topics.FormatError, match="holds core 1 of a directory of several cores"):
        cores.restored("no", source=next(timeline.glob("bases/*Z")))
    assert cores.restored("made", times[1], source=cores.joint).counts() == [2] * len(NAMES)
    assert not [*cores.path.glob("no*")]


def test_a_record_as_the_end_is_the_last_of_its_topic_and_all_cores_are_of_then(cores: Cores, times: list[int]) -> None:
    """R-CORE-18: two records are of one commit, and the two after them of another millisecond."""
    with cores.started(3):
        cores.archived()
        cores.write(*NAMES)
        cores.archived()
    of_core_1 = next(name for name in NAMES if layout_of(Path(cores.config.data_dir)).slots.core_of(name))
    for topic, seq, count in (("t0", 1, 2), (of_core_1, 2, 2), ("t0", 3, 4), (of_core_1, 6, 6), ("t0", 8, 8)):
        made = cores.restored(f"made-{topic}-{seq}", upto=(topic, seq))
        found = made.counts()
        assert found[NAMES.index(topic)] == count
        assert {*found} <= {count - 2, count}, "the others were written in that millisecond, or after it"
        assert cores.restored(f"same-{topic}-{seq}", made.taken_ms).counts() == found
        assert count == 2 or next_seq(made) > 8 + SKIPPED, "all topics were there"
    shown = CliRunner().invoke(
        app, ["restore", "--from", str(cores.archive), "--to", f"{cores.path}/shown", "--seq", "t0=4"]
    )
    assert shown.output.splitlines()[2].startswith("left out: what the archive has from then to ")
    for topic, seq in (("t0", 9), ("none", 1)):
        with pytest.raises(topics.UsageError, match=f"upto is seq {seq} of topic {topic}, whose write is not in the"):
            cores.restored("no", upto=(topic, seq))
    assert not [*cores.path.glob("no*")]


def test_a_record_that_not_all_cores_have_archived_is_refused(cores: Cores) -> None:
    with cores.started():
        cores.archived()
        cores.write(*NAMES)
        cores.archived()
    core_1 = cores.path / "core-1"
    shutil.copytree(cores.joint / "core-01", core_1)
    with cores.started():
        cores.archived()
        cores.write(*NAMES)
        cores.archived()
    shutil.rmtree(cores.joint / "core-01")
    shutil.copytree(core_1, cores.joint / "core-01")
    of_core_0 = next(name for name in NAMES if not layout_of(Path(cores.config.data_dir)).slots.core_of(name))
    with pytest.raises(
        topics.UsageError, match=f"upto is seq 3 of topic {of_core_0}, written at .* not have it of all cores.*: name "
    ):
        cores.restored("no", upto=(of_core_0, 3))
    assert cores.restored("made", upto=(of_core_0, 2)).counts()[NAMES.index(of_core_0)] == 2


def remove_before(cores: Cores, before_ms: int, core: int = 0, retain_ms: int = 1, apart_ms: int = 1) -> None:
    """Have a core remove what no restore to a time from `before_ms` on needs."""
    line = (Path(cores.config.data_dir) / "archive-of-cores").read_text().split()[1]
    with own_loop(cores.config) as loop:
        of_core = f"{cores.joint}/core-{core:02d}"
        loop.run_task(remove_old_joints(loop, of_core, line, before_ms, retain_ms=retain_ms, apart_ms=apart_ms))


@pytest.fixture
def three(cores: Cores, times: list[int]) -> int:
    """A time of three cores, after that of two. Each has several bases. They are stopped."""
    assert times
    every = cores.config
    cores.config = replace(every, archive_base_every_ms=1)
    with cores.started(3):
        for loop, stored in cores.running:
            loop.run_until(lambda stored=stored: len(stored.engine.archive.state.bases) > 2)
        cores.archived()
        cores.write(*NAMES)
        at_ms = cores.archived()
    cores.config = every
    return at_ms


def test_what_was_before_is_removed_once_all_cores_lead_back_as_far(cores: Cores, three: int) -> None:
    ((first, _, _), (last, begin_ms, end_ms)) = topics.verify_backup(cores.archive).ranges
    assert last == str(cores.joint)
    remove_before(cores, begin_ms - 1)
    remove_before(cores, end_ms, core=1)
    remove_before(cores, end_ms, retain_ms=end_ms)
    remove_before(cores, end_ms, apart_ms=0)
    assert Path(first).exists()
    remove_before(cores, end_ms)
    assert [*cores.archive.iterdir()] == [cores.joint]
    assert cores.restored("made", three).counts() == [8] * len(NAMES)
    assert topics.verify_backup(cores.archive).sound
    with cores.started(3):
        cores.write(*NAMES)
        cores.archived()
    assert cores.restored("end").counts() == [10] * len(NAMES)


def test_nothing_of_before_is_removed_while_one_core_does_not_lead_back_as_far(cores: Cores, three: int) -> None:
    """R-CORE-18: only the first of its bases is left, which is as old as those after it say."""
    first, end_ms = min(cores.archive.iterdir()), three
    (_, *later) = sorted(cores.joint.glob("core-02/*/bases/*"), key=lambda base: backup_age(base.name))
    for base in later:
        shutil.move(base, cores.path / base.name)
    remove_before(cores, end_ms)
    assert first.exists()
    for base in later:
        shutil.move(cores.path / base.name, base)
    for part in ("core-02", "slot-map", "archive.json", next(cores.joint.glob("core-01/*Z-*/archive.json"))):
        (cores.joint / part).rename(cores.path / "away")
        remove_before(cores, end_ms)
        (cores.path / "away").rename(cores.joint / part)
        assert first.exists(), part
    remove_before(cores, end_ms)
    assert not first.exists()


def test_timelines_of_before_that_are_later_damaged_or_of_others_stay(cores: Cores, three: int) -> None:
    first = min(cores.archive.iterdir())
    note = next(first.glob("core-01/*Z-*/archive.json"))
    good = note.read_bytes()
    found = unpack_note(good, "")
    for changed in (
        pack_description(msgspec.structs.replace(found, line="2026-01-01T00-00-00Z-00000000")),
        pack_description(msgspec.structs.replace(found, upto_ms=three + 1_000_000)),
        good[:-3],
        None,
    ):
        note.unlink()
        if changed is not None:
            note.write_bytes(changed)
        remove_before(cores, three)
        assert first.exists()
        note.touch()
    note.write_bytes(good)
    remove_before(cores, three)
    assert not first.exists()


def test_a_removal_that_was_killed_is_taken_for_no_part_and_ended_by_the_next(cores: Cores, three: int) -> None:
    first = min(cores.archive.iterdir())
    removed = first.rename(f"{first}.removed")
    shutil.rmtree(removed / "core-00")
    assert [path for path, _, _ in topics.verify_backup(cores.archive).ranges] == [str(cores.joint)]
    assert cores.restored("made").counts() == [8] * len(NAMES)
    remove_before(cores, three)
    assert [*cores.archive.iterdir()] == [cores.joint]


def test_what_is_removed_while_it_is_verified_is_no_damage(
    cores: Cores, three: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(cores.archive.iterdir())

    async def verify(loop: Loop, timelines: list[Timeline]) -> VerifiedTimelines:
        first.rename(f"{first}.removed")
        return await verify_timelines(loop, timelines)

    monkeypatch.setattr("topics.embedded.backup_calls.verify_timelines", verify)
    found = topics.verify_backup(cores.archive)
    assert found.findings == []
    assert [path for path, _, _ in found.ranges] == [str(cores.joint)]
    assert found.ranges[0][2] > three


def test_a_server_of_one_core_removes_a_joint_timeline_by_the_end_of_its_cores(cores: Cores, times: list[int]) -> None:
    """It took it for one that ends before all times, also while its cores were running."""
    line = (Path(cores.config.data_dir) / "archive-of-cores").read_text().split()[1]
    with own_loop(cores.config) as loop:
        loop.run_task(remove_old_timelines(loop, f"{cores.archive}/another", line, times[-1]))
        assert cores.restored("made", times[1]).counts() == [2] * len(NAMES)
        ((_, _, end_ms),) = topics.verify_backup(cores.archive).ranges
        another, later_ms = f"{cores.archive}/another", end_ms + 60_000
        loop.run_task(remove_old_timelines(loop, another, line, later_ms, has_joints=False))
        assert cores.joint.exists(), "bases have no distance, by which a clock that is ahead is noticed"
        loop.run_task(remove_old_timelines(loop, another, line, later_ms))
    assert not [*cores.archive.iterdir()]


def test_cores_that_run_remove_what_was_before_them(cores: Cores, times: list[int]) -> None:
    assert times
    first = cores.joint
    cores.config = replace(cores.config, archive_base_every_ms=1, archive_retain_ms=1)
    with cores.started(3):
        cores.write(*NAMES)
        while first.exists():
            cores.archived()
        at_ms = cores.archived()
        assert at_ms
    assert topics.verify_backup(cores.archive).sound
    assert cores.restored("end").counts() == [8] * len(NAMES)


def test_a_core_keeps_what_the_newest_time_of_all_needs_while_another_one_archives_nothing(cores: Cores) -> None:
    """R-CORE-18: that time ends where the slower one ends, which is before all that is to be kept."""
    cores.config = replace(cores.config, archive_base_every_ms=1, archive_retain_ms=1)
    with cores.started():
        cores.write(*NAMES)
        cores.archived()
        cores.archived()  # the base of the second one is older than the end of the first one
        (loop, stored), (_, slower) = cores.running
        name = next(name for name in NAMES if layout_of(Path(cores.config.data_dir)).slots.core_of(name) == 0)
        end_ms = slower.engine.archive.state.upto_ms
        loop.run_until(lambda: loop.clock.now_ms() > end_ms)
        for _ in range(4):
            made = stored.engine.archive.state.bases
            write_two(loop, stored, name)
            loop.run_until(lambda made=made: stored.engine.archive.state.bases != made)
        ((_, _, found_ms),) = topics.verify_backup(cores.archive).ranges
        assert found_ms == end_ms
        assert cores.restored("made").counts() == [2] * len(NAMES)
        kept = [*cores.joint.glob("core-00/*/bases/*")]
        while any(base.exists() for base in kept):
            cores.archived()
    assert topics.verify_backup(cores.archive).sound


def test_retention_asks_the_disk_of_the_archive_in_threads_alone(
    cores: Cores, three: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not answer, and the loop serves clients."""
    first, here = min(cores.archive.iterdir()), threading.get_ident()

    def in_threads(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(self: object, *arguments: Any) -> Any:
            assert threading.get_ident() != here, arguments
            return call(self, *arguments)

        return checked

    with monkeypatch.context() as patched:
        for name in ("list_directory", "file_size", "lstat"):
            patched.setattr(BlockingCalls, name, in_threads(getattr(BlockingCalls, name)))
        remove_before(cores, three)
    assert not first.exists()


def test_what_it_lacks_is_named(cores: Cores, times: list[int]) -> None:
    assert times
    (cores.joint / "slot-map").rename(cores.path / "away")
    with pytest.raises(topics.CorruptError, match="slot-map is missing, which says what each core owns"):
        cores.restored("no")
    assert any("slot-map is missing" in each for each in topics.verify_backup(cores.archive).findings)
    (cores.path / "away").rename(cores.joint / "slot-map")
    (cores.joint / "core-01").rename(cores.path / "away")
    with pytest.raises(topics.UsageError, match="no time of all cores"):
        cores.restored("no")
    assert not topics.verify_backup(cores.archive).sound


def test_another_number_of_cores_has_another_timeline_and_earlier_times_stay(cores: Cores, times: list[int]) -> None:
    first = cores.joint
    with cores.started():
        assert cores.joint == first, "the same cores continue it"
    with cores.started(3):
        assert cores.joint > first
        cores.archived()
        cores.write(*NAMES)
        middle = cores.archived()
        cores.write(*NAMES)
        cores.archived()
    assert [path for path, _, _ in topics.verify_backup(cores.archive).ranges][-1] == str(cores.joint)
    for name, at, count in (("made-1", times[1], 2), ("made-2", middle, 8), ("made-3", None, 10)):
        made = cores.restored(name, at)
        assert made.counts() == [count] * len(NAMES)
        assert next_seq(made) > 10 + SKIPPED, "also of those that have moved since"


def test_what_was_restored_has_a_timeline_of_the_same_line(cores: Cores, times: list[int]) -> None:
    made = cores.restored("made", times[1])
    with made.started():
        assert made.joint > cores.joint
        made.write(*NAMES)
        made.archived()
    assert cores.restored("end").counts() == [4] * len(NAMES)
    assert cores.restored("earlier", times[2]).counts() == [4] * len(NAMES)
    assert cores.restored("first", source=cores.joint).counts() == [6] * len(NAMES)
    with cores.started():
        cores.archived()
    with pytest.raises(topics.UsageError, match="it is not clear which is the newest: name one of them"):
        cores.restored("no")


def test_a_later_timeline_without_a_time_of_all_is_named(cores: Cores, times: list[int]) -> None:
    with cores.started(3):
        cores.write(*NAMES)
        cores.archived()
    shutil.rmtree(next(cores.joint.glob("core-02/*/bases")))
    result = topics.restore(cores.archive, cores.path / "made")
    assert result.backup != str(cores.joint)
    assert f"{cores.joint} has no time of all its cores yet, so it is left out" in result.damage
    with pytest.raises(topics.UsageError, match="no time of all cores yet"):
        topics.restore(cores.joint, cores.path / "no")


def test_one_that_has_just_been_begun_does_not_keep_earlier_times_from_being_restored(
    cores: Cores, times: list[int]
) -> None:
    """Its slot map was missed, which core 0 writes once it archives. The others may do so before."""
    first, end_ms = cores.joint, topics.verify_backup(cores.archive).ranges[0][2]
    with cores.started(3):
        cores.write(*NAMES)
        cores.archived()
    for gone in ("archive.json", "slot-map"):
        (cores.joint / gone).unlink()
    assert not topics.verify_backup(cores.archive).sound, "core 0 has a base, so it is damaged"
    (timeline,) = cores.joint.glob("core-00/*")
    shutil.rmtree(timeline / "bases")
    found = unpack_note((timeline / "archive.json").read_bytes(), "")
    fresh = msgspec.structs.replace(found, upto_ms=0, shards={})
    (timeline / "archive.json").write_bytes(pack_description(fresh))
    assert topics.verify_backup(cores.archive).sound
    result = topics.restore(cores.archive, cores.path / "made")
    assert (result.backup, result.taken_ms) == (str(first), end_ms)
    assert f"{cores.joint} has no time of all its cores yet, so it is left out" in result.damage
    assert cores.restored("earlier", times[1]).counts() == [2] * len(NAMES)


def test_one_core_before_and_after_is_of_the_same_line(tmp_path: Path) -> None:
    cores = Cores(tmp_path, "data")
    one = {"archive_dir": str(cores.archive), "archive_every_ms": 10, "io": "portable"}
    with topics.open(cores.config.data_dir, **one) as log:
        for name in NAMES:
            log.append(name, [1, 2])
    (alone,) = cores.archive.iterdir()
    with cores.started():
        cores.write(*NAMES)
        cores.archived()
    with own_loop(cores.config) as loop:
        assert loop.run_task(set_cores(loop, cores.config, 1)) is None
        loop.run_task(leave_joint(loop.files, cores.config.data_dir))
    with topics.open(cores.config.data_dir, **one) as log:
        for name in NAMES:
            log.append(name, [1, 2])
    with pytest.raises(topics.UsageError, match="the logs of one core and of several: name one of them"):
        cores.restored("no")
    made = cores.restored("made", source=cores.joint)
    assert made.counts() == [4] * len(NAMES)
    assert next_seq(made) > 6 + SKIPPED
    topics.restore(alone, tmp_path / "one", skipped_seqs=SKIPPED)
    with topics.open(tmp_path / "one", io="portable") as log:
        assert min(log.append(name, [1]).first_seq for name in NAMES) > 6 + SKIPPED


def test_a_backup_of_stopped_cores_makes_no_hole(cores: Cores, times: list[int]) -> None:
    assert backed_up_cores(cores.config, cores.path / "backups") is not None
    with cores.started():
        cores.write(*NAMES)
        cores.archived()
    ((_, begin_ms, _),) = topics.verify_backup(cores.archive).ranges
    assert begin_ms <= times[0]
    without = CliRunner().invoke(app, ["backup", "--data-dir", cores.config.data_dir, "--to", f"{cores.path}/backups"])
    assert "the archive would get a hole" in str(without.exception)
