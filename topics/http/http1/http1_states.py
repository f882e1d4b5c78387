"""The states of an HTTP/1 connection and of its input, and which may follow which.

A request takes HEAD -> ANSWER -> HEAD, or HEAD -> BODY -> ANSWER -> HEAD if its body is not here
yet. docs/internals/requests.md says what causes each change.
"""

from __future__ import annotations

import enum

from topics.common.transitions import Transitions


class Phase(enum.Enum):
    """The position of a connection in its requests."""

    HEAD = "head"
    """Between requests, or with part of a head received."""
    HEAD_QUEUED = "head queued"
    """Received bytes of HEAD wait for their turn (request_turns.py)."""
    BODY = "body"
    """A head without its whole body."""
    BODY_QUEUED = "body queued"
    """The bytes that end a body wait for their turn."""
    ANSWER = "answer"
    """A handler or the lane has the request."""
    STREAM = "stream"
    """The answer is a stream that its handler will end."""
    LEAVING = "leaving"
    """The connection is given to the core that owns the topic of the next request."""
    CLOSED = "closed"
    """The connection is closed, or another protocol has it."""


class Intake(enum.Enum):
    """The treatment of the bytes that the peer sends."""

    READS = "reads"
    PAUSED = "paused"
    """Reading stops while a request waits for its turn, or for the answers before it to be read."""
    ENDED = "ended"
    """The peer has finished sending: the requests here are answered, then the connection closes."""


PHASES = Transitions(
    {
        Phase.HEAD: (Phase.HEAD_QUEUED, Phase.BODY, Phase.ANSWER, Phase.LEAVING, Phase.CLOSED),
        Phase.HEAD_QUEUED: (Phase.HEAD, Phase.CLOSED),
        Phase.BODY: (Phase.BODY_QUEUED, Phase.ANSWER, Phase.CLOSED),
        Phase.BODY_QUEUED: (Phase.BODY, Phase.CLOSED),
        Phase.ANSWER: (Phase.HEAD, Phase.STREAM, Phase.CLOSED),
        Phase.STREAM: (Phase.HEAD, Phase.CLOSED),
        Phase.LEAVING: (Phase.HEAD, Phase.CLOSED),
        Phase.CLOSED: (),
    }
)
INTAKES = Transitions(
    {
        Intake.READS: (Intake.PAUSED, Intake.ENDED),
        Intake.PAUSED: (Intake.READS, Intake.ENDED),
        Intake.ENDED: (),
    }
)
