"""Composite cursors: one number for each topic of a session, as text. Source: wire contract, R-WATCH-5, R-WATCH-7."""

from __future__ import annotations

import base64
import binascii

import msgspec

Cursors = dict[str, int]
"""Topic to the last seq seen; ascending by name."""

_U64_MAX = (1 << 64) - 1


def cursor_id(cursors: Cursors) -> bytes:
    """base64url without padding of the compact JSON object, in the order of `cursors`."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursors)).rstrip(b"=")


def read_cursor_id(text: bytes) -> Cursors:
    """What a client sends back; empty when it is no cursor id, since such a header is ignored. Padding may be there."""
    bare = text.rstrip(b"=")
    try:
        value = msgspec.json.decode(base64.b64decode(bare + b"=" * (-len(bare) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    # True is no cursor, though it is an int.
    if not isinstance(value, dict) or not all(type(seq) is int and 0 <= seq <= _U64_MAX for seq in value.values()):
        return {}
    return value
