"""The preference of a client for strict handling. Source: RFC 7240, wire contract section 2.5."""

from __future__ import annotations

APPLIED = b"Preference-Applied: handling=strict\r\n"
"""The line in the head of each answer to a strict request."""


def is_strict(prefer: bytes) -> bool:
    """Return whether a value of `Prefer` asks for strict handling.

    Of several preferences for a handling the first one counts; others are ignored.
    """
    for preference in prefer.split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        if name.strip().lower() == b"handling":
            return value.strip().strip(b'"').lower() == b"strict"
    return False
