"""All routers by name, and at their topics."""

from __future__ import annotations

from typing import Any

from topics.common.values.configs import RouterConfig
from topics.engine.shared.router_registry import Routers
from topics.engine.state.router import RouterLife
from topics.engine.state.topic import Router


class Place:
    """A topic, as far as it is asked; counts how often its routers are listed anew."""

    def __init__(self, name: str, topic_id: int) -> None:
        self.name = name
        self.id = topic_id
        self.head = 0
        self.is_far = False
        self.feeders: tuple[Router, ...] = ()
        self.listed = 0
        self._routers: tuple[Router, ...] = ()

    @property
    def routers(self) -> tuple[Router, ...]:
        return self._routers

    @routers.setter
    def routers(self, routers: tuple[Router, ...]) -> None:
        self.listed += 1
        self._routers = routers


def test_routers_that_go_with_their_topic_go_together() -> None:
    """One by one they took their number squared: of 10,000 seconds in which no other client was served."""
    source: Any = Place("s", 1)
    dests: list[Any] = [Place(f"d{at}", 2 + at) for at in range(3)]
    routers = Routers()
    made = [Router(f"r{at}", at, source, dests[at % 3], RouterConfig("s", f"d{at % 3}")) for at in range(30)]
    for router in made:
        routers.add(router)
    source.listed = 0
    staying = made[7]
    routers.remove(*(router for router in made if router is not staying))
    assert source.listed == 1
    assert (source.routers, dests[1].feeders, dests[0].feeders) == ((staying,), (staying,), ())
    assert (list(routers.by_name), list(routers.by_id), list(routers.after("", ""))) == (["r7"], [7], [])
    assert made[0].life is RouterLife.GONE
    routers.remove(staying)
    assert (len(routers), source.routers) == (0, ())


def test_routers_of_a_deleted_topic_are_released_in_steps_and_seen_by_nothing() -> None:
    source: Any = Place("s", 1)
    dests: list[Any] = [Place(f"d{at}", 2 + at) for at in range(200)]
    routers = Routers()
    for at, dest in enumerate(dests):
        routers.add(Router(f"r{at}", at, source, dest, RouterConfig("s", dest.name)))
    steps = routers.remove_in_steps(routers.of_topic(source))
    assert (len(routers), source.routers, list(routers.after("", "")), routers.gone) == (0, (), [], {})
    listed = [sum(1 for dest in dests if dest.feeders) for _ in steps]
    assert listed[:-1] == sorted(listed[:-1], reverse=True)
    assert len(listed) > 3
    assert (sum(1 for dest in dests if dest.feeders), routers.by_id) == (0, {})
    assert len(routers.gone) == 200
    for name in ("r1", "r2"):  # their names, and the topics, are free
        routers.add(Router(name, 1000 + len(routers), source, dests[0], RouterConfig("s", "d0")))
    steps = routers.remove_in_steps(routers.of_topic(dests[0]))
    assert len(routers.ties([])) == 200, "a snapshot states all pairs, whatever steps are left"
    assert list(steps) == []
    assert dests[0].feeders == ()
