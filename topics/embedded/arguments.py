"""What callers hand in, checked on their own thread: nothing of a wrong type reaches the loop that all share."""

from __future__ import annotations

from collections.abc import Sequence

from topics.errors import UsageError

_U64_MAX = (1 << 64) - 1


def text(name: str, value: object) -> None:
    """Raises UsageError unless it is a string."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {value!r}: use a string")


def optional_text(name: str, value: object) -> None:
    if value is not None:
        text(name, value)


def count(name: str, value: object, most: int = _U64_MAX) -> None:
    """Raises UsageError unless it is an integer from 0 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise UsageError(f"{name} is {value!r}: use an integer, 0 to {most}")


def optional_count(name: str, value: object) -> None:
    if value is not None:
        count(name, value)


def texts(value: object) -> None:
    """Raises UsageError unless it is a list, or another sequence that is no text itself."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
        raise UsageError("append_many takes a list of JSON texts as bytes; append takes values")
