"""Values as JSON texts, where an answer is one format of bytes."""

from __future__ import annotations


def json_bool(value: bool) -> bytes:
    return b"true" if value else b"false"


def json_nullable(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value
