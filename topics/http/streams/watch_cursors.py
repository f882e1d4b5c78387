"""Composite cursors as text: one number for each topic of a session.

Source: wire contract, R-WATCH-5, R-WATCH-7.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

Cursors = dict[str, int]
"""Last seq seen by topic, ascending by name."""

_U64_MAX = (1 << 64) - 1
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def cursor_id(cursors: Cursors) -> bytes:
    """Return a cursor id: base64url, without padding, of the compact JSON of `cursors`."""
    return binascii.b2a_base64(msgspec.json.encode(cursors), newline=False).translate(_URL_SAFE).rstrip(b"=")


def read_cursor_id(text: bytes) -> Cursors:
    """Return the cursors of an id that a client sent, with or without padding.

    A text that is not a cursor id gives no cursors, because such a header is ignored.
    """
    bare = text.rstrip(b"=")
    try:
        value = msgspec.json.decode(base64.b64decode(bare + b"=" * (-len(bare) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    # An exact type, because True is an int but not a cursor.
    if not isinstance(value, dict) or not all(type(seq) is int and 0 <= seq <= _U64_MAX for seq in value.values()):
        return {}
    return value
