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
        self.table.on_removed.append(self.prefetch.forget)
        self.reader = Reader(self.loop.files, self.table, HotTail(0), prefetch=self.prefetch)
        self.bytes: dict[int, bytes] = {}
        self.fills: list[int] = []
        fill = self.prefetch._fill

        def counted(file: StoredFile, place: tuple[int, int]) -> None:
            before = self.loop.files.reads
            fill(file, place)
            self.fills += [self.prefetch.window_bytes] * (self.loop.files.reads - before)

        self.prefetch._fill = counted  # type: ignore[method-assign]

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

    @property
    def filled(self) -> int:
        """Bytes that were read to windows."""
        return sum(self.fills)

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


def test_single_reads_at_random_places_begin_few_windows() -> None:
    """Each window is many times what such a read asks for."""
    files = Files()
    several = [files.add(1_000_000) for _ in range(4)]
    for _ in range(4000):
        file = files.rng.choice(several)
        offset = files.rng.randrange(file.size - 100)
        assert files.read(file, offset, 100) == files.bytes[file.file_id][offset : offset + 100]
    assert len(files.fills) < 400


def test_many_readers_at_different_places_read_little_more_than_without_windows() -> None:
    """A window that is used for another place before its reader comes back costs its bytes for nothing."""
    files = Files()
    file = files.add(4_000_000)
    offsets, read = [at * 40_000 for at in range(100)], 0
    for _ in range(40):
        for at, offset in enumerate(offsets):
            assert files.read(file, offset, 200) == files.bytes[file.file_id][offset : offset + 200]
            offsets[at], read = offset + 200, read + 200
    # each place once, and then no more than four times what was read
    assert files.filled <= 200 * files.prefetch.window_bytes + 4 * read


def test_a_reader_that_comes_back_later_finds_each_window_in_time() -> None:
    """The windows of its first turn are gone by then."""
    files = Files()
    file = files.add(400_000)
    turns = []
    for _ in range(3):
        before = files.loop.files.reads
        for offset in range(0, 400_000, 500):
            files.read(file, offset, 500)
        turns.append(files.loop.files.reads - before)
    # the first window of a later turn waits until a quarter of it was read
    assert max(turns) < turns[0] + 8


def test_the_window_at_the_end_of_a_segment_that_grows_is_filled_again() -> None:
    files = Files()
    file = files.add(20_000)
    file.size = 10_000
    for offset in range(8192, 10_000, 100):
        files.read(file, offset, 100)
    assert files.windows[-1][1:] == (8192, 10_000 - 8192)
    file.size = 15_000
    assert files.read(file, 10_000, 100) == files.bytes[file.file_id][10_000:10_100]
    assert files.windows[-1][1:] == (8192, 15_000 - 8192)


def test_a_window_with_bytes_that_are_not_sound_is_dropped() -> None:
    """They may be wrong only in memory."""
    files = Files()
    file = files.add(50_000)
    for offset in range(0, 3000, 500):
        files.read(file, offset, 500)
    window = files.prefetch._windows[file.file_id, 0]
    window.view[2000] ^= 1
    assert files.read(file, 1900, 500) != files.bytes[file.file_id][1900:2400]
    files.reader.on_unsound(file.file_id, 1900, 500, "a record")
    assert files.read(file, 1900, 500) == files.bytes[file.file_id][1900:2400]
    files.reader.on_unsound(file.file_id, 40_000, 500, "a record of which nothing is prefetched")


def test_a_place_that_cannot_be_read_is_not_tried_again_at_each_read() -> None:
    files = Files()
    file = files.add(100_000)
    files.read(file, 0, 100)
    files.ring.faults.fail("read", errno.EIO, nth=2)
    before = files.loop.files.reads
    for offset in range(100, 1600, 100):
        assert files.read(file, offset, 100) == files.bytes[file.file_id][offset : offset + 100]
    assert files.loop.files.reads == before + 16
    assert not files.windows
