"""A topic's incarnation: while it is unchanged, a seq names the same record.

An incarnation is 16 lower-case hex digits everywhere: on the wire, in frames and in snapshots.
Source: R-INC.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from topics.engine.values.topic_config import TopicConfig
from topics.errors import RequestError

_BYTES = 8
_ABOVE_ALL = 2**64 - 1
_SHAPE = re.compile(r"[0-9a-f]{16}", re.ASCII)


def draw(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new random incarnation."""
    return f"{int.from_bytes(random_bytes(_BYTES), 'little') or 1:016x}"


def is_shaped(text: str) -> bool:
    """Return whether a text has the shape of an incarnation."""
    return _SHAPE.fullmatch(text) is not None


def check_incarnation(name: str, value: str) -> None:
    """Check that a value has the shape of an incarnation.

    Raises: RequestError invalid_request, which names the field, if it has not.
    """
    if not is_shaped(value):
        raise RequestError("invalid_request", f"{name} must be 16 lower-case hex digits, as the topic's state shows it")


def meant_cursor(from_seq: int, known: str, present: str) -> int:
    """Return the cursor of a read that knows an incarnation, "" for none (R-INC-5).

    That of another incarnation is above every head, so the read reports that the topic is another.
    """
    return _ABOVE_ALL if known and known != present else from_seq


def ends_with_process(config: TopicConfig) -> bool:
    """Return whether a restart may reuse seqs and needs a new incarnation (R-DUR-4, R-DUR-5)."""
    return config.durability in ("memory", "ephemeral")
