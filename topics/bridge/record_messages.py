"""Records of a page as messages: tags become keys, meta becomes headers, a gap becomes a mark."""

from __future__ import annotations

import json
import re

import msgspec

from topics.bridge.bridge_messages import (
    BYTES_DATA,
    DATA,
    GAP,
    JSON_ENDING,
    META,
    NODE,
    PREFIX,
    BridgeMessage,
    BridgePosition,
    TopicBatch,
)
from topics.client.parsing import SentTombstone, tombstone_of
from topics.common.values.answers import Tombstone

_NO_RAW = msgspec.Raw()
_PLAIN_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
"""Names that are names of headers for HTTP, Kafka and NATS alike."""


class _RawRecord(BridgeMessage, frozen=True, gc=False, kw_only=True):
    """A record whose `value` and `meta` are the JSON that was written.

    With neither bytes nor meta nor node it is its message: nothing is made of it or copied. Two
    fields of a message have names here that no record in an answer has.
    """

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    value: msgspec.Raw = msgspec.field(name="data", default=_NO_RAW)
    data_base64: bytes | None = None
    meta: msgspec.Raw = _NO_RAW
    key: str | None = msgspec.field(name="$tag", default=None)
    node: str | None = msgspec.field(name="$node", default=None)
    headers: tuple[tuple[str, bytes], ...] = msgspec.field(name="-headers", default=())
    is_mark: bool = msgspec.field(name="-is_mark", default=False)


class _GapBounds(msgspec.Struct):
    """The value of a mark of a loss."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int


class _RawPage(msgspec.Struct):
    records: list[_RawRecord]
    next_from_seq: int
    head_seq: int
    tombstone: SentTombstone | None
    incarnation: str


_pages = msgspec.json.Decoder(_RawPage)


def batch_of(topic: str, answer: bytes, now_ms: int) -> TopicBatch:
    """Return the messages for the answer to a read that named an incarnation.

    now_ms: the time of a mark, which has no time of its own. Raises: msgspec.DecodeError.
    """
    page = _pages.decode(answer)
    messages: list[BridgeMessage] = []
    lost = tombstone_of(page.tombstone)
    if lost is not None:
        messages.append(_gap_mark(lost, page.records[0].ts if page.records else now_ms))
    for row in page.records:
        is_plain = row.data_base64 is None and row.meta is _NO_RAW and row.node is None
        messages.append(row if is_plain else _with_headers(row))
    position = BridgePosition(page.incarnation, page.next_from_seq)
    return TopicBatch(topic, messages, position, page.head_seq, len(answer))


def _with_headers(row: _RawRecord) -> BridgeMessage:
    headers: tuple[tuple[str, bytes], ...] = ()
    value: bytes | msgspec.Raw = row.value
    if row.data_base64 is not None:
        value, headers = row.data_base64, ((DATA, BYTES_DATA),)
    if row.node is not None:
        headers += (text_header(NODE, row.node),)
    if row.meta is not _NO_RAW:
        headers += meta_headers(bytes(row.meta))
    return BridgeMessage(row.seq, value, row.key, headers, row.ts)


def meta_headers(meta: bytes) -> tuple[tuple[str, bytes], ...]:
    """Return the headers for a record's meta, as JSON.

    A member whose value is a plain string is a header of its name. The header META has the rest as
    JSON: other values, names that no header may have, and a meta that is no object.
    """
    value = msgspec.json.decode(meta)
    if not isinstance(value, dict):
        return ((META, json_text(value)),)
    plain = {name: text for name, text in value.items() if _is_plain_member(name, text)}
    headers = tuple((name, text.encode()) for name, text in plain.items())
    rest = {name: text for name, text in value.items() if name not in plain}
    if rest or not value:
        headers += ((META, json_text(rest)),)
    return headers


def text_header(name: str, text: str) -> tuple[str, bytes]:
    """Return a header for any text: where no header can have it, as JSON, and named so."""
    return (name, text.encode()) if _is_plain(text) else (f"{name}{JSON_ENDING}", json_text(text))


def json_text(value: object) -> bytes:
    """Return JSON of ASCII, which a header can have."""
    return json.dumps(value, separators=(",", ":")).encode()


def _is_plain_member(name: str, text: object) -> bool:
    """Return whether a member is a header as it is, in Kafka and in NATS."""
    if not isinstance(text, str) or not _PLAIN_NAME.fullmatch(name):
        return False
    return not name.lower().startswith((PREFIX, "nats-")) and _is_plain(text)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()


def _gap_mark(lost: Tombstone, ts: int) -> BridgeMessage:
    """Return the mark of a loss, after which a reader continues where this read did."""
    bounds = _GapBounds(lost.gap_from, lost.gap_to, lost.reason, lost.missed_estimate)
    text = msgspec.json.encode(bounds)
    return BridgeMessage(lost.next_cursor, text, None, ((GAP, lost.reason.encode()),), ts, is_mark=True)
