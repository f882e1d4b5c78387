"""codec.c against a plain Python model: the same bytes out, and any bytes in give a result."""
# ruff: noqa: PLR0917 - hypothesis passes by position

import base64
import contextlib
import json
import random
import struct
from array import array

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.store.format.frames_by_hand import pack_times, record_at, seal_batch
from topics.common.memory import LARGE_BYTES
from topics.engine.values.node_set import node_set
from topics.errors import CorruptError
from topics.store.format import codec
from topics.store.format._codec import ffi, lib
from topics.store.format.codec import ScanStop, addresses_of, place_rows, place_run
from topics.store.format.log_format import (
    FLAG_COPY,
    FLAG_FSYNC,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    PAYLOAD_BYTES,
    PAYLOAD_JSON,
    BatchHeader,
    Frame,
    FrameType,
    align_up,
)
from topics.store.format.rows import (
    PLACED,
    PLACED_DTYPE,
    ROW,
    Framed,
    RowRecord,
    Rows,
    join_rows,
    pack_rows,
    rows_of_bytes,
)
from topics.store.read.render_columns import ColumnRenderer
from topics.store.read.render_json import LEASE, JsonRenderer

EPOCH = 0xFEEDFACECAFEBEEF
names = st.binary(max_size=12)
delays = st.sampled_from([0, 0, 1, 2**64 - 1])
records = st.builds(
    RowRecord,
    data=st.binary(min_size=1, max_size=40),
    meta=st.none() | st.binary(max_size=12),
    tag=st.none() | names,
    node=st.none() | names,
    size=st.just(0),
    is_bytes=st.booleans(),
    delay_ms=delays,
    ttl_ms=delays,
)
frames = st.builds(
    Frame,
    type=st.sampled_from([1, 2, 5, 9, 200]),
    topic_id=st.integers(0, 2**64 - 1),
    seq=st.integers(0, 2**64 - 1),
    ts_ms=st.integers(0, 2**64 - 1),
    data=st.binary(max_size=40),
    meta=st.none() | st.binary(max_size=12),
    tag=st.none() | names,
    node=st.none() | names,
    ext=st.binary(max_size=12),
    size=st.integers(0, 2**32 - 1),
    fsync=st.booleans(),
    deleted=st.booleans(),
    payload_kind=st.sampled_from([PAYLOAD_JSON, PAYLOAD_BYTES]),
)


def log_of(bodies: list[list[Frame]], *, first_batch_no: int = 1, chain: int = 7) -> bytes:
    """Batches as a log file would hold them."""
    log = bytearray()
    for number, body_frames in enumerate(bodies, first_batch_no):
        body = b"".join(frame.pack() for frame in body_frames)
        header = BatchHeader(EPOCH, number, number - 1, chain, len(body), len(body_frames), 5).pack(body)
        chain = int.from_bytes(header[-8:], "little")
        log += header + body
        log += bytes(align_up(len(log), 8) - len(log))
    return bytes(log)


def row_of(frame: Frame, offset: int) -> tuple[int, ...]:
    return (
        frame.type,
        frame.seq,
        frame.topic_id,
        frame.ts_ms,
        frame.size,
        offset,
        len(frame.pack()),
        0xD5 if frame.deleted else 0,
        len(frame.data),
        len(frame.meta or b""),
        len(frame.ext),
        len(frame.node or b""),
        len(frame.tag or b""),
        frame.payload_kind,
    )


COLUMNS = [
    "type", "seq", "topic_id", "ts_ms", "size", "offset", "length", "deleted",
    "data_len", "meta_len", "ext_len", "node_len", "tag_len", "payload_kind",
]  # fmt: skip


def rows_of(found: codec.Frames) -> list[tuple[int, ...]]:
    return [tuple(int(row[name]) for name in COLUMNS) for row in found]


@given(st.lists(records, max_size=5), st.none() | names, st.binary(max_size=20), st.booleans(), st.integers(0, 2**63))
def test_framed_rows_equal_the_model(
    written: list[RowRecord], node: bytes | None, ext: bytes, fsync: bool, first_seq: int
) -> None:
    rows = pack_rows(written)
    framed, placed = codec.frame_rows(
        rows, topic_id=5, first_seq=first_seq, ts_ms=6, fsync=fsync, node=node, extension=ext
    )
    lengths = placed.lengths
    expected = [
        Frame(
            FrameType.RECORD,
            5,
            first_seq + i,
            6,
            record.data,
            record.meta,
            record.tag,
            node if record.node is None else record.node,
            pack_times(record.delay_ms, record.ttl_ms) + (ext if i == 0 else b""),
            len(record.data) + len(record.meta or b""),
            fsync,
            payload_kind=PAYLOAD_BYTES if record.is_bytes else PAYLOAD_JSON,
        ).pack()
        for i, record in enumerate(written)
    ]
    assert framed == b"".join(expected)
    assert lengths.tolist() == [len(frame) for frame in expected]
    columns = placed.columns()
    assert columns["start"].tolist() == [sum(lengths[:i].tolist()) for i in range(len(expected))]
    assert columns["size"].tolist() == [len(record.data) + len(record.meta or b"") for record in written]
    assert columns["flags"].tolist() == [frame[5] for frame in expected]
    assert set(columns["ts_ms"].tolist()) <= {6}


@given(
    st.lists(st.tuples(st.lists(records, min_size=1, max_size=4), st.integers(0, 2**40)), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_rows_of_many_topics_are_framed_and_placed_as_one_topic_after_the_other(
    topics: list[tuple[list[RowRecord], int]], fsync: bool, base: int
) -> None:
    rows = pack_rows([record for added, _seq in topics for record in added])
    numbers: list[tuple[int, ...]] = []
    expected, places, at = b"", [], 0
    for number, (added, seq) in enumerate(topics):
        part = Rows(rows.buffer, rows.spans[at * ROW.size : (at + len(added)) * ROW.size], len(added), 0)
        numbers.append((number, seq, 7 + number, at, len(added)))
        framed, placed = codec.frame_rows(part, topic_id=number, first_seq=seq, ts_ms=7 + number, fsync=fsync)
        places.append(placed.moved_to(len(expected)).columns().copy())
        expected += framed
        at += len(added)
    dest, got = bytearray(len(expected)), bytearray(PLACED.size * rows.count)
    columns_of_topics = [
        ffi.from_buffer(f"uint{bits}_t[]", array(kind, column))
        for bits, kind, column in zip((64, 64, 64, 32, 32), "QQQII", zip(*numbers, strict=True), strict=True)
    ]
    arguments = (len(rows.buffer), rows.spans, *columns_of_topics, len(topics))
    for room in (len(expected) - 1, len(expected)):
        written = lib.tp_frame_topics(
            ffi.from_buffer(dest), 0, room, ffi.from_buffer(rows.buffer), *arguments,
            FLAG_FSYNC if fsync else 0, 0, ffi.from_buffer(got),
        )  # fmt: skip
        assert written < 0 or room == len(expected)
    assert bytes(dest) == expected
    assert np.frombuffer(got, PLACED_DTYPE).tolist() == np.concatenate(places).tolist()

    shapes = (np.uint32, np.uint32, np.uint32, np.uint32, np.uint64, np.uint8)
    chunks = [[np.zeros(len(added) + 3, shape) for shape in shapes] for added, _seq in topics]
    runs, at = [], 0
    for added, _seq in topics:
        runs += (at, 2, len(added))
        at += len(added)
    size = place_rows(b"".join(addresses_of(*columns) for columns in chunks), runs, bytes(got), 9, base)
    assert size == sum(int(placed["size"].sum()) for placed in places)
    for (added, _seq), columns, placed in zip(topics, chunks, places, strict=True):
        placed["start"] += base
        wanted = [[9] * len(added), *(placed[name].tolist() for name in ("start", "length", "size", "ts_ms", "flags"))]
        assert [column.tolist() for column in columns] == [[0, 0, *values, 0] for values in wanted]

    own, at = [[np.zeros(len(added) + 3, shape) for shape in shapes] for added, _seq in topics], 0
    for (added, _seq), columns, placed in zip(topics, own, places, strict=True):
        size = place_run(addresses_of(*columns), 2, bytes(got), at, len(added), 9, base)
        assert size == int(placed["size"].sum())
        at += len(added)
    assert [[column.tolist() for column in columns] for columns in own] == [
        [column.tolist() for column in columns] for columns in chunks
    ]


@given(st.binary(max_size=60), st.binary(max_size=120))
def test_any_spans_give_frames_or_a_refusal(buffer: bytes, spans: bytes) -> None:
    count = len(spans) // 40
    placed = bytearray(24 * max(1, count))
    dest = bytearray(1 << 16)
    written = lib.tp_frame_rows(
        ffi.from_buffer(dest), 0, len(dest), buffer, len(buffer), spans, count,
        1, 1, 1, 0, b"", 0, 0, b"", 0, 0, ffi.from_buffer(placed),
    )  # fmt: skip
    lengths = Framed(0, bytes(placed)).lengths
    assert written == int(lengths[:count].sum())


packable = st.one_of(
    st.binary(max_size=300), st.binary(max_size=40).map(bytearray), st.binary(max_size=40).map(memoryview)
)


@given(st.lists(packable, min_size=1, max_size=20), st.sampled_from([list, tuple]))
def test_rows_of_bytes_equal_the_model(payloads: list[bytes | bytearray | memoryview], kind: type) -> None:
    rows = rows_of_bytes(kind(payloads))
    assert isinstance(rows, Rows)
    assert (rows.count, rows.size) == (len(payloads), sum(map(len, payloads)))
    assert rows.buffer == b"".join(payloads)
    for at, payload in enumerate(payloads):
        assert record_at(rows, at) == RowRecord(bytes(payload), size=len(payload), is_bytes=True)


@given(st.lists(packable, min_size=1, max_size=20), st.integers(0, 300))
def test_the_first_payload_above_a_limit_is_named(payloads: list[bytes | bytearray | memoryview], most: int) -> None:
    above = [at for at, payload in enumerate(payloads) if len(payload) > most]
    found = rows_of_bytes(payloads, most)
    assert found == above[0] if above else isinstance(found, Rows)


def test_payloads_of_more_bytes_than_a_row_can_point_to_are_refused_before_they_are_copied() -> None:
    with pytest.raises(OverflowError, match=r"^4294967296 bytes$"):
        rows_of_bytes([bytes(1 << 20)] * 4096)


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_rows_of_any_number_of_bytes_are_found(count: int) -> None:
    rows = rows_of_bytes([b"%d" % at for at in range(count)])
    assert isinstance(rows, Rows)
    assert rows.count == len(rows.columns()) == count
    assert record_at(rows, count - 1).data == b"%d" % (count - 1)


def released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


with_gaps = memoryview(bytes(8))[::2]


@pytest.mark.parametrize("other", [1, "text", None, [b"x"], {b"x": 1}, range(1 << 40), with_gaps, released()])
def test_values_of_another_type_have_no_rows_of_bytes(other: object) -> None:
    assert rows_of_bytes([b"first", other]) is None
    assert rows_of_bytes([other]) is None


def test_what_is_no_list_or_tuple_has_no_rows_of_bytes() -> None:
    assert rows_of_bytes(iter([b"a"])) is None  # type: ignore[arg-type]


def test_a_view_of_other_items_gives_its_bytes() -> None:
    rows = rows_of_bytes([b"first", memoryview(bytes(range(8))).cast("I")])
    assert isinstance(rows, Rows)
    assert (rows.size, record_at(rows, 1).data) == (13, bytes(range(8)))


@given(
    st.lists(records, min_size=1, max_size=6),
    st.integers(0, 700),
    st.integers(0, 1 << 14),
    st.none() | names,
    st.booleans(),
    st.lists(st.binary(min_size=1, max_size=900), max_size=2),
)
def test_a_framed_batch_is_its_frames_sealed_and_zeros_to_the_end_of_the_block(
    written: list[RowRecord], place: int, room: int, node: bytes | None, fsync: bool, more: list[bytes]
) -> None:
    """Frames that follow the rows' are taken as they are."""
    at, rows = place * 8, pack_rows(written)
    room = max(room, at)
    chunk, placed, checksum = bytearray(b"?" * room), bytearray(24 * rows.count), bytearray(8)
    used = lib.tp_frame_batch(
        ffi.from_buffer(chunk), at, room, rows.buffer, len(rows.buffer), rows.spans, rows.count,
        9, 100, 1_700, FLAG_FSYNC if fsync else 0, node or b"", len(node or b""), node is not None,
        b"".join(more), sum(map(len, more)), len(more),
        EPOCH, 5, 3, 77, 1_800, ffi.from_buffer(placed), ffi.from_buffer("uint64_t[]", checksum),
    )  # fmt: skip
    model = bytearray(1 << 16)
    body = lib.tp_frame_rows(
        ffi.from_buffer(model), 64, len(model), rows.buffer, len(rows.buffer), rows.spans, rows.count,
        9, 100, 1_700, FLAG_FSYNC if fsync else 0, node or b"", len(node or b""), node is not None,
        b"", 0, 0, ffi.from_buffer(model_placed := bytearray(24 * rows.count)),
    )  # fmt: skip
    rest = b"".join(more)
    model[64 + body : 64 + body + len(rest)] = rest
    body += len(rest)
    model_sum = lib.tp_seal_batch(ffi.from_buffer(model), EPOCH, 5, 3, 77, body, rows.count + len(more), 1_800)
    if room < at + 64 + body:
        assert used in {-(at + 64 + len(rest)), -(at + 64 + body)}
        assert chunk == b"?" * room, "nothing is written without room for all"
        return
    assert used == 64 + body
    assert chunk[:at] == b"?" * at
    assert chunk[at : at + used] == model[:used]
    block_end = min(room, align_up(at + used, 4096))
    assert chunk[at + used : block_end] == bytes(block_end - at - used)
    assert chunk[block_end:] == b"?" * (room - block_end)
    assert placed == model_placed
    assert int.from_bytes(checksum, "little") == model_sum


@given(st.integers(0, 40_000), st.booleans(), st.integers(0, 1))
def test_a_batch_made_around_its_record_is_the_batch_made_of_a_copy(size: int, fsync: bool, kind: int) -> None:
    text = random.Random(size).randbytes(size)
    rows = pack_rows([RowRecord(text)])
    spans = bytearray(rows.spans)
    spans[36] |= kind * lib.TP_ROW_IS_BYTES
    head, trailer, placed, checksum = bytearray(64 + 52), bytearray(9), bytearray(b"?" * 24), bytearray(8)
    used = lib.tp_frame_apart(
        ffi.from_buffer(head), ffi.from_buffer(trailer), rows.buffer, len(rows.buffer), bytes(spans),
        9, 100, 1_700, FLAG_FSYNC if fsync else 0,
        EPOCH, 5, 3, 77, 1_800, ffi.from_buffer(placed), ffi.from_buffer("uint64_t[]", checksum),
    )  # fmt: skip
    model, model_placed, model_sum = bytearray(1 << 16), bytearray(24), bytearray(8)
    model_used = lib.tp_frame_batch(
        ffi.from_buffer(model), 0, len(model), rows.buffer, len(rows.buffer), bytes(spans), 1,
        9, 100, 1_700, FLAG_FSYNC if fsync else 0, b"", 0, False, b"", 0, 0,
        EPOCH, 5, 3, 77, 1_800, ffi.from_buffer(model_placed), ffi.from_buffer("uint64_t[]", model_sum),
    )  # fmt: skip
    assert used == model_used
    assert head + text + trailer == model[:used]
    assert (placed, checksum) == (model_placed, model_sum)


@given(st.binary(max_size=60), st.binary(min_size=40, max_size=40))
def test_any_span_gives_a_batch_around_its_record_or_a_refusal(buffer: bytes, span: bytes) -> None:
    head, trailer, placed, checksum = bytearray(64 + 52), bytearray(9), bytearray(24), bytearray(8)
    used = lib.tp_frame_apart(
        ffi.from_buffer(head), ffi.from_buffer(trailer), buffer, len(buffer), span,
        1, 1, 1, 0, 1, 1, 0, 1, 1, ffi.from_buffer(placed), ffi.from_buffer("uint64_t[]", checksum),
    )  # fmt: skip
    fields = ROW.unpack(span)
    plain = not fields[9] & (FLAG_TAG | FLAG_NODE | FLAG_META)
    assert used == (64 + 61 + fields[1] if plain and fields[0] + fields[1] <= len(buffer) else 0)


@given(st.binary(max_size=60), st.binary(max_size=120))
def test_any_spans_give_a_batch_or_a_refusal(buffer: bytes, spans: bytes) -> None:
    count = len(spans) // 40
    placed, chunk, checksum = bytearray(24 * max(1, count)), bytearray(1 << 16), bytearray(8)
    used = lib.tp_frame_batch(
        ffi.from_buffer(chunk), 0, len(chunk), buffer, len(buffer), spans, count,
        1, 1, 1, 0, b"", 0, 0, b"", 0, 0, 1, 1, 0, 1, 1,
        ffi.from_buffer(placed), ffi.from_buffer("uint64_t[]", checksum),
    )  # fmt: skip
    framed = int(Framed(0, bytes(placed)).lengths[:count].sum())
    assert used == (64 + framed if framed else 0)


@given(st.lists(st.lists(frames, max_size=4), max_size=5), st.integers(0, 2**40))
def test_a_scanned_log_equals_the_model(bodies: list[list[Frame]], base: int) -> None:
    log = log_of(bodies)
    scan = codec.scan_log(log + bytes(64), epoch=EPOCH, batch_no=1, chain=7, base=base)
    expected, at = [], 0
    for body in bodies:
        at = align_up(at, 8) + 64
        for frame in body:
            expected.append(row_of(frame, base + at))
            at += len(frame.pack())
    assert rows_of(scan.frames) == expected
    assert (scan.batches, scan.reason) == (len(bodies), ScanStop.END)
    assert scan.batch_no == 1 + len(bodies)
    assert align_up(scan.position, 8) == len(log)
    assert scan.synced_upto == max(0, len(bodies) - 1)
    assert scan.frames["batch"].tolist() == [number for number, body in enumerate(bodies) for _ in body]


SAMPLE = [[Frame(1, 2, seq, 4, b'{"x":%d}' % seq, size=7) for seq in range(first, first + 3)] for first in (1, 4, 7)]


def test_a_flipped_bit_stops_the_scan_before_its_batch() -> None:
    log = log_of(SAMPLE)
    third = len(log) // 3
    for at in range(0, len(log)):
        damaged = bytearray(log + bytes(64))
        damaged[at] ^= 0x10
        scan = codec.scan_log(damaged, epoch=EPOCH, batch_no=1, chain=7)
        batch = at // third
        if scan.batches == 3:  # the padding after a batch is covered by no checksum, and means nothing
            assert damaged[: len(log)] != log
            continue
        assert scan.batches == batch
        assert len(scan.frames) == 3 * batch
        assert scan.reason in (ScanStop.TORN, ScanStop.FOREIGN, ScanStop.MORE)


def test_a_cut_log_asks_for_more_bytes_and_goes_on_where_it_stopped() -> None:
    log = log_of(SAMPLE)
    for cut in range(0, len(log)):
        scan = codec.scan_log(log[:cut], epoch=EPOCH, batch_no=1, chain=7)
        assert scan.reason == ScanStop.MORE
        start = align_up(scan.position, 8)
        assert start + scan.needed > cut
        rest = codec.scan_log(log[start:], epoch=EPOCH, batch_no=scan.batch_no, chain=scan.chain, base=start)
        assert scan.batches + rest.batches == 3
        assert (scan.frames["seq"].tolist() + rest.frames["seq"].tolist()) == list(range(1, 10))


def test_a_scan_tells_why_it_stopped() -> None:
    log = log_of(SAMPLE)
    zeros = bytes(64)
    assert codec.scan_log(log + zeros, epoch=EPOCH + 1, batch_no=1, chain=7).reason == ScanStop.FOREIGN
    assert codec.scan_log(log + zeros, epoch=EPOCH, batch_no=2, chain=7).reason == ScanStop.ORDER
    assert codec.scan_log(log + zeros, epoch=EPOCH, batch_no=1, chain=8).reason == ScanStop.ORDER
    assert codec.scan_log(log + zeros, epoch=EPOCH, batch_no=1, chain=7).reason == ScanStop.END
    assert codec.scan_log(log + b"x" * 64, epoch=EPOCH, batch_no=1, chain=7).reason == ScanStop.FOREIGN
    body = b"\x00" * 80
    bad, _ = seal_batch(body, epoch=EPOCH, batch_no=1, synced_upto=0, chain=7, frame_count=1, written_ms=1)
    assert codec.scan_log(bad, epoch=EPOCH, batch_no=1, chain=7).reason == ScanStop.BAD


def test_a_sound_batch_behind_a_torn_one_is_found() -> None:
    log = bytearray(log_of(SAMPLE) + bytes(100))
    second = align_up(len(log_of(SAMPLE[:1])), 8)
    log[second + 100] ^= 1
    scan = codec.scan_log(log, epoch=EPOCH, batch_no=1, chain=7)
    assert scan.reason == ScanStop.TORN
    found = codec.find_batch(log, epoch=EPOCH, start=scan.position)
    assert found is not None
    assert (found.batch_no, found.synced_upto) == (3, 2)
    assert codec.find_batch(log, epoch=EPOCH + 1, start=0) is None
    assert codec.find_batch(log, epoch=EPOCH, start=found.position + 8) is None


@given(st.binary(max_size=300), st.integers(0, 320), st.booleans())
def test_any_bytes_can_be_scanned(junk: bytes, start: int, framed: bool) -> None:
    data = log_of(SAMPLE)[:100] + junk if framed else junk
    codec.scan_log(data, epoch=EPOCH, batch_no=1, chain=7, start=start)
    codec.find_batch(data, epoch=EPOCH, start=start)
    codec.scan_frames(data, start=start)


@given(st.lists(frames, max_size=6), st.integers(0, 2**40), st.binary(max_size=8))
def test_scanned_frames_equal_the_model(written: list[Frame], base: int, tail: bytes) -> None:
    data = b"".join(frame.pack() for frame in written)
    scan = codec.scan_frames(data, base=base)
    offsets = np.cumsum([0] + [len(frame.pack()) for frame in written])
    assert rows_of(scan.frames) == [row_of(f, base + int(o)) for f, o in zip(written, offsets, strict=False)]
    assert (scan.position, scan.reason) == (len(data), ScanStop.END)
    total = 0
    for frame in written:
        total = codec.checksum(frame.pack()[-9:-1], total)
    assert scan.sum == total
    cut = codec.scan_frames(data + tail, base=base)
    assert len(cut.frames) == len(written)


def test_a_segment_with_a_flipped_bit_stops_at_that_frame_and_a_deleted_byte_does_not_matter() -> None:
    packed = [frame.pack() for frame in SAMPLE[0]]
    data = b"".join(packed)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x20
        scan = codec.scan_frames(damaged)
        if (at + 1) % len(packed[0]) == 0:
            assert scan.frames["deleted"].any()
            assert scan.sum == codec.scan_frames(data).sum
        else:
            assert len(scan.frames) == at // len(packed[0])
            assert scan.reason in (ScanStop.TORN, ScanStop.MORE, ScanStop.BAD)


# --- projection

texts = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts,
    lambda v: st.lists(v, max_size=3),
    max_leaves=4,
)


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


json_records = st.builds(
    RowRecord,
    data=values.map(compact),
    meta=st.none() | st.dictionaries(texts, values, max_size=2).map(compact),
    tag=st.none() | texts.map(str.encode),
    node=st.none() | st.sampled_from([b"a", b"b", b"", b'\x01"\\\n\x7f']),
    size=st.just(0),
    delay_ms=delays,
    ttl_ms=delays,
)
bytes_records = st.builds(
    RowRecord,
    data=st.binary(max_size=40),
    meta=st.none() | st.just(b'{"k":1}'),
    tag=st.none() | st.just(b"t"),
    node=st.none() | st.sampled_from([b"a", b"b", b""]),
    size=st.just(0),
    is_bytes=st.just(True),
    delay_ms=delays,
    ttl_ms=delays,
)
shown_records = json_records | bytes_records


def model(
    written: list[RowRecord],
    nodes: tuple[bytes, ...],
    limit: int,
    budget: int,
    tags: bool,
    meta: bool,
    data: bool,
    apart: bool = False,
) -> tuple[list[dict[str, object]], int]:
    """The elements delivered and the rows examined. apart: as if data of bytes were put back into its record."""
    out: list[dict[str, object]] = []
    size = 0
    for index, record in enumerate(written):
        if len(out) >= limit:
            return out, index
        if record.node is not None and record.node in nodes:
            continue
        text = base64.b64encode(record.data)
        as_base64 = record.is_bytes and data and not apart
        cost = len(text if as_base64 else record.data) + len(record.meta or b"")
        if out and size + cost > budget:
            return out, index
        element: dict[str, object] = {"$seq": 100 + index, "$ts": 1_700_000_000_000}
        if record.node is not None:
            element["$node"] = record.node.decode()
        if tags and record.tag is not None:
            element["$tag"] = record.tag.decode()
        if record.delay_ms:
            element["$delay_ms"] = record.delay_ms
        if record.ttl_ms:
            element["$ttl_ms"] = record.ttl_ms
        if as_base64:
            element["data_base64"] = text.decode()
        elif data:
            element["data"] = record.data if record.is_bytes else json.loads(record.data)
        if meta and record.meta is not None:
            element["meta"] = json.loads(record.meta)
        out.append(element)
        size += cost
    return out, len(written)


@examples(100)
@given(
    st.lists(shown_records, max_size=6),
    st.lists(st.sampled_from([b"a", b"b", b"", b"zz", b'\x01"\\\n\x7f', b"\x01"]), max_size=4).map(tuple),
    st.integers(1, 7),
    st.integers(1, 100),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.booleans(),
    st.integers(0, 6),
)
def test_a_projection_equals_the_model(
    written: list[RowRecord],
    nodes: tuple[bytes, ...],
    limit: int,
    budget: int,
    include: tuple[bool, bool, bool],
    apart: bool,
    split: int,
) -> None:
    tags, meta, data = include
    framed, placed = codec.frame_rows(pack_rows(written), topic_id=9, first_seq=100, ts_ms=1_700_000_000_000)
    lengths = placed.lengths
    base = 4096
    offsets = (base + np.cumsum(lengths) - lengths).astype(np.uint32)
    seqs = np.arange(100, 100 + len(written), dtype=np.uint64)
    projection = JsonRenderer(
        9,
        limit=limit,
        budget=budget,
        nodes=node_set(nodes),
        include_tags=tags,
        include_meta=meta,
        include_data=data,
        bytes_apart=apart,
    )
    examined = projection.add(framed, base, offsets[:split], lengths[:split], seqs[:split])
    if examined == len(seqs[:split]):
        examined += projection.add(framed, base, offsets[split:], lengths[split:], seqs[split:])
    expected, expected_examined = model(written, nodes, limit, budget, tags, meta, data, apart)
    got = json.loads(b"[" + projection.records() + b"]")
    for index, payload in projection.payloads:
        assert got[index]["data"] is None
        got[index]["data"] = payload
    assert got == expected
    assert (projection.count, examined) == (len(expected), expected_examined)


u64s = st.integers(0, 2**64 - 1)


@given(
    st.lists(st.tuples(shown_records, u64s, u64s, st.integers(0, 2**32 - 1)), min_size=1, max_size=6), st.integers(0, 6)
)
def test_a_projection_of_jobs_equals_the_model(jobs: list[tuple[RowRecord, int, int, int]], split: int) -> None:
    written = [record for record, *_ in jobs]
    framed, placed = codec.frame_rows(pack_rows(written), topic_id=9, first_seq=100, ts_ms=1_700_000_000_000)
    lengths = placed.lengths
    offsets = (np.cumsum(lengths) - lengths).astype(np.uint32)
    seqs = np.arange(100, 100 + len(written), dtype=np.uint64)
    leases = b"".join(LEASE.pack(*lease) for _, *lease in jobs)
    projection = JsonRenderer(9, limit=10, budget=1 << 20, include_tags=True)
    parts = [part for part in (slice(split), slice(split, None)) if len(seqs[part])]
    for part in parts:
        held = leases[slice(*(None if at is None else at * LEASE.size for at in (part.start, part.stop)))]
        projection.add(framed, 0, offsets[part], lengths[part], seqs[part], held)
    expected = []
    for element, (_, lease_id, deadline, deliveries) in zip(
        model(written, (), 10, 1 << 20, True, True, True)[0], jobs, strict=True
    ):
        element.pop("$node", None)
        expected.append(element | {"lease_id": f"lease_{lease_id:x}", "deadline": deadline, "deliveries": deliveries})
    assert json.loads(b"[" + projection.records() + b"]") == expected


@given(written=st.lists(records, min_size=1, max_size=8), split=st.integers(0, 8))
def test_payloads_as_columns_equal_the_records(written: list[RowRecord], split: int) -> None:
    framed, placed = codec.frame_rows(pack_rows(written), topic_id=9, first_seq=100, ts_ms=1_700_000_000_000)
    lengths = placed.lengths
    offsets = (4096 + np.cumsum(lengths) - lengths).astype(np.uint32)
    seqs = np.arange(100, 100 + len(written), dtype=np.uint64)
    columns = ColumnRenderer(9)
    for part in (slice(split), slice(split, None)):
        assert columns.add(framed, 4096, offsets[part], lengths[part], seqs[part]) == len(seqs[part])
    seq, ts, ends, kinds = columns.columns()
    assert kinds.tolist() == [record.is_bytes for record in written]
    assert seq.tolist() == seqs.tolist()
    assert ts.tolist() == [1_700_000_000_000] * len(written)
    texts = columns.records()
    assert [texts[ends[i] : ends[i + 1]] for i in range(len(written))] == [record.data for record in written]


@given(at=st.integers(0, 200), bits=st.integers(1, 255), size=st.integers(0, 200))
def test_payloads_of_damaged_or_cut_frames_are_refused(at: int, bits: int, size: int) -> None:
    framed, placed = codec.frame_rows(
        pack_rows([RowRecord(b"x" * 40), RowRecord(b"y" * 40)]), topic_id=9, first_seq=1, ts_ms=5
    )
    data = bytearray(framed)
    data[at % len(data)] ^= bits
    offsets = (np.cumsum(placed.lengths) - placed.lengths).astype(np.uint32)
    seqs = np.arange(1, 3, dtype=np.uint64)
    with contextlib.suppress(CorruptError):
        columns = ColumnRenderer(9)
        columns.add(data[:size], 0, offsets, placed.lengths, seqs)
        assert columns.records() == b"x" * 40 + b"y" * 40  # a bit no checksum covers


def test_the_text_is_compact_and_in_a_fixed_order() -> None:
    rows = pack_rows([RowRecord(b'{"a":1}', b'a"b', b"n", b'{"k":2}'), RowRecord(b"null")])
    framed, placed = codec.frame_rows(rows, topic_id=1, first_seq=2**64 - 2, ts_ms=0)
    lengths = placed.lengths
    offsets = np.array([0, lengths[0]], np.uint32)
    projection = JsonRenderer(1, limit=10, budget=1000, include_tags=True)
    projection.add(framed, 0, offsets, lengths, np.array([2**64 - 2, 2**64 - 1], np.uint64))
    assert projection.records() == (
        b'{"$seq":18446744073709551614,"$ts":0,"$node":"n","$tag":"a\\"b","data":{"a":1},"meta":{"k":2}},'
        b'{"$seq":18446744073709551615,"$ts":0,"data":null}'
    )


def test_a_bad_row_is_named_and_nothing_of_it_is_delivered() -> None:
    framed, placed = codec.frame_rows(pack_rows([RowRecord(b"1"), RowRecord(b"2")]), topic_id=1, first_seq=5, ts_ms=0)
    lengths = placed.lengths
    offsets = np.array([0, lengths[0]], np.uint32)
    seqs = np.array([5, 6], np.uint64)
    damaged = bytearray(framed)
    damaged[int(lengths[0]) + 52] ^= 1
    wrong_place = [
        (damaged, offsets, lengths, seqs, 1),
        (framed, offsets, lengths, seqs, 2),
        (framed, offsets, lengths, seqs + np.uint64(1), 1),
        (framed, offsets + np.uint32(1), lengths, seqs, 1),
        (framed, offsets + np.uint32(1 << 31), lengths, seqs, 1),
        (framed, offsets, lengths + np.uint32(1), seqs, 1),
        (framed[:-1], offsets, lengths, seqs, 1),
    ]
    for data, at, size, seq, topic_id in wrong_place:
        projection = JsonRenderer(topic_id, limit=10, budget=1000)
        with pytest.raises(CorruptError, match="record [567] of topic id"):
            projection.add(data, 0, at, size, seq)
        assert projection.records().count(b"$seq") == projection.count


def test_rows_of_no_records_frame_to_nothing() -> None:
    framed, placed = codec.frame_rows(Rows(b"", b"", 0, 0), topic_id=1, first_seq=1, ts_ms=1)
    lengths = placed.lengths
    assert (framed, lengths.tolist()) == (b"", [])


# --- frames copied as they are ---------------------------------------------------------------------------------------
@given(
    st.lists(st.tuples(frames, st.integers(0, 12)), max_size=8),
    st.integers(0, 20),
    st.none() | st.integers(0, 10_000),
    st.integers(0, (1 << 64) - 1),
    st.sampled_from(["", "topic", "seq", "length", "before", "behind"]),
)
def test_frames_copied_as_they_are_are_what_a_model_makes(
    rows: list[tuple[Frame, int]], base: int, flipped: int | None, sum: int, wrong: str
) -> None:
    """Frames of one topic's records, wherever they are; a row that points elsewhere is named."""
    topic_id = 9
    packed = [frame._replace(topic_id=topic_id, seq=100 + at).pack() for at, (frame, _) in enumerate(rows)]
    data, places = bytearray(), list[int]()
    for each, (_frame, gap) in zip(packed, rows, strict=True):
        data += b"\xab" * gap
        places.append(len(data))
        data += each
    offsets = np.array([place + base for place in places], np.uint32)
    lengths = np.array([len(each) for each in packed], np.uint32)
    seqs = np.arange(100, 100 + len(rows), dtype=np.uint64)
    bad = {at for at, (frame, _) in enumerate(rows) if frame.type != FrameType.RECORD}
    if flipped is not None and rows:
        at = flipped % len(rows)
        place = places[at] + flipped % len(packed[at])
        data[place] ^= 0xFF
        if place < places[at] + len(packed[at]) - 1:
            bad.add(at)
    if wrong and rows:
        last = len(rows) - 1
        bad.add(0 if wrong == "topic" else last)
        topic_id += wrong == "topic"
        seqs[last] += wrong == "seq"
        lengths[last] += wrong == "length"
        if wrong == "before":
            offsets[last] = base - 1 if base else len(data) + 1
        elif wrong == "behind":
            offsets[last] = base + len(data) - int(lengths[last]) + 1
    out = bytearray(int(lengths.sum()) + 3)
    if bad:
        with pytest.raises(CorruptError, match=f"topic {topic_id}, seq {int(seqs[min(bad)])}: "):
            codec.copy_frames(out, data, base, offsets, lengths, seqs, topic_id, sum=sum)
        return
    copied = codec.copy_frames(out, data, base, offsets, lengths, seqs, topic_id, sum=sum)
    expected = b"".join(bytes(data[place : place + len(each)]) for place, each in zip(places, packed, strict=True))
    assert out[: copied.written] == expected
    assert out[copied.written :] == bytes(3)
    scan = codec.scan_frames(expected, sum=sum)
    sizes, times = scan.frames["size"].tolist(), scan.frames["ts_ms"].tolist()
    assert (copied.sum, copied.size) == (scan.sum, int(np.sum(np.array(sizes, np.uint64))))
    assert copied.last_ts == (times[-1] if times else 0)


# --- copies by position ----------------------------------------------------------------------------------------------
@given(
    st.lists(st.tuples(frames, st.booleans(), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 20),
    st.none() | st.integers(0, 10_000),
)
def test_reframed_copies_are_what_a_model_makes(
    rows: list[tuple[Frame, bool, int]], base: int, flipped: int | None
) -> None:
    """A copy has the row's topic, seq, time, and the texts it keeps; another row's frame is taken as it is."""
    packed = [frame.pack() for frame, _, _ in rows]
    data = bytearray(b"".join(packed))
    lengths = np.array([len(each) for each in packed], np.uint32)
    offsets = (np.cumsum(lengths) - lengths + base).astype(np.uint32)
    seqs = np.arange(100, 100 + len(rows), dtype=np.uint64)
    ts = seqs * np.uint64(3)
    flags = np.array([(kept & 0x7) | (FLAG_COPY if is_copy else 0) for _, is_copy, kept in rows], np.uint8)
    broken = None
    if flipped is not None:
        place = flipped % len(data)
        broken = int(np.searchsorted(offsets - base, place, "right")) - 1
        if place == int(offsets[broken] - base + lengths[broken]) - 1:
            broken = None  # the byte that says deleted is outside the checksum
        else:
            data[place] ^= 0xFF
    expected = []
    for number, (frame, is_copy, kept) in enumerate(rows):
        if not is_copy:
            at = int(offsets[number]) - base
            expected.append(bytes(data[at : at + len(packed[number])]))
            continue
        if frame.type != FrameType.RECORD or number == broken:
            with pytest.raises(CorruptError, match=f"record {100 + number} of topic id 9 "):
                codec.reframe(data, base, offsets, lengths, seqs, ts, flags, 9)
            return
        copy = frame._replace(
            topic_id=9,
            seq=100 + number,
            ts_ms=3 * (100 + number),
            tag=frame.tag if kept & FLAG_TAG else None,
            node=frame.node if kept & FLAG_NODE else None,
            meta=frame.meta if kept & FLAG_META else None,
            ext=b"",
            fsync=False,
            routed=False,
            deleted=False,
        )
        expected.append(copy.pack())
    made = codec.reframe(data, base, offsets, lengths, seqs, ts, flags, 9)
    assert made.data == b"".join(expected)
    assert made.lengths.tolist() == [len(each) for each in expected]
    assert made.offsets.tolist() == (np.cumsum(made.lengths) - made.lengths).tolist()


def sum_of(record: RowRecord, node: bytes | None) -> int:
    """The checksum of one record, in the plainest way."""
    node = node if record.node is None else record.node
    texts = (record.tag, node, record.data, record.meta)
    present = sum(flag for flag, text in zip((1, 2, 0, 4), texts, strict=True) if text is not None)
    present += 128 if record.is_bytes else 0
    head = struct.pack("<5I", present, *(len(text or b"") for text in texts))
    return xxhash.xxh3_64_intdigest(head + b"".join(text or b"" for text in texts))


large = st.binary(min_size=990, max_size=1010).map(lambda text: text * 2) | st.binary(min_size=900, max_size=1024)


@given(st.lists(records | large.map(RowRecord), max_size=5), st.none() | names, st.integers(0, 5))
def test_the_sum_of_rows_is_what_a_model_makes_whatever_their_order(
    written: list[RowRecord], node: bytes | None, split: int
) -> None:
    rows = pack_rows(written)
    expected = sum(sum_of(record, node) for record in written) % 2**64
    assert codec.sum_rows(rows, node) == expected
    assert codec.sum_rows(pack_rows(written[::-1]), node) == expected
    parts = (codec.sum_rows(pack_rows(part), node) for part in (written[:split], written[split:]))
    assert sum(parts) % 2**64 == expected


@given(records, records, st.none() | names)
def test_records_that_differ_have_different_sums(one: RowRecord, two: RowRecord, node: bytes | None) -> None:
    def shown(record: RowRecord) -> tuple[object, ...]:
        return record.tag, node if record.node is None else record.node, record.data, record.meta, record.is_bytes

    sums = {codec.sum_rows(pack_rows([record]), node) for record in (one, two)}
    assert (len(sums) == 1) == (shown(one) == shown(two))


@given(st.binary(max_size=200), st.binary(min_size=ROW.size, max_size=ROW.size))
def test_any_span_can_be_summed_or_is_refused(buffer: bytes, span: bytes) -> None:
    with contextlib.suppress(AssertionError):
        codec.sum_rows(Rows(buffer, span, 1, 0))


@given(st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=5))
def test_joined_rows_are_those_of_the_parts_in_their_order(parts: list[list[RowRecord]]) -> None:
    packed = [pack_rows(records) for records in parts]
    joined = join_rows([(rows.buffer, rows.spans) for rows in packed])
    assert joined.size == sum(rows.size for rows in packed)
    assert [record_at(joined, at) for at in range(joined.count)] == [
        record_at(rows, at) for rows in packed for at in range(rows.count)
    ]


def test_large_json_is_whole_after_its_memory_grew() -> None:
    texts = [b'"%b"' % (b"%d" % row * size) for row, size in enumerate((10, LARGE_BYTES, 9 * LARGE_BYTES))]
    body, placed = codec.frame_rows(pack_rows([RowRecord(text) for text in texts]), topic_id=9, first_seq=1, ts_ms=1)
    lengths = placed.lengths
    offsets = (np.cumsum(lengths) - lengths).astype(np.uint32)
    renderer = JsonRenderer(9, limit=10, budget=1 << 40)
    for row in range(3):
        one = slice(row, row + 1)
        renderer.add(body, 0, offsets[one], lengths[one], np.array([row + 1], np.uint64))
    assert [record["data"] for record in json.loads(b"[%b]" % renderer.records())] == [json.loads(t) for t in texts]


@pytest.mark.parametrize(("pieces", "size"), [(600, 1000), (600, 20_000)])
def test_json_of_many_pieces_is_copied_twice_at_most(pieces: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of all that was written for each piece would be their number squared."""
    copied, grow = [0], JsonRenderer._grow

    def counted(renderer: JsonRenderer, room: int) -> None:
        copied[0] += int(renderer._state.written)
        grow(renderer, room)

    monkeypatch.setattr(JsonRenderer, "_grow", counted)
    body, placed = codec.frame_rows(pack_rows([RowRecord(b'"%b"' % (b"x" * size))]), topic_id=9, first_seq=1, ts_ms=1)
    renderer = JsonRenderer(9, limit=pieces, budget=1 << 40)
    for _ in range(pieces):
        renderer.add(body, 0, np.zeros(1, np.uint32), placed.lengths, np.ones(1, np.uint64))
    assert len(renderer.records()) > pieces * size
    assert copied[0] <= 2 * len(renderer.records())
