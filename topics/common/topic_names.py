"""Which names a topic may have. Source: wire contract, section 5.1."""

from __future__ import annotations

import re

NAME_MAX = 255
"""Characters, which are bytes too."""
_TOPIC = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{NAME_MAX - 1}}}")


def is_topic_name(name: str) -> bool:
    """Names are compared byte for byte, case counts."""
    return _TOPIC.fullmatch(name) is not None
