"""Records of bytes among those of JSON: a text of a client is written as one or the other, by its
checksum.

Clients write and compare texts. Here a text becomes a record on its way out, and a record a text on
its way in. A record whose kind does not fit its text becomes a text that no client has written, so
that every comparison fails.
"""

from __future__ import annotations

import base64
from typing import Any
from zlib import crc32

_LISTS = ("records", "claimed", "dead")


def payload_of(text: str) -> bytes | None:
    """Return the bytes that a text is written as; None: it is JSON.

    They take as many bytes as its JSON.
    """
    code = text.encode()
    number = crc32(code)
    if number & 3:
        return None
    return b'"%b"' % code if number & 4 else b'"%b\xff' % code


def stored(text: str) -> bytes:
    """Return the payload in the frame of a text."""
    return payload_of(text) or f'"{text}"'.encode()


def text_of(data: Any) -> Any:
    """Return the text of a record's data, bytes or JSON, as it was read."""
    if isinstance(data, bytes):
        text = data[1:-1].decode(errors="replace")
        return text if payload_of(text) == data else f"bytes of {text}"
    return f"JSON of {data}" if isinstance(data, str) and payload_of(data) is not None else data


def value_of(data: Any) -> Any:
    """Return the data of a record for a call of the library."""
    payload = payload_of(data) if isinstance(data, str) else None
    return data if payload is None else payload


def written(body: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the body of a request as it is sent."""
    if body is None or "records" not in body:
        return body
    return body | {"records": [_sent(row) for row in body["records"]]}


def _sent(row: dict[str, Any]) -> dict[str, Any]:
    data = value_of(row["data"])
    if not isinstance(data, bytes):
        return row
    return {"data_base64": base64.b64encode(data).decode(), **{key: row[key] for key in row if key != "data"}}


def read(answer: Any) -> Any:
    """Return an answer with the texts of its records; base64 counts for a budget of bytes
    (R-BYTES-3).
    """
    if isinstance(answer, dict):
        if "records" in answer:
            answer["as_base64"] = True
        for name in _LISTS:
            for row in answer.get(name) or ():
                if "data_base64" in row:
                    row["data"] = text_of(base64.b64decode(row.pop("data_base64"), validate=True))
                elif "data" in row:
                    row["data"] = text_of(row["data"])
    return answer
