"""The columns of an index: their flags, their parity, and counts that are wrong."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from tests.store.layouts.test_file_kind import COLUMNS, INDEX
from topics.errors import CorruptError
from topics.store.format.log_format import FLAG_FSYNC, FLAG_META, FLAG_NODE, FLAG_ROUTED, FLAG_TAG
from topics.store.layouts.index_format import INDEX_DELETE, INDEX_DELETED, IndexHeader


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
