"""Segment files: what is written is what is read back, and what is damaged is named or derived again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.store.segments.record_frames import DIRECTORY, Disk, record, records
from topics.errors import CorruptError
from topics.store.format import codec
from topics.store.format.catalog import RowColumns
from topics.store.layouts.directory_names import index_path
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_rows import index_of
from topics.store.layouts.segment_format import DescriptionPieces
from topics.store.segments.data_files import Segment, Totals
from topics.store.segments.segment import (
    check_copied,
    cut_back,
    describe_file,
    extend,
    extension_of,
    new_segment,
    packed_footer,
    packed_index,
    read_footer,
    read_rows,
    rewrite_index,
    scan_rows,
)

DELETED_SEQS = (4, 6)


class Written:
    """A segment of topic 1 with seqs 3 to 7 of which two are deleted, on a disk."""

    def __init__(self, *, sealed: bool = True) -> None:
        self.disk = Disk()
        self.segment, pieces = new_segment(1, 3, epoch=99, now_ms=50, described=DescriptionPieces(b"fi", b"rst"))
        header = b"".join(pieces)
        frames = records(1, (3, 4), tag=b"a", deleted=DELETED_SEQS) + records(1, (5, 6, 7), deleted=DELETED_SEQS)
        scan = codec.scan_frames(frames, base=len(header))
        extend(self.segment, extension_of(scan))
        self.data = header + frames
        if sealed:
            self.segment.sealed = True
            self.data += b"".join(
                packed_footer(self.segment, Totals(10, 100), 60, DescriptionPieces(b"la", b"", b"st"))
            )
        self.write(self.data)
        if sealed:
            rows = self.disk.run(scan_rows(self.disk.files, self.path, self.segment))
            self.disk.write(index_path(self.segment.path), bytes(packed_index(self.segment, index_of([rows], 3))))

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.segment.path}"

    def write(self, data: bytes) -> None:
        self.disk.write(self.segment.path, data)

    def rows(self) -> tuple[RowColumns, bool]:
        rows, is_derived = self.disk.run(read_rows(self.disk.files, self.path, self.segment))
        return rows, is_derived

    def check(self, rows: RowColumns) -> None:
        """Each live row leads to its own frame."""
        assert rows.seqs.tolist() == [3, 5, 7]
        assert rows.ts.tolist() == [1003, 1005, 1007]
        assert [None if tag >= len(rows.tag_table) else rows.tag_table[tag] for tag in rows.tags.tolist()] == [
            b"a",
            None,
            None,
        ]
        for seq, offset, length in zip(rows.seqs.tolist(), rows.offsets.tolist(), rows.lengths.tolist(), strict=True):
            assert self.data[offset : offset + length] == record(1, seq, tag=b"a" if seq == 3 else None)


# --- made and extended ------------------------------------------------------------------------------------------------
def test_a_new_segment_is_empty_and_ends_behind_its_header() -> None:
    segment, header = new_segment(1, 3, epoch=99, now_ms=50, described=DescriptionPieces(b"first"))
    assert (segment.last_seq, segment.records, segment.size, segment.sealed) == (2, 0, 0, False)
    assert segment.frames_end == len(b"".join(header))


def test_a_segment_that_grew_in_two_steps_has_the_numbers_of_one_that_grew_in_one() -> None:
    frames = records(1, range(3, 9))
    cut = len(records(1, range(3, 6)))
    at_once, _ = new_segment(1, 3, epoch=99, now_ms=50, described=DescriptionPieces())
    extend(at_once, extension_of(codec.scan_frames(frames)))
    in_steps, _ = new_segment(1, 3, epoch=99, now_ms=50, described=DescriptionPieces())
    for part in (frames[:cut], frames[cut:]):
        extend(in_steps, extension_of(codec.scan_frames(part, sum=in_steps.sum)))
    assert in_steps == at_once
    assert (at_once.records, at_once.last_seq, at_once.last_ts) == (6, 8, 1008)
    assert at_once.size == sum(len(b'"1/%d"' % seq) for seq in range(3, 9))


@pytest.mark.parametrize(
    ("frames", "seq"),
    [
        (records(1, (3, 4)), 5),
        (records(1, (3, 4, 6)), 5),
        (records(2, (3, 4, 5)), 5),
        (records(1, (3, 4, 5))[:-1], 5),
        (records(1, (3, 4, 5)).replace(b'"1/4"', b'"1/!"'), 4),
        (b"", 3),
    ],
    ids=["a record too few", "another seq", "another topic", "cut off", "damaged", "nothing"],
)
def test_frames_that_are_not_the_records_asked_for_are_refused_by_name(frames: bytes, seq: int) -> None:
    with pytest.raises(CorruptError, match=f"topic 1, seq {seq}") as refused:
        check_copied(frames, 0, 1, np.array([3, 4, 5], np.uint64), 0)
    assert refused.value.detail == {"topic_id": 1, "seq": seq}


def test_frames_that_are_the_records_asked_for_come_with_their_places() -> None:
    frames = records(1, (3, 5))
    scan = check_copied(frames, 0, 1, np.array([3, 5], np.uint64), 4096)
    assert scan.frames["offset"].tolist() == [4096, 4096 + len(record(1, 3))]


# --- read back --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "growing"])
def test_the_live_records_of_a_segment_are_read_back(sealed: bool) -> None:
    written = Written(sealed=sealed)
    rows, is_derived = written.rows()
    written.check(rows)
    assert not is_derived


def spoil(written: Written, how: str) -> None:
    index = index_path(written.segment.path)
    if how == "missing":
        written.disk.ring.disk.unlink(f"{DIRECTORY}/{index}")
    elif how == "damaged":
        written.disk.ring.corrupt_file(f"{DIRECTORY}/{index}", 70)
    elif how == "empty":
        written.disk.write(index, b"")
    else:
        written.disk.write(index, bytes(packed_index(other_epoch(written.segment), index_of([], 3))))


def other_epoch(segment: Segment) -> Segment:
    other, _ = new_segment(
        segment.topic_id, segment.first_seq, epoch=segment.epoch + 2, now_ms=0, described=DescriptionPieces()
    )
    return other


@pytest.mark.parametrize("how", ["missing", "damaged", "empty", "of another segment"])
def test_an_index_that_cannot_be_used_is_derived_from_the_frames(how: str) -> None:
    written = Written()
    spoil(written, how)
    rows, is_derived = written.rows()
    written.check(rows)
    assert is_derived
    written.disk.run(rewrite_index(written.disk.files, written.path, written.segment, rows))
    rows, is_derived = written.rows()
    written.check(rows)
    assert not is_derived


def test_a_damaged_frame_is_an_error_that_names_the_record_before_it() -> None:
    written = Written(sealed=False)
    at = written.data.find(b'"1/5"')
    written.disk.ring.corrupt_file(written.path, at)
    with pytest.raises(CorruptError, match=r"topic 1, after seq 4\): .*topics fsck --rebuild"):
        written.rows()


def test_a_file_that_is_not_the_segment_listed_is_refused() -> None:
    for segment in (
        other_epoch(Written().segment),
        new_segment(2, 3, epoch=99, now_ms=0, described=DescriptionPieces())[0],
    ):
        written = Written(sealed=False)
        segment.frames_end = written.segment.frames_end
        with pytest.raises(CorruptError, match="not the segment the snapshot lists"):
            written.disk.run(read_rows(written.disk.files, written.path, segment))


def test_frames_beyond_what_the_snapshot_lists_are_not_read_and_are_cut_back() -> None:
    written = Written(sealed=False)
    written.write(written.data + records(1, (8, 9)) + b"\x55" * 100)
    written.check(written.rows()[0])
    written.disk.run(cut_back(written.disk.files, DIRECTORY, written.segment))
    data = written.disk.read(written.segment.path)
    assert data[: len(written.data)] == written.data
    assert not any(data[len(written.data) :])
    written.check(written.rows()[0])


# --- as it describes itself -------------------------------------------------------------------------------------------
def test_a_sealed_segment_describes_itself_as_the_snapshot_lists_it() -> None:
    written = Written()
    described = describe_file(written.data, "x")
    assert described.segment == written.segment
    assert (described.description, described.total_records) == (b"last", 15)


def test_a_growing_segment_describes_itself_by_its_header() -> None:
    written = Written(sealed=False)
    described = describe_file(written.data, "x")
    assert described.segment == written.segment
    assert (described.description, described.total_records) == (b"first", 0)


def test_a_segment_with_a_damaged_frame_describes_nothing() -> None:
    written = Written()
    at = written.data.find(b'"1/5"')
    with pytest.raises(CorruptError, match="topic 1"):
        describe_file(written.data[:at] + b"!" + written.data[at + 1 :], "x")


def test_a_footer_is_known_by_its_checksum_where_its_mark_is_damaged() -> None:
    written = Written()
    footer = read_footer(written.data, "x")
    assert footer is not None
    assert (footer.records, footer.total_records, footer.total_size) == (5, 15, 100 + written.segment.size)
    at = len(written.data) - FOOTER_BYTES
    assert read_footer(written.data[:at] + b"?" + written.data[at + 1 :], "x") == footer
    with pytest.raises(CorruptError):
        read_footer(written.data[:-20] + b"?" + written.data[-19:], "x")


def test_what_ends_in_frames_or_is_too_short_has_no_footer() -> None:
    assert read_footer(Written(sealed=False).data, "x") is None
    assert read_footer(b"short", "x") is None
