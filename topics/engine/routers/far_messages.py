"""The messages between the halves of a router between two cores, which are of one build.

The half at the source is the router, and the one at the destination is a link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np

from topics.engine.routers.copies import SIZE_AT, Copies
from topics.engine.state.router import StoredConfig
from topics.errors import TopicsError
from topics.store.format.rows import ROW


class LinkOrder(msgspec.Struct, array_like=True, tag=True):
    """Make a link, or change the settings of one. Answer: `LinkState`, or `NoLink`."""

    token: str
    router: str
    source: str
    source_id: int
    """The id of the source; 0: it is not there yet, and only the refusal is asked for."""
    dest: str
    create_dest: bool
    config: StoredConfig
    position: int
    """That of a new link; -1: only one that is there gets the settings."""


class UnlinkOrder(msgspec.Struct, array_like=True, tag=True):
    """Remove a link. Answer: `NoLink`."""

    token: str


class SentStep(msgspec.Struct, array_like=True, tag=True):
    """Execute one step. Without copies and holes it moves the position, or only asks for it.

    Answer: `LinkState`, or `NoLink`.
    """

    token: str
    after: int
    """The position from which it was planned."""
    upto: int
    """The position after it."""
    holes: list[tuple[int, int]]
    """Runs of holes, as in `ForwardStep`."""
    hops: list[int]
    """The hops of each copy, or one number for all."""
    seqs: bytes = b""
    """Source seqs, 8 bytes each."""
    rows: bytes = b""
    """The rows of `Copies`, and below their `buffer`."""
    buffer: bytes = b""

    def copies(self) -> Copies:
        sizes = [row[SIZE_AT] for row in ROW.iter_unpack(self.rows)]
        return Copies(np.frombuffer(self.seqs, np.uint64), self.rows, sizes, self.buffer)


class CatchUpOrder(msgspec.Struct, array_like=True, tag=True):
    """Bring the routers between two topics to the head of the source. Answer: `CaughtUp`."""

    source: str
    dest: str
    levels: int
    """How many topics above the source are caught up first, at most."""
    positions: dict[str, int]
    """The positions of the links, by token."""


class GoneOrder(msgspec.Struct, array_like=True, tag=True):
    """Delete the router of a link that is gone with its topic. Answer: `NoLink`."""

    source: str
    token: str


class PathOrder(msgspec.Struct, array_like=True, tag=True):
    """State which topics lead to a topic. Answer: `Path`."""

    topic: str


class LinkState(msgspec.Struct, array_like=True, tag=True):
    """The state of a link."""

    dest_id: int
    """The id of the destination."""
    position: int
    forwarded: int
    blocked: bool = False
    """Whether copies found no room, or the log accepts nothing."""
    is_awaited: bool = False
    """Whether a reader waits for the destination."""


class NoLink(msgspec.Struct, array_like=True, tag=True):
    """There is no link with this token."""


class CaughtUp(msgspec.Struct, array_like=True, tag=True):
    """The routers have come as far as they can."""

    unknown: list[str]
    """The tokens of which there is no router."""


class Path(msgspec.Struct, array_like=True, tag=True):
    """The topics that lead to a topic, from the nearest on, as far as they are on this core."""

    names: list[str]
    is_cut: bool
    """Whether the last one is on another core."""


Order = LinkOrder | UnlinkOrder | SentStep | CatchUpOrder | GoneOrder | PathOrder
Reply = LinkState | NoLink | CaughtUp | Path
Replied = Callable[[Reply | TopicsError], None]


class OtherHalves(Protocol):
    """The cores that have the other halves."""

    def ask(self, topic: str, order: Order, done: Replied) -> None:
        """Have the core that owns a topic execute an order. An error: perhaps it has."""
