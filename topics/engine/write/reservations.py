"""Reservations of seqs in class `disk`, on stable storage before the seqs are acknowledged.

After a power cut, a topic therefore never gives out an acknowledged seq again. Source: R-DUR-6.
"""

from __future__ import annotations

from topics.engine.state.control_frames import ReservationPayload, encode
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort
from topics.errors import StorageError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType


def reserve(log: LogPort, topic: Topic, count: int, now_ms: int) -> int:
    """Stage a reservation for the next `count` seqs and more; return its end."""
    return reserve_beyond(log, topic, topic.next_seq + count - 1, count, now_ms)


def reserve_ahead(log: LogPort, topic: Topic, count: int, now_ms: int) -> None:
    """Stage the next reservation before a write of `count` uses up the last one.

    No write waits for it to be on stable storage.
    """
    upto = reserve_beyond(log, topic, topic.next_seq - 1, count, now_ms)
    generation = topic.reserve_ahead()

    def on_commit(commit: Commit) -> None:
        if commit.error is None:
            log.when_durable(topic.id, on_durable)
        else:
            topic.reserved_ahead(generation, 0)

    def on_durable(error: StorageError | None) -> None:
        topic.reserved_ahead(generation, 0 if error is not None else upto)

    log.when_committed(topic.id, False, on_commit)


def reserve_beyond(log: LogPort, topic: Topic, last_seq: int, count: int, now_ms: int) -> int:
    """Stage a reservation beyond `last_seq`, for a write of `count`; return its end."""
    upto = topic.next_reservation(last_seq, count)
    log.stage_control(topic.id, FrameType.HEAD_RESERVATION, upto, now_ms, encode(ReservationPayload(topic.generation)))
    return upto
