"""Who executes orders about a dead-letter topic: this core, or the one that owns the topic."""

from __future__ import annotations

from topics.engine.queue.dead_messages import DeadOrder, DeadReplied, FindOrder, RemoveOrder
from topics.engine.queue.dead_topic import DeadTopics


class DeadOrders:
    """The orders of an engine. Each is answered once."""

    def __init__(self, topics: DeadTopics) -> None:
        self._topics = topics

    def execute(self, order: DeadOrder, done: DeadReplied) -> None:
        """Execute an order about a topic of this core."""
        match order:
            case FindOrder():
                self._topics.find(order, done)
            case RemoveOrder():
                self._topics.remove(order, done)
