"""The incarnation of a topic that was made before topics had one."""

from __future__ import annotations

_ODD = 0x9E37_79B9_7F4A_7C15
"""Multiplying by an odd number modulo 2^64 maps different ids to different numbers, and none but 0 to 0."""


def incarnation_of_id(topic_id: int) -> str:
    """16 lower-case hex digits: always the same, and no other topic's. Snapshots without the field mean this one."""
    return f"{topic_id * _ODD % (1 << 64):016x}"
