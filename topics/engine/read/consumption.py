"""When a topic was read and consumed, which is what the priority by recency follows. Source: wire contract, R-PRI-4."""

from __future__ import annotations

from topics.engine.shared.dormant import DormantTopic
from topics.engine.state.topic import Topic


def mark_read(topic: Topic, now_ms: int) -> None:
    """Note that the topic's records or its state were asked for, which is a consumption, too."""
    topic.last_read_ms = topic.consumed_ms = now_ms


def mark_consumed(topic: Topic | DormantTopic, now_ms: int) -> None:
    """Note that the topic stood in a list that was asked for as a consumption."""
    topic.consumed_ms = now_ms
