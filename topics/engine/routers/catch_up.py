"""What a reader of a topic waits for: that all which is on its way there has come. Source: wire contract, R-RTR-4.

Records come over chains of routers, so those furthest up go first, then those below them, level by level. A chain is as
long as clients make it, but a record goes `HOPS_MAX` hops; and in a cycle nothing is waited for twice.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.state.router import HOPS_MAX, Router, RouterLife
from topics.engine.state.topic import Topic
from topics.engine.values.trampoline import Trampoline


def levels_above(topic: Topic) -> list[list[Router]]:
    """The routers that lead to the topic, then those that lead to their sources, and so on; one may be in several."""
    levels: list[list[Router]] = []
    dests: dict[Topic, None] = {topic: None}
    met = {topic}
    while len(levels) < HOPS_MAX:
        routers = [router for dest in dests for router in dest.feeders if router.life is RouterLife.LIVE]
        dests = dict.fromkeys(router.source for router in routers)
        met.update(dests)
        if not routers or len(levels) == len(met):
            break  # longer than any way that does not go round
        levels.append(routers)
    return levels


class CatchUp:
    """One reader's wait. catch_up_router(router, then): calls `then` when the router has come as far as it can.

    Most have nothing to do and say so at once.
    """

    __slots__ = ("_catch_up_router", "_levels", "_steps", "_then", "_waits")

    def __init__(
        self, topic: Topic, catch_up_router: Callable[[Router, Callable[[], None]], None], then: Callable[[], None]
    ) -> None:
        self._catch_up_router = catch_up_router
        self._levels = levels_above(topic)
        self._then = then
        self._waits = 0
        """For so many routers of the level that was begun."""
        self._steps = Trampoline(self._begin_level)

    def go_on(self) -> None:
        self._steps.go_on()

    def _begin_level(self) -> bool:
        if not self._levels:
            self._then()
            return False
        routers = self._levels.pop()
        self._waits = len(routers)
        for router in routers:
            self._catch_up_router(router, self._one)
        return True

    def _one(self) -> None:
        self._waits -= 1
        if not self._waits:
            self._steps.answered()
