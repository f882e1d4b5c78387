"""The bytes of segments, packs and snapshots: pinned, and total under any damage."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.errors import CorruptError, FormatError
from topics.store.format.catalog import NO_TAG
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import INDEX_ROW_BYTES, IndexColumns, IndexHeader
from topics.store.layouts.pack_format import PackFooter, PackHeader, RunHeader
from topics.store.layouts.segment_format import SegmentFooter, SegmentHeader
from topics.store.layouts.snapshot_format import SnapshotFile

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
