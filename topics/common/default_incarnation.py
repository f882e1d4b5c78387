"""The incarnation of a topic that was created before topics had one."""

from __future__ import annotations

_ODD = 0x9E37_79B9_7F4A_7C15
"""An odd factor, so that different ids map to different products modulo 2^64, and only 0 to 0."""


def incarnation_of_id(topic_id: int) -> str:
    """Return 16 lower-case hex digits, fixed for an id and different from all other ids'.

    A snapshot without the field means this incarnation.
    """
    return f"{topic_id * _ODD % (1 << 64):016x}"
