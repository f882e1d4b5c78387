"""For the tests of the library in this process."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from topics.embedded.driving.interrupts import signals

SMALL: dict[str, Any] = {
    "wal_file_bytes": 1 << 20,
    "wal_spare_files": 1,
    "checkpoint_wal_bytes": 4 << 20,
    "disk_reserve_bytes": 1 << 16,
}
"""Settings of a log that takes little space."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[topics.Log]:
    """A small log; a file that needs another one has a fixture of its own."""
    with topics.open(tmp_path / "data", **SMALL) as opened:
        yield opened


def maintaining() -> list[threading.Thread]:
    """Return the threads that maintain logs of this process."""
    return [thread for thread in threading.enumerate() if thread.name == "topics-maintenance"]


def end_maintenance() -> None:
    """Wait until no thread maintains a log: that of an earlier test takes a moment to end."""
    for ending in maintaining():
        ending.join(20)
    assert maintaining() == []


def copy_open(directory: Path, copy: Path) -> Path:
    """Copy the directory of an open log, as a kill leaves it. Return the copy.

    A file that is renamed meanwhile is left out: one being prepared for the log, or a spare.
    """

    def copied(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)

    shutil.copytree(directory, copy, copy_function=copied)
    return copy


def damage_record(place: topics.Location | None) -> Path:
    """Flip the bits of a byte of the record that is there. Return the path of its file."""
    assert place is not None
    at, path = place.offset + place.length - 3, Path(place.path)
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    return path


def handlers() -> dict[signal.Signals, Any]:
    """By signal, what handles it. SIGALRM is that of the test's timeout, which a failure ends."""
    signals = [number for number in signal.valid_signals() if isinstance(number, signal.Signals)]
    return {number: signal.getsignal(number) for number in signals if number != signal.SIGALRM}


@pytest.fixture(autouse=True)
def _all_handlers_are_as_before() -> Iterator[None]:
    """Fail the test that leaves another handler, and restore the one from before."""
    before = handlers()
    yield
    changed = {number.name: (before[number], found) for number, found in handlers().items() if found != before[number]}
    for name in changed:
        signal.signal(signal.Signals[name], before[signal.Signals[name]])
    assert not changed
    assert signals._depth == 0
    assert not signals._replaced
