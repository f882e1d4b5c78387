"""Sets and dicts of ids beside plain ones; no part of them is large."""

from __future__ import annotations

import random
from collections.abc import Iterator

from topics.common import id_blocks
from topics.common.id_blocks import IDS_A_BLOCK, IdDict, IdSet


def test_a_set_of_ids_is_a_set_in_order() -> None:
    rng, ids, model = random.Random(1), IdSet(), set[int]()
    for _ in range(5000):
        number = rng.randrange(4 * IDS_A_BLOCK)
        if rng.random() < 0.4:
            ids.discard(number)
            model.discard(number)
        else:
            ids.add(number)
            model.add(number)
        assert (number in ids) == (number in model)
    assert list(ids) == sorted(model)
    assert len(ids) == len(model)
    for number in model:
        ids.discard(number)
    assert not ids.blocks


def test_a_dict_of_ids_is_a_dict() -> None:
    rng, ids, model = random.Random(2), IdDict[int](), dict[int, int]()
    for value in range(1, 5000):
        number = rng.randrange(4 * IDS_A_BLOCK)
        match rng.randrange(4):
            case 0:
                assert ids.pop(number) == model.pop(number, None)
            case 1:
                assert ids.setdefault(number, value) == model.setdefault(number, value)
            case 2 if number in model:
                del ids[number], model[number]
            case _:
                ids[number] = model[number] = value
        assert (number in ids, ids.get(number)) == (number in model, model.get(number))
        assert bool(ids) == bool(model)
    assert sorted(ids.values()) == sorted(model.values())
    assert all(ids[number] == value for number, value in model.items())
    assert len(ids) == len(model)
    assert sorted(ids) == sorted(model)


def test_no_step_over_a_set_of_ids_looks_at_more_than_a_block() -> None:
    ids = IdSet(range(50 * IDS_A_BLOCK))
    assert max(map(len, ids.blocks.values())) == IDS_A_BLOCK
    in_order: Iterator[int] = iter(ids)
    assert next(in_order) == 0
    for number in range(10, 3 * IDS_A_BLOCK):  # the rest of the first block was listed, the others not
        ids.discard(number)
    ids.add(1 << 40)
    rest = list(in_order)
    assert rest[:IDS_A_BLOCK] == [*range(1, IDS_A_BLOCK), 3 * IDS_A_BLOCK]


def test_values_may_change_while_they_are_listed() -> None:
    ids = IdDict[int]()
    for number in range(3 * IDS_A_BLOCK):
        ids[number] = number
    lists = ids.lists()
    assert len(next(lists)) == IDS_A_BLOCK
    for number in range(IDS_A_BLOCK, 2 * IDS_A_BLOCK):
        del ids[number]
    assert sum(map(len, lists)) == IDS_A_BLOCK
    assert id_blocks.IDS_A_BLOCK == 4096
