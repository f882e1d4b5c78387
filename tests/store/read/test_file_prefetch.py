"""Files that are read from front to back: what follows is in memory before it is asked for."""

from __future__ import annotations

import errno
import os
import random

import pytest

from tests.amount import seeds
from tests.sim import SimRing
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.in_memory.hot_tail import HOT_RANGE, HotTail
from topics.store.read.file_prefetch import FilePrefetch
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Fetched, Reader

BUDGET = 17 * 4096 * 2
"""Sixteen windows of two blocks."""


class Files:
    """Files of random bytes, read through a reader with windows."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(f"prefetch {seed}")
        self.ring = SimRing(seed)
        self.loop = Loop(self.ring, self.ring.clock)
        self.table = FileTable()
        self.prefetch = FilePrefetch(self.loop.files, BUDGET)
        self.table.on_removed = self.prefetch.forget
        self.reader = Reader(self.loop.files, self.table, HotTail(0), prefetch=self.prefetch)
        self.bytes: dict[int, bytes] = {}

    def add(self, size: int) -> StoredFile:
        path = f"/segment-{len(self.bytes)}"
        data = self.rng.randbytes(size)
        self.ring.put_file(path, data)
        fd = self.loop.run_task(self.loop.files.open(path, os.O_RDONLY))
        file = self.table.add(FileKind.SEGMENT, path, fd=fd, size=size)
        self.bytes[file.file_id] = data
        return file

    def read(self, file: StoredFile, offset: int, length: int) -> bytes | StorageError:
        got: list[bytes | StorageError] = []

        def done(fetched: Fetched) -> None:
            got.append(fetched if isinstance(fetched, StorageError) else bytes(fetched[0]))

        self.reader.fetch([FileRange(file.file_id, offset, length)], done)
        self.loop.run_until(lambda: bool(got))
        self.settle()
        return got[0]

    def settle(self) -> None:
        self.loop.run_until(lambda: all(file.readers == 0 for file in self.table))

    @property
    def windows(self) -> list[tuple[int, int, int]]:
        """File, begin and size of each range that plain reads find in memory."""
        packed = self.reader.prefetched_ranges()
        return [row[:3] for row in HOT_RANGE.iter_unpack(packed)]


def test_what_follows_is_in_memory_before_it_is_asked_for() -> None:
    files = Files()
    file = files.add(200_000)
    began = files.loop.files.reads
    for offset in range(0, 200_000, 500):
        assert files.read(file, offset, 500) == files.bytes[file.file_id][offset : offset + 500]
    # of 400 reads, one at each window's begin, and one that fills it
    assert files.loop.files.reads - began < 60


@pytest.mark.parametrize("seed", seeds(4))
def test_any_piece_of_any_file_is_what_the_file_has(seed: int) -> None:
    files = Files(seed)
    several = [files.add(files.rng.randrange(1, 90_000)) for _ in range(5)]
    for _ in range(400):
        file = files.rng.choice(several)
        offset = files.rng.randrange(file.size)
        for _ in range(files.rng.randrange(1, 6)):
            length = min(files.rng.randrange(1, 6000), file.size - offset)
            if length > 0:
                assert files.read(file, offset, length) == files.bytes[file.file_id][offset : offset + length]
            offset += length
        assert files.windows == sorted(files.windows)
        for file_id, begin, size in files.windows:
            assert begin + size <= len(files.bytes[file_id])


def test_windows_stay_within_their_budget() -> None:
    files = Files()
    for _ in range(8):
        file = files.add(100_000)
        for offset in range(0, 100_000, 1000):
            files.read(file, offset, 1000)
    assert len(files.windows) == 16
    assert files.prefetch._made * len(files.prefetch._windows[next(iter(files.prefetch._windows))].view) <= BUDGET


def test_a_single_piece_of_a_file_begins_no_window() -> None:
    files = Files()
    file = files.add(100_000)
    files.read(file, 50_000, 100)
    assert not files.windows
    files.read(file, 50_100, 100)
    assert files.windows


def test_a_file_that_is_written_to_or_compressed_has_no_windows() -> None:
    files = Files()
    written, compressed = files.add(50_000), files.add(50_000)
    written.active, compressed.compressed = True, True
    for file in (written, compressed):
        for offset in range(0, 10_000, 1000):
            files.reader.prefetch.note(file, FileRange(file.file_id, offset, 1000))
    files.settle()
    assert not files.windows


def test_the_windows_of_a_removed_file_are_dropped_and_used_again() -> None:
    files = Files()
    first, second = files.add(100_000), files.add(100_000)
    for offset in range(0, 60_000, 1000):
        files.read(first, offset, 1000)
    made = files.prefetch._made
    assert files.windows
    files.table.remove(first)
    assert not files.windows
    for offset in range(0, 40_000, 1000):
        files.read(second, offset, 1000)
    assert {window[0] for window in files.windows} == {second.file_id}
    assert files.prefetch._made == made


def test_a_file_that_is_to_be_removed_leaves_no_window() -> None:
    files = Files()
    file = files.add(50_000)
    files.prefetch.note(file, FileRange(file.file_id, 0, 1000))
    files.prefetch.note(file, FileRange(file.file_id, 1000, 1000))
    assert file.readers == 1
    file.when_unread(lambda: files.table.remove(file))
    files.settle()
    assert not files.windows


@pytest.mark.parametrize("keep", [0, 700])
def test_a_window_that_cannot_be_filled_leaves_its_bytes_to_the_file(keep: int) -> None:
    files = Files()
    file = files.add(100_000)
    data = files.bytes[file.file_id]
    files.read(file, 0, 1000)
    if keep:
        files.ring.faults.shorten("read", keep, nth=2)
    else:
        files.ring.faults.fail("read", errno.EIO, nth=2)
    for offset in range(1000, 9000, 1000):
        assert files.read(file, offset, 1000) == data[offset : offset + 1000]
    assert all(file.readers == 0 for file in files.table)


def test_without_memory_for_it_nothing_is_prefetched() -> None:
    files = Files()
    files.reader.prefetch = FilePrefetch(files.loop.files, 4096)
    file = files.add(50_000)
    for offset in range(0, 50_000, 1000):
        assert files.read(file, offset, 1000) == files.bytes[file.file_id][offset : offset + 1000]
    assert not files.windows
