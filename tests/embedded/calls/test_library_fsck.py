"""The check and the rebuild of a directory, as functions."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL, copy_open, damage_record
from topics import LockedError, UsageError
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory with a record in a pack."""
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [{"needle": number} for number in range(3)])
    return tmp_path / "data"


def damaged(path: Path) -> Path:
    """Damage the second record of `path`."""
    with topics.open(path, **SMALL) as log:
        place = log.locate("t", 2)
    return damage_record(place)


def test_a_sound_directory_has_no_findings_and_is_left_as_it_is(path: Path) -> None:
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    for rebuild in (False, True):
        report = topics.fsck(path, rebuild)
        assert (report.sound, report.findings, report.rebuilt) == (True, [], None)
        assert report.report.records == 3
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before


def test_damage_is_reported_by_place_and_a_rebuild_keeps_the_rest(path: Path) -> None:
    file = damaged(path)
    report = topics.fsck(str(path))
    assert not report.sound
    assert report.findings[0].path.endswith(file.name)
    assert (report.findings[0].topic_id, report.findings[0].seq) == (1, 2)
    assert not topics.fsck(path).sound, "a check changes nothing"
    report = topics.fsck(path, rebuild=True)
    assert report.sound
    assert report.rebuilt is not None
    assert report.damage[0].path.endswith(file.name)
    with topics.open(path, **SMALL) as log:
        assert [record.data["needle"] for record in log.read("t", from_="first")] == [0, 2]


def test_open_with_a_rebuild_opens_what_is_sound(path: Path) -> None:
    damaged(path)
    with topics.open(path, rebuild=True, **SMALL) as log:
        assert [record.data["needle"] for record in log.read("t", from_="first")] == [0, 2]
        log.append("t", ["new"])
    with topics.open(path, rebuild=True, **SMALL) as log:
        assert [record.data for record in log.read("t", from_="first")][-1] == "new"


def test_an_open_with_a_rebuild_logs_what_it_could_not_restore(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    with topics.open(path, segment_max_events=100, pack_run_bytes=0, **SMALL) as log:
        for _ in range(10):
            log.append("t", list(range(100)))
            log.checkpoint()
        place = log.locate("t", 150)
    assert place is not None
    os.truncate(place.path, os.path.getsize(place.path) // 2)
    with caplog.at_level("WARNING", "topics"), topics.open(path, rebuild=True, **SMALL) as log:
        kept = len(list(log.read("t", from_="first")))
    assert kept < 1000
    messages = [entry.getMessage() for entry in caplog.records]
    assert any(message.startswith(f"damage: {place.path}") and "topic t" in message for message in messages)
    assert any(re.match(f"set aside: {re.escape(str(path))}/set-aside-", message) for message in messages)
    assert any(f"{kept} records of 1 topics are kept" in message and "are lost" in message for message in messages)
    caplog.clear()
    with caplog.at_level("WARNING", "topics"), topics.open(path, rebuild=True, **SMALL):
        pass
    assert not caplog.records, "the directory is sound by now"


def test_an_open_with_a_rebuild_logs_how_many_records_are_left_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with topics.open(tmp_path / "open", **SMALL) as log:
        for number in range(100):
            log.append("t", [number])
        copy = copy_open(tmp_path / "open", tmp_path / "data")
    file = min((copy / "wal").rglob("wal-*.log"))
    data = file.read_bytes()
    last = data.rindex(b"99")
    file.write_bytes(data[:last] + b"98" + data[last + 2 :])
    os.truncate(file, len(data) - 7)
    with caplog.at_level("WARNING", "topics"), topics.open(copy, rebuild=True, **SMALL) as log:
        assert len(log.page("t", from_="first").records) == 99
    assert "0 records of 0 topics are kept in segments and packs, and 99 records in the log;" in caplog.text


def test_a_rebuild_keeps_records_whose_topic_was_ephemeral_when_their_file_was_written(tmp_path: Path) -> None:
    """R-DUR-5: the file states that class, and the snapshot, in which the later class was, is lost."""
    path = tmp_path / "data"
    with topics.open(path, **SMALL) as log:
        log.put_topic("t", durability="disk")
        log.append("t", [1, 2, 3])
        log.put_topic("t", durability="ephemeral")
        log.checkpoint()
        log.put_topic("t", durability="disk")
    for snapshot in (path / "snapshots").iterdir():
        snapshot.unlink()
    topics.fsck(path, rebuild=True)
    for _ in range(2):
        with topics.open(path, **SMALL) as log:
            assert [record.data for record in log.page("t").records] == [1, 2, 3]
            assert log.state("t").config.durability == "disk"


def test_a_log_that_would_not_open_is_opened_after_a_rebuild(tmp_path: Path) -> None:
    with topics.open(tmp_path / "open", **SMALL) as log:
        log.put_topic("t", durability="fsync")
        for number in range(3):
            log.append("t", [number])
        copy = copy_open(tmp_path / "open", tmp_path / "data")
    file = min((copy / "wal").rglob("wal-*.log"))  # the next one may be prepared already
    with file.open("r+b") as damage:
        damage.seek(WAL_FIRST_BATCH_OFFSET + 100)
        damage.write(b"\xff" * 8)
    with pytest.raises(topics.CorruptError, match="topics fsck"):
        topics.open(tmp_path / "data", **SMALL)
    with topics.open(tmp_path / "data", rebuild=True, **SMALL) as log:
        log.append("u", [1])
    assert topics.fsck(tmp_path / "data").sound


@pytest.mark.parametrize("call", ["fsck", "open"])
def test_a_log_file_that_is_cut_short_is_mended_by_the_call_that_its_error_names(path: Path, call: str) -> None:
    newest = max((path / "wal").rglob("wal-*.log"))
    os.truncate(newest, newest.stat().st_size - 7)
    with pytest.raises(topics.CorruptError, match="cut short at .*topics fsck"):
        topics.open(path, **SMALL)
    if call == "fsck":
        report = topics.fsck(path, rebuild=True)
        assert report.sound
        assert report.rebuilt is not None
        assert [Path(copy).name for copy in report.rebuilt.set_aside] == [f"wal-shard-00-{newest.name}"]
    with topics.open(path, rebuild=call == "open", **SMALL) as log:
        assert [record.data["needle"] for record in log.read("t", from_="first")] == [0, 1, 2]
        assert log.append("t", ["new"]).last_seq > 3
    assert topics.fsck(path).sound


def test_a_directory_that_is_not_there_is_made_by_an_open_with_a_rebuild(tmp_path: Path) -> None:
    with topics.open(tmp_path / "new", rebuild=True, **SMALL) as log:
        log.append("t", [1])


def test_what_cannot_be_checked_is_a_sentence(tmp_path: Path, path: Path) -> None:
    with topics.open(path, **SMALL), pytest.raises(LockedError, match="then check again"):
        topics.fsck(path)
    (tmp_path / "other").mkdir()
    for name, words in (
        ("absent", "does not exist: use the path of a log that was made$"),
        ("other", "is not a data directory of topics$"),
    ):
        with pytest.raises(UsageError, match=words):
            topics.fsck(tmp_path / name)
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": 5}, "path is 5: use the path of a directory"),
        ({"path": "x", "rebuild": 1}, "rebuild is 1: use True or False"),
        ({"path": "x", "cold_dir": 0}, "cold_dir is 0: use the path of a directory"),
        ({"path": "x", "cold_dir": 5}, "cold_dir is 5: use the path of a directory"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        topics.fsck(**arguments)


def test_open_takes_no_other_value_for_rebuild(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rebuild is 'yes': use True or False"):
        topics.open(tmp_path, rebuild="yes")
