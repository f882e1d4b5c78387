"""Counts of what happened to jobs since the start, over all queues."""

from __future__ import annotations


class JobCounts:
    """Numbers of jobs; one that is claimed twice counts twice."""

    __slots__ = ("acked", "claimed", "dead_lettered", "nacked")

    def __init__(self) -> None:
        self.claimed = 0
        """Jobs that claims and streams of jobs were answered with."""
        self.acked = 0
        self.nacked = 0
        self.dead_lettered = 0
        """Jobs that were moved to a dead-letter topic."""
