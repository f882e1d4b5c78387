"""Opaque cursors of lists: base64 of `{"after": "<last name>"}`.

Source: wire contract, section 3.4.
"""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from topics.errors import RequestError

_ALPHABETS = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def encode_cursor(after: str) -> str:
    """Return the cursor of the page after a name: URL-safe alphabet, no padding."""
    return base64.urlsafe_b64encode(msgspec.json.encode({"after": after})).rstrip(b"=").decode()


def decode_cursor(text: str) -> str:
    """Return the name after which the page begins; "" for the first page.

    The first page has no cursor, or one whose JSON has no string `after`. Both alphabets of base64
    are accepted, padded or not.

    Raises: RequestError invalid_request, the cursor is not base64 or not JSON.
    """
    if not text:
        return ""
    # An unescaped "+" of the standard alphabet arrives as a space.
    bare = text.replace(" ", "+")
    if _ALPHABETS.fullmatch(bare) is None:
        raise _corrupt()
    bare = bare.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4)))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _corrupt() from None
    after = value.get("after") if isinstance(value, dict) else None
    return after if isinstance(after, str) else ""


def _corrupt() -> RequestError:
    return RequestError("invalid_request", "the cursor is corrupt: send back `next_cursor` as it was given")
