"""Single frames, batches and rows, which the server only makes and reads many at once."""

from __future__ import annotations

import struct

from topics.store.format._codec import ffi, lib
from topics.store.format.log_format import BATCH_HEADER_BYTES, EXT_DELAY, EXT_TTL, FRAME_MIN_BYTES
from topics.store.format.rows import BYTES, DELAY, META, NODE, ROW, ROW_BYTES, TAG, TIME_BYTES, TTL, RowRecord, Rows


def frame_control(kind: int, *, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> bytes:
    """Return one control frame."""
    dest = bytearray(FRAME_MIN_BYTES + len(payload))
    lib.tp_frame_control(ffi.from_buffer(dest), 0, len(dest), kind, 0, topic_id, seq, ts_ms, payload, len(payload))
    return bytes(dest)


def seal_batch(
    body: bytes, *, epoch: int, batch_no: int, synced_upto: int, chain: int, frame_count: int, written_ms: int
) -> tuple[bytes, int]:
    """Return header and body, and the checksum that the next batch chains to."""
    batch = bytearray(BATCH_HEADER_BYTES) + body
    checksum = lib.tp_seal_batch(
        ffi.from_buffer(batch), epoch, batch_no, synced_upto, chain, len(body), frame_count, written_ms
    )
    return bytes(batch), checksum


def record_at(rows: Rows, index: int) -> RowRecord:
    """Return row `index` (0 <= index < count), its bytes copied out of the buffer."""
    assert 0 <= index < rows.count
    row = ROW.unpack_from(rows.spans, index * ROW_BYTES)
    data, data_len, meta, meta_len, tag, tag_len, node, node_len, size, flags = row
    buffer = rows.buffer
    delay = data - TIME_BYTES if flags & DELAY else data
    return RowRecord(
        bytes(buffer[data : data + data_len]),
        bytes(buffer[tag : tag + tag_len]) if flags & TAG else None,
        bytes(buffer[node : node + node_len]) if flags & NODE else None,
        bytes(buffer[meta : meta + meta_len]) if flags & META else None,
        size,
        bool(flags & BYTES),
        int.from_bytes(buffer[delay:data], "little"),
        int.from_bytes(buffer[delay - TIME_BYTES : delay], "little") if flags & TTL else 0,
    )


def pack_times(delay_ms: int, ttl_ms: int) -> bytes:
    """Return the entries of a delay and a ttl, with which an extension area begins; 0: none."""
    return b"".join(
        struct.pack("<BH", kind, 8) + value.to_bytes(8, "little")
        for kind, value in ((EXT_DELAY, delay_ms), (EXT_TTL, ttl_ms))
        if value
    )
