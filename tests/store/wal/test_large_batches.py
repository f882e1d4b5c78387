"""Batches that are large beside the hot tail's budget: written from their own memory, read from the file."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.world.faults import Faults
from tests.store.log_world import LogWorld, Write, recover
from topics.config import Config
from topics.store.format.rows import PLACED, RowRecord, pack_rows

LARGE = 9_001
"""More than a sixteenth of the budget of the hot tail below."""


@pytest.fixture(autouse=True)
def _end_all_worlds() -> Iterator[None]:
    yield
    LogWorld.end_all()


def small_tail(config: Config) -> Config:
    return replace(config, hot_tail_bytes=64 * 1024, wal_file_bytes=1 << 20)


def world_with(faults: Faults | None = None) -> LogWorld:
    world = LogWorld(faults=faults, config=small_tail)
    world.log.commit_in_place()
    world.settle(world.write())
    return world


def write_lone(
    world: LogWorld, size: int, *, buffer: type[bytes] | type[bytearray] = bytes, node: bytes | None = None
) -> Write | None:
    """Write one record by `write_lone`; None if that left it to the usual way."""
    seq = len(world.writes) + 1
    rows = pack_rows([RowRecord(b'"' + b"x" * (size - 2) + b'"')])
    written = world.log.write_lone(1, seq, 5, rows._replace(buffer=buffer(rows.buffer)), node, fsync=False)
    if written is None:
        return None
    placed, commit, move_on, _copies = written
    move_on()
    start, length, *_others = PLACED.unpack(placed)
    world.writes.append(Write(1, [seq], False, start, [length], commit))
    return world.writes[-1]


def frames_in_tail(world: LogWorld, write: Write) -> bool:
    assert write.commit is not None
    place = write.commit.base + write.start
    return world.log.tail.find(write.commit.file_id, place, sum(write.lengths)) is not None


@pytest.mark.parametrize("fsync", [False, True])
def test_it_is_read_from_its_file_and_others_from_memory(fsync: bool) -> None:
    world = world_with()
    sizes = [LARGE, 20, LARGE, LARGE, 8200, 21, 4096, LARGE, 22]
    for size in sizes:
        write = world.write(bytes_each=size, fsync=False)
        world.settle(write)
        assert frames_in_tail(world, write) == (size < 4000)
    world.settle(world.write(fsync=fsync))
    assert frames_in_tail(world, world.writes[-1])
    for write in world.writes:
        assert world.read(write).count(b'"x') == len(write.seqs)
    world.settle(world.write())
    assert recover(world.crash()).seqs == {1: list(range(1, len(world.writes) + 1))}


@pytest.mark.parametrize("size", range(LARGE, LARGE + 4096, 509))
def test_what_follows_it_in_its_last_block_does_not_change_its_end(size: int) -> None:
    world = world_with()
    world.settle(world.write(bytes_each=size, fsync=False))
    world.settle(world.write(bytes_each=30))
    assert world.read(world.writes[1]).count(b"x") == size - 2
    assert recover(world.crash()).seqs == {1: [1, 2, 3]}


@pytest.mark.parametrize("size", range(100, 4500, 200))
def test_without_a_hot_tail_a_batch_of_any_size_is_found(size: int) -> None:
    world = LogWorld(config=lambda config: replace(config, hot_tail_bytes=0, wal_file_bytes=1 << 20))
    for bytes_each in (30, 4096 - 30, size, 30):
        world.settle(world.write(bytes_each=bytes_each, fsync=False))
    world.settle(world.write())
    assert world.read(world.writes[2]).count(b"x") == size - 2
    assert recover(world.crash()).seqs == {1: [1, 2, 3, 4, 5]}


@pytest.mark.parametrize("size", range(LARGE, LARGE + 4096, 509))
def test_a_lone_one_is_written_around_its_bytes_and_what_follows_does_not_change_its_end(size: int) -> None:
    world = world_with()
    world.settle(world.write(fsync=False))  # a sync is planned
    parts_now, written = world.ring.write_parts_now, []
    world.ring.write_parts_now = lambda *args: written.append(parts_now(*args)) or written[-1]  # type: ignore[method-assign,func-returns-value]
    large = write_lone(world, size)
    assert large is not None
    assert not frames_in_tail(world, large)
    assert written == [64 + 52 + size + 9]
    world.settle(world.write(bytes_each=30))
    assert world.read(large).count(b"x") == size - 2
    assert recover(world.crash()).seqs == {1: [1, 2, 3, 4]}


@pytest.mark.parametrize("kept", [0, 100, 4096, 8000])
def test_a_short_write_of_a_lone_one_leaves_nothing(kept: int) -> None:
    world = world_with(faults := Faults())
    world.settle(world.write(fsync=False))
    faults.shorten("write", kept, path_part="/wal-")
    assert write_lone(world, LARGE) is None
    large = write_lone(world, LARGE - 100)
    assert large is not None
    world.settle(world.write(bytes_each=30))
    assert world.read(large).count(b"x") == LARGE - 102
    assert recover(world.crash()).seqs == {1: [1, 2, 3, 4]}


def test_bytes_that_may_change_meanwhile_are_copied() -> None:
    world = world_with()
    world.settle(world.write(fsync=False))
    world.ring.write_parts_now = lambda *args: pytest.fail("of a caller's bytearray")  # type: ignore[method-assign]
    large = write_lone(world, LARGE, buffer=bytearray)
    assert large is not None
    assert world.read(large).count(b"x") == LARGE - 2


def test_a_lone_one_keeps_the_node_of_its_request() -> None:
    world = world_with()
    world.settle(world.write(fsync=False))
    large = write_lone(world, LARGE, node=b"me")
    assert large is not None
    assert b"me" in world.read(large)


def test_many_take_no_more_of_the_hot_tail_than_one() -> None:
    world = world_with()
    held = [0]
    for _ in range(20):
        world.settle(world.write(bytes_each=LARGE, fsync=False))
        held.append(world.log.tail.bytes_held)
    assert held[-1] == held[5]


@pytest.mark.parametrize("kept", [0, 100, 4096, 8000])
def test_the_rest_of_a_short_write_follows(kept: int) -> None:
    world = world_with(faults := Faults())
    faults.shorten("write", kept, path_part="/wal-")
    large = world.write(bytes_each=LARGE, fsync=False)
    world.settle(large)
    world.settle(world.write(bytes_each=30))
    assert world.read(large).count(b"x") == LARGE - 2
    assert recover(world.crash()).seqs == {1: [1, 2, 3]}


def test_a_full_disk_leaves_what_was_before_it() -> None:
    world = world_with(faults := Faults())
    faults.fail("write", errno.ENOSPC, path_part="/wal-")
    large = world.write(bytes_each=LARGE, fsync=False)
    world.settle(large)
    assert large.error is not None
    assert world.read(world.writes[0])
    assert recover(world.crash()).seqs == {1: [1]}
