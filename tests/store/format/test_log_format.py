"""The bytes on disk, pinned: a change here is a new format version."""

import pytest

from tests.store.format.frames_by_hand import frame_control, seal_batch
from topics.errors import CorruptError, FormatError
from topics.store.format import codec
from topics.store.format.log_format import (
    BATCH_HEADER_BYTES,
    FLAG_ROUTED,
    FRAME_HEADER_BYTES,
    FRAME_MIN_BYTES,
    WAL_HEADER_BYTES,
    BatchHeader,
    Frame,
    FrameType,
    Idempotency,
    WalHeader,
    align_up,
    boot_hash,
    iterate_extension,
    pack_idempotency,
    unpack_extension,
    wal_file_name,
    wal_file_no,
)
from topics.store.format.rows import RowRecord, pack_rows

HEADER = WalHeader(3, 0x1122, 0xA1A2A3A4A5A6A7A8, 77, bytes(range(16)), 1_700_000_000_000)
FRAME = Frame(
    FrameType.RECORD,
    topic_id=0x0102030405060708,
    seq=9,
    ts_ms=1_700_000_000_000,
    data=b'{"a":1}',
    meta=b"{}",
    tag=b"t",
    node=b"n1",
    ext=pack_idempotency(Idempotency(1, 5, b"k")),
    size=9,
    fsync=True,
)


def test_sizes_are_what_the_layouts_say() -> None:
    assert (WAL_HEADER_BYTES, BATCH_HEADER_BYTES, FRAME_HEADER_BYTES, FRAME_MIN_BYTES) == (64, 64, 52, 61)
    assert align_up(0, 8) == 0
    assert align_up(4097, 4096) == 8192


def test_a_file_header_has_these_bytes() -> None:
    packed = HEADER.pack()
    assert packed[:56].hex() == (
        "5450574c" "0100" "0300" "2211000000000000" "a8a7a6a5a4a3a2a1" "4d00000000000000"
        "000102030405060708090a0b0c0d0e0f" "0068e5cf8b010000"
    )  # fmt: skip
    assert packed[56:].hex() == "9345b75283c6c866"
    assert WalHeader.unpack(packed + bytes(4032), "f") == HEADER
    assert HEADER.checksum == int.from_bytes(packed[56:], "little")


def test_a_frame_has_these_bytes() -> None:
    packed = FRAME.pack()
    assert packed.hex() == (
        "55000000" "01" "1f" "0807060504030201" "0900000000000000" "0068e5cf8b010000" "0200" "0100" "07000000"
        "01" "00" "1000" "0000" "02000000" "09000000"
        "010d00" "01000000" "0500000000000000" "6b" "6e31" "74" "7b2261223a317d" "7b7d" "f46dcaccb1b0a085" "00"
    )  # fmt: skip
    assert Frame.unpack(packed, "f") == FRAME


def test_a_batch_has_these_bytes() -> None:
    body = FRAME.pack()
    header = BatchHeader(0xE0, 12, 11, 0xC0, len(body), 1, 1_700_000_000_000)
    packed = header.pack(body)
    assert packed.hex() == (
        "54504254" "0100" "0000" "e000000000000000" "0c00000000000000" "0b00000000000000" "c000000000000000"
        "59000000" "01000000" "0068e5cf8b010000" "195f2328d976ba08"
    )  # fmt: skip
    sealed, checksum = seal_batch(
        body, epoch=0xE0, batch_no=12, synced_upto=11, chain=0xC0, frame_count=1, written_ms=1_700_000_000_000
    )
    assert sealed == packed + body
    assert BatchHeader.unpack(packed, "b") == header._replace(checksum=checksum)
    assert BatchHeader.unpack(packed, "b").is_sound(body)
    assert not BatchHeader.unpack(packed, "b").is_sound(body + b"x")


def test_a_control_frame_is_the_same_from_c_and_from_python() -> None:
    expected = Frame(FrameType.TOPIC_CREATE, 1, 2, 3, b'{"name":"a"}').pack()
    assert frame_control(FrameType.TOPIC_CREATE, topic_id=1, seq=2, ts_ms=3, payload=b'{"name":"a"}') == expected


def test_framed_rows_are_the_same_from_c_and_from_python() -> None:
    rows = pack_rows([RowRecord(b'{"a":1}', b"t", b"n1", b"{}")])
    framed, placed = codec.frame_rows(
        rows, topic_id=FRAME.topic_id, first_seq=9, ts_ms=FRAME.ts_ms, fsync=True, extension=FRAME.ext
    )
    lengths = placed.lengths
    assert framed == FRAME.pack()
    assert lengths.tolist() == [len(framed)]


def test_magic_then_version_then_checksum_are_told_apart() -> None:
    packed = HEADER.pack()
    with pytest.raises(FormatError, match="not a log file"):
        WalHeader.unpack(b"XXXX" + packed[4:], "f")
    with pytest.raises(FormatError, match="version 2"):
        WalHeader.unpack(packed[:4] + b"\x02\x00" + packed[6:], "f")
    with pytest.raises(CorruptError, match="checksum"):
        WalHeader.unpack(packed[:8] + b"\xff" + packed[9:], "f")
    with pytest.raises(CorruptError, match="too short"):
        WalHeader.unpack(packed[:40], "f")
    with pytest.raises(FormatError, match="not a batch"):
        BatchHeader.unpack(bytes(64), "b")
    with pytest.raises(FormatError, match="batch version 9"):
        BatchHeader.unpack(b"TPBT\x09\x00" + bytes(58), "b")


def test_a_damaged_frame_is_refused_with_its_place() -> None:
    packed = bytearray(FRAME.pack())
    packed[-1] = 0xD5
    assert Frame.unpack(packed, "f").deleted, "the deleted byte is outside the checksum"
    for at in (5, 14, 60, len(packed) - 5):
        damaged = bytearray(packed)
        damaged[at] ^= 1
        with pytest.raises(CorruptError, match="wal-7"):
            Frame.unpack(damaged, "wal-7")
    with pytest.raises(CorruptError, match="lengths"):
        Frame.unpack(packed + b"x", "f")
    with pytest.raises(CorruptError, match="too few"):
        Frame.unpack(b"abc", "f")
    packed[38] = 2
    with pytest.raises(FormatError, match="frame version 2"):
        Frame.unpack(packed, "f")


def test_file_names_carry_their_number() -> None:
    assert wal_file_name(255) == "wal-00000000000000ff.log"
    assert wal_file_no("wal-00000000000000ff.log") == 255
    for other in (
        "wal-00000000000000FF.log",
        "wal-ff.log",
        "lock",
        "seg-00000000000000ff.log",
        "wal-00000000000000ff.tmp",
    ):
        assert wal_file_no(other) is None


def test_extension_entries_of_unknown_kinds_are_passed_over() -> None:
    entry = Idempotency(10, 123, b"key")
    ext = b"\x63\x02\x00hi" + pack_idempotency(entry)
    assert unpack_extension(ext) == [entry]
    assert unpack_extension(b"") == []
    with pytest.raises(CorruptError):
        list(iterate_extension(ext[:-1]))
    with pytest.raises(CorruptError):
        list(iterate_extension(b"\x01"))
    assert len(boot_hash("abc")) == 16


def test_a_copy_of_a_router_says_so_in_its_flags_and_elsewhere_nothing_changes() -> None:
    """R-EO-3."""
    plain = Frame(FrameType.RECORD, 1, 2, 3, b"4", b"{}")
    routed = plain._replace(routed=True).pack()
    assert Frame.unpack(routed, "a frame").routed
    assert not Frame.unpack(plain.pack(), "a frame").routed
    assert (routed[5], len(routed)) == (plain.pack()[5] | FLAG_ROUTED, len(plain.pack()))
