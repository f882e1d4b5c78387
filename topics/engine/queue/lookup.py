"""Finding the queue a request names, as it is now. Source: wire contract, section 8."""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.shared.core import Core
from topics.engine.state import refusals
from topics.engine.state.leases import Leases
from topics.engine.state.topic import Life, Topic


def find_queue(core: Core, name: str, again: Callable[[], None]) -> tuple[Topic, Leases] | None:
    """The queue and its leases; None while it is being deleted: `again` is called when that is decided.

    Raises RequestError topic_not_found or not_a_queue; StorageError when nothing can be changed any more.
    """
    topic = core.registry.visible(name)
    if topic is None:
        raise refusals.topic_not_found(name)
    if topic.queue is None:
        raise refusals.not_a_queue(name)
    if topic.life is Life.DELETING:
        topic.parked.append(again)
        return None
    core.log.check_writable()
    return topic, topic.queue
