"""`pages.decode_page` with msgspec: a separate module, because an executor may lack msgspec."""

from __future__ import annotations

import msgspec

from topics.spark.reading.diff_page import Columns, DiffPage, PageLoss


class _PageRecord(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw = msgspec.Raw(b"")
    data_base64: str | None = None
    tag: str | None = msgspec.field(name="$tag", default=None)
    node: str | None = msgspec.field(name="$node", default=None)
    meta: msgspec.Raw = msgspec.Raw(b"")


class _PageTombstone(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str


class _Answer(msgspec.Struct):
    records: list[_PageRecord]
    next_from_seq: int
    head_seq: int
    tombstone: _PageTombstone | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def decode_page(body: bytes) -> DiffPage:
    """Return the page as columns. Raises: ValueError if the body is no answer to a diff."""
    answer = _decode(body)
    records = answer.records
    columns = Columns(
        [record.seq for record in records],
        [record.ts for record in records],
        [record.tag for record in records],
        [record.node for record in records],
        [bytes(record.data) for record in records],
        [bytes(record.meta) for record in records],
        [record.data_base64 for record in records],
    )
    columns.refuse_incomplete()
    gap = answer.tombstone
    return DiffPage(
        columns,
        answer.next_from_seq,
        answer.head_seq,
        None if gap is None else PageLoss(gap.gap_from, gap.gap_to, gap.reason),
    )
