"""Backups of an open log, restored and verified."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics import BackupResult, CorruptError, GapError, NewRecord, RequestError, StorageError, UsageError

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


def test_a_restore_that_was_interrupted_is_begun_anew(backups: Path) -> None:
    left = backups.parent / "new.restoring"
    (left / "wal").mkdir(parents=True)
    (left / "wal" / "x").write_bytes(b"what an interrupted restore left")
    restored(backups)
    assert not left.exists()


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
        log._engine.backups.begin(str(tmp_path / "backups"), lambda _outcome: None)
        with pytest.raises(RequestError, match="another backup is being written") as caught:
            log.backup(tmp_path / "backups")
        assert caught.value.code == "backup_running"
