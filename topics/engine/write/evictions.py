"""Frames about evictions by caps. Source: R-DUR-8, R-FLOOR-5.

Usually no frame states an eviction, because a replay computes it from the records, by the caps and
the holds at the end of the log (`control_frames.py`). A change that would let it evict less is
preceded by a frame with the caps until then (`log_caps`). After a change from class `ephemeral`,
some of the records that count are in memory, where no replay sees them. While there are any, a
frame in the same batch states the evictions that a change will cause. This requires that nothing
else is in flight; `Turn` waits for that.
"""

from __future__ import annotations

from typing import Protocol

from topics.clock import Clock
from topics.engine.state.control_frames import RemovalPayload, encode, removal
from topics.engine.state.staged_operations import Turn
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort
from topics.engine.values.topic_config import TopicConfig
from topics.store.format.log_format import FrameType


class EvictionCore(Protocol):
    """The part of the core that the log of an eviction needs."""

    clock: Clock
    log: LogPort


def log_caps(log: LogPort, topic: Topic, now_ms: int, *, counted: bool = True) -> None:
    """Stage the caps of now: a replay evicts by them and by the holds of now, before what follows.

    In class `ephemeral` a replay would count records whose deletion no frame states.
    """
    before = removal(topic)
    if before.cap != (0, 0) and topic.stage_class != "ephemeral":
        log.stage_control(topic.id, FrameType.FLOORS, before.upto, now_ms, encode(before), counted=counted)


def has_to_wait(topic: Topic) -> bool:
    """Return whether other operations are in flight, so that a change's evictions are unknown.

    Operations that wait for their turn do not count, nor do the writes of this pass, which end
    together with the next one staged.
    """
    if not topic.memory_through:
        return False
    if not 0 < topic.index.earliest <= topic.memory_through:
        topic.leave_memory()
        return False
    return is_busy(topic)


def is_busy(topic: Topic) -> bool:
    """Return whether operations are in flight, except Turns and the writes of this pass."""
    filling: object = topic.filling
    return any(not isinstance(operation, Turn) and operation is not filling for operation in topic.pending)


def log_evictions(core: EvictionCore, topic: Topic, config: TopicConfig, *, records: int = 0, size: int = 0) -> None:
    """Stage the floor that the caps of `config` give once these records and bytes are added."""
    if config.discard != "old" or not topic.memory_through:
        return
    index = topic.index
    over = index.live + records - config.cap_records if config.cap_records else 0
    over_bytes = index.bytes + size - config.cap_bytes if config.cap_bytes else 0
    floor = index.oldest_through(over, over_bytes, min(index.last_seq, topic.held))
    if floor:
        payload = encode(RemovalPayload(topic.next_seq - 1, evicted=floor))
        with core.log.use_reserve():
            core.log.stage_control(topic.id, FrameType.FLOORS, topic.next_seq - 1, core.clock.now_ms(), payload)
