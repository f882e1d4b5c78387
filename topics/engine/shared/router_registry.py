"""All routers, by name and by id, and tied to their topics."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from operator import attrgetter

from topics.engine.state.router import RouterLife
from topics.engine.state.topic import Router, Topic

_JUST_GONE, _STATED_ONCE = -2, -1
"""Values in `Routers.gone`: no snapshot has stated the pair yet, or one has."""
_FEW = 16
"""Number of routers whose names are removed from the list of all one by one."""
_STEP = 64
"""Routers that one step of a removal releases, in some 100 us."""


class Routers:
    """The registry of routers. `by_name` includes routers being created and deleted.

    A link, the half at the destination of a router whose source is on another core, has no name
    here: its name is that of the other half.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_id: dict[int, Router] = {}
        self.links: dict[str, Router] = {}
        """The links by token."""
        self._names: list[str] = []
        self._leaving: list[Router] = []
        """Routers that are gone, and that their destinations and `by_id` still list."""
        self.gone: dict[tuple[int, int], int] = {}
        """Source and destination (topic ids) of deleted routers whose forwards the log may still
        hold. The value is the highest number of a log file that may, once that is known; see
        `ties`.
        """

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, router: Router) -> None:
        self.by_id[router.id] = router
        if router.source.is_far:
            self.links[router.token] = router
        else:
            assert router.name not in self.by_name, "a name is one router's"
            self.by_name[router.name] = router
            insort(self._names, router.name)
        router.source.routers = (*router.source.routers, router)
        router.dest.feeders = (*router.dest.feeders, router)

    def remove(self, *routers: Router) -> None:
        self.remove_in_steps(routers)
        self.settle()

    def remove_in_steps(self, routers: Sequence[Router]) -> Iterator[None]:
        """Remove routers, perhaps the 10,000 of a topic. Their names are free when this returns.

        Returns the steps that release them. `settle` takes the steps that are left, for a caller
        that looks at `feeders` or `gone`.
        """
        by_name = self.by_name
        named = [router for router in routers if not router.source.is_far]
        for router in routers:
            router.leave_life()
            if router.source.is_far:
                del self.links[router.token]
        for router in named:
            del by_name[router.name]
        if len(named) > _FEW:
            self._names = [name for name in self._names if name in by_name]
        else:
            for router in named:
                del self._names[bisect_left(self._names, router.name)]
        for source in {router.source for router in routers}:
            source.routers = tuple([router for router in source.routers if router.life is not RouterLife.GONE])
        self._leaving += routers
        return self._leave()

    def settle(self) -> None:
        """Take all steps of removals that are left."""
        for _ in self._leave():
            pass

    def _leave(self) -> Iterator[None]:
        leaving = self._leaving
        while leaving:
            some = leaving[-_STEP:]
            del leaving[-_STEP:]
            for router in some:
                dest = router.dest
                self.note_gone((router.source.id, dest.id))
                del self.by_id[router.id]
                if router in dest.feeders:
                    dest.feeders = tuple([each for each in dest.feeders if each.life is not RouterLife.GONE])
            del some, router, dest
            yield

    def of_topic(self, topic: Topic) -> list[Router]:
        """Return the routers with the topic as source or destination, by name."""
        # in the order of their creation, which their names often have, and a set has not
        return sorted(dict.fromkeys((*topic.routers, *topic.feeders)), key=attrgetter("name"))

    def note_gone(self, pair: tuple[int, int]) -> None:
        """Note that a router between these topics is gone."""
        self.gone[pair] = _JUST_GONE

    def ties(self, log_files: list[int]) -> list[tuple[int, int]]:
        """Return the deleted (source, dest) pairs that this snapshot must state; forget the rest.

        log_files: the numbers of the log's files, which only grow. A step of a router may be staged
        when the router is deleted. By the second snapshot after that, the step is in one of the
        files that exist then, because each snapshot syncs the log before it is written.
        """
        self.settle()
        oldest, newest = min(log_files, default=0), max(log_files, default=0)
        gone, self.gone = self.gone, {}
        for pair, upto in gone.items():
            if upto < 0:
                self.gone[pair] = newest if upto == _STATED_ONCE else _STATED_ONCE
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
