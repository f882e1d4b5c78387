"""Percent-decoding of paths and queries. Source: wire contract, section 2.2."""

from __future__ import annotations

from urllib.parse import unquote_plus, unquote_to_bytes

import numpy as np

_LONG_CHARS = 2000
"""Length above which numpy is used.

A head has room for 20,000 escapes, which would take urllib many milliseconds.
"""
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789", np.uint8)] = np.arange(10)
_HEX[np.frombuffer(b"abcdef", np.uint8)] = np.arange(10, 16)
_HEX[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


def percent_decoded(text: str) -> bytes:
    """Return the bytes that a text of ASCII characters stands for; malformed escapes stay."""
    if len(text) < _LONG_CHARS or "%" not in text:
        return unquote_to_bytes(text)
    codes = np.frombuffer(text.encode(), np.uint8)
    digits = _HEX[codes]
    at = np.flatnonzero((codes[:-2] == ord("%")) & (digits[1:-1] < 16) & (digits[2:] < 16))
    decoded, stays = codes.copy(), np.ones(len(codes), bool)
    decoded[at] = digits[at + 1] << 4 | digits[at + 2]
    stays[at + 1] = stays[at + 2] = False
    return decoded[stays].tobytes()


def form_decoded(text: str) -> str:
    """Return a key or value of a query: `+` is a space, bytes that are not UTF-8 become U+FFFD."""
    if len(text) < _LONG_CHARS:
        return unquote_plus(text)
    return percent_decoded(text.replace("+", " ")).decode(errors="replace")
