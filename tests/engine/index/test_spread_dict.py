"""A dict of many keys behaves as a dict does, and copies a small part of itself at a time when it grows."""

from __future__ import annotations

import random
import sys

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.index.spread_dict import SpreadDict
from topics.engine.index.tags import Tags
from topics.store.format.catalog import NO_TAG


@given(st.integers(0, 2**32))
def test_it_holds_what_a_dict_holds(seed: int) -> None:
    rng = random.Random(seed)
    model = {b"%d" % rng.randrange(100): number for number in range(rng.randrange(40))}
    spread = SpreadDict(model)
    for number in range(rng.randrange(300)):
        key = b"%d" % rng.randrange(100)
        action = rng.random()
        if action < 0.5:
            spread.place(key)[key] = model[key] = number
        elif action < 0.8 and key in model:
            del spread[key], model[key]
        elif action < 0.9 and model:
            key, value = spread.popitem()
            assert model.pop(key) == value
        assert len(spread) == len(model)
        assert spread.get(key) == model.get(key)
        assert spread.get(key, -1) == model.get(key, -1)
    while len(spread):
        key, value = spread.popitem()
        assert model.pop(key) == value
    assert model == {}


def test_tags_of_a_topic_grow_a_small_part_at_a_time() -> None:
    """A dict of 350,000 tags, each of one record, copied itself for 23 ms when one more came, ten times as many for ten
    times as long."""
    tags = Tags()
    count, step = 200_000, 1000
    sizes: dict[int, int] = {}
    for start in range(0, count, step):
        for number in range(start, start + step):
            assert tags.take(b"tag-%d" % number) == number
        numbers = tags._numbers
        tables = numbers.dicts if isinstance(numbers, SpreadDict) else [numbers]
        grown = sum(len(table) for table in tables if sys.getsizeof(table) != sizes.get(id(table)))
        assert start < 20_000 or grown < len(numbers) // 5
        sizes = {id(table): sys.getsizeof(table) for table in tables}
    assert [tags.number(b"tag-%d" % number) for number in range(0, count, 997)] == list(range(0, count, 997))
    for number in range(count):
        tags.drop(number)
    assert (len(tags), tags.number(b"tag-5")) == (0, NO_TAG)
