"""The states of a router, and which may follow which. docs/internals/routers.md has this table."""

from __future__ import annotations

from enum import IntEnum

from topics.common.transitions import Transitions


class RouterWork(IntEnum):
    """The occupation of a router, whose driver (routers/forwarding.py) runs one step at a time."""

    IDLE = 1
    """It has nothing to forward, as far as its driver knows, or an obstacle that only a request
    removes.
    """
    LAGGING = 2
    """It has records to forward: its next step begins when the timer fires or a reader waits."""
    HELD = 3
    """Its last step found no room in the destination, or the log accepted nothing. It is tried
    again.
    """
    RETAINING = 4
    """A step waits for the expiry of records, in the source and then in the destination, and before
    that, to another core, for its turn.
    """
    SEARCHING = 5
    """A step searches the destination for copies that it holds already (`exactly_once`)."""
    READING = 6
    """A step reads the records that it writes out."""
    QUEUED = 7
    """A step waits for operations of the destination that are in flight, to be planned again."""
    COMMITTING = 8
    """A step is staged on the destination and waits for its commit."""


IDLE, LAGGING, HELD, RETAINING, SEARCHING, READING, QUEUED, COMMITTING = RouterWork
STEPPING = frozenset({RETAINING, SEARCHING, READING, QUEUED, COMMITTING})
"""The work of a step in progress."""
WORK = Transitions(
    {
        IDLE: (LAGGING, RETAINING, COMMITTING),
        LAGGING: (IDLE, HELD, RETAINING),
        HELD: (IDLE, RETAINING),
        RETAINING: (LAGGING, SEARCHING, READING, QUEUED, COMMITTING),
        SEARCHING: (LAGGING, READING, QUEUED, COMMITTING),
        READING: (LAGGING, QUEUED, COMMITTING),
        QUEUED: (LAGGING,),
        COMMITTING: (LAGGING,),
    }
)
"""Every step ends in LAGGING."""
