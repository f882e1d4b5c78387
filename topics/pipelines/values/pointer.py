"""JSON pointers (RFC 6901): "/order/items/0" names a place in a document, "" all of it."""

from __future__ import annotations

import re
from typing import Any, Final

from topics.errors import UsageError

MISSING: Final = object()
"""The result for a place that the document does not have. (null is a value.)"""

_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z", re.A)
"""Indexes of up to 18 digits: no array is longer, and Python does not parse thousands of digits."""

Pointer = tuple[str, ...]


def parse(text: str, option: str) -> Pointer:
    """Return the steps of a pointer.

    option: the origin of the text, with which the message of an error begins.
    Raises: UsageError, the text is no JSON pointer.
    """
    if text and not text.startswith("/"):
        raise UsageError(f"{option}: {text!r} is no JSON pointer: begin with '/', as in '/order/id'")
    steps = text.split("/")[1:]
    if any(re.search(r"~(?![01])", step) for step in steps):
        raise UsageError(f"{option}: {text!r} has a '~' by itself: write '~0' for '~' and '~1' for '/'")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def find(document: Any, pointer: Pointer) -> Any:
    """Return the value at the place, or MISSING."""
    for step in pointer:
        if isinstance(document, dict):
            document = document.get(step, MISSING)
        elif isinstance(document, list) and _INDEX.match(step) and int(step) < len(document):
            document = document[int(step)]
        else:
            return MISSING
        if document is MISSING:
            return MISSING
    return document
