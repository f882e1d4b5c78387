"""Rows of a topic as bytes for its segment: read in few pieces, verified, and numbered as the topic's own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sim import SimRing
from topics.errors import CorruptError
from topics.loop import Loop
from topics.loop.tasks import Future
from topics.store.checkpoint.live_frames import LiveFrameReaders, LiveFrames
from topics.store.disk.time_slices import TimeSlices
from topics.store.format import codec
from topics.store.format.catalog import RowColumns
from topics.store.format.log_format import FLAG_COPY, Frame, FrameType
from topics.store.format.row_columns import rows_of, select
from topics.store.read.file_range import FileRange
from topics.store.segments.segment import extension_of

_FILE = 5


def record(seq: int, *, topic_id: int = 1, ts_ms: int = 0, size: int = 40) -> bytes:
    data = b'"%d"' % seq + b" " * size
    return Frame(FrameType.RECORD, topic_id, seq, ts_ms or 1000 + seq, data, size=len(data)).pack()


class LogFile:
    """A log file that counts what is read of it: the part of a checkpoint's context that reading takes."""

    def __init__(self, *frames: bytes) -> None:
        self.data = b"".join(frames)
        self.fetched: list[FileRange] = []
        self.loop = Loop(SimRing(0), SimRing(0).clock)
        self.readers = LiveFrameReaders(self, TimeSlices(self.loop, 0))  # type: ignore[arg-type]

    def begin_fetch(self, pieces: list[FileRange], memory: memoryview | None = None) -> Future[list[memoryview]]:
        self.fetched += pieces
        assert all(piece.file_id == _FILE for piece in pieces)
        found = [memoryview(self.data)[piece.offset : piece.offset + piece.length] for piece in pieces]
        if memory is not None:
            (view,) = found
            memory[: len(view)] = view
            found = [memory[: len(view)]]
        future: Future[list[memoryview]] = Future()
        future.set_result(found)
        return future

    @property
    def rows(self) -> RowColumns:
        """The sum of all frames that it holds."""
        frames = codec.scan_frames(self.data).frames
        return rows_of(frames, np.zeros(len(frames), np.uint32), [], _FILE)

    def of_topic(self, topic_id: int = 1) -> RowColumns:
        return select(self.rows, codec.scan_frames(self.data).frames["topic_id"] == topic_id)

    def gather(self, rows: RowColumns, *, sum: int = 0) -> LiveFrames:
        async def gather() -> LiveFrames:
            with self.readers.one() as reader:
                return await reader.gather(rows, 1, sum)

        found = self.loop.run_task(gather())
        assert isinstance(found, LiveFrames)
        return found


def where(rows: RowColumns, *seqs: int) -> NDArray[np.bool_]:
    return np.isin(rows.seqs, np.array(seqs, np.uint64))


def test_rows_that_adjoin_are_read_in_one_piece() -> None:
    file = LogFile(*(record(seq) for seq in range(1, 9)))
    rows = select(file.rows, where(file.rows, 3, 4, 5))
    found = file.gather(rows)
    assert bytes(found.data) == record(3) + record(4) + record(5)
    assert found.lengths.tolist() == [len(record(seq)) for seq in (3, 4, 5)]
    assert file.fetched == [FileRange(_FILE, 2 * len(record(1)), 3 * len(record(1)))]


def test_rows_with_little_between_them_are_read_as_a_whole() -> None:
    file = LogFile(record(1), record(7, topic_id=2), record(2), record(8, topic_id=2), record(3))
    found = file.gather(file.of_topic())
    assert bytes(found.data) == record(1) + record(2) + record(3)
    assert file.fetched == [FileRange(_FILE, 0, len(file.data))]


def test_rows_with_much_between_them_are_read_one_by_one() -> None:
    file = LogFile(record(1), record(7, topic_id=2, size=2000), record(2), record(3))
    found = file.gather(file.of_topic())
    assert bytes(found.data) == record(1) + record(2) + record(3)
    assert [piece.length for piece in file.fetched] == [len(record(1)), 2 * len(record(1))]


@pytest.mark.parametrize("size", [40, 2000], ids=["in one piece", "one by one"])
def test_what_frames_add_to_a_segment_is_what_a_scan_of_them_tells(size: int) -> None:
    file = LogFile(record(1), record(7, topic_id=2, size=size), record(2), record(5))
    found = file.gather(file.of_topic(), sum=1234)
    assert found.extension == extension_of(codec.scan_frames(found.data, sum=1234))
    assert (found.extension.records, found.extension.last_seq, found.extension.last_ts) == (3, 5, 1005)


def test_copies_by_position_become_frames_of_the_topic_itself() -> None:
    """A router's copy shares the frame of its original: the row states topic, seq and time, the frame the rest."""
    file = LogFile(record(41, topic_id=9), record(42, topic_id=9))
    rows = file.rows._replace(
        seqs=np.array([3, 4], np.uint64),
        ts=np.array([2003, 2004], np.uint64),
        flags=file.rows.flags | np.uint8(FLAG_COPY),
    )
    found = file.gather(rows)
    frames = codec.scan_frames(found.data).frames
    assert frames["topic_id"].tolist() == [1, 1]
    assert (frames["seq"].tolist(), frames["ts_ms"].tolist()) == ([3, 4], [2003, 2004])
    assert [
        Frame.unpack(bytes(found.data)[at : at + length], "x").data
        for at, length in zip(frames["offset"].tolist(), found.lengths.tolist(), strict=True)
    ] == [Frame.unpack(record(seq, topic_id=9), "x").data for seq in (41, 42)]


@pytest.mark.parametrize("size", [40, 2000], ids=["in one piece", "one by one"])
def test_a_damaged_record_is_named(size: int) -> None:
    file = LogFile(record(1), record(7, topic_id=2, size=size), record(2), record(3))
    rows = file.of_topic()
    file.data = file.data.replace(b'"2"', b'"!"')
    with pytest.raises(CorruptError, match="topic 1, seq 2"):
        file.gather(rows)


def test_a_record_of_another_topic_or_seq_is_refused() -> None:
    file = LogFile(record(1), record(2))
    with pytest.raises(CorruptError, match="topic 1, seq 9"):
        file.gather(file.rows._replace(seqs=np.array([1, 9], np.uint64)))
    other = LogFile(record(1), record(2, topic_id=2))
    with pytest.raises(CorruptError, match="topic 1, seq 2"):
        other.gather(other.rows)


def test_segments_that_are_filled_at_a_time_have_memory_of_their_own() -> None:
    file = LogFile(*(record(seq) for seq in range(1, 5)))

    async def gather() -> tuple[bytes, bytes]:
        with file.readers.one() as first, file.readers.one() as second:
            mine = await first.gather(select(file.rows, where(file.rows, 1, 2)), 1, 0)
            other = await second.gather(select(file.rows, where(file.rows, 3, 4)), 1, 0)
            return bytes(mine.data), bytes(other.data)

    assert file.loop.run_task(gather()) == (record(1) + record(2), record(3) + record(4))


def test_memory_is_used_again_but_for_that_of_a_read_that_failed() -> None:
    file = LogFile(record(1))
    with file.readers.one() as first:
        pass
    with file.readers.one() as again:
        assert again is first
    with pytest.raises(CorruptError), file.readers.one():
        raise CorruptError("a read failed", {})
    with file.readers.one() as another:
        assert another is not first
