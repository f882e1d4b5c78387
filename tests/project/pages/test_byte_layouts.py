"""The tables of bytes in docs/internals/ against the bytes that the code writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import xxhash

from topics.store.format import log_format
from topics.store.format.log_format import BatchHeader, Frame, WalHeader
from topics.store.layouts import file_kind
from topics.store.layouts.segment_format import SEGMENT_HEADER_MIN, SEGMENT_MAGIC, SegmentHeader

INTERNALS = Path(__file__).resolve().parents[3] / "docs/internals"
U16, U32, U64 = 0x0201, 0x04030201, 0x0807060504030201
"""Numbers of which no byte is another one's: a field that is elsewhere, or wider, is another one."""


class Row(NamedTuple):
    """A row of a table of bytes."""

    offset: str
    bytes: str
    field: str
    meaning: str


def tables(page: str) -> list[list[Row]]:
    """Return the tables of bytes of a page."""
    found = re.findall(r"^\| offset \|.*\n\|[-|]+\n((?:\|.*\n)+)", (INTERNALS / page).read_text(), re.M)
    return [[Row(*(cell.strip() for cell in line[1:-1].split("|"))) for line in rows.splitlines()] for rows in found]


FILE, BATCH, FRAME = tables("write.md")
(SEGMENT,) = tables("checkpoint.md")


def fields_of(rows: Sequence[Row], data: bytes) -> dict[str, bytes]:
    """Return what a reader finds who has only the table. It has all of the bytes, in their order."""
    found: dict[str, bytes] = {}
    at = 0
    for row in rows:
        assert row.offset in ("", str(at)), row.field
        size = int(row.bytes) if row.bytes.isdigit() else int.from_bytes(found[row.bytes], "little")
        assert at + size <= len(data), row.field
        found[row.field] = data[at : at + size]
        at += size
    assert at == len(data)
    return found


def says(rows: Sequence[Row], field: str) -> str:
    return next(row.meaning for row in rows if row.field == field)


def check(rows: Sequence[Row], data: bytes, fields: Mapping[str, int | bytes]) -> None:
    found = fields_of(rows, data)
    assert found.keys() == fields.keys()
    for name, value in fields.items():
        assert found[name] == (value if isinstance(value, bytes) else value.to_bytes(len(found[name]), "little")), name


def test_the_header_of_a_log_file_is_the_one_of_the_table() -> None:
    header = WalHeader(U16, U64 + 1, U64 + 2, U64 + 3, bytes(range(16)), U64 + 4)
    fixed = {"magic": log_format.WAL_MAGIC, "version": log_format.WAL_VERSION, "checksum": header.checksum}
    check(FILE, header.pack(), header._asdict() | fixed)
    assert says(FILE, "magic") == f"`{log_format.WAL_MAGIC.decode()}`"
    assert says(FILE, "version") == str(log_format.WAL_VERSION)


def test_the_header_of_a_batch_is_the_one_of_the_table() -> None:
    header = BatchHeader(U64 + 1, U64 + 2, U64 + 3, U64 + 4, U32, U32 + 1, U64 + 5)
    data = header.pack(b"frames")
    checksum = xxhash.xxh3_64_intdigest(data[:56], seed=xxhash.xxh3_64_intdigest(b"frames"))
    fixed = {"magic": log_format.BATCH_MAGIC, "version": log_format.BATCH_VERSION, "flags": 0, "checksum": checksum}
    check(BATCH, data, header._asdict() | fixed)
    assert says(BATCH, "magic") == f"`{log_format.BATCH_MAGIC.decode()}`"
    assert says(BATCH, "version") == str(log_format.BATCH_VERSION)
    place = f"from offset {log_format.WAL_FIRST_BATCH_OFFSET} on, each at a multiple of {log_format.BATCH_ALIGN}."
    assert place in (INTERNALS / "write.md").read_text()


def test_a_frame_is_the_one_of_the_table() -> None:
    ext, node, tag, payload, meta = b"e" * 5, b"n" * 4, b"t" * 3, b"d" * 2, b"m"
    flags = log_format.FLAG_TAG | log_format.FLAG_NODE | log_format.FLAG_META | log_format.FLAG_EXT
    frame = Frame(0xA1, U64 + 1, U64 + 2, U64 + 3, payload, meta, tag, node, ext, U32, deleted=True, payload_kind=0xA2)
    data, texts = frame.pack(), {"ext": ext, "node": node, "tag": tag, "data": payload, "meta": meta}
    fields: dict[str, int | bytes] = {
        "frame_bytes": len(data) - 4,
        **{"type": 0xA1, "flags": flags, "topic_id": U64 + 1, "seq": U64 + 2, "ts_ms": U64 + 3},
        **{"version": log_format.FRAME_VERSION, "payload_kind": 0xA2, "zero": 0, "size": U32},
        **{f"{name}_len": len(text) for name, text in texts.items()},
        **texts,
        "checksum": xxhash.xxh3_64_intdigest(data[4:-9]),
        "deleted": log_format.DELETED,
    }
    check(FRAME, data, fields)


def test_the_numbers_in_the_table_of_a_frame_are_those_of_the_code() -> None:
    assert says(FRAME, "version") == str(log_format.FRAME_VERSION)
    words = {"tag": log_format.FLAG_TAG, "node": log_format.FLAG_NODE, "meta": log_format.FLAG_META}
    for name, flag in (words | {"ext": log_format.FLAG_EXT}).items():
        assert f"{name} {flag}" in says(FRAME, "flags")
    assert f"; {log_format.FLAG_FSYNC}: written in class `fsync`" in says(FRAME, "flags")
    assert f"; {log_format.FLAG_ROUTED}: a copy of an" in says(FRAME, "flags")
    kinds = f"{log_format.PAYLOAD_JSON}: JSON, {log_format.PAYLOAD_BYTES}: any bytes"
    assert kinds in says(FRAME, "payload_kind")
    assert f"{log_format.DELETED_LIVE}: live, to 0x{log_format.DELETED:X}: deleted" in says(FRAME, "deleted")


def test_the_header_of_a_segment_is_the_one_of_the_table() -> None:
    header = SegmentHeader(U64 + 1, U64 + 2, U64 + 3, U64 + 4, b'{"name":"a"}')
    data = header.pack()
    end = data.index(header.description) + len(header.description)
    fields: dict[str, int | bytes] = {
        **{"magic": SEGMENT_MAGIC, "version": file_kind.VERSION, "codec": file_kind.CODEC_FRAMES, "zero": 0},
        **{"description_bytes": len(header.description), "header_bytes": SEGMENT_HEADER_MIN, "reserved": 0},
        "checksum": file_kind.checksum_of(data[:56], header.description),
        **header._asdict(),
    }
    check(SEGMENT, data[:end], fields)
    assert not any(data[end:])
    assert says(SEGMENT, "magic") == f"`{SEGMENT_MAGIC.decode()}`"
    assert says(SEGMENT, "version") == str(file_kind.VERSION)
    assert says(SEGMENT, "codec").startswith(f"{file_kind.CODEC_FRAMES}: ")
