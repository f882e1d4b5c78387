"""The side that a bridge carries records to, as the bridge asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from topics.bridge.bridge_messages import BridgePosition, TopicBatch


class TargetSession(Protocol):
    """An open connection to the side that records are carried to."""

    def position(self, topic: str) -> BridgePosition | None:
        """Return where a topic continues; None: nothing of it was carried.

        Raises: TargetDownError, FencedError.
        """
        ...

    def put(self, batches: Sequence[TopicBatch]) -> None:
        """Store the messages with their positions; return when they are stored.

        After an error any prefix of each topic's messages may be there, with its position.
        Raises: TargetDownError, FencedError, OversizeError.
        """
        ...

    def close(self) -> None: ...


class BridgeTarget(Protocol):
    """The side that records are carried to."""

    def open(self) -> TargetSession:
        """Raises: TargetDownError; UsageError, what is there cannot be used."""
        ...
