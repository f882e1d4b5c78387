"""The list of topics, page by page. Source: wire contract 7.3."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from topics.clock import Clock
from topics.engine.read.consumption import mark_consumed
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.topic import Topic
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import Done, TopicPage
from topics.engine.write.retention import ExpiryCore, when_retained
from topics.errors import TopicsError


class ListingCore(ExpiryCore, Protocol):
    """The part of the core that a list needs."""

    clock: Clock
    registry: Registry


def list_topics(  # noqa: PLR0917 - as in Engine
    core: ListingCore,
    prefix: str,
    after: str,
    page_size: int,
    touch: bool,
    within: Prefixes,
    done: Done[TopicPage],
) -> None:
    """Answer a page of topics, without `synced_seq`, once what has expired of them is durably lost.

    It answers at once if there are none.
    """
    now_ms = core.clock.now_ms()
    registry = core.registry
    found = list(islice(registry.after(after, prefix, within), page_size + 1))
    next_after = found[page_size - 1].name if len(found) > page_size else None
    del found[page_size:]
    waiting = 1

    def on_retained(error: TopicsError | None) -> None:
        nonlocal waiting
        if error is not None and waiting:
            waiting = 0
            done(error)
        elif waiting:
            waiting -= 1
            if waiting == 0:
                now_there = (registry.listed(topic.name) for topic in found)
                done(TopicPage([topic.state(now_ms) for topic in now_there if topic is not None], next_after))

    for topic in found:
        if touch:
            mark_consumed(topic, now_ms)
        if isinstance(topic, Topic) and topic.expires:
            waiting += 1
            when_retained(core, topic, now_ms, on_retained)
    on_retained(None)
