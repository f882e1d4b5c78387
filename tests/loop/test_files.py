"""Files: short results are finished, errors carry errno and path, a commit reports once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from tests.loop.fake_ring import fake_loop
from topics.loop.files import SyncFailedError


def test_a_short_write_is_finished_by_further_ones() -> None:
    loop, ring = fake_loop()
    written = bytearray(10)

    def write(fd: int, buffer: memoryview, offset: int, dsync: bool) -> int:
        count = min(4, len(buffer))
        written[offset - 100 : offset - 100 + count] = buffer[:count]
        return count

    ring.answers["write"] = write
    loop.run_task(loop.files.write_all(5, b"0123456789", 100))
    assert written == b"0123456789"


def test_a_write_that_writes_nothing_is_an_error_and_not_a_loop() -> None:
    loop, ring = fake_loop()
    ring.answers["write"] = lambda *_: 0
    with pytest.raises(OSError, match="wrote none"):
        loop.run_task(loop.files.write_all(5, b"0123456789", 0))


def test_a_read_goes_on_until_the_end_of_the_file() -> None:
    loop, ring = fake_loop()
    data = b"hello"

    def read(fd: int, buffer: memoryview, offset: int) -> int:
        part = data[offset : offset + 2]
        buffer[: len(part)] = part
        return len(part)

    ring.answers["read"] = read
    assert loop.run_task(loop.files.read(5, 100, 0)) == b"hello"


@pytest.mark.parametrize("error", [errno.EINTR, errno.EAGAIN])
def test_what_did_nothing_is_asked_for_again(error: int) -> None:
    loop, ring = fake_loop()
    asked: list[str] = []

    def answer(kind: str, res: int) -> Callable[..., int]:
        def first_interrupted(*_: object) -> int:
            asked.append(kind)
            return -error if asked.count(kind) < 4 else res

        return first_interrupted

    for kind, res in (("open", 7), ("read", 3), ("write", 3), ("rename", 0), ("unlink", 0)):
        ring.answers[kind] = answer(kind, res)
    fd = loop.run_task(loop.files.open("/data/wal", os.O_RDWR))
    loop.run_task(loop.files.write_all(fd, b"abc", 0))
    assert loop.run_task(loop.files.read_into(fd, bytearray(3), 0)) == 3
    loop.run_task(loop.files.rename("/a", "/b"))
    loop.run_task(loop.files.unlink("/b"))
    assert asked == [kind for kind in ("open", "write", "read", "rename", "unlink") for _ in range(4)]
    results: list[int] = []
    asked.clear()
    loop.files.read_nowait(fd, bytearray(3), 0, results.append)
    while not results:
        loop.run_pass(0)
    assert (results, asked) == ([3], ["read"] * 4)


def test_what_never_does_anything_ends_with_its_error() -> None:
    loop, ring = fake_loop()
    ring.answers["open"] = lambda *_: -errno.EINTR
    with pytest.raises(InterruptedError):
        loop.run_task(loop.files.open("/data/wal", os.O_RDWR))
    ring.answers["read"] = lambda *_: -errno.EAGAIN
    results: list[int] = []
    loop.files.read_nowait(5, bytearray(3), 0, results.append)
    for _ in range(1000):
        loop.run_pass(0)
    assert results == [-errno.EAGAIN]


def test_an_interrupted_sync_has_failed() -> None:
    """It may have used up the only report of an error."""
    loop, ring = fake_loop()
    syncs: list[int] = []
    ring.answers["fsync"] = lambda *_: syncs.append(1) or -errno.EINTR
    with pytest.raises(SyncFailedError) as raised:
        loop.run_task(loop.files.fdatasync(5))
    assert (raised.value.errno, len(syncs)) == (errno.EINTR, 1)


def test_an_error_carries_errno_and_the_path_of_the_descriptor() -> None:
    loop, ring = fake_loop()
    ring.answers["open"] = lambda *_: 7
    ring.answers["fsync"] = lambda *_: -errno.EIO
    fd = loop.run_task(loop.files.open("/data/wal", os.O_RDWR))
    with pytest.raises(OSError, match="/data/wal") as raised:
        loop.run_task(loop.files.fdatasync(fd))
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("write_first", [True, False])
def test_a_commit_reports_both_results_once_after_both_came(write_first: bool) -> None:
    loop, ring = fake_loop()
    results: list[tuple[int, int]] = []
    loop.files.commit_nowait(5, b"batch", 0, lambda write, sync: results.append((write, sync)))
    calls = [(ring.one("commit_write"), 5), (ring.one("commit_sync"), 0)]
    if not write_first:
        calls.reverse()
    ring.complete(*calls[0])
    loop.run_pass(0)
    assert results == []
    ring.complete(*calls[1])
    loop.run_pass(0)
    assert results == [(5, 0)]


def test_callbacks_get_raw_results_and_no_exceptions() -> None:
    loop, ring = fake_loop()
    results: list[int] = []
    loop.files.write_nowait(5, b"x", 0, results.append, dsync=True)
    loop.files.fdatasync_nowait(5, results.append)
    loop.files.read_nowait(5, bytearray(1), 0, results.append)
    write, sync, read = ring.one("write"), ring.one("fsync"), ring.one("read")
    assert write.arguments[3] is True
    for call, res in ((write, 1), (sync, -errno.EIO), (read, 0)):
        ring.complete(call, res)
    loop.run_pass(0)
    assert results == [1, -errno.EIO, 0]


def test_a_directory_is_synced_through_a_descriptor_that_is_closed_even_on_error() -> None:
    loop, ring = fake_loop()
    closed: list[int] = []
    ring.answers["fsync"] = lambda *_: -errno.EIO
    ring.answers["close"] = lambda fd: closed.append(fd) or 0
    with pytest.raises(OSError, match="/data"):
        loop.run_task(loop.files.sync_directory("/data"))
    assert closed == [90]


def test_an_allocated_file_is_written_with_zeros_in_bounded_pieces_and_synced() -> None:
    loop, ring = fake_loop()
    order: list[tuple[str, int]] = []
    ring.answers["write"] = lambda fd, buffer, offset, dsync: order.append(("write", len(buffer))) or len(buffer)
    ring.answers["fsync"] = lambda fd, data_only: order.append(("fsync", int(data_only))) or 0
    loop.run_task(loop.files.allocate_zeroed(5, (1 << 20) + 100))
    assert order == [("write", 1 << 20), ("write", 100), ("fsync", 0)]
