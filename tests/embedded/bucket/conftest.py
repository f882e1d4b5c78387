"""Backups and archives for the tests of buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded.bucket.copied_places import make_archives, make_backups
from tests.embedded.bucket.memory_bucket import MemoryBucket


@pytest.fixture(scope="session")
def backups(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A directory of backups in two states."""
    return make_backups(tmp_path_factory.mktemp("backups"))


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An archive in four states."""
    return make_archives(tmp_path_factory.mktemp("archives"))


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()
