"""Records as JSON, on their way from Python: what JSON cannot hold is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from topics.common.values.written import NewRecord
from topics.errors import RequestError

_encoder = msgspec.json.Encoder()


def bytes_of(data: bytes | bytearray | memoryview, where: str = "the value") -> bytes:
    """Return one record's data of bytes. Raises: RequestError, a view that was released."""
    try:
        return bytes(data)
    except ValueError as error:
        message = f"{where} cannot be read: {error}; append a memoryview before its release"
        raise RequestError("invalid_request", message) from None


def not_json(what: str, error: Exception) -> RequestError:
    """Build the error for a value that JSON cannot hold."""
    return RequestError(
        "invalid_request", f"{what} cannot be JSON: {error}; use values that JSON has, or bytes as data"
    )


def encoded(value: Any) -> bytes:
    """Return one record's data as JSON. Raises: RequestError, JSON cannot hold the value."""
    try:
        text = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise not_json("the value", error) from None
    if b"null" in text and value is not None and not is_finite(value):
        message = "the value holds NaN or infinity, which JSON has not: use null or a string"
        raise RequestError("invalid_request", message)
    return text


def fields_of(record: NewRecord) -> dict[str, Any]:
    fields = {"data": record.data}
    if record.tag is not None:
        fields["tag"] = record.tag
    if record.node is not None:
        fields["node"] = record.node
    if record.meta is not None:
        fields["meta"] = record.meta
    if record.delay_ms:
        fields["delay_ms"] = record.delay_ms
    if record.ttl_ms:
        fields["ttl_ms"] = record.ttl_ms
    return fields


def refuse_other_names(records: Sequence[NewRecord]) -> None:
    """Refuse tags and nodes that are no strings; msgspec would convert some (bytes, dates).

    Delays and ttls that are no numbers are refused, too.
    """
    for index, record in enumerate(records):
        given: tuple[tuple[str, object], ...] = (("tag", record.tag), ("node", record.node))
        for name, value in given:
            if value is not None and not isinstance(value, str):
                message = f"records[{index}].{name} must be a string or None, not {type(value).__name__}"
                raise RequestError("invalid_request", message)
        for name, time in (("delay_ms", record.delay_ms), ("ttl_ms", record.ttl_ms)):
            if type(time) is not int or not 0 <= time < 1 << 64:
                message = f"records[{index}].{name} is {time!r}: use a number of milliseconds, 0 for none"
                raise RequestError("invalid_request", message)


def check_raw_texts(records: Sequence[NewRecord], check: Callable[[bytes, str], object]) -> None:
    """Check that each raw text is one JSON value; otherwise it could add fields to its record.

    check(text, name): raises RequestError if it is not.
    """
    for index, record in enumerate(records):
        for name, value in (("data", record.data), ("meta", record.meta)):
            if isinstance(value, msgspec.Raw):
                check(bytes(value), f"records[{index}].{name}")


def first_unencodable(records: Sequence[NewRecord]) -> str:
    for index, record in enumerate(records):
        try:
            msgspec.json.encode(fields_of(record))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return f"records[{index}]"
    return "records"


def refuse_non_finite(records: Sequence[NewRecord]) -> None:
    for index, record in enumerate(records):
        for name in ("data", "meta"):
            value = getattr(record, name)
            if value is not None and b"null" in msgspec.json.encode(value) and not is_finite(value):
                message = f"records[{index}].{name} holds NaN or infinity, which JSON has not: use null or a string"
                raise RequestError("invalid_request", message)


def is_finite(value: Any) -> bool:
    todo = [msgspec.to_builtins(value)]
    while todo:
        item = todo.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            todo.extend(item)
    return True
