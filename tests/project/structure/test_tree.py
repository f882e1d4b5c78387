"""The repository holds what people wrote: no data of a run that was added with everything else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_FILE_BYTES_MAX = 256 * 1024
TOP = {
    ".ci", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile",
    "README.md", "build_ffi.py", "docs", "examples", "packaging", "perf", "pyproject.toml", "pyspark_topics.py",
    "scripts", "setup.py", "tests", "topics", "topics_command.py",
}  # fmt: skip


def tracked() -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in listing.stdout.decode().split("\0") if name]


def test_no_tracked_file_is_larger_than_what_people_write() -> None:
    paths = [ROOT / name for name in tracked()]
    large = [str(path) for path in paths if path.exists() and path.stat().st_size > _FILE_BYTES_MAX]
    assert not large, f"over {_FILE_BYTES_MAX} bytes: {large}"


def test_the_top_level_holds_known_names_only() -> None:
    assert {name.partition("/")[0] for name in tracked()} <= TOP
