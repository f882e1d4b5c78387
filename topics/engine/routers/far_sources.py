"""The waits of readers for routers whose source is on another core (R-RTR-4).

    a reader of a topic with links -> one order to the core of the source: bring them to its head
      -> its answer, or its end: the reader continues

Readers that come while an order is on its way wait for the next one, which covers what was
acknowledged before they came. So there are two at most for a topic and a number of levels. An order
without an answer is sent once more: it may have gone to a core that has ended and is back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topics.engine.routers.far_messages import CatchUpOrder, CaughtUp, OtherHalves, Reply
from topics.engine.state.router import RouterLife
from topics.engine.state.topic import Router, Topic
from topics.errors import TopicsError

Then = Callable[[], None]


class FarSources:
    """The orders to cores of sources. A topic has one source (R-RTR-7)."""

    def __init__(self, others: OtherHalves | None) -> None:
        """others: the other cores; None if there are none."""
        self._others = others
        self.on_unknown: list[Callable[[str], None]] = []
        """Called with the token of a link whose router is gone."""
        self._asked: dict[tuple[Topic, int], list[Then]] = {}
        """The readers that wait for the order that is on its way."""
        self._next: dict[tuple[Topic, int], list[Then]] = {}
        """The readers that wait for the one after it."""

    def catch_up(self, link: Router, levels: int, then: Then) -> None:
        """Call `then` when the routers of the topic's links have come to the head of their source.

        levels: how many topics above the source count. It is called in any case, also if the core
        of the source is not there.
        """
        key = link.dest, levels
        if self._others is None or levels < 0:
            then()
        elif link is not _first(link.dest):
            then()  # the first one is asked for with all
        elif key in self._asked:
            self._next.setdefault(key, []).append(then)
        else:
            self._ask(key, [then])

    def catch_up_first(self, topic: Topic, then: Then) -> None:
        """Do as `catch_up` for a topic with links, of whose source no topics above count."""
        link = _first(topic)
        if link is None:
            then()
        else:
            self.catch_up(link, 0, then)

    def _ask(self, key: tuple[Topic, int], waiting: list[Then], *, is_again: bool = False) -> None:
        topic, levels = key
        links = _links(topic)
        if not links or self._others is None:
            for then in waiting:
                then()
            return
        self._asked[key] = waiting
        source = links[0].source.name
        order = CatchUpOrder(source, topic.name, levels, {link.token: link.position for link in links})
        self._others.ask(source, order, partial(self._on_reply, key, is_again=is_again))

    def _on_reply(self, key: tuple[Topic, int], reply: Reply | TopicsError, *, is_again: bool) -> None:
        waiting = self._asked.pop(key)
        if isinstance(reply, TopicsError) and not is_again:
            self._ask(key, waiting, is_again=True)
            return
        more = self._next.pop(key, [])
        if isinstance(reply, CaughtUp):
            for token in reply.unknown:
                for each in self.on_unknown:
                    each(token)
        if more:
            self._ask(key, more)
        for then in waiting:
            then()


def _links(topic: Topic) -> list[Router]:
    return [each for each in topic.feeders if each.source.is_far and each.life is RouterLife.LIVE]


def _first(topic: Topic) -> Router | None:
    return next(iter(_links(topic)), None)
