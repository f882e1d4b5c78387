"""Messages of the other side as records, and the mark that holds their position.

The last record of each append has the mark in its meta: the id of the bridge, the number of the
append, and where the other side continues. So records and position are one write.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from topics.bridge.bridge_messages import BYTES_DATA, DATA, INCARNATION, JSON_ENDING, META, NODE, OVERSIZE, SEQ, TAG, TS
from topics.common.values.written import NewRecord
from topics.errors import UsageError

MARK = "topics-bridge"
"""The member of meta that holds a mark."""
VALUES = ("auto", "json", "bytes")
_TAG_BYTES, _NODE_BYTES = 256, 128
_META_KEYS = 63
"""Members that a server takes by default, less one for the mark."""
_HEADERS = "topics-headers"
"""The member of meta that holds the headers if they are more."""
_DATA_DEPTH, _META_DEPTH = 124, 120
"""Arrays and objects inside each other that data may have, and a bit less than meta may have."""
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
    """Return the record for a message. Raises: UsageError, the value is no JSON, and has to be.

    A header is what a bridge has made only if it has the form that a bridge gives it. Any other is
    one of the other side's, whatever its name.
    """
    ours = _of_bridge(message)
    meta = _meta_of(message.headers, ours)
    tag = ours.get(TAG + JSON_ENDING, ours.get(TAG))
    if message.key is not None:
        tag = _decoded(message.key, _TAG_BYTES)
        if tag is None:
            meta["topics-key-base64"] = base64.b64encode(message.key).decode()
    if len(meta) > _META_KEYS:
        meta = {_HEADERS: meta}
    node = ours.get(NODE + JSON_ENDING, ours.get(NODE))
    is_bytes = values == "bytes" or DATA in ours
    return NewRecord(_data(message, values, is_bytes=is_bytes), tag, node, meta or None)


def large_record(message: IncomingMessage, size: int) -> NewRecord:
    """Return the mark that takes the place of a message that is too large here."""
    return NewRecord({"place": message.place, "bytes": size}, meta={OVERSIZE: str(size)})


def refused_record(message: IncomingMessage, reason: str) -> NewRecord:
    """Return the mark that takes the place of a message that cannot be a record for a reason."""
    size = len(message.value or b"")
    return NewRecord({"place": message.place, "bytes": size, "reason": reason}, meta={OVERSIZE: str(size)})


def with_mark(record: NewRecord, mark: BridgeMark) -> NewRecord:
    meta = record.meta if isinstance(record.meta, dict) else {} if record.meta is None else {META: record.meta}
    return record._replace(meta={**meta, MARK: msgspec.to_builtins(mark)})


def _data(message: IncomingMessage, values: str, *, is_bytes: bool) -> Any:
    value = message.value
    if value is None:
        return None
    if is_bytes:
        return value
    _, fault = _json(value, _DATA_DEPTH)
    if fault and values == "json":
        raise UsageError(f"{message.place} is no JSON ({fault}): use --values auto or bytes")
    return value if fault else msgspec.Raw(value)


def _json(text: bytes, depth_max: int) -> tuple[Any, str]:
    """Return a value, and what is wrong with its text; "": nothing."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        return None, str(error)
    if text.count(b"[") + text.count(b"{") > depth_max and _is_deeper(value, depth_max):
        return None, f"more than {depth_max} arrays and objects are nested"
    return value, ""


def _is_deeper(value: Any, depth_max: int) -> bool:
    level = [value]
    for _ in range(depth_max + 1):
        lists = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not lists:
            return False
        level = [inner for each in lists for inner in each]
    return True


def _of_bridge(message: IncomingMessage) -> dict[str, Any]:
    """Return what the headers say that a bridge has made, by their names."""
    found: dict[str, Any] = {}
    names = [name for name, _ in message.headers]
    for name, raw in message.headers:
        read = _READS.get(name)
        if read is None or raw is None or names.count(name) > 1:
            continue
        if message.key is not None and name in {TAG, TAG + JSON_ENDING}:
            continue  # a bridge makes the tag a key
        value = read(raw)
        if value is not None:
            found[name] = value
    return found


def _meta_of(headers: Sequence[tuple[str, bytes | None]], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return headers as members: text as it is, other bytes as base64, repeated ones as a list."""
    meta: dict[str, Any] = {}
    for name, raw in headers:
        if name in ours or name.lower().startswith(_OF_NATS):
            continue
        text = _decoded(raw or b"", len(raw or b""))
        value: Any = {"base64": base64.b64encode(raw or b"").decode()} if text is None else text
        meta[name] = [*(meta[name] if isinstance(meta[name], list) else [meta[name]]), value] if name in meta else value
    if META in ours:
        meta.update(ours[META])
    return meta


def _members(raw: bytes) -> dict[str, Any] | None:
    value, fault = _json(raw, _META_DEPTH)
    if fault:
        return None
    return value if isinstance(value, dict) else {META: value}


def _json_string(raw: bytes, most: int) -> str | None:
    value, _ = _json(raw, 0)
    return value if isinstance(value, str) and len(value.encode()) <= most else None


def _matched(pattern: re.Pattern[bytes]) -> Callable[[bytes], object]:
    return lambda raw: True if pattern.fullmatch(raw) else None


def _decoded(raw: bytes, most: int) -> str | None:
    if len(raw) > most:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


_NUMBER = _matched(re.compile(rb"[0-9]+"))
_READS: Mapping[str, Callable[[bytes], Any]] = {
    SEQ: _NUMBER,
    TS: _NUMBER,
    INCARNATION: _matched(re.compile(rb"[0-9a-f]{16}")),
    DATA: _matched(re.compile(re.escape(BYTES_DATA))),
    META: _members,
    TAG: lambda raw: _decoded(raw, _TAG_BYTES),
    NODE: lambda raw: _decoded(raw, _NODE_BYTES),
    TAG + JSON_ENDING: lambda raw: _json_string(raw, _TAG_BYTES),
    NODE + JSON_ENDING: lambda raw: _json_string(raw, _NODE_BYTES),
}
"""Headers of a bridge, and what reads them; None: a bridge has not made it."""
