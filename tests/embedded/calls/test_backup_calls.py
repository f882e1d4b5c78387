"""Backups of an open log, restored and verified."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics import BackupResult, CorruptError, GapError, NewRecord, RequestError, StorageError, UsageError
from topics.embedded import restore_call
from topics.store.backup.backup_manifest import BackupManifest
from topics.store.backup.restore_backup import copy_backup

SKIPPED = 1000


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    """A directory with one backup: a log of five records, the third deleted, and a queue of two jobs."""
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [NewRecord({"n": n}, tag=str(n)) for n in range(1, 6)])
        log.delete("t", match="3")
        log.put_topic("jobs", type="queue")
        log.append("jobs", ["a", "b"])
        made = log.backup(tmp_path / "backups")
        log.append("t", [{"n": "after the backup"}])
    assert made.path.startswith(str(tmp_path / "backups"))
    return tmp_path / "backups"


def restored(backups: Path, **options: Any) -> Path:
    new = backups.parent / "new"
    result = topics.restore(backups, new, skipped_seqs=SKIPPED, **options)
    assert result.path == str(new)
    assert (result.topics, result.records) == (2, 6)
    return new


def test_a_restored_log_has_what_the_backup_has(backups: Path) -> None:
    with topics.open(restored(backups), **SMALL) as log:
        assert [record.data["n"] for record in log.page("t").records] == [1, 2, 4, 5]
        assert [job.data for job in log.claim("jobs", "worker", limit=5)] == ["a", "b"]
    assert topics.fsck(backups.parent / "new").sound


def test_a_cursor_from_after_the_backup_is_told_and_no_seq_is_given_out_twice(backups: Path) -> None:
    with topics.open(restored(backups), **SMALL) as log:
        with pytest.raises(GapError) as caught:
            list(log.read("t", from_seq=5))
        assert (caught.value.tombstone.gap_from, caught.value.tombstone.gap_to) == (6, 5 + SKIPPED)
        assert caught.value.tombstone.reason == "crash"
        assert log.append("t", ["new"]).first_seq == 5 + SKIPPED + 1
    with topics.open(backups.parent / "new", **SMALL) as log, pytest.raises(GapError):
        list(log.read("t", from_seq=5))


def test_a_restored_topic_has_another_incarnation(backups: Path) -> None:
    with topics.open(backups.parent / "data", **SMALL) as log:
        before = log.state("t").incarnation
    with topics.open(restored(backups), **SMALL) as log:
        after = log.state("t").incarnation
    assert before != after
    with topics.open(backups.parent / "new", **SMALL) as log:
        assert log.state("t").incarnation == after


def test_the_newest_backup_is_restored_unless_another_is_named(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
        first = log.backup(tmp_path / "backups")
        log.append("t", [2])
        log.backup(tmp_path / "backups")
    topics.restore(tmp_path / "backups", tmp_path / "newest")
    topics.restore(first.path, tmp_path / "first")
    for name, expected in (("newest", [1, 2]), ("first", [1])):
        with topics.open(tmp_path / name, **SMALL) as log:
            assert [record.data for record in log.page("t").records] == expected


def test_a_damaged_backup_is_not_restored_and_verify_names_the_place(backups: Path) -> None:
    assert topics.verify_backup(backups).sound
    (pack,) = backups.rglob("pack-*")
    data = bytearray(pack.read_bytes())
    data[200] ^= 0xFF
    pack.write_bytes(data)
    found = topics.verify_backup(backups)
    assert not found.sound
    assert str(pack) in found.findings[0]
    with pytest.raises(CorruptError, match="does not match its checksum: restore another backup"):
        topics.restore(backups, backups.parent / "new")
    assert not (backups.parent / "new").exists()
    pack.unlink()
    with pytest.raises(CorruptError, match="is missing"):
        topics.restore(backups, backups.parent / "new")


def test_a_restore_removes_nothing_that_it_did_not_make(backups: Path) -> None:
    """Neither what has the name of its directory, nor what a link of that name leads to."""
    precious = backups.parent / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"")
    (backups.parent / "new.restoring").symlink_to(precious)
    restored(backups)
    assert (precious / "file").exists()
    assert sorted(path.name for path in backups.parent.glob("new*")) == ["new", "new.restoring"]


def test_of_two_restores_to_one_path_the_first_to_end_stays(backups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = backups.parent / "new"

    async def other_is_quicker(*given: Any) -> BackupManifest:
        manifest = await copy_backup(*given)
        new.mkdir()
        (new / "file").write_bytes(b"of the other restore")
        return manifest

    monkeypatch.setattr(restore_call, "copy_backup", other_is_quicker)
    with pytest.raises(UsageError, match="exists: restore to a path where nothing is"):
        topics.restore(backups, new)
    assert [path.name for path in backups.parent.glob("new*")] == ["new"]
    assert [path.name for path in new.iterdir()] == ["file"]


def test_links_to_the_directories_of_backups_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "other").mkdir()
    (tmp_path / "other link").symlink_to(tmp_path / "other")
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
        made = [log.backup(tmp_path / "link"), log.backup(tmp_path / "link" / "below")]
        (tmp_path / "mine").symlink_to(tmp_path / "data")
        with pytest.raises(UsageError, match="which they are to replace"):
            log.backup(tmp_path / "mine" / "backups")
    for number, backup in enumerate(made):
        assert topics.verify_backup(backup.path).sound
        topics.restore(tmp_path / "link", tmp_path / "other link" / f"new-{number}")
        with topics.open(tmp_path / "other" / f"new-{number}", **SMALL) as log:
            assert log.state("t").count == 1


def test_what_a_link_among_backups_leads_to_stays(tmp_path: Path) -> None:
    """A link with the name of a backup that was interrupted had all that it leads to removed."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    (tmp_path / "backups" / "2020-01-02T00-00-00Z.partial").mkdir(parents=True)
    for link in ("2020-01-01T00-00-00Z.partial", "2020-01-02T00-00-00Z.partial/wal"):
        (tmp_path / "backups" / link).symlink_to(tmp_path / "precious")
    with topics.open(tmp_path / "data", **SMALL) as log:
        made = log.backup(tmp_path / "backups")
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["file"]
    assert [str(path) for path in (tmp_path / "backups").iterdir()] == [made.path]


def test_a_directory_of_an_archive_takes_no_backups(tmp_path: Path) -> None:
    """Not of its own log, and not of another one, whose backup would be a base of that archive."""
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "data", archive_dir=str(archive), archive_every_ms=10, **SMALL) as log:
        while not list(archive.glob("*/archive.json")):
            log.append("t", [1])
        for to in (archive, archive / "below"):
            with pytest.raises(UsageError, match="which is the archive: name a directory elsewhere"):
                backup_when_free(log, to)
    (note,) = archive.glob("*/archive.json")
    with topics.open(tmp_path / "other", **SMALL) as log:
        log.append("t", [1])
        with pytest.raises(UsageError, match="which is of an archive: name a directory elsewhere"):
            log.backup(note.parent / "bases")
    with pytest.raises(UsageError, match="backup_dir is .*, in the archive .*: use another"):
        topics.open(tmp_path / "third", archive_dir=str(archive), backup_dir=str(archive / "backups"), **SMALL)
    with pytest.raises(UsageError, match="archive_dir is .*/third/a', in .*/third, and is lost with it: name a dir"):
        topics.open(tmp_path / "third", archive_dir=str(tmp_path / "third" / "a"), **SMALL)


def backup_when_free(log: topics.Log, to: Path) -> None:
    """Make a backup once the archive writes no base."""
    while True:
        try:
            log.backup(to)
        except RequestError as error:
            if error.code != "backup_running":
                raise
        else:
            return


def test_a_backup_below_another_one_or_below_another_log_is_refused(backups: Path, tmp_path: Path) -> None:
    """It would be damage of the one, and unknown files of the other."""
    (first, *_) = [each for each in backups.iterdir() if (each / "backup.json").exists()]
    topics.open(tmp_path / "third", **SMALL).close()
    with topics.open(tmp_path / "other", **SMALL) as log:
        for to, kind in ((first, "a backup"), (first / "below", "a backup"), (tmp_path / "third", "a data directory")):
            with pytest.raises(UsageError, match=f"which is {kind}: name a directory elsewhere"):
                log.backup(to)


def test_a_directory_has_backups_of_one_log(backups: Path, tmp_path: Path) -> None:
    """The backups of two were taken for those of one, and the newest of any log was restored."""
    (first,) = backups.glob("*Z")
    with topics.open(tmp_path / "other", **SMALL) as log:
        log.append("payments", [1])
        with pytest.raises(UsageError, match=f"in {backups}, which has those of another log, such as {first.name}: na"):
            log.backup(backups)
        assert list(backups.glob("*Z")) == [first]
        made = Path(log.backup(tmp_path / "own").path)
    second = made.rename(backups / "2099-01-01T00-00-00Z")
    for call in (topics.verify_backup, lambda path: topics.restore(path, tmp_path / "new")):
        with pytest.raises(UsageError, match=f"several logs: name a backup of one of them: {first}, {second}"):
            call(backups)
    assert topics.verify_backup(second).sound


def test_a_restored_log_makes_its_backups_beside_those_of_before(backups: Path, tmp_path: Path) -> None:
    topics.restore(backups, tmp_path / "new")
    with topics.open(tmp_path / "new", **SMALL) as log:
        log.append("t", [b"bytes"])  # which raises the format in the marker
        log.backup(backups)
    with topics.open(tmp_path / "new", **SMALL) as log:
        log.backup(backups)
    assert topics.verify_backup(backups).sound
    assert len(list(backups.glob("*Z*"))) == 3


def test_backups_of_an_older_build_take_those_of_any_log(backups: Path, tmp_path: Path) -> None:
    """They do not say which log they are of."""
    (first,) = backups.glob("*Z")
    marker = json.loads((first / "topics.json").read_bytes())
    del marker["log"]
    (first / "topics.json").write_text(json.dumps(marker))
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.backup(backups)
    assert topics.verify_backup(backups).sound


def test_nothing_is_restored_into_a_backup(backups: Path) -> None:
    (first, *_) = [each for each in backups.iterdir() if (each / "backup.json").exists()]
    with pytest.raises(UsageError, match="which is a backup: name a path elsewhere"):
        topics.restore(first, first / "below" / "new")


def test_what_cannot_be_restored_is_refused_with_the_remedy(backups: Path) -> None:
    existing = backups.parent / "existing"
    existing.mkdir()
    with pytest.raises(UsageError, match="exists: restore to a path where nothing is"):
        topics.restore(backups, existing)
    with pytest.raises(UsageError, match="there is no backup in"):
        topics.restore(backups.parent / "data", backups.parent / "new")
    with pytest.raises(UsageError, match="there is no backup in"):
        topics.restore(backups.parent / "nowhere", backups.parent / "new")
    with pytest.raises(UsageError, match="skipped_seqs is 0"):
        topics.restore(backups, backups.parent / "new", skipped_seqs=0)
    with pytest.raises(UsageError, match=r"skipped_seqs is \d+: use an integer, 1 to 281474976710656"):
        topics.restore(backups, backups.parent / "new", skipped_seqs=2**64 - 1)
    (backup,) = backups.glob("*Z")
    (backup / "backup.json").write_text("{")
    with pytest.raises(CorruptError, match=r"backup\.json does not match its checksum"):
        topics.restore(backups, backups.parent / "new")
    backup.rename(f"{backup}.partial")
    (backups / f"{backup.name}.partial" / "backup.json").unlink()
    with pytest.raises(UsageError, match="a backup that was not completed"):
        topics.restore(f"{backup}.partial", backups.parent / "new")
    assert not (backups.parent / "new").exists()


def test_what_cannot_be_backed_up_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
        with pytest.raises(UsageError, match="name a directory elsewhere"):
            log.backup(tmp_path / "data" / "backups")
        with pytest.raises(UsageError, match="to is 5: use the path of a directory"):
            log.backup(5)  # type: ignore[arg-type]
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(StorageError, match="the backup could not be written"):
            log.backup(tmp_path / "file")
        assert log.append("t", [2]).first_seq == 2
    with topics.open(tmp_path / "data", read_only=True, **SMALL) as log, pytest.raises(UsageError, match="read_only"):
        log.backup(tmp_path / "backups")


def test_a_directory_for_backups_does_not_have_the_name_of_one(tmp_path: Path) -> None:
    """The next backup above removed one of such a name with all in it, or no restore found a backup."""
    backups = tmp_path / "backups"
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
        log.backup(backups)
        for name in ("2031-01-01T00-00-00Z.partial", "2031-01-01T00-00-00Z", "2031-01-01T00-00-00Z-5f3a9c01"):
            with pytest.raises(UsageError, match=f"in {backups}/{name}, which has the name of a "):
                log.backup(backups / name)
    assert topics.verify_backup(backups).sound
    with pytest.raises(UsageError, match="which has the name of a backup"):
        topics.restore(backups, tmp_path / "2031-01-01T00-00-00Z")


def test_a_backup_can_be_awaited(tmp_path: Path) -> None:
    async def back_up(log: topics.Log) -> BackupResult:
        await log.aio.append("t", [1])
        return await log.aio.backup(tmp_path / "backups")

    with topics.open(tmp_path / "data", **SMALL) as log:
        made = asyncio.run(back_up(log))
    assert topics.verify_backup(made.path).sound


def test_a_second_backup_meanwhile_is_refused(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
        with log._driver.maintenance._turn:  # its thread could end the first one
            log._engine.backups.begin(str(tmp_path / "backups"), lambda _outcome: None)
            with pytest.raises(RequestError, match="another backup is being written") as caught:
                log.backup(tmp_path / "backups")
        assert caught.value.code == "backup_running"
