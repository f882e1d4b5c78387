"""Restores of an archive by time and by record, with the whole engine."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics import CorruptError, GapError, RequestError, StorageError, UsageError
from topics.embedded import restore_call
from topics.loop.loop import Loop
from topics.store.archive import verify_archive
from topics.store.archive.restore_point import RestorePoint
from topics.store.disk import data_directory

SKIPPED = 1000


class Archived(NamedTuple):
    path: Path
    after_third: int
    """Unix ms when there were three of the six records."""


@pytest.fixture
def archive(tmp_path: Path) -> Archived:
    """An archive: six records of `t`, a queue whose job is done, a topic that was created late."""
    path = tmp_path / "archive"
    with topics.open(tmp_path / "data", archive_dir=str(path), archive_every_ms=10, **SMALL) as log:
        log.put_topic("jobs", type="queue", leases_durable=True)
        log.append("jobs", ["a"])
        log.append("t", [{"n": 1}])
        while not list(path.glob("*/bases/*Z")):
            log.append("t2", ["a base is made beside this"])
        for n in (2, 3):
            log.append("t", [{"n": n}])
        after_third = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 <= after_third:
            pass  # what follows has another time
        log.append("t", [{"n": 4}, {"n": 5}])
        log.put_topic("late")
        log.append("late", ["x"])
        (job,) = log.claim("jobs", "worker")
        log.ack("jobs", "worker", [job])
        log.append("t", [{"n": 6}])
    return Archived(path, after_third)


def numbers(path: Path, *, open_jobs: int = 0) -> list[int]:
    with topics.open(path, **SMALL) as log:
        assert log.state("jobs").queue is not None
        assert len(log.claim("jobs", "another", limit=5)) == open_jobs
        return [record.data["n"] for record in log.page("t").records]


def first_new_seq(path: Path) -> int:
    with topics.open(path, **SMALL) as log:
        return log.append("t", ["new"]).first_seq


def test_the_end_of_an_archive_is_the_log_as_it_was_closed(archive: Archived, tmp_path: Path) -> None:
    made = topics.restore(archive.path, tmp_path / "new", skipped_seqs=SKIPPED)
    assert made.taken_ms == made.archived_ms
    assert made.damage == ""
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6]
    assert topics.fsck(tmp_path / "new").sound


def test_a_restore_to_a_time_states_the_end_of_later_timelines(archive: Archived, tmp_path: Path) -> None:
    """Records that were acknowledged in a log that was restored before are left out, too."""
    (first,) = archive.path.glob("*Z-*")
    topics.restore(archive.path, tmp_path / "second")
    with topics.open(tmp_path / "second", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        log.append("t", [{"n": 7}])
    end = topics.restore(archive.path, tmp_path / "end").archived_ms
    (second,) = set(archive.path.glob("*Z-*")) - {first}
    of_first = topics.restore(first, tmp_path / "of-first").archived_ms
    assert of_first < end == topics.restore(second, tmp_path / "of-second").archived_ms
    for number, ends in enumerate(({"at": archive.after_third}, {"upto": ("t", 3)})):
        made = topics.restore(archive.path, tmp_path / f"new{number}", **ends)  # type: ignore[arg-type]
        assert made.archived_ms == end


@pytest.mark.parametrize("upto", ["orders", ("orders", 1, 2), ("orders",), {"orders": 1}, 5])
def test_an_end_that_is_no_topic_and_seq_is_refused(upto: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'^upto is .*: use a topic and a seq, such as \("orders", 17\)$'):
        topics.restore(tmp_path, tmp_path / "new", upto=upto)


def test_a_time_leads_back_and_no_seq_is_given_out_twice(archive: Archived, tmp_path: Path) -> None:
    """Seqs up to the highest one of the archive, and those that are skipped, are reported as lost."""
    made = topics.restore(archive.path, tmp_path / "new", at=archive.after_third, skipped_seqs=SKIPPED)
    assert made.taken_ms == archive.after_third < made.archived_ms
    assert numbers(tmp_path / "new", open_jobs=1) == [1, 2, 3]
    with topics.open(tmp_path / "new", **SMALL) as log:
        with pytest.raises(RequestError, match="topic 'late' does not exist"):
            log.state("late")
        with pytest.raises(GapError) as caught:
            list(log.read("t", from_seq=6))
        assert caught.value.tombstone.reason == "crash"
        assert log.append("t", ["new"]).first_seq > 6 + SKIPPED


def test_topics_continue_above_the_seqs_of_later(archive: Archived, tmp_path: Path) -> None:
    """Far above those that were reserved at the restored time."""
    with topics.open(tmp_path / "data", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        last = log.append("t", [{"n": 7}] * 9000).last_seq
    topics.restore(archive.path, tmp_path / "new", at=archive.after_third, skipped_seqs=SKIPPED)
    with topics.open(tmp_path / "new", **SMALL) as log:
        assert log.append("t", ["new"]).first_seq > last + SKIPPED


def test_a_restored_log_has_a_timeline_of_its_own_and_the_old_one_stays(archive: Archived, tmp_path: Path) -> None:
    topics.restore(archive.path, tmp_path / "second", at=archive.after_third, skipped_seqs=SKIPPED)
    before = set(archive.path.glob("*/bases/*Z"))
    with topics.open(tmp_path / "second", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        while set(archive.path.glob("*/bases/*Z")) == before:
            log.append("t2", ["a base is made beside this"])
        fourth = log.append("t", [{"n": 40}]).first_seq
    topics.restore(archive.path, tmp_path / "third", skipped_seqs=SKIPPED)
    with topics.open(tmp_path / "third", **SMALL) as log:
        assert [record.data["n"] for record in log.page("t", from_seq=fourth - 1).records] == [40]
        assert log.append("t", ["new"]).first_seq > fourth + SKIPPED
    topics.restore(archive.path, tmp_path / "again", upto=("t", 6), skipped_seqs=SKIPPED)
    assert numbers(tmp_path / "again") == [1, 2, 3, 4, 5, 6]
    with topics.open(tmp_path / "again", **SMALL) as log:
        assert log.append("t", ["new"]).first_seq > fourth + SKIPPED, "clients know the other timeline's seqs, too"


def test_a_record_is_the_last_one_of_a_restore(archive: Archived, tmp_path: Path) -> None:
    topics.restore(archive.path, tmp_path / "new", upto=("t", 4))
    assert numbers(tmp_path / "new", open_jobs=1) == [1, 2, 3, 4, 5], "records of one write come together"
    topics.restore(archive.path, tmp_path / "newer", upto=("late", 1))
    with topics.open(tmp_path / "newer", **SMALL) as log:
        assert [record.data for record in log.page("late").records] == ["x"]


def archive_with_a_dormant_topic(tmp_path: Path) -> Path:
    """Make an archive whose newest base has `t` as nothing but rows of its snapshot."""
    path = tmp_path / "archive"
    options = {"archive_dir": str(path), "archive_every_ms": 10, "archive_base_every_ms": 1}
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [{"n": n} for n in range(1, 100)])
    with topics.open(tmp_path / "data", **options, **SMALL) as log:  # type: ignore[arg-type]
        while len(set(path.glob("*/bases/*Z*"))) < 2:
            log.append("t2", ["a base is made beside this"])
    return path


def test_a_record_is_found_of_a_topic_that_its_base_has_not_made(tmp_path: Path) -> None:
    path = archive_with_a_dormant_topic(tmp_path)
    with topics.open(tmp_path / "data", archive_dir=str(path), archive_every_ms=10, **SMALL) as log:
        seq = log.append("t", [{"n": 100}]).first_seq
        log.append("t", [{"n": 101}])
    topics.restore(path, tmp_path / "new", upto=("t", seq))
    with topics.open(tmp_path / "new", **SMALL) as log:
        assert [record.data["n"] for record in log.page("t").records] == [*range(1, 101)]


def test_a_record_of_a_topic_that_was_deleted_before_a_base_is_found(archive: Archived, tmp_path: Path) -> None:
    """Also where a topic of that name was created again, and has fewer records."""
    before = set(archive.path.glob("*/bases/*Z*"))
    options = {"archive_dir": str(archive.path), "archive_every_ms": 10, "archive_base_every_ms": 1}
    with topics.open(tmp_path / "data", **options, **SMALL) as log:  # type: ignore[arg-type]
        log.delete_topic("t")
        log.append("t", ["again"])
        while len(set(archive.path.glob("*/bases/*Z*")) - before) < 3:
            log.append("t2", ["a base is made beside this"])
    topics.restore(archive.path, tmp_path / "new", upto=("t", 5))
    assert numbers(tmp_path / "new", open_jobs=1) == [1, 2, 3, 4, 5]
    topics.restore(archive.path, tmp_path / "newer", upto=("t", 1))
    with topics.open(tmp_path / "newer", **SMALL) as log:
        assert [record.data for record in log.page("t").records] == ["again"], "the newest record with this seq"


def add_timeline(archive: Archived, tmp_path: Path) -> int:
    """Restore to the third record, and continue that log in the same archive; return its last seq."""
    topics.restore(archive.path, tmp_path / "second", at=archive.after_third, skipped_seqs=SKIPPED)
    with topics.open(tmp_path / "second", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        while len(list(archive.path.glob("*/bases/*Z/backup.json"))) < 2:
            log.append("t2", ["a base is made beside this"])
        return log.append("t", [{"n": 40}]).last_seq


def test_a_topic_that_was_deleted_in_another_timeline_continues_above_the_seqs_of_that_one(
    archive: Archived, tmp_path: Path
) -> None:
    """The newest base of that timeline does not know the topic, and its log does not name it."""
    options = {"archive_dir": str(archive.path), "archive_every_ms": 10, "archive_base_every_ms": 1}
    topics.restore(archive.path, tmp_path / "second", at=archive.after_third, skipped_seqs=SKIPPED)
    before = set(archive.path.glob("*/bases/*Z*/backup.json"))
    with topics.open(tmp_path / "second", **options, **SMALL) as log:  # type: ignore[arg-type]
        while len(set(archive.path.glob("*/bases/*Z*/backup.json")) - before) < 1:
            log.append("t2", ["a base is made beside this"])
        known = log.append("t", [{"n": 40}] * 3 * SKIPPED).last_seq
        log.delete_topic("t")
        before = set(archive.path.glob("*/bases/*Z*/backup.json"))
        while len(set(archive.path.glob("*/bases/*Z*/backup.json")) - before) < 2:
            log.append("t2", ["a base is made beside this"])
    topics.restore(archive.path, tmp_path / "third", at=archive.after_third, skipped_seqs=SKIPPED)
    assert first_new_seq(tmp_path / "third") > known + SKIPPED


def test_a_topic_continues_above_the_seqs_of_a_timeline_that_has_no_base_yet(archive: Archived, tmp_path: Path) -> None:
    """Its server was killed before that: the next restore gave out the same seqs again."""
    (first,) = archive.path.glob("*Z-*")
    known = add_timeline(archive, tmp_path)
    (second,) = set(archive.path.glob("*Z-*")) - {first}
    shutil.rmtree(second / "bases")
    topics.restore(archive.path, tmp_path / "third", at=archive.after_third, skipped_seqs=SKIPPED)
    assert first_new_seq(tmp_path / "third") > known + SKIPPED


def test_a_topic_that_was_created_again_later_continues_above_the_seqs_of_then(
    archive: Archived, tmp_path: Path
) -> None:
    """It had another id then, but clients know it by its name."""
    with topics.open(tmp_path / "data", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        log.delete_topic("t")
        known = log.append("t", [{"n": number} for number in range(3 * SKIPPED)]).last_seq
    topics.restore(archive.path, tmp_path / "new", at=archive.after_third, skipped_seqs=SKIPPED)
    assert first_new_seq(tmp_path / "new") > known + SKIPPED


def test_a_timeline_that_is_named_continues_above_the_seqs_of_the_others(archive: Archived, tmp_path: Path) -> None:
    (first,) = archive.path.glob("*Z-*")
    known = add_timeline(archive, tmp_path)
    made = topics.restore(first, tmp_path / "third", at=archive.after_third, skipped_seqs=SKIPPED)
    assert made.backup.startswith(str(first))
    assert first_new_seq(tmp_path / "third") > known + SKIPPED


@pytest.mark.parametrize("text", [b"{", None])
def test_a_timeline_is_restored_beside_one_whose_note_is_damaged(
    archive: Archived, tmp_path: Path, text: bytes | None
) -> None:
    """It is the remedy that a restore of the archive names. Seqs of the damaged timeline count, too."""
    (first,) = archive.path.glob("*Z-*")
    known = add_timeline(archive, tmp_path)
    (second,) = set(archive.path.glob("*Z-*")) - {first}
    if text is None:
        (second / "archive.json").unlink()
    else:
        (second / "archive.json").write_bytes(text)
    with pytest.raises(StorageError, match="(?i)name another timeline"):
        topics.restore(archive.path, tmp_path / "new", skipped_seqs=SKIPPED)
    made = topics.restore(first, tmp_path / "new", skipped_seqs=SKIPPED)
    assert f"{second}/archive.json" in made.damage
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6]
    assert first_new_seq(tmp_path / "new") > known + SKIPPED


def test_a_restore_that_fails_leaves_nothing(archive: Archived, tmp_path: Path) -> None:
    for path in archive.path.glob("*/log/shard-00/*"):
        path.unlink()
    with pytest.raises(CorruptError, match="it is missing. Restore to an earlier time"):
        topics.restore(archive.path, tmp_path / "new")
    assert [path.name for path in tmp_path.glob("new*")] == []


def test_a_restore_begins_anew_if_the_server_removes_a_base_meanwhile(
    archive: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with: there is no log in archive/.../bases/..., although the archive has the time."""
    options = {"archive_dir": str(archive.path), "archive_every_ms": 10, "archive_base_every_ms": 1}
    with topics.open(tmp_path / "data", **options, **SMALL) as log:  # type: ignore[arg-type]
        while len(list(archive.path.glob("*/bases/*Z*/backup.json"))) < 2:
            log.append("t2", ["a base is made beside this"])
    removed: list[Path] = []
    with_ends = restore_call.with_ends

    async def remove_a_base(loop: Loop, point: RestorePoint) -> RestorePoint:
        if not removed:
            removed.append(Path(point.base.path))
            shutil.rmtree(point.base.path)
        return await with_ends(loop, point)

    monkeypatch.setattr(restore_call, "with_ends", remove_a_base)
    made = topics.restore(archive.path, tmp_path / "new")
    assert made.damage == ""
    assert made.backup != str(removed[0])
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6]
    assert [path.name for path in tmp_path.glob("new*")] == ["new"]


def test_a_restore_of_a_named_timeline_begins_anew_if_a_base_of_another_one_is_removed(
    archive: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = archive.path.glob("*Z-*")
    known = add_timeline(archive, tmp_path)
    (base,) = set(archive.path.glob("*Z-*/bases/*Z")) - set(first.glob("bases/*Z"))
    with_ends = restore_call.with_ends

    async def remove_a_base(loop: Loop, point: RestorePoint) -> RestorePoint:
        if base.exists():
            shutil.rmtree(base)
        return await with_ends(loop, point)

    monkeypatch.setattr(restore_call, "with_ends", remove_a_base)
    topics.restore(first, tmp_path / "new", skipped_seqs=SKIPPED)
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6]
    assert first_new_seq(tmp_path / "new") > known + SKIPPED


def test_a_verification_leaves_out_a_base_that_the_server_removes_meanwhile(
    archive: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"archive_dir": str(archive.path), "archive_every_ms": 10, "archive_base_every_ms": 1}
    with topics.open(tmp_path / "data", **options, **SMALL) as log:  # type: ignore[arg-type]
        while len(list(archive.path.glob("*/bases/*Z*/backup.json"))) < 2:
            log.append("t2", ["a base is made beside this"])
    check_backup = verify_archive.check_backup
    removed: list[str] = []

    async def remove_the_first(loop: Loop, directory: str) -> list[str]:
        if not removed:
            removed.append(directory)
            shutil.rmtree(directory)
        return await check_backup(loop, directory)

    monkeypatch.setattr(verify_archive, "check_backup", remove_the_first)
    assert topics.verify_backup(archive.path).findings == []
    assert removed


def test_a_datetime_needs_a_zone(archive: Archived, tmp_path: Path) -> None:
    at = datetime.fromtimestamp(archive.after_third / 1000, UTC)
    topics.restore(archive.path, tmp_path / "new", at=at)
    assert numbers(tmp_path / "new", open_jobs=1) == [1, 2, 3]
    with pytest.raises(UsageError, match="without a zone"):
        topics.restore(archive.path, tmp_path / "other", at=at.replace(tzinfo=None))


def test_what_an_archive_does_not_have_is_refused_and_nothing_is_made(archive: Archived, tmp_path: Path) -> None:
    for options, why in (
        ({"at": 5}, "at is 1970-01-01T00:00:00.005Z, and the archive begins at"),
        ({"at": archive.after_third + 10**9}, "is not in the archive: name"),
        ({"upto": ("t", 99)}, "upto is seq 99 of topic t, whose write is not in the archive"),
        ({"upto": ("t", 1)}, "upto is seq 1 of topic t, whose write is not in the archive"),
        ({"at": 5, "upto": ("t", 1)}, "leave out one of them"),
        ({"at": -1}, "at is -1: use an integer"),
        ({"at": 253_402_300_800_000}, "at is 253402300800000: use an integer, 0 to"),
        ({"upto": ("t", 0)}, "use an integer, 1 to"),
    ):
        with pytest.raises(UsageError, match=why):
            topics.restore(archive.path, tmp_path / "new", **options)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.glob("new*")] == []


def test_a_backup_has_one_time(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
        made = log.backup(tmp_path / "backups")
    with pytest.raises(UsageError, match="is no archive"):
        topics.restore(made.path, tmp_path / "new", at=5)


def test_an_archive_is_verified(archive: Archived) -> None:
    found = topics.verify_backup(archive.path)
    assert found.sound, found.findings
    assert found.path == str(archive.path)
    assert found.log_records is not None
    assert found.log_records >= 6, "five records of t and that of late, at least, came after the base"


def test_a_note_that_is_damaged_or_missing_hides_no_other_damage(archive: Archived, tmp_path: Path) -> None:
    """A verification ended with it, and that it was missing was no damage."""
    (first,) = archive.path.glob("*Z-*")
    add_timeline(archive, tmp_path)
    (second,) = set(archive.path.glob("*Z-*")) - {first}
    snapshot = next(first.glob("bases/*Z/snapshots/*"))
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    note = second / "archive.json"
    note.write_bytes(note.read_bytes()[:-1])
    for flaw in (f"{note} does not match its checksum", f"{note} is missing: name another timeline, or one of its"):
        found = topics.verify_backup(archive.path)
        assert any(finding.startswith(flaw) for finding in found.findings), found.findings
        assert any(str(snapshot) in finding for finding in found.findings)
        assert found.taken_ms > archive.after_third
        note.unlink(missing_ok=True)


def test_a_timeline_without_its_note_is_named_as_one(archive: Archived, tmp_path: Path) -> None:
    """`topics verify ARCHIVE` said that its note was missing, and `topics verify TIMELINE` that no backup was there."""
    (timeline,) = archive.path.glob("*Z-*")
    (timeline / "archive.json").unlink()
    said = f"{timeline}/archive.json is missing: name another timeline, or "
    assert any(finding.startswith(said) for finding in topics.verify_backup(timeline).findings)
    with pytest.raises(StorageError, match=f"{said}restore one of {timeline}/bases, as a backup"):
        topics.restore(timeline, tmp_path / "new")


def test_an_archive_of_another_user_that_can_be_read_is_restored(
    archive: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where topics of a base are looked up, as for a record."""
    monkeypatch.setattr(data_directory, "refuse_unsafe", _refuse_archives)
    topics.restore(archive.path, tmp_path / "new", upto=("t", 4))
    assert numbers(tmp_path / "new", open_jobs=1) == [1, 2, 3, 4, 5]


def _refuse_archives(_ring: object, path: str) -> None:
    assert "/archive/" not in path, "its owner is asked for"


def test_a_link_to_an_archive_is_followed(archive: Archived, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(archive.path)
    (tmp_path / "mine").symlink_to(tmp_path / "data")
    with topics.open(tmp_path / "data", archive_dir=str(tmp_path / "link"), archive_every_ms=10, **SMALL) as log:
        log.append("t", [{"n": 7}])
    topics.restore(tmp_path / "link", tmp_path / "new")
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(UsageError, match="archive_dir is .* and is lost with it: name"):
        topics.open(tmp_path / "data", archive_dir=str(tmp_path / "mine" / "archive"))


def test_an_archive_in_the_log_that_it_is_to_replace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="archive_dir is .* and is lost with it: name"):
        topics.open(tmp_path / "data", archive_dir=str(tmp_path / "data" / "archive"))


def test_an_archive_of_several_servers_is_refused_with_its_timelines(archive: Archived, tmp_path: Path) -> None:
    first = next(archive.path.glob("*Z-*"))
    with topics.open(tmp_path / "other", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        log.append("t", [{"n": 100}])
        while len(list(archive.path.glob("*/bases/*Z/backup.json"))) < 2:
            log.append("t2", ["a base is made beside this"])
    for end in ({}, {"upto": ("t", 1)}):
        with pytest.raises(UsageError, match=f"several servers: name a timeline of one of them: .*{first.name} .up to"):
            topics.restore(archive.path, tmp_path / "new", **end)
    topics.restore(first, tmp_path / "new", skipped_seqs=SKIPPED)
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6]


def test_a_restored_log_is_of_the_line_of_what_it_was_restored_from(archive: Archived, tmp_path: Path) -> None:
    first = Path(topics.restore(archive.path, tmp_path / "new", skipped_seqs=SKIPPED).backup)
    with topics.open(tmp_path / "new", archive_dir=str(archive.path), archive_every_ms=10, **SMALL) as log:
        log.append("t", [{"n": 7}])
        while len(list(archive.path.glob("*/bases/*Z/backup.json"))) < 2:
            log.append("t2", ["a base is made beside this"])
    second = Path(topics.restore(archive.path, tmp_path / "again", skipped_seqs=SKIPPED).backup)
    assert second.parents[1] != first.parents[1]
    assert {second.parents[1], first.parents[1]} == set(archive.path.glob("*Z-*"))


@pytest.mark.parametrize("before", [0, 1])
def test_a_record_as_an_end_is_of_the_newest_topic_also_if_that_is_in_another_shard(
    tmp_path: Path, before: int
) -> None:
    """Ids are given to the shards by turns, and the first shard with such a seq was taken."""
    archive, settings = tmp_path / "archive", {"archive_every_ms": 10, "wal_shards": 2}
    with topics.open(tmp_path / "data", archive_dir=str(archive), **settings, **SMALL) as log:  # type: ignore[arg-type]
        while not list(archive.glob("*/bases/*Z/backup.json")):
            log.topics()
        for number in range(before):
            log.append(f"other-{number}", [0])
        for life in (1, 2):
            for number in range(5):
                log.append("t", [[life, number]])
            if life == 1:
                log.delete_topic("t")
    topics.restore(archive, tmp_path / "new", upto=("t", 3), skipped_seqs=SKIPPED)
    with topics.open(tmp_path / "new", **SMALL) as log:
        assert [record.data for record in log.page("t").records] == [[2, 0], [2, 1], [2, 2]]


def test_a_record_that_a_router_copied_is_an_end_of_a_restore(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "data", archive_dir=str(archive), archive_every_ms=10, **SMALL) as log:
        log.append("src", [0])
        log.put_router("copies", "src", "dst")
        while not list(archive.glob("*/bases/*Z/backup.json")):
            log.append("t2", ["a base is made beside this"])
        for number in range(1, 10):
            log.append("src", [number])
            while log.state("dst").head_seq < number:
                pass  # each is copied in a step of its own
    topics.restore(archive, tmp_path / "new", upto=("dst", 5), skipped_seqs=SKIPPED)
    with topics.open(tmp_path / "new", **SMALL) as log:
        log.delete_router("copies")
        assert [record.data for record in log.page("dst").records][:5] == [1, 2, 3, 4, 5]
        assert len(log.page("dst").records) < 9


def test_a_restore_into_what_it_would_become_a_part_of_is_refused(archive: Archived, tmp_path: Path) -> None:
    source = Path(archive.path)
    with pytest.raises(UsageError, match="which is an archive: name a path elsewhere"):
        topics.restore(source, source / "new")
    timeline = next(source.glob("*Z-*"))
    with pytest.raises(UsageError, match="which is of an archive: name a path elsewhere"):
        topics.restore(timeline, timeline / "log" / "new")
    with pytest.raises(UsageError, match="which is an archive: name a path elsewhere"):
        topics.restore(timeline, source / "new")
    with topics.open(tmp_path / "other", **SMALL) as log:
        log.append("orders", [1])
        with pytest.raises(UsageError, match="which is a data directory: name a path elsewhere"):
            topics.restore(source, tmp_path / "other" / "new")
    with pytest.raises(UsageError, match="cannot be made: .*: name a path where you may write"):
        topics.restore(source, "/proc/new")
    (tmp_path / "loop").symlink_to("loop")
    for nowhere in ("loop", "n" * 300):
        with pytest.raises(UsageError, match="cannot be made: .*(many|long).*: name a path where you may"):
            topics.restore(source, tmp_path / nowhere / "new")
    assert not (source / "new").exists()
    assert not (tmp_path / "other" / "new").exists()


def test_nothing_is_restored_into_an_archive_of_another_log(archive: Archived, tmp_path: Path) -> None:
    copy = shutil.copytree(archive.path, tmp_path / "copy")
    for to in (archive.path / "new", archive.path / "below" / "new"):
        with pytest.raises(UsageError, match="which is an archive: name a path elsewhere"):
            topics.restore(copy, to)


def test_a_directory_above_that_may_not_be_listed_is_passed(
    archive: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode 0711 lets a user through: root, who runs these tests, could list it, too."""
    unlisted, names_of = list[str](), os.listdir

    def listdir(path: str) -> list[str]:
        if path == str(tmp_path):
            unlisted.append(path)
            raise PermissionError(13, "Permission denied", path)
        return names_of(path)

    monkeypatch.setattr(os, "listdir", listdir)
    topics.restore(archive.path, tmp_path / "new")
    assert (numbers(tmp_path / "new"), bool(unlisted)) == ([1, 2, 3, 4, 5, 6], True)


def test_a_directory_with_backups_beside_an_archive_is_refused_with_both(archive: Archived, tmp_path: Path) -> None:
    (archive.path / "2026-11-29T04-29-11Z").mkdir()
    both = "has backups, such as 2026-11-29T04-29-11Z, and a log, .*: name one of them"
    with pytest.raises(UsageError, match=both):
        topics.restore(archive.path, tmp_path / "new")
    with pytest.raises(UsageError, match=both):  # "sound" would say nothing about the backups
        topics.verify_backup(archive.path)


def test_a_timeline_whose_id_has_only_decimal_digits_is_no_backup(archive: Archived, tmp_path: Path) -> None:
    (archive.path / "2026-11-29T05-27-21Z-56272417").mkdir()
    topics.restore(archive.path, tmp_path / "new")
    assert numbers(tmp_path / "new") == [1, 2, 3, 4, 5, 6]


def test_an_archive_in_a_bucket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="archive_dir is 's3://b/x', and the server writes to a disk"):
        topics.open(tmp_path / "data", archive_dir="s3://b/x")
