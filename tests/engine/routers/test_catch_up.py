"""R-RTR-4: what a reader waits for, over any net of routers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topics.engine.routers.catch_up import CatchUp, is_awaited
from topics.engine.state.router import HOPS_MAX, RouterLife


class Place:
    """A topic, as far as it is asked."""

    asked = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.feeders: list[Way] = []
        self.routers: list[Way] = []
        self.is_read = False

    @property
    def waiters(self) -> bool:
        Place.asked += 1
        return self.is_read


class Way:
    """A router, as far as it is asked."""

    life = RouterLife.LIVE
    is_awaited = False

    def __init__(self, source: Place, dest: Place) -> None:
        self.source = source
        self.dest = dest
        self.name = f"{source.name}{dest.name}"
        dest.feeders.append(self)
        source.routers.append(self)


class Net:
    """Topics by letter, routers by the two of theirs."""

    def __init__(self, *ways: str) -> None:
        self.places = {name: Place(name) for name in dict.fromkeys("".join(ways))}
        self.ways = {way: Way(self.places[way[0]], self.places[way[1]]) for way in ways}
        self.asked: list[str] = []
        self.waiting: dict[str, Callable[[], None]] = {}
        self.ended = 0
        self.at_once = True

    def read(self, name: str) -> list[str]:
        """The events that were waited for, in their order."""
        topic: Any = self.places[name]
        ask: Any = self._ask
        CatchUp(topic, ask, self._on_end).begin()
        return self.asked

    def _ask(self, way: Way, _levels: int, then: Callable[[], None]) -> None:
        self.asked.append(way.name)
        if self.at_once:
            then()
        else:
            self.waiting[way.name] = then

    def _on_end(self) -> None:
        self.ended += 1


def test_what_is_further_up_comes_first() -> None:
    net = Net("ab", "bc", "bd", "cx", "dx", "bx")
    asked = net.read("x")
    for first, later in (("ab", "bc"), ("ab", "bd"), ("bc", "cx"), ("bd", "dx"), ("ab", "bx")):
        assert asked.index(first) < len(asked) - 1 - asked[::-1].index(later)
    assert net.ended == 1


def test_a_topic_without_routers_to_it_is_read_at_once() -> None:
    net = Net("xa")
    assert (net.read("x"), net.ended) == ([], 1)


def test_a_reader_waits_for_each_level_before_the_next() -> None:
    net = Net("ab", "bx", "cx")
    net.at_once = False
    assert net.read("x") == ["ab"]
    net.waiting.pop("ab")()
    assert net.asked == ["ab", "bx", "cx"]
    net.waiting.pop("cx")()
    assert net.ended == 0
    net.waiting.pop("bx")()
    assert net.ended == 1


def test_a_cycle_is_gone_round_once() -> None:
    assert Net("ab", "ba").read("a") == ["ab", "ba"]
    assert Net("aa").read("a") == ["aa"]


def test_a_router_that_is_being_deleted_is_not_waited_for() -> None:
    net = Net("ab", "bx")
    net.ways["bx"].life = RouterLife.DELETING
    assert net.read("x") == []


def test_a_chain_is_followed_as_far_as_records_travel() -> None:
    names = [chr(0x4E00 + number) for number in range(2000)]
    net = Net(*(names[at] + names[at + 1] for at in range(1999)))
    assert net.read(names[-1]) == [names[at] + names[at + 1] for at in range(1999 - HOPS_MAX, 1999)]


def test_a_reader_is_waited_for_by_all_whose_records_come_to_him() -> None:
    names = [chr(0x4E00 + number) for number in range(10)]
    net = Net(*(names[at] + names[at + 1] for at in range(9)), "ab", "ba")
    net.places[names[8]].is_read = True
    places: list[Any] = [net.places[name] for name in names]
    assert [is_awaited(place) for place in places] == [False, *[True] * 8, False]
    mirrored: Any = net.places["a"]
    assert not is_awaited(mirrored)


def test_many_routers_side_by_side_are_as_many_ways_and_no_more_topics() -> None:
    """A filter each: so many to the power of eight ways from the first topic to the last."""
    net = Net("ab", "bc", "cd", "de", "ef", "fg", "gh")
    for way in list(net.ways.values()):
        for _ in range(20):
            Way(way.source, way.dest)
    first: Any = net.places["a"]
    Place.asked = 0
    assert not is_awaited(first)
    assert Place.asked == 8
