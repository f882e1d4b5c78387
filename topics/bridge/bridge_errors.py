"""The errors of a bridge: a side that does not answer, and what no repetition mends."""

from __future__ import annotations

from topics.errors import TopicsError


class TargetDownError(TopicsError):
    """The other side did not take a batch, or its answer was lost. The bridge asks it again."""


class SourceDownError(TopicsError):
    """The side that is read from did not answer."""


class FencedError(TopicsError):
    """Another bridge, or another program, writes where this bridge writes."""


class OversizeError(TopicsError):
    """A record that the other side does not take, because it is too large."""

    def __init__(self, topic: str, seq: int, size: int, limit: int, setting: str) -> None:
        super().__init__(
            f"{topic}: record {seq} has {size} bytes as a message, and {setting} is {limit}: raise it there, "
            "or leave a mark in its place with --oversize skip"
        )
