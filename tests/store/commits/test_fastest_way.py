"""The faster way of a commit is found, and found again when the device or the load has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from topics.store.commits.fastest_way import FastestWay
from topics.store.commits.primitive import Primitive

LINK, DSYNC = Primitive.LINK, Primitive.DSYNC


def used(faster: FastestWay, count: int, took_ns: Callable[[Primitive, int], int]) -> Counter[Primitive]:
    ways: Counter[Primitive] = Counter()
    for number in range(count):
        way = faster.choose()
        ways[way] += 1
        faster.note(way, took_ns(way, number))
    return ways


def test_the_faster_way_is_used_and_the_other_one_tried_now_and_then() -> None:
    faster = FastestWay(LINK, DSYNC)
    ways = used(faster, 1000, lambda way, _: 200_000 if way is LINK else 150_000)
    assert faster.preferred is DSYNC
    assert 15 <= ways[LINK] <= 25


def test_of_ways_that_are_about_equal_the_first_stays() -> None:
    faster = FastestWay(LINK, DSYNC)
    used(faster, 1000, lambda way, _: 200_000 if way is LINK else 185_000)
    assert faster.preferred is LINK


def test_a_change_of_the_device_is_noticed() -> None:
    faster = FastestWay(LINK, DSYNC)
    used(faster, 500, lambda way, _: 200_000 if way is LINK else 150_000)
    used(faster, 500, lambda way, _: 200_000 if way is LINK else 900_000)
    assert faster.preferred is LINK
    used(faster, 3000, lambda way, _: 200_000 if way is LINK else 100_000)
    assert faster.preferred is DSYNC


def test_ways_are_any_values_and_the_share_of_tries_is_the_callers() -> None:
    places = FastestWay(False, True, try_every=500)
    chosen = 0
    for _ in range(2008):
        in_place = places.choose()
        chosen += in_place
        places.note(in_place, 100_000 if in_place else 400_000)
    assert places.preferred is True
    assert 2008 - chosen == 4 + 4


def test_a_stall_now_and_then_changes_nothing() -> None:
    faster = FastestWay(LINK, DSYNC)
    used(faster, 200, lambda way, _: 200_000 if way is LINK else 140_000)
    used(faster, 2000, lambda way, number: 50_000_000 if number % 500 == 0 else 200_000 if way is LINK else 140_000)
    assert faster.preferred is DSYNC
