"""What caps evict because of records in memory. Source: R-DUR-8, R-FLOOR-5.

Mostly no frame tells of an eviction: a replay works it out from the records (`control_frames.py`). After a change from
class
`ephemeral` some of those that count are in memory, and no replay sees them. So while there are any, what a change will
evict is said by a frame in the same batch, which takes that nothing else is on its way: `Turn` waits for that.
"""

from __future__ import annotations

from topics.engine.shared.core import Core
from topics.engine.state.control_frames import RemovalPayload, encode
from topics.engine.state.staged_operations import Turn
from topics.engine.state.topic import Topic
from topics.engine.values.topic_config import TopicConfig
from topics.store.format.log_format import FrameType


def has_to_wait(topic: Topic) -> bool:
    """Something is on its way, so that nobody knows yet what a change would evict.

    Not so what waits for its turn, and the writes of this pass, which share their end with what is staged next.
    """
    if not topic.memory_through:
        return False
    if not 0 < topic.index.earliest <= topic.memory_through:
        topic.leave_memory()
        return False
    return is_busy(topic)


def is_busy(topic: Topic) -> bool:
    """Something is on its way, but for what waits for its turn and the writes of this pass."""
    filling: object = topic.filling
    return any(not isinstance(operation, Turn) and operation is not filling for operation in topic.pending)


def log_evictions(core: Core, topic: Topic, config: TopicConfig, *, records: int = 0, size: int = 0) -> None:
    """Stages the floor that the caps of `config` will have once so many records and bytes more are there."""
    payload = eviction_payload(topic, config, records=records, size=size)
    if payload:
        with core.log.use_reserve():
            core.log.stage_control(topic.id, FrameType.FLOORS, topic.next_seq - 1, core.clock.now_ms(), payload)


def eviction_payload(topic: Topic, config: TopicConfig, *, records: int = 0, size: int = 0) -> bytes:
    """The payload of the FLOORS frame of `log_evictions`; b"" where it stages none."""
    if config.discard != "old" or not topic.memory_through:
        return b""
    index = topic.index
    over = index.live + records - config.cap_records if config.cap_records else 0
    over_bytes = index.bytes + size - config.cap_bytes if config.cap_bytes else 0
    floor = index.oldest_through(over, over_bytes, index.last_seq)
    return encode(RemovalPayload(topic.next_seq - 1, evicted=floor)) if floor else b""
