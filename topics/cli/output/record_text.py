"""A record as text: an object of JSON, a line for people, its data, or a format of the caller's."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec

import topics
from topics.common.values.time_texts import time_text
from topics.errors import UsageError

_encode = msgspec.json.Encoder().encode
Formatter = Callable[[str, "topics.Record"], bytes]
"""Makes the bytes of a record of a topic."""


def json_bytes(value: Any) -> bytes:
    """Return compact JSON on one line."""
    return _encode(value)


def record_object(record: topics.Record | topics.Job) -> dict[str, Any]:
    """Return a record, or a job, with the members that it has on the wire."""
    shown: dict[str, Any] = {"$seq": record.seq, "$ts": record.ts}
    for member in ("lease_id", "deadline", "deliveries"):
        if hasattr(record, member):
            shown[member] = getattr(record, member)
    if record.tag is not None:
        shown["$tag"] = record.tag
    node = getattr(record, "node", None)
    if node is not None:
        shown["$node"] = node
    if record.delay_ms:
        shown["$delay_ms"] = record.delay_ms
    if record.ttl_ms:
        shown["$ttl_ms"] = record.ttl_ms
    if isinstance(record.data, bytes):
        shown["data_base64"] = base64.b64encode(record.data).decode()
    else:
        shown["data"] = record.data
    if record.meta is not None:
        shown["meta"] = record.meta
    return shown


def data_bytes(data: Any) -> bytes:
    """Return data as it is: bytes and texts without quotes, other values as JSON."""
    if isinstance(data, bytes):
        return data
    return data.encode() if isinstance(data, str) else json_bytes(data)


def printable(text: str) -> str:
    """Return a text that cannot command a terminal: other than printable characters are escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def data_text(data: Any) -> str:
    """Return data on one line of a terminal."""
    if isinstance(data, bytes):
        return f"base64:{base64.b64encode(data).decode()}"
    return printable(json_bytes(data).decode())


def record_line(record: topics.Record, topic: str = "") -> str:
    """Return a record as a line for people. topic: "" if it needs no name."""
    parts = [f"{record.seq:>6}", time_text(record.ts)]
    if topic:
        parts.insert(0, printable(topic))
    if record.tag is not None:
        parts.append(f"#{printable(record.tag)}")
    if record.node is not None:
        parts.append(f"@{printable(record.node)}")
    parts.append(data_text(record.data))
    if record.meta is not None:
        parts.append(f"meta={data_text(record.meta)}")
    return "  ".join(parts)


_FIELDS: dict[str, Formatter] = {
    "t": lambda topic, _record: topic.encode(),
    "s": lambda _topic, record: b"%d" % record.seq,
    "T": lambda _topic, record: time_text(record.ts).encode(),
    "e": lambda _topic, record: b"%d" % record.ts,
    "v": lambda _topic, record: data_bytes(record.data),
    "g": lambda _topic, record: (record.tag or "").encode(),
    "n": lambda _topic, record: (record.node or "").encode(),
    "m": lambda _topic, record: b"" if record.meta is None else json_bytes(record.meta),
    "%": lambda _topic, _record: b"%",
}
FORMAT_HELP = "%t topic, %s seq, %T time, %e time in ms, %v data, %g tag, %n node, %m meta, %%; \\n and \\t as in C."
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.?)|\\(.?)|[^%\\]+", re.DOTALL)


def formatter_of(template: str) -> Formatter:
    """Return what makes the bytes of a record by a template such as '%s %v\\n'.

    Raises: UsageError for a field or an escape that does not exist.
    """
    parts: list[Formatter] = []
    for token in _TOKEN.finditer(template):
        field, escape = token[1], token[2]
        if field is not None:
            if field not in _FIELDS:
                raise UsageError(f"--format has %{field}, which is no field: use {FORMAT_HELP}")
            parts.append(_FIELDS[field])
        elif escape is not None:
            if escape not in _ESCAPES:
                raise UsageError(f"--format has \\{escape}, which is no escape: use \\n, \\t, \\r, \\0 or \\\\")
            parts.append(_constant(_ESCAPES[escape]))
        else:
            parts.append(_constant(os.fsencode(token[0])))  # bytes that are no UTF-8, too
    return lambda topic, record: b"".join([part(topic, record) for part in parts])


def _constant(text: bytes) -> Formatter:
    return lambda _topic, _record: text
