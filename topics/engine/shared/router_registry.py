"""All routers, by name and by id, and tied to their topics."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from topics.engine.state.router import RouterLife
from topics.engine.state.topic import Router, Topic

_JUST_GONE, _TOLD_ONCE = -2, -1
"""Values in `Routers.gone`: no snapshot has stated the pair yet, or one has."""


class Routers:
    """The registry of routers. `by_name` includes routers being created and deleted."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_id: dict[int, Router] = {}
        self._names: list[str] = []
        self.gone: dict[tuple[int, int], int] = {}
        """Source and destination (topic ids) of deleted routers whose forwards the log may still
        hold. The value is the highest number of a log file that may, once that is known; see
        `ties`.
        """

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, router: Router) -> None:
        assert router.name not in self.by_name, "a name is one router's"
        self.by_name[router.name] = router
        self.by_id[router.id] = router
        insort(self._names, router.name)
        router.source.routers = (*router.source.routers, router)
        router.dest.feeders = (*router.dest.feeders, router)

    def remove(self, *routers: Router) -> None:
        for router in routers:
            router.life = RouterLife.GONE
            self.note_gone((router.source.id, router.dest.id))
            del self.by_name[router.name]
            del self.by_id[router.id]
            del self._names[bisect_left(self._names, router.name)]
        # One pass over a topic's routers, of which there may be thousands.
        for source in {router.source for router in routers}:
            source.routers = tuple(router for router in source.routers if router.life is not RouterLife.GONE)
        for dest in {router.dest for router in routers}:
            dest.feeders = tuple(router for router in dest.feeders if router.life is not RouterLife.GONE)

    def of_topic(self, topic: Topic) -> list[Router]:
        """Return the routers with the topic as source or destination, by name."""
        return sorted({*topic.routers, *topic.feeders}, key=lambda router: router.name)

    def note_gone(self, pair: tuple[int, int]) -> None:
        """Note that a router between these topics is gone."""
        self.gone[pair] = _JUST_GONE

    def ties(self, log_files: list[int]) -> list[tuple[int, int]]:
        """Return the deleted (source, dest) pairs that this snapshot must state; forget the rest.

        log_files: the numbers of the log's files, which only grow. A step of a router may be staged
        when the router is deleted. By the second snapshot after that, the step is in one of the
        files that exist then, because each snapshot syncs the log before it is written.
        """
        oldest, newest = min(log_files, default=0), max(log_files, default=0)
        gone, self.gone = self.gone, {}
        for pair, upto in gone.items():
            if upto < 0:
                self.gone[pair] = newest if upto == _TOLD_ONCE else _TOLD_ONCE
            elif upto >= oldest:
                self.gone[pair] = upto
        return list(self.gone)

    def visible(self, name: str) -> Router | None:
        router = self.by_name.get(name)
        return router if router is not None and router.life is not RouterLife.CREATING else None

    def after(self, name: str, prefix: str) -> Iterator[Router]:
        """Yield visible routers after `name` whose names begin with `prefix`, ascending."""
        names = self._names
        for at in range(max(bisect_right(names, name), bisect_left(names, prefix)), len(names)):
            if not names[at].startswith(prefix):
                return
            router = self.by_name[names[at]]
            if router.life is not RouterLife.CREATING:
                yield router
