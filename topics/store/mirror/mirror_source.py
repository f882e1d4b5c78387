"""The archive that a mirror follows."""

from __future__ import annotations

from typing import Protocol

from topics.common.values.archive_state import ArchiveState


class MissingPartError(Exception):
    """The archive does not have a file any more, or never had it."""


class MirrorSource(Protocol):
    """The archive of another server. Each method raises a TopicsError if there is no answer."""

    async def state(self, upto_ms: int) -> ArchiveState:
        """Return how far it is.

        upto_ms: Unix ms up to which the mirror has it, durably; 0: it has nothing.
        """

    async def piece(self, timeline: str, path: str, offset: int, most: int) -> bytes:
        """Return bytes of a file, at most so many, fewer at its end.

        Raises: MissingPartError.
        """
