"""Times of the last read and consumption of a topic, for the priority by recency.

Source: wire contract, R-PRI-4.
"""

from __future__ import annotations

from topics.engine.shared.dormant import DormantTopic
from topics.engine.state.topic import Topic


def mark_read(topic: Topic, now_ms: int) -> None:
    """Note a read of the topic's records or its state, which is a consumption, too."""
    topic.last_read_ms = topic.consumed_ms = now_ms


def mark_consumed(topic: Topic | DormantTopic, now_ms: int) -> None:
    """Note that the topic was in a list whose request counts as a consumption."""
    topic.consumed_ms = now_ms
