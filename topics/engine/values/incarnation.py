"""A topic's incarnation: as long as it is the same, a seq of that name stands for the same record. Source: R-INC.

It is 16 lower-case hex digits everywhere: on the wire, in frames and in snapshots.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from topics.engine.values.topic_config import TopicConfig
from topics.errors import RequestError

_BYTES = 8
_SHAPE = re.compile(r"[0-9a-f]{16}", re.ASCII)


def draw(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new incarnation, which no topic has had."""
    return f"{int.from_bytes(random_bytes(_BYTES), 'little') or 1:016x}"


def is_shaped(text: str) -> bool:
    """Return whether a text may be an incarnation."""
    return _SHAPE.fullmatch(text) is not None


def check_incarnation(name: str, value: str) -> None:
    """Raises RequestError invalid_request, naming the field: the value cannot be an incarnation."""
    if not is_shaped(value):
        raise RequestError("invalid_request", f"{name} must be 16 lower-case hex digits, as the topic's state shows it")


def ends_with_process(config: TopicConfig) -> bool:
    """Return whether a restart may give seqs out again, and so draws another incarnation (R-DUR-4, R-DUR-5)."""
    return config.durability in ("memory", "ephemeral")
