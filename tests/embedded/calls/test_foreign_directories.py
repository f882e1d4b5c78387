"""Directories that were never ours, and hold something."""

from __future__ import annotations

from pathlib import Path

import pytest

import topics


@pytest.mark.parametrize("name", ["passwd", "data", "wal.tar"])
def test_a_directory_that_holds_files_of_others_is_refused(tmp_path: Path, name: str) -> None:
    """R-LIFE-9: nothing is made in it."""
    (tmp_path / name).touch()
    with pytest.raises(topics.StorageError, match=rf"holds other files, such as {name}: use an empty directory"):
        topics.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_may_be_in_a_new_data_directory(tmp_path: Path) -> None:
    """R-LIFE-9: lost+found, names with a dot, what settings name, and what a killed start or doctor left."""
    for name in (".keep", "lost+found", "lock", "topics.json.tmp", "cold-directory.tmp", "doctor.tmp", "keys", "run"):
        (tmp_path / name).mkdir(mode=0o700) if name in {"lost+found", "run"} else (tmp_path / name).touch()
    settings = {"api_keys_file": str(tmp_path / "keys"), "port_file": str(tmp_path / "run" / "port")}
    with topics.open(tmp_path, **settings) as log:
        log.append("t", [1])
    (tmp_path / "notes.txt").touch()
    with topics.open(tmp_path) as log:  # it is ours now
        assert log.state("t").head_seq == 1
