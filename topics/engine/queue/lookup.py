"""Lookup of the queue that a request names. Source: wire contract, section 8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.leases import Leases
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import LogPort


class LookupCore(Protocol):
    """The part of the core that the lookup of a queue needs."""

    log: LogPort
    registry: Registry


def visible_queue(registry: Registry, name: str) -> tuple[Topic, Leases]:
    """Return the queue of a name, and its leases.

    Raises: RequestError topic_not_found or not_a_queue.
    """
    topic = registry.visible(name)
    if topic is None:
        raise refusals.topic_not_found(name)
    if topic.queue is None:
        raise refusals.not_a_queue(name)
    return topic, topic.queue


def find_queue(core: LookupCore, name: str, again: Callable[[], None]) -> tuple[Topic, Leases] | None:
    """Return the queue and its leases; None while it is being deleted, and `again` is called later.

    Raises: RequestError topic_not_found or not_a_queue; StorageError if the log accepts no changes
    any more.
    """
    topic, leases = visible_queue(core.registry, name)
    if topic.life is Life.DELETING:
        topic.parked.append(again)
        return None
    core.log.check_writable()
    return topic, leases
