"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, the last one that a datetime has."""


def time_text(ms: int | None) -> str:
    """Return a time (Unix ms) as 2026-01-31T12:34:56.789Z; "-" for none."""
    if ms is None:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)
