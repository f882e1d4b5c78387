"""Packs: runs of many topics in one file, found by an index at its end, or by the runs themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.store.segments.record_frames import DIRECTORY, Disk, record, records
from topics.errors import CorruptError
from topics.store.format import codec
from topics.store.format.catalog import NO_TAG, FewRows, PackRows
from topics.store.format.row_columns import split
from topics.store.segments import pack
from topics.store.segments.data_files import Pack, PackRun
from topics.store.segments.pack import FewRuns, PackIndex, PackWriter, read_pack, scan_pack, scan_runs

EPOCH = 77
TAGS = {1: b"red", 2: None, 3: b"blue"}
SEQS = {1: (3, 4, 5), 2: (1,), 3: (8, 9)}
DELETED_SEQS = (4,)


def frames_of(topic_id: int) -> bytes:
    return records(topic_id, SEQS[topic_id], tag=TAGS[topic_id], deleted=DELETED_SEQS)


class Written:
    """A pack with runs of topics 1 to 3, on a disk. Seq 4 of topic 1 is deleted."""

    def __init__(self, epoch: int = EPOCH, topics: tuple[int, ...] = (1, 2, 3)) -> None:
        writer = PackWriter(1, epoch, 50)
        self.data = b""
        self.runs: list[PackRun] = []
        self.places: list[int] = []
        for topic_id in topics:
            frames = frames_of(topic_id)
            run, place = writer.add_run(codec.scan_frames(frames), frames, b"topic %d" % topic_id)
            self.data += writer.take()
            self.runs.append(run)
            self.places.append(place)
        assert len(self.data) == writer.position
        assert writer.pending_bytes == 0
        self.data += writer.finish()
        self.pack = Pack(1, epoch, len(self.data), {run.number: run for run in self.runs})
        self.disk = Disk()
        self.disk.write(self.pack.path, self.data)

    def read(self, pack: Pack | None = None) -> PackIndex:
        index = self.disk.run(read_pack(self.disk.files, DIRECTORY, pack or self.pack))
        assert isinstance(index, PackIndex)
        return index

    def without_index(self) -> bytes:
        """The file up to the end of its last run."""
        return self.data[: self.places[-1] + len(frames_of(3))]


def test_runs_that_are_added_together_are_the_same_file() -> None:
    one_by_one = Written()
    writer = PackWriter(1, EPOCH, 50)
    first = frames_of(1)
    writer.add_run(codec.scan_frames(first), first, b"topic 1")
    parts = [frames_of(2), frames_of(3)]
    scan = codec.scan_frames(b"".join(parts))
    seqs = [SEQS[topic_id] for topic_id in (2, 3)]
    few = FewRows(
        np.array([2, 3], np.uint64),
        np.array([len(each) for each in seqs], np.int64),
        [b"topic 2", b"topic 3"],
        np.array([seq for each in seqs for seq in each], np.uint64),
        np.zeros(3, np.uint32),
        np.zeros(3, np.uint32),
        scan.frames["length"].copy(),
    )
    sums = [codec.scan_frames(part).sum for part in parts]
    ends = np.cumsum([len(part) for part in parts])
    runs, offsets = writer.add_runs(FewRuns(few, scan.frames, b"".join(parts), ends, sums))
    assert runs == one_by_one.runs[1:]
    assert [offsets[0], offsets[1]] == one_by_one.places[1:]
    assert writer.take() + writer.finish() == one_by_one.data


def found(rows: PackRows) -> dict[int, list[tuple[int, bytes | None]]]:
    """Topic id -> (seq, tag) of its rows."""
    parts = split(rows.rows, [0, *rows.ends.tolist()])
    return {
        topic_id: [
            (seq, None if tag == NO_TAG else part.tag_table[tag])
            for seq, tag in zip(part.seqs.tolist(), part.tags.tolist(), strict=True)
        ]
        for topic_id, part in zip(rows.topic_ids.tolist(), parts, strict=True)
    }


ALL = {1: [(3, b"red"), (5, b"red")], 2: [(1, None)], 3: [(8, b"blue"), (9, b"blue")]}


# --- written and read -------------------------------------------------------------------------------------------------
def test_the_live_records_of_all_runs_are_read_back() -> None:
    written = Written()
    index = written.read()
    assert not index.derived
    assert found(index.live(range(3), 9)) == ALL
    assert [(run.topic_id, run.first_seq, run.last_seq, run.number) for run in written.runs] == [
        (1, 3, 5, 0),
        (2, 1, 1, 1),
        (3, 8, 9, 2),
    ]


def test_each_row_leads_to_its_frame() -> None:
    written = Written()
    rows = written.read().live(range(3), 9).rows
    assert rows.file_id == 9
    topics = [1, 1, 2, 3, 3]
    for at, topic_id in enumerate(topics):
        offset, length = int(rows.offsets[at]), int(rows.lengths[at])
        frame = written.data[offset : offset + length]
        assert frame == record(topic_id, int(rows.seqs[at]), tag=TAGS[topic_id])
        assert int(rows.ts[at]) == 1000 + int(rows.seqs[at])
    for topic_id, place in zip((1, 2, 3), written.places, strict=True):
        assert written.data.startswith(frames_of(topic_id), place)


def test_runs_that_are_not_asked_for_are_left_out() -> None:
    index = Written().read()
    assert found(index.live([2], 9)) == {3: ALL[3]}
    assert found(index.live([0, 1], 9)) == {1: ALL[1], 2: ALL[2]}
    assert found(index.live([], 9)) == {}


def test_a_run_without_a_live_record_is_left_out() -> None:
    writer = PackWriter(1, EPOCH, 50)
    dead, alive = records(1, (3, 4), deleted=(3, 4)), frames_of(2)
    for frames in (dead, alive):
        writer.add_run(codec.scan_frames(frames), frames, b"")
    index = scan_pack(writer.finish(), "x")
    assert found(index.live(range(2), 9)) == {2: ALL[2]}


def test_a_writer_knows_where_the_next_run_will_begin() -> None:
    writer = PackWriter(1, EPOCH, 50)
    frames = frames_of(1)
    for _ in range(3):
        begins = writer.frames_offset
        _, place = writer.add_run(codec.scan_frames(frames), frames, b"1234")
        assert begins < place <= begins + 200
        assert writer.position == place + len(frames)


def test_the_index_of_many_small_runs_is_made_of_a_thousand_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop with a million topics made columns of one row a million times: a tenth of its time."""
    made: list[int] = []
    columns_of = pack._columns_of

    def counted(frames: codec.Frames, data: bytes | memoryview, first_seqs: Any) -> Any:
        made.append(len(frames))
        return columns_of(frames, data, first_seqs)

    monkeypatch.setattr(pack, "_columns_of", counted)
    writer = PackWriter(1, EPOCH, 50)
    data, seqs = b"", {}
    for topic_id in range(1, 2501):
        seqs[topic_id] = (topic_id, topic_id + 2) if topic_id % 3 else (topic_id,)
        frames = records(topic_id, seqs[topic_id], tag=b"%d" % (topic_id % 7) if topic_id % 5 else None)
        writer.add_run(codec.scan_frames(frames), frames, b"")
        if topic_id == 700:
            data += writer.take()
    data += writer.finish()
    assert len(made) <= 1 + sum(made) // pack._INDEXED_ROWS + 1
    assert max(made) <= pack._INDEXED_ROWS + 1
    rows = scan_pack(data, "x").live(range(2500), 9)
    tags = {topic_id: b"%d" % (topic_id % 7) if topic_id % 5 else None for topic_id in seqs}
    assert found(rows) == {topic_id: [(seq, tags[topic_id]) for seq in its] for topic_id, its in seqs.items()}
    ends = (rows.rows.offsets + rows.rows.lengths).tolist()
    places = zip(rows.rows.offsets.tolist(), ends, strict=True)
    written = [record(topic_id, seq, tag=tags[topic_id]) for topic_id, its in seqs.items() for seq in its]
    assert [data[begin:end] for begin, end in places] == written


# --- damaged, or another one ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["footer", "columns", "cut off"])
def test_an_index_that_cannot_be_used_is_derived_from_the_runs(how: str) -> None:
    written = Written()
    path = f"{DIRECTORY}/{written.pack.path}"
    if how == "cut off":
        written.disk.write(written.pack.path, written.without_index())
    else:
        written.disk.ring.corrupt_file(path, len(written.data) - (10 if how == "footer" else 100))
    index = written.read()
    assert index.derived
    assert found(index.live(range(3), 9)) == ALL


def test_a_damaged_run_is_named_with_its_topic_and_seq() -> None:
    written = Written()
    data = written.without_index()
    at = data.find(b'"3/9"')
    with pytest.raises(CorruptError, match=r"topic 3, seqs 8 to 9") as refused:
        scan_runs(data[:at] + b"!" + data[at + 1 :], "x")
    assert refused.value.detail is not None
    assert (refused.value.detail["topic_id"], refused.value.detail["seq"]) == (3, 9)


@pytest.mark.parametrize("has_index", [True, False])
def test_a_pack_that_had_the_number_before_is_not_the_one_listed(has_index: bool) -> None:
    written, before = Written(), Written(epoch=EPOCH + 2)
    written.disk.write(written.pack.path, before.data if has_index else before.without_index())
    with pytest.raises(CorruptError, match="not the pack the snapshot lists"):
        written.read()


def test_a_pack_without_an_index_that_lacks_a_listed_run_is_refused() -> None:
    """A disk may have lost the writes of the last run."""
    written = Written()
    written.disk.write(written.pack.path, Written(topics=(1, 2)).data[:-100])
    with pytest.raises(CorruptError, match="not the pack the snapshot lists"):
        written.read()
    fewer = Pack(1, EPOCH, 0, {run.number: run for run in written.runs[:2]})
    assert found(written.read(fewer).live(range(2), 9)) == {1: ALL[1], 2: ALL[2]}


def test_runs_of_a_pack_that_had_the_number_before_are_not_taken_for_its_own() -> None:
    short, long = Written(topics=(1,)), Written(epoch=EPOCH + 2)
    cut = short.places[0] + len(frames_of(1))
    data = short.data[:cut] + long.data[cut:]
    assert [run.header.topic_id for run in scan_runs(data, "x")] == [1]
    assert [run.header.topic_id for run in scan_runs(long.data, "x")] == [1, 2, 3]


def test_a_pack_without_runs_is_no_pack() -> None:
    written = Written()
    with pytest.raises(CorruptError, match="without runs"):
        scan_pack(written.data[: written.places[0] - 100], "x")
