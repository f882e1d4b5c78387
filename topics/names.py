"""Which names a topic may have. Source: wire contract, section 5.1."""

from __future__ import annotations

import re

_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


def is_topic_name(name: str) -> bool:
    """Names are compared byte for byte, case counts."""
    return _TOPIC.fullmatch(name) is not None
