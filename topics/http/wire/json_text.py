"""Values as JSON texts, for answers that are rendered by one format of bytes."""

from __future__ import annotations


def json_bool(value: bool) -> bytes:
    return b"true" if value else b"false"


def json_nullable(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value
