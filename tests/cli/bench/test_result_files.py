"""Files of results: each has a name of its own, and is whole or not there."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tests.cli.bench.results_of_rounds import outcome, result
from topics.bench.result_files import check_writable, write_result
from topics.errors import UsageError

ONE = result({"topics": [outcome(1000)]})


def test_results_of_one_second_have_files_of_their_own(tmp_path: Path) -> None:
    """Five runs at once into one directory left four files of ten."""
    written = [path for _ in range(3) for path in write_result(ONE, tmp_path)]
    assert [path.name for path in written[::2]] == [
        "write-lone-20261126T180000Z.json",
        "write-lone-20261126T180000Z-2.json",
        "write-lone-20261126T180000Z-3.json",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    assert all(json.loads(path.read_text()) == ONE.document for path in written[::2])


@pytest.mark.parametrize(("kept", "suffix"), [(0, ".json"), (1, ".html")])
def test_a_full_disk_leaves_no_part_of_a_file(
    kept: int, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path.write_text

    def torn(path: Path, text: str, encoding: str) -> int:
        if suffix not in path.name:
            return whole(path, text, encoding)
        whole(path, text[:10], encoding)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", torn)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_result(ONE, tmp_path)
    assert str(caught.value.filename).endswith(f"Z{suffix}")
    assert len(list(tmp_path.iterdir())) == kept


@pytest.mark.parametrize("path", ["/dev/full/x", "/proc/x", __file__])
def test_a_directory_that_cannot_be_written_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match=f"--out is '{path}': .*: name a directory that can be written"):
        check_writable("--out", path, create=True)


def test_a_directory_is_created_and_left_empty_by_the_check(tmp_path: Path) -> None:
    check_writable("--out", str(tmp_path / "a" / "b"), create=True)
    assert list((tmp_path / "a" / "b").iterdir()) == []
