"""The rule for names of topics. Source: wire contract, section 5.1."""

from __future__ import annotations

import re

NAME_MAX = 255
"""Characters, each of which is one byte."""
_TOPIC = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{NAME_MAX - 1}}}")


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name. Names are compared byte for byte."""
    return _TOPIC.fullmatch(name) is not None
