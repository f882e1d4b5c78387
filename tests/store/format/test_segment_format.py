"""The bytes of segments, packs and snapshots: pinned, and total under any damage."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.loop.walk import Walk
from topics.errors import CorruptError, FormatError
from topics.store.format import segment_format
from topics.store.format.catalog import NO_TAG, RowColumns
from topics.store.format.log_format import FLAG_FSYNC, FLAG_META, FLAG_NODE, FLAG_ROUTED, FLAG_TAG
from topics.store.format.row_columns import index_of, select
from topics.store.format.segment_format import (
    FOOTER_BYTES,
    INDEX_DELETE,
    INDEX_DELETED,
    INDEX_ROW_BYTES,
    IndexColumns,
    IndexHeader,
    PackFooter,
    PackHeader,
    RunHeader,
    SegmentFooter,
    SegmentHeader,
    SnapshotFile,
    edition_of,
    file_number,
    index_path,
    numbered,
    pack_snapshot,
    segment_path,
    sum_in_steps,
)

SEGMENT = SegmentHeader(1, 2, 3, 4, b'{"name":"a"}')
FOOTER = SegmentFooter(1, 2, 3, 9, 5, 6, 7, 8, 10, 11, 12, 13, b'{"head":9}')
RUN = RunHeader(2, 1, 3, 9, 6, 700, 13, b'{"name":"a"}')
COLUMNS = IndexColumns(
    np.array([5, 6], "<u8"),
    np.array([0, 2], "<u4"),
    np.array([4096, 4200], "<u4"),
    np.array([104, 90], "<u4"),
    np.array([10, 11], "<u4"),
    np.array([0, NO_TAG], "<u4"),
    np.array([1, 0], "u1"),
    [b"tag"],
)
INDEX = IndexHeader(1, 2, 3, 2, 1, 13)
SNAPSHOT = SnapshotFile(7, 8, b'{"a":1}', b"[]")


def test_headers_are_what_they_were() -> None:
    assert SEGMENT.pack()[:76].hex() == (
        "545053470100000001000000000000000200000000000000030000000000000004000000000000000c00000000100000"
        "0000000000000000" + SEGMENT.pack()[56:64].hex() + b'{"name":"a"}'.hex()
    )
    assert SEGMENT.pack()[56:64].hex() == "c7cc8af3146b2e68"
    assert FOOTER.pack()[-8:].hex() == "b7fdc815dd2c5982"
    assert RUN.pack()[64:72].hex() == "637afc614fb76cda"
    assert INDEX.pack(COLUMNS)[56:64].hex() == "2d6f810bdc5bdaed"
    assert SNAPSHOT.pack()[56:64].hex() == "da05a9be763efce1"
    assert PackHeader(2, 4).pack()[56:64].hex() == "a4748dbad46ba258"


def test_what_is_packed_is_unpacked() -> None:
    assert SegmentHeader.unpack(SEGMENT.pack(), "x") == SEGMENT
    assert SegmentFooter.unpack(b"frames" + FOOTER.pack(), "x") == FOOTER
    assert RunHeader.unpack(RUN.pack() + b"frames", "x") == RUN
    assert SnapshotFile.unpack(SNAPSHOT.pack(), "x") == SNAPSHOT
    header, columns = IndexHeader.unpack(INDEX.pack(COLUMNS), "x")
    assert header == INDEX
    assert all((a == b).all() for a, b in zip(columns[:7], COLUMNS[:7], strict=True))
    assert list(columns.tag_table) == [b"tag"]
    assert len(COLUMNS.pack()) == 2 * INDEX_ROW_BYTES + 2 + 3
    assert len(FOOTER.pack()) == FOOTER_BYTES + 10


def test_a_deleted_flag_in_an_index_breaks_no_checksum_and_a_single_bit_its_parity() -> None:
    data = bytearray(INDEX.pack(COLUMNS))
    data[64 + 2 * 28] ^= INDEX_DELETE
    _, columns = IndexHeader.unpack(bytes(data), "x")
    assert columns.flags.tolist() == [0x81, 0]
    data[64 + 2 * 28] ^= 0x80
    with pytest.raises(CorruptError, match="flags"):
        IndexHeader.unpack(bytes(data), "x")


@pytest.mark.parametrize("others", [0, FLAG_TAG, FLAG_TAG | FLAG_META, FLAG_FSYNC | FLAG_NODE])
@pytest.mark.parametrize("deleted", [0, INDEX_DELETED])
def test_the_mark_of_an_exactly_once_copy_is_in_the_index_beside_the_parity(others: int, deleted: int) -> None:
    flags = np.array([FLAG_ROUTED | others | deleted, others | deleted], np.uint8)
    packed = INDEX.pack(COLUMNS._replace(flags=flags))
    assert IndexHeader.unpack(bytes(packed), "x")[1].flags.tolist() == (flags & ~np.uint8(FLAG_FSYNC)).tolist()
    for bit in range(8):
        damaged = bytearray(packed)
        damaged[64 + 2 * 28] ^= 1 << bit
        with pytest.raises(CorruptError, match="flags"):
            IndexHeader.unpack(bytes(damaged), "x")


def test_an_index_without_such_copies_has_the_bytes_that_it_always_had() -> None:
    flags = np.array([FLAG_FSYNC | FLAG_TAG, FLAG_META], np.uint8)
    packed = INDEX.pack(COLUMNS._replace(flags=flags))
    assert packed[6:8] == b"\1\0"
    assert packed[64 + 2 * 28 : 64 + 2 * 29].hex() == "1144"


def test_an_index_that_was_written_without_parity_is_taken_as_it_is() -> None:
    packed = bytearray(COLUMNS.pack())
    packed[2 * 28 : 2 * 29] = b"\x81\x00"
    head = INDEX.pack(COLUMNS)[:56]
    head[6] = 0
    checksum = xxhash.xxh3_64_intdigest(bytes(head) + bytes(packed[: 2 * 28]) + bytes(packed[2 * 29 :]))
    _, columns = IndexHeader.unpack(bytes(head) + checksum.to_bytes(8, "little") + bytes(packed), "x")
    assert columns.flags.tolist() == [0x81, 0]


@pytest.mark.parametrize(
    "counts", [{"rows": 3}, {"rows": 1 << 31}, {"tag_count": 9}, {"rows": 0, "tag_count": 1 << 31}]
)
def test_an_index_that_says_it_has_more_than_there_is_is_damaged_though_its_checksum_be_right(
    counts: dict[str, int],
) -> None:
    with pytest.raises(CorruptError, match="past its end"):
        IndexHeader.unpack(INDEX._replace(**counts).pack(COLUMNS), "x")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda data: b"XXXX" + data[4:], FormatError, "not a segment"),
        (lambda data: data[:4] + b"\2\0" + data[6:], FormatError, "version 2; this build knows 1"),
        (lambda data: data[:20] + b"!" + data[21:], CorruptError, "checksum"),
        (lambda data: data[:40], CorruptError, "too short"),
    ],
)
def test_magic_version_and_checksum_each_have_their_message(change, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        SegmentHeader.unpack(change(SEGMENT.pack()), "x")


KINDS = [
    (SEGMENT.pack()[:80], lambda data: SegmentHeader.unpack(data, "x")),
    (FOOTER.pack(), lambda data: SegmentFooter.unpack(data, "x")),
    (RUN.pack(), lambda data: RunHeader.unpack(data, "x")),
    (INDEX.pack(COLUMNS), lambda data: IndexHeader.unpack(data, "x")),
    (SNAPSHOT.pack(), lambda data: SnapshotFile.unpack(data, "x")),
    (PackFooter(2, 1, 2, 1, 4096).pack(b"", COLUMNS.pack()), lambda data: PackFooter.unpack(data, "x")),
]


@examples(75)
@given(st.sampled_from(range(len(KINDS))), st.data())
def test_any_bytes_give_a_value_or_a_documented_error(kind: int, data: st.DataObject) -> None:
    good, unpack = KINDS[kind]
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    with contextlib.suppress(CorruptError, FormatError):
        unpack(bytes(raw))


def test_names_of_files() -> None:
    assert segment_path(255, 7) == "topics/00000000000000ff/seg-00000000000000000007.data"
    assert index_path(segment_path(1, 7)).endswith("/seg-00000000000000000007.idx")
    assert numbered("pack-000000000000001f.data", "pack-", ".data") == 31
    assert numbered("pack-1f.data", "pack-", ".data") is None
    assert numbered("snapshot-0000000000000001.tmp", "snapshot-") is None


class Looked(Sequence[bytes]):
    """A table of tags that counts how often one of them is looked at."""

    def __init__(self, tags: list[bytes]) -> None:
        self._tags = tags
        self.looks = 0

    def __len__(self) -> int:
        return len(self._tags)

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return self._tags[index]


def test_an_index_made_of_many_pieces_of_one_table_looks_at_each_tag_once_and_has_those_that_occur() -> None:
    """A checkpoint selects some megabytes of rows at a time, which share the table of all of them."""
    table = Looked([b"t%d" % number for number in range(100)])
    none = np.zeros(60, np.uint32)
    tags = np.arange(60, dtype=np.uint32)
    tags[::10] = NO_TAG
    rows = RowColumns(7, np.arange(1, 61, dtype=np.uint64), none, none, none, none.astype(np.uint64), none, tags, table)
    other = rows._replace(seqs=rows.seqs + np.uint64(60), tag_table=[b"t%d" % number for number in range(1, 101)])
    pieces = [select(part, slice(at, at + 5)) for part in (rows, other) for at in range(0, 60, 5)]
    columns = index_of(pieces, 1)
    assert table.looks <= len(table) + 1
    found = [None if number == NO_TAG else columns.tag_table[number] for number in columns.tags.tolist()]
    expected = [None if number % 10 == 0 else b"t%d" % number for number in range(60)]
    assert found == expected + [None if number % 10 == 0 else b"t%d" % (number + 1) for number in range(60)]
    assert set(columns.tag_table) == {tag for tag in found if tag is not None}


@pytest.mark.parametrize("edition", [0, 1, 12])
def test_the_name_of_a_segment_has_its_first_seq_and_its_edition(edition: int) -> None:
    path = segment_path(7, 345, edition)
    assert (file_number(path), edition_of(path.rpartition("/")[2])) == (345, edition)


def test_the_sum_of_a_snapshot_is_taken_some_bytes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both copies summed all of it in one step each: 18 ms with a million topics."""
    monkeypatch.setattr(segment_format, "SUMMED_A_STEP", 100)
    store, catalog = [bytes(30)] * 10, [b"x" * 250, b"", memoryview(b"y" * 99)]
    walk = Walk(sum_in_steps(store, catalog))
    steps = len(list(walk))
    assert steps + 1 >= sum(map(len, [*store, *catalog])) // 200
    packed = pack_snapshot(7, 8, store, catalog, walk.result)
    assert packed == pack_snapshot(7, 8, store, catalog)
    found = SnapshotFile.unpack(b"".join(packed), "snapshot")
    assert (bytes(found.store), bytes(found.catalog)) == (b"".join(store), b"".join(catalog))
