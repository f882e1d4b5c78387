"""One read pass, in the steps that a feed's subscription and a cohort share.

A pass begins at the reader's cursor. Its result marks the topic read, becomes a burst (made once
for all readers of the result), is delivered, and moves the cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.engine.delivery.frames import Burst, frames_of
from topics.engine.read.consumption import mark_read
from topics.engine.read.shared_reads import SharedReads
from topics.engine.state.topic import Topic
from topics.engine.values.results import DiffQuery, DiffResult, Done

BYTES_A_PASS = 16_384
"""Part of the loop's budget for reads that a read pass takes, besides its records.

It takes some 40 us, as much time as rendering this many bytes.
"""


class StayingReader(Protocol):
    """Position of a lasting reader in a topic."""

    cursor: int
    """The last seq seen."""
    reported_caught_up: bool
    """Whether the last frame of this topic was a caught-up."""


class Further(Enum):
    """The step after a pass."""

    WAITS = 1
    """The reader is at the head."""
    AT_ONCE = 2
    """There are more records."""
    AFTER_OTHERS = 3
    """There are more records, after many that the filter skipped: others are served first."""


def read_pass(reads: SharedReads, topic: Topic, query: DiffQuery, cursor: int, on_read: Done[DiffResult]) -> None:
    """Read once from the cursor. query: bounded options; `from_seq` in it has no meaning."""
    reads.turns.spend(BYTES_A_PASS)
    reads.read(topic, make_tuple(DiffQuery, (cursor, *query[1:])), on_read)


def take_pass(  # noqa: PLR0917 - one call a pass
    clock: Clock,
    reads: SharedReads,
    topic: Topic,
    reader: StayingReader,
    result: DiffResult,
    deliver: Callable[[Burst], None],
) -> Further:
    """Deliver the frames of the pass, if any, and then move the reader. Return what follows."""
    mark_read(topic, clock.now_ms())
    reported_caught_up, name, cursor = reader.reported_caught_up, topic.name, reader.cursor

    def make() -> Burst | None:
        """Make the burst of the pass; None if it has no frames."""
        frames = frames_of(name, cursor, result, reported_caught_up=reported_caught_up)
        return Burst(frames, clock.monotonic_ns()) if frames else None

    burst = reads.derive(result, reported_caught_up, make)
    if burst is not None:
        deliver(burst)
        reader.reported_caught_up = result.caught_up
    reader.cursor = result.next_from_seq
    if not result.caught_up:
        return Further.AFTER_OTHERS if burst is None else Further.AT_ONCE
    return Further.WAITS if topic.head == result.head_seq else Further.AT_ONCE


def take_apart(
    clock: Clock, topic: Topic, reader: StayingReader, result: DiffResult, deliver: Callable[[Burst], None]
) -> None:
    """Do as `take_pass`, for a result up to the head that no other reader shares."""
    mark_read(topic, clock.now_ms())
    frames = frames_of(topic.name, reader.cursor, result, reported_caught_up=reader.reported_caught_up)
    if frames:
        deliver(Burst(frames, clock.monotonic_ns()))
        reader.reported_caught_up = True
    reader.cursor = result.next_from_seq
