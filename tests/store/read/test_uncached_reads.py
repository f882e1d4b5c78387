"""Reads past the page cache: the same bytes at any offset, and the disk's where the cache has others."""

from __future__ import annotations

import errno
import os

import pytest

from tests.sim import SimRing
from topics.loop.loop import Loop
from topics.store.disk.uncached_reads import UncachedReads, is_direct
from topics.store.disk.whole_files import read_file

SIZE = 10_000
DATA = bytes(range(250)) * (SIZE // 250)


def test_any_range_reads_as_through_the_cache() -> None:
    ring = SimRing()
    loop = Loop(ring, ring.clock)
    ring.put_file("/file", DATA)
    reads = UncachedReads(loop.files)
    fd = loop.run_task(reads.open("/file", os.O_RDONLY))
    for offset, size in ((0, SIZE), (0, 1), (4095, 2), (4096, 4096), (8192, 4000), (9999, 10), (SIZE, 1), (20_000, 1)):
        buffer = bytearray(size)
        count = loop.run_task(reads.read_into(fd, buffer, offset))
        assert buffer[:count] == DATA[offset : offset + size], (offset, size)
    loop.run_task(reads.close(fd))


def test_a_short_read_goes_on_at_a_block() -> None:
    ring = SimRing()
    loop = Loop(ring, ring.clock)
    ring.put_file("/file", DATA)
    ring.faults.shorten("read", 5000)
    assert loop.run_task(read_file(UncachedReads(loop.files), "/file")) == DATA


def test_what_a_failed_sync_lost_is_not_read() -> None:
    ring = SimRing()
    loop = Loop(ring, ring.clock)
    ring.put_file("/file", DATA)
    fd = loop.run_task(loop.files.open("/file", os.O_RDWR))
    loop.run_task(loop.files.write_all(fd, b"lost", 4094))
    ring.faults.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        loop.run_task(loop.files.fsync(fd))
    assert loop.run_task(read_file(loop.files, "/file")) == DATA[:4094] + b"lost" + DATA[4098:]
    assert loop.run_task(read_file(UncachedReads(loop.files), "/file")) == DATA


def test_blocks_that_do_not_fit_the_logs_are_read_through_the_cache() -> None:
    assert [is_direct(block) for block in (0, 512, 4096, 8192, 1000)] == [False, True, True, False, False]
