"""Regular expressions that a user wrote."""

from __future__ import annotations

import re

from topics.errors import UsageError


def compile_pattern(text: str, option: str) -> re.Pattern[str]:
    """Return the compiled expression. Raises UsageError that begins with `option`, where the text came from."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:  # the last two: huge repetitions, deep groups
        shown = text if len(text) <= 100 else f"{text[:100]}..."
        raise UsageError(f"{option} {shown!r} is no regular expression: {error}") from None
