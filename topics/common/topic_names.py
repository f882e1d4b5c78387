"""The rule for names of topics. Source: wire contract, section 5.1."""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME_MAX = 255
"""Characters, each of which is one byte."""
_TOPIC = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{NAME_MAX - 1}}}")


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name. Names are compared byte for byte."""
    return _TOPIC.fullmatch(name) is not None


def longest_prefix(prefixes: Iterable[str], name: str) -> str:
    """Return the longest of the prefixes of a name, which has one at least."""
    return max((prefix for prefix in prefixes if name.startswith(prefix)), key=len)


def prefix_fault(prefix: str) -> str:
    """Return what is wrong with the beginning of names, "" for nothing, as the end of a sentence.

    The empty prefix is that of every name.
    """
    if not prefix or is_topic_name(prefix):
        return ""
    if len(prefix) > NAME_MAX:
        return f"has {len(prefix)} characters: a topic's name has at most {NAME_MAX}"
    if "*" in prefix:
        return "is a pattern: give the beginning of the names, without *"
    return "begins no topic's name: those have letters, digits and . _ : -, a letter or digit first"
