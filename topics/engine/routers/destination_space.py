"""The room of a destination for copies. Source: R-RTR-13."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.engine.state.topic import Topic
from topics.engine.write.admission import QuotaCore, cap_room, expire_everywhere
from topics.errors import TopicsError

_EXPIRES_EVERY_NS = 1_000_000_000
"""Interval of checks of all topics, for routers that the quota blocks."""


class SpaceCore(QuotaCore, Protocol):
    """The part of the core that the room of destinations needs."""

    clock: Clock


class DestinationSpace:
    """The room of destinations, for all routers of an engine."""

    def __init__(self, core: SpaceCore) -> None:
        self._core = core
        self._expires_ns = 0
        """Time from which all topics may be checked again."""

    def of(self, topic: Topic, sizes: Sequence[int] | NDArray[np.uint32]) -> int:
        """Return how many of the copies of these sizes, the first ones, are admitted.

        Expired records of any topic use the quota, though no client may ask for them there. They
        are expired here; if that takes a commit, the room is there when the router tries again.
        """
        core = self._core
        room = self._room(topic, sizes)
        now_ns = core.clock.monotonic_ns()
        if room == len(sizes) or not core.limits.total_bytes.whole or now_ns < self._expires_ns:
            return room
        self._expires_ns = now_ns + _EXPIRES_EVERY_NS
        with contextlib.suppress(TopicsError):
            expire_everywhere(core, core.clock.now_ms())
        return self._room(topic, sizes)

    def _room(self, topic: Topic, sizes: Sequence[int] | NDArray[np.uint32]) -> int:
        room = _room_now(self._core, topic, sizes)
        if room < len(sizes):
            self._core.limits.total_bytes.lacks(int(sizes[room]))
        return room


def _room_now(core: QuotaCore, topic: Topic, sizes: Sequence[int] | NDArray[np.uint32]) -> int:
    """Return how many of the copies of these sizes are admitted. Source: R-CAP-5, 7.5 check 8."""
    count = len(sizes)
    limits = []
    room = cap_room(topic)
    if room is not None:
        count = min(count, max(0, room[0]))
        limits.append(room[1])
    if core.limits.total_bytes.whole:
        limits.append(core.limits.total_bytes.left)
    for limit in limits:
        sums = np.cumsum(sizes[:count], dtype=np.int64)
        count = min(count, int(np.searchsorted(sums, limit, "right")))
    return count
