"""Regular expressions of users."""

from __future__ import annotations

import re

from topics.errors import UsageError


def compile_pattern(text: str, option: str) -> re.Pattern[str]:
    """Return the compiled expression.

    option: the origin of the text, with which the message of an error begins.
    Raises: UsageError, the text is no regular expression.
    """
    try:
        return re.compile(text)
    # The last two are raised for huge repetitions and deep groups.
    except (re.error, OverflowError, RecursionError) as error:
        shown = text if len(text) <= 100 else f"{text[:100]}..."
        raise UsageError(f"{option} {shown!r} is no regular expression: {error}") from None
