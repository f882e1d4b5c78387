"""Which directories settings may name: none in another log, backup, archive or mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from topics.config import Config
from topics.errors import UsageError
from topics.store.backup.free_places import MIRROR, check_places, taken

TIMELINE = "2026-11-27T12-13-14Z-5f3a9c01"
TIMELINE_OF_DIGITS = "2026-11-27T12-13-14Z-50391201"
BACKUP = "2026-11-27T12-13-14Z"
TAKEN = [
    ("topics.json", "which is a data directory"),
    ("mirror.json", "which is a mirror"),
    (TIMELINE, "which is an archive"),
    (TIMELINE_OF_DIGITS, "which is an archive"),
    (BACKUP, "which has backups"),
    (f"{BACKUP}-2", "which has backups"),
]


def place(path: Path, entry: str) -> Path:
    """A directory that is known by this entry."""
    path.mkdir()
    (path / entry).touch()
    return path


@pytest.mark.parametrize(("entry", "found"), TAKEN)
def test_a_new_data_directory_in_another_thing_is_refused(tmp_path: Path, entry: str, found: str) -> None:
    taken = place(tmp_path / "taken", entry)
    for below in (taken / "data", taken / "a" / "data"):
        with pytest.raises(UsageError, match=f"data_dir is '{below}', in {taken}, {found}: name a directory elsewhere"):
            check_places(Config(data_dir=str(below)))


@pytest.mark.parametrize(("entry", "found"), TAKEN)
def test_a_log_that_is_in_another_thing_already_is_opened_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: str, found: str
) -> None:
    taken = place(tmp_path / "taken", entry)
    check_places(Config(data_dir=str(place(taken / "data", "topics.json"))))
    assert f"{taken}/data is in {taken}, {found}" in caplog.text


def test_a_data_directory_that_is_apart_is_taken_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_places(Config(data_dir=str(tmp_path / "new")))
    used = place(tmp_path / "data", "topics.json")
    backups, archive = place(tmp_path / "backups", BACKUP), place(tmp_path / "archive", TIMELINE)
    check_places(Config(data_dir=str(used), backup_dir=str(backups), archive_dir=str(archive)))
    assert not caplog.text


def test_an_archive_is_not_begun_where_backups_are(tmp_path: Path) -> None:
    backups = place(tmp_path / "backups", BACKUP)
    with pytest.raises(UsageError, match=f"archive_dir is '{backups}', which has backups: name a directory elsewhere"):
        check_places(Config(data_dir=str(tmp_path / "data"), archive_dir=str(backups)))


@pytest.mark.parametrize("setting", ["archive_dir", "backup_dir"])
def test_the_directory_that_a_data_directory_is_in_is_no_archive_and_has_no_backups(
    tmp_path: Path, setting: str
) -> None:
    """No restore could be made beside the data directory, as the documented drill does."""
    data = place(tmp_path / "data", "topics.json")
    with pytest.raises(UsageError, match=f"{setting} is '{tmp_path}', and the data directory '{data}' is in it"):
        check_places(Config(data_dir=str(data), **{setting: str(tmp_path)}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("setting", "entry"), [("archive_dir", TIMELINE), ("backup_dir", BACKUP)])
def test_a_log_that_has_such_copies_already_is_opened_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str, entry: str
) -> None:
    data = place(tmp_path / "data", "topics.json")
    (tmp_path / entry).touch()
    check_places(Config(data_dir=str(data), **{setting: str(tmp_path)}))  # type: ignore[arg-type]
    assert f"{data} is in {tmp_path}" in caplog.text


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (BACKUP, "a backup"),
        (f"{BACKUP}-2", "a backup"),
        (f"{BACKUP}.partial", "a backup"),
        (TIMELINE, "a part of an ar"),
    ],
)
def test_a_directory_with_the_name_of_a_backup_or_a_timeline_is_refused(tmp_path: Path, name: str, found: str) -> None:
    """The directory above would take it for one."""
    for below in (tmp_path / name, tmp_path / name / "a"):
        with pytest.raises(
            UsageError, match=f"backup_dir is '{below}', in {tmp_path}/{name}, which has the name of {found}"
        ):
            check_places(Config(data_dir=str(tmp_path / "data"), backup_dir=str(below)))


@pytest.mark.parametrize("timeline", [TIMELINE, TIMELINE_OF_DIGITS])
def test_a_mirror_has_no_backups_whatever_digits_its_timeline_has(tmp_path: Path, timeline: str) -> None:
    """One timeline in 43 has no letter among its digits, and was taken for a backup."""
    mirror = place(tmp_path / "mirror", timeline)
    (mirror / "mirror.json").touch()
    assert not taken(str(mirror), MIRROR)
