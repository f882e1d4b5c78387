"""Messages of the other side as records, and the mark that holds their position.

The last record of each append has the mark in its meta: the id of the bridge, the number of the
append, and where the other side continues. So records and position are one write.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from topics.bridge.carried import BYTES_DATA, DATA, JSON_ENDING, META, NODE, OVERSIZE, SEQ, TAG, TS
from topics.bridge.carried import INCARNATION as _INCARNATION
from topics.common.values.written import NewRecord
from topics.errors import UsageError

MARK = "topics-bridge"
"""The member of meta that holds a mark."""
VALUES = ("auto", "json", "bytes")
_TAG_BYTES = 256
_DROPPED = frozenset({SEQ, _INCARNATION, TS, DATA, META, TAG, NODE, TAG + JSON_ENDING, NODE + JSON_ENDING})
_OF_NATS = "nats-"


class IncomingMessage(NamedTuple):
    """One message of the other side. place: its name there, for sentences."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    place: str


class IncomingBatch(NamedTuple):
    """Messages for one topic, in their order. at: where the other side continues after them."""

    topic: str
    messages: Sequence[IncomingMessage]
    at: Mapping[str, int]


class BridgeMark(msgspec.Struct, frozen=True):
    """The position of a bridge in a topic here."""

    id: str
    batch: int
    """The number of this append, from 1 on, which is also the epoch of its producer's part."""
    by: str
    """The process that appended it."""
    at: dict[str, int]


class IncomingSession(Protocol):
    """An open connection to the side that is read from."""

    @property
    def ended(self) -> bool:
        """Whether all is read that was there at the start, of a session that is to end."""
        ...

    def next(self, wait_s: float) -> list[IncomingBatch]:
        """Raises: SourceDownError, UsageError; what the look for a mark raises."""
        ...

    def left(self) -> Mapping[str, int]:
        """Return how many messages are not read yet, by topic, or of a whole stream by its name.

        It counts what was there at the last answer. Raises: as `next`.
        """
        ...

    def count(self) -> Mapping[str, int]:
        """Return how many messages would be carried now, by topic. Raises: as `next`."""
        ...

    def close(self) -> None: ...


def mark_of(meta: object, bridge: str) -> BridgeMark | None:
    """Return the mark in a record's meta; None: it has none of this bridge."""
    if not isinstance(meta, dict) or MARK not in meta:
        return None
    try:
        found = msgspec.convert(meta[MARK], BridgeMark)
    except msgspec.ValidationError:
        return None
    return found if found.id == bridge else None


def record_of(message: IncomingMessage, values: str) -> NewRecord:
    """Return the record for a message. Raises: UsageError, the value is no JSON, and has to be."""
    headers = {name: text or b"" for name, text in message.headers}
    meta = _meta_of(message, headers)
    tag = _text(headers, TAG)
    if message.key is not None:
        tag = _decoded(message.key, _TAG_BYTES)
        if tag is None:
            meta["topics-key-base64"] = base64.b64encode(message.key).decode()
    node = _text(headers, NODE)
    is_bytes = values == "bytes" or headers.get(DATA) == BYTES_DATA
    return NewRecord(_data(message, values, is_bytes=is_bytes), tag, node, meta or None)


def large_record(message: IncomingMessage, size: int) -> NewRecord:
    """Return the mark that takes the place of a message that is too large here."""
    return NewRecord({"place": message.place, "bytes": size}, meta={OVERSIZE: str(size)})


def with_mark(record: NewRecord, mark: BridgeMark) -> NewRecord:
    meta = record.meta if isinstance(record.meta, dict) else {} if record.meta is None else {META: record.meta}
    return record._replace(meta={**meta, MARK: msgspec.to_builtins(mark)})


def _data(message: IncomingMessage, values: str, *, is_bytes: bool) -> Any:
    value = message.value
    if value is None:
        return None
    if is_bytes:
        return value
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if values == "json":
            raise UsageError(f"{message.place} is no JSON ({error}): use --values auto or bytes") from None
        return value
    return msgspec.Raw(value)


def _meta_of(message: IncomingMessage, headers: Mapping[str, bytes]) -> dict[str, Any]:
    """Return headers as members: text as it is, other bytes as base64, repeated ones as a list."""
    meta: dict[str, Any] = {}
    for name, raw in message.headers:
        if name in _DROPPED or name.lower().startswith(_OF_NATS):
            continue
        text = _decoded(raw or b"", len(raw or b""))
        value: Any = {"base64": base64.b64encode(raw or b"").decode()} if text is None else text
        meta[name] = [*(meta[name] if isinstance(meta[name], list) else [meta[name]]), value] if name in meta else value
    rest = headers.get(META)
    if rest is not None:
        found = msgspec.json.decode(rest)
        meta.update(found if isinstance(found, dict) else {META: found})
    return meta


def _text(headers: Mapping[str, bytes], name: str) -> str | None:
    """Return the tag or the node that `text_header` has made a header of."""
    if name + JSON_ENDING in headers:
        return str(msgspec.json.decode(headers[name + JSON_ENDING]))
    return headers[name].decode() if name in headers else None


def _decoded(raw: bytes, most: int) -> str | None:
    if len(raw) > most:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
