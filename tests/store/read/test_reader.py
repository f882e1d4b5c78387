"""Reads of any stored file, on the simulated ring."""

import errno
import os
from dataclasses import replace

import pytest

from tests.sim.world.faults import Faults
from tests.store.log_world import LogWorld
from topics.errors import CorruptError, StorageError
from topics.store.format import codec
from topics.store.format.file_table import FileKind, FileTable
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Fetched


def fetch(world: LogWorld, pieces: list[FileRange]) -> list[bytes] | StorageError:
    got: list[list[bytes] | StorageError] = []

    def done(found: Fetched) -> None:
        got.append(found if isinstance(found, StorageError) else [bytes(view) for view in found])

    world.reader.fetch(pieces, done)
    world.loop.run_until(lambda: bool(got))
    assert len(got) == 1
    return got[0]


@pytest.fixture
def filled() -> LogWorld:
    """A log whose oldest records have left the hot tail; the file in use is large, so they are in it."""
    world = LogWorld(
        faults=Faults(), config=lambda config: replace(config, hot_tail_bytes=64 * 1024, wal_file_bytes=4 << 20)
    )
    for _ in range(40):
        world.write(count=20, bytes_each=1000)
        world.settle()
    return world


def piece_of(world: LogWorld, index: int) -> FileRange:
    write = world.writes[index]
    assert write.commit is not None
    return FileRange(write.commit.file_id, write.commit.base + write.start, sum(write.lengths))


def test_the_newest_records_are_answered_before_fetch_returns(filled: LogWorld) -> None:
    got: list[Fetched] = []
    filled.reader.fetch([piece_of(filled, -1)], got.append)
    assert isinstance(got[0], list)


def test_cold_and_hot_pieces_come_in_the_order_asked_for(filled: LogWorld) -> None:
    order = [0, -1, 5, -2]
    assert filled.reader.find(piece_of(filled, 0)) is None
    got = fetch(filled, [piece_of(filled, index) for index in order])
    assert isinstance(got, list)
    for index, data in zip(order, got, strict=True):
        assert codec.scan_frames(data).frames["seq"].tolist() == filled.writes[index].seqs
    assert all(file.readers == 0 for file in filled.table)


def test_short_reads_go_on(filled: LogWorld) -> None:
    for keep in (1, 100, 4096, 5000):
        filled.ring.faults.shorten("read", keep)
        got = fetch(filled, [piece_of(filled, 3)])
        assert isinstance(got, list)
        assert codec.scan_frames(got[0]).frames["seq"].tolist() == filled.writes[3].seqs


def test_a_read_error_is_told_and_lets_go_of_the_file(filled: LogWorld) -> None:
    filled.ring.faults.fail("read", errno.EIO)
    got = fetch(filled, [piece_of(filled, 0), piece_of(filled, 9)])
    assert isinstance(got, StorageError)
    assert "wal-" in str(got)
    assert all(file.readers == 0 for file in filled.table)
    assert isinstance(fetch(filled, [FileRange(999, 0, 10)]), StorageError)


def test_a_segment_that_ends_early_is_corrupt(filled: LogWorld) -> None:
    filled.ring.put_file("data/seg", b"0123456789")
    fd = filled.loop.run_task(filled.loop.files.open("data/seg", os.O_RDONLY))
    file = filled.table.add(FileKind.SEGMENT, "data/seg", fd=fd, size=10)
    assert fetch(filled, [FileRange(file.file_id, 2, 5)]) == [b"23456"]
    assert isinstance(fetch(filled, [FileRange(file.file_id, 6, 5)]), CorruptError)


def test_memory_frames_are_read_like_any_other_and_go_with_their_last_row() -> None:
    world = LogWorld()
    frames = EphemeralFrames(world.table)
    rows = pack_rows([RowRecord(b'"%d"' % (10**900))] * 100)
    placed = [frames.stage_records(7, 1 + 100 * i, 5, rows, node=b"n") for i in range(6)]
    assert len({place.file_id for place in placed}) > 1
    for number, place in enumerate(placed):
        got = fetch(world, [FileRange(place.file_id, place.framed.start, int(place.framed.lengths.sum()))])
        assert isinstance(got, list)
        found = codec.scan_frames(got[0]).frames
        assert found["seq"].tolist() == list(range(1 + 100 * number, 101 + 100 * number))
    first = world.table[placed[0].file_id]
    first.hold()
    frames.discard(first, first.live_rows)
    assert world.table.get(first.file_id) is first
    first.release()
    assert world.table.get(first.file_id) is None


@pytest.mark.timeout(20)
def test_damage_may_be_noted_while_damage_is_noted() -> None:
    """A signal's handler reads, or a finalizer, in the midst of the same thread's note."""
    reader = LogWorld().reader

    class Logged(dict[tuple[str, int], None]):
        def __contains__(self, place: object) -> bool:
            reader._logged = {}
            reader.on_corrupt(CorruptError("within", {"path": "p", "offset": 2}))
            return super().__contains__(place)

    reader._logged = Logged()
    reader.on_corrupt(CorruptError("around", {"path": "p", "offset": 1}))
    assert reader.checksum_failures == 2


def test_a_file_is_let_go_when_its_last_reader_has_left() -> None:
    table = FileTable()
    file = table.add(FileKind.PACK, "p")
    left: list[str] = []
    file.when_unread(lambda: left.append("at once"))
    file.hold()
    file.hold()
    file.when_unread(lambda: left.append("later"))
    file.release()
    assert left == ["at once"]
    file.release()
    assert left == ["at once", "later"]
    table.remove(file)
    assert len(table) == 0
