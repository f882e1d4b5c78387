"""The states of an HTTP/2 connection and of its input, and which may follow which.

The states of its streams are in the h2 package. docs/internals/requests.md says what causes each
change.
"""

from __future__ import annotations

import enum

from topics.common.transitions import Transitions


class EndState(enum.Enum):
    """How far a connection has come towards its end. A later state includes the earlier ones."""

    OPEN = "open"
    LEAVING = "leaving"
    """The server has announced its end; the peer may not have seen that yet."""
    ENDED = "ended"
    """The peer makes no more requests. The connection closes after those that it has made."""
    AT_END = "at end"
    """The peer has finished sending, and a part of what it sent waits for its turn."""
    GONE = "gone"
    """The peer has finished sending. Answers in progress are sent; waits without an answer yet end
    (R-NET-11).
    """
    CLOSED = "closed"


class Reading(enum.Enum):
    """The treatment of the frames that the peer sends."""

    READS = "reads"
    PAUSED = "paused"
    """Reading stops until the peer has read answers."""
    QUEUED = "queued"
    """Reading stops, and frames wait for their turn (request_turns.py)."""


ENDS = Transitions(
    {
        EndState.OPEN: (EndState.LEAVING, EndState.ENDED, EndState.AT_END, EndState.GONE, EndState.CLOSED),
        EndState.LEAVING: (EndState.ENDED, EndState.AT_END, EndState.GONE, EndState.CLOSED),
        EndState.ENDED: (EndState.AT_END, EndState.GONE, EndState.CLOSED),
        EndState.AT_END: (EndState.GONE, EndState.CLOSED),
        EndState.GONE: (EndState.CLOSED,),
        EndState.CLOSED: (),
    }
)
READINGS = Transitions(
    {
        Reading.READS: (Reading.PAUSED, Reading.QUEUED),
        Reading.PAUSED: (Reading.READS, Reading.QUEUED),
        Reading.QUEUED: (Reading.PAUSED,),
    }
)
