"""Pages of a diff as columns. `data` and `meta` stay the JSON text that the server sent.

msgspec decodes pages if it is installed, else the standard library; the columns are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from topics.spark.reading.diff_page import Columns, DiffPage, PageLoss

_BLANKS = " \t\n\r"


def decoder() -> Callable[[bytes], DiffPage]:
    """Return the decoder of msgspec if that is installed, else `decode_page`, which is slower."""
    try:
        from topics.spark.reading.fast_pages import decode_page as fast  # noqa: PLC0415 - executors may lack msgspec
    except ImportError:
        return decode_page
    return fast


def decode_page(body: bytes) -> DiffPage:
    """Decode a page with the standard library, which is several times slower than msgspec.

    Raises: ValueError if the body is no answer to a diff.
    """
    try:
        return _page(body)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the server's answer to a diff lacks {error}") from None


def _page(body: bytes) -> DiffPage:
    text = body.decode()
    columns = Columns([], [], [], [], [], [], [])
    rest: dict[str, Any] = {"tombstone": None}
    for key, value, start, end in _members(text, 0):
        if key != "records":
            rest[key] = value
            continue
        assert start < end
        for at in _elements(text, start):
            _add(columns, text, at)
    columns.refuse_incomplete()
    tombstone = rest["tombstone"]
    lost = None if tombstone is None else PageLoss(tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"])
    return DiffPage(columns, rest["next_from_seq"], rest["head_seq"], lost)


def _add(columns: Columns, text: str, at: int) -> None:
    row: dict[str, Any] = {"$tag": None, "$node": None, "data_base64": None}
    data = meta = b""
    for key, value, start, end in _members(text, at):
        if key == "data":
            data = text[start:end].encode()
        elif key == "meta":
            meta = text[start:end].encode()
        else:
            row[key] = value
    columns.seqs.append(row["$seq"])
    columns.times_ms.append(row["$ts"])
    columns.tags.append(row["$tag"])
    columns.nodes.append(row["$node"])
    columns.data.append(data)
    columns.meta.append(meta)
    columns.base64.append(row["data_base64"])


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""The standard library's scanner: (text, index) -> the value there, and the index after it."""


def _members(text: str, at: int) -> Iterator[tuple[str, Any, int, int]]:
    """Yield (key, value, start, end) of each member of the object at an index.

    start, end: of the text of the value.
    """
    at = _after(text, at, "{")
    while text[at] != "}":
        key, at = _value(text, at)
        start = _after(text, at, ":")
        value, at = _value(text, start)
        yield key, value, start, at
        at = _next(text, at)


def _elements(text: str, at: int) -> Iterator[int]:
    """Yield the index at which each element begins, of the array at an index."""
    at = _after(text, at, "[")
    while text[at] != "]":
        yield at
        at = _next(text, _value(text, at)[1])


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _scan(text, at)
    except StopIteration:
        raise ValueError(f"no JSON value at character {at} of the server's answer") from None


def _after(text: str, at: int, sign: str) -> int:
    """Return the index after blanks, a sign, and more blanks. Raises: ValueError without it."""
    at = _skip(text, at)
    if text[at] != sign:
        raise ValueError(f"{sign!r} is missing at character {at} of the server's answer")
    return _skip(text, at + 1)


def _next(text: str, at: int) -> int:
    """Return the index of the next element, or of the closing bracket."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    while text[at] in _BLANKS:
        at += 1
    return at
