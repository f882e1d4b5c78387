"""The end of all waits when the server stops: long polls, claims and streams of jobs answer.

There may be a million topics and thousands of waits, so that they are ended in steps. A wait that
begins meanwhile is answered at once, because the core is closing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from topics.engine.shared.topic_registry import Registry
from topics.engine.state.waiters import EndsAtShutdown
from topics.engine.state.wakes import CreationWaiter, PrefixWaits

STEPS_A_PASS = 4
ENDS_A_STEP = 16
"""Waits that end in a step, which otherwise looks at a block of topics: 1 ms each."""
_Wait = TypeVar("_Wait", bound=EndsAtShutdown)


class EndOfWaitsCore(Protocol):
    """The part of the core that ends waits."""

    awaited: dict[str, dict[CreationWaiter, None]]
    checkpoint_waits: dict[EndsAtShutdown, None]
    prefix_waits: PrefixWaits
    registry: Registry


def end_waits(core: EndOfWaitsCore) -> Iterator[None]:
    """End all waits, a bounded number in each step."""
    ended = 0
    for is_end in _ends(core):
        ended += is_end
        if not is_end or ended == ENDS_A_STEP:
            ended = 0
            yield


def _ends(core: EndOfWaitsCore) -> Iterator[bool]:
    """End the waits. Yield True after each, and False after each block of topics."""
    for topics in core.registry.by_id.lists():
        for topic in topics:
            if topic.queue is not None and topic.queue.window is not None:
                topic.queue.window.close()
                yield True
            if topic.waiters:
                yield from _end_those(topic.waiters)
        yield False
    for line in list(core.awaited.values()):
        yield from _end_those(line)
    for waits in core.prefix_waits.lines():
        yield from _end_those(waits)
    yield from _end_those(core.checkpoint_waits)


def _end_those(waits: Mapping[_Wait, None]) -> Iterator[bool]:
    """End the waits of a dict, which leave it by themselves, and not only when they are ended."""
    for wait in list(waits):
        if wait in waits:
            wait.on_shutdown()
            yield True
