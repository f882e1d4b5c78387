"""For all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.amount import examples
from tests.cli.fork_server import VERIFY, hold_verified

os.environ.update(VERIFY)  # before topics.config is imported, whose default it is
sys.addaudithook(hold_verified)
settings.register_profile("topics", examples(50))
settings.load_profile("topics")
MEMORY = "/dev/shm"
_MEMORY_BYTES = 4 << 30
"""Free memory without which directories of tests are on the disk: a run holds some hundred MiB at a time."""
ON_DISK = tuple(
    str(Path(__file__).parent / room)
    for room in (
        "contract",
        "embedded/appends",
        "embedded/test_log",
        "long",
        "loop",
        "server/service",
        "store",
        "uring",
    )
)
"""Rooms and files whose tests are about the kernel's files and durability: their directories stay on the disk."""


def pytest_configure(config: pytest.Config) -> None:
    """Have directories of tests in memory: most tests ask what is in a file, and a sync of a disk is waited for.

    Not if the command line or the environment names a place.
    """
    if config.getoption("basetemp") is None and not {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys():
        place = os.statvfs(MEMORY) if os.path.ismount(MEMORY) else None
        if place is not None and place.f_bavail * place.f_frsize >= _MEMORY_BYTES:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = MEMORY


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory of the test, in memory or, in some rooms, on the disk."""
    if not str(request.path).startswith(ON_DISK) or not tmp_path.is_relative_to(MEMORY):
        yield tmp_path
        return
    failed = request.session.testsfailed
    on_disk = tempfile.mkdtemp(prefix="topics-test-")
    yield Path(on_disk)
    if request.session.testsfailed == failed:
        shutil.rmtree(on_disk, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep modules and tests out of the turns of the collector: they live to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
