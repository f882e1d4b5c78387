"""The wait of a topic's reader for all records being forwarded to the topic.

Source: wire contract, R-RTR-4.

Records come over chains of routers, so the uppermost routers are driven first, then those below
them, level by level. Clients may make chains of any length, but a record passes at most `HOPS_MAX`
hops; and in a cycle no router is waited for twice.

In the other direction, `is_awaited` looks for readers below a topic, for which its routers hurry.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.state.router import HOPS_MAX, RouterLife
from topics.engine.state.topic import Router, Topic
from topics.engine.values.trampoline import Trampoline


def levels_above(topic: Topic, most: int = HOPS_MAX) -> list[list[Router]]:
    """Return the routers that lead to the topic, then those that lead to their sources, and so on.

    A router may be in several levels, of which there are `most` at most.
    """
    levels: list[list[Router]] = []
    dests: dict[Topic, None] = {topic: None}
    met = {topic}
    while len(levels) < most:
        routers = [router for dest in dests for router in dest.feeders if router.life is RouterLife.LIVE]
        dests = dict.fromkeys(router.source for router in routers)
        met.update(dests)
        if not routers or len(levels) == len(met):
            break  # longer than any path without a cycle
        levels.append(routers)
    return levels


def is_awaited(topic: Topic) -> bool:
    """Return whether a reader waits for the topic, or a topic that it is forwarded to, to change.

    Each topic is checked once.
    """
    level, met = [topic], {topic}
    for _ in range(HOPS_MAX):
        if any(each.waiters for each in level):
            return True
        routers = [router for each in level for router in each.routers]
        if any(router.is_awaited for router in routers):
            return True
        below = dict.fromkeys(router.dest for router in routers)
        level = [dest for dest in below if dest not in met]
        if not level:
            break
        met.update(level)
    return False


class CatchUp:
    """One reader's wait.

    catch_up_router(router, levels, then): calls `then` when the router has come as far as it can,
    at once for most routers, which have no work. levels: how many topics above its source count.
    """

    __slots__ = ("_catch_up_router", "_levels", "_most", "_steps", "_then", "_waits")

    def __init__(
        self,
        topic: Topic,
        catch_up_router: Callable[[Router, int, Callable[[], None]], None],
        then: Callable[[], None],
        most: int = HOPS_MAX,
    ) -> None:
        self._catch_up_router = catch_up_router
        self._most = most
        self._levels = levels_above(topic, most)
        self._then = then
        self._waits = 0
        """Number of routers of the current level that have not caught up."""
        self._steps = Trampoline(self._begin_level)

    def begin(self) -> None:
        self._steps.go_on()

    def _begin_level(self) -> bool:
        if not self._levels:
            self._then()
            return False
        routers = self._levels.pop()
        above = self._most - len(self._levels) - 1
        self._waits = len(routers)
        for router in routers:
            self._catch_up_router(router, above, self._on_caught_up)
        return True

    def _on_caught_up(self) -> None:
        self._waits -= 1
        if not self._waits:
            self._steps.answered()
