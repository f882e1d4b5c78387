"""Names of topics beside plain dicts and lists; no part of them is large."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from itertools import islice
from typing import Any

import pytest

from tests.engine.harness import Harness
from tests.loop.walk import Walk
from topics.engine.shared.names_in_blocks import (
    NAMES_A_BLOCK,
    NAMES_A_STEP,
    SPREAD_FROM,
    ByName,
    SortedNames,
    sorted_in_steps,
)
from topics.engine.state.topic import Topic


def test_names_stay_in_order_in_blocks_of_which_none_is_large() -> None:
    rng, names, model = random.Random(1), SortedNames(), list[str]()
    for _ in range(6 * NAMES_A_BLOCK):
        name = f"t{rng.randrange(1 << 40)}"
        names.add(name)
        insort(model, name)
    begins = ["", "t", model[0], model[-1], f"{model[5]}\0", "u", *rng.sample(model, 50)]
    for begin in begins:
        at = bisect_left(model, begin)
        assert list(islice(names.from_name(begin), 3)) == model[at : at + 3]
    assert list(names.from_name("")) == model
    assert len(names.blocks) > 5
    assert max(map(len, names.blocks)) <= NAMES_A_BLOCK
    for name in model[: NAMES_A_BLOCK * 2] + model[-NAMES_A_BLOCK * 2 :]:
        names.remove(name)
    assert list(names.from_name("")) == model[NAMES_A_BLOCK * 2 : -NAMES_A_BLOCK * 2]
    again = SortedNames(model)
    assert list(again.from_name("")) == model
    assert max(map(len, again.blocks)) <= NAMES_A_BLOCK
    for name in model:
        again.remove(name)
    assert (again.blocks, list(again.from_name(""))) == ([], [])


def test_very_many_topics_are_found_by_name_in_dicts_of_which_none_is_large() -> None:
    h = Harness()
    h.put("t")
    topic, by_name = h.engine._core.registry.by_name["t"], ByName[Topic]()
    count = SPREAD_FROM + 2000
    for number in range(count):
        by_name[f"topic.{number}"] = topic
    assert by_name._many is not None
    assert max(len(by_name._few), *map(len, by_name._many.dicts)) <= SPREAD_FROM
    for name in ("topic.9", f"topic.{count - 1}"):
        assert (len(by_name), by_name.get(name), by_name[name], name in by_name) == (count, topic, topic, True)
        by_name[name] = topic
        assert len(by_name) == count
        del by_name[name]
        assert (len(by_name), by_name.get(name), name in by_name) == (count - 1, None, False)
        by_name[name] = topic


def test_one_name_more_moves_none_of_those_that_are_there() -> None:
    """The 32,768th topic took 20 to 30 ms: all names moved to many dicts."""
    h = Harness()
    h.put("t")
    topic, by_name = h.engine._core.registry.by_name["t"], ByName[Topic]()
    for number in range(SPREAD_FROM):
        by_name[f"topic.{number}"] = topic
    assert by_name._many is None
    by_name["another"] = topic
    assert by_name._many is not None
    assert sum(map(len, by_name._many.dicts)) == 1


def test_a_snapshot_in_steps_has_the_topics_of_its_begin_once_each() -> None:
    h = Harness()
    for number in range(6):
        h.append(number, name=f"t{number}")
    h.checkpoint()
    h.restart()  # all are dormant
    h.append(7, name="t1")
    h.append(8, name="later")
    h.delete_topic("later")
    cut, checkpoints = h.store.log.file.size, h.catalog.checkpoints
    steps = checkpoints.prepare_snapshot(1)
    next(steps)
    h.append(9, name="t4")  # dormant until now
    h.append(10, name="made")
    h.delete_topic("t2")
    h.append(11, name="t2")  # another topic of the same name
    for _ in steps:
        pass
    h.snapshot, h.cut = b"".join(checkpoints.snapshot()), cut
    expected = {topic.name: topic.head_seq for topic in h.list(page_size=100).rows}
    h.restart()
    assert {topic.name: topic.head_seq for topic in h.list(page_size=100).rows} == expected
    assert sorted(expected) == ["made", "t0", "t1", "t2", "t3", "t4", "t5"]
    assert h.state("t2").head_seq == 1


class Slices(list[str]):
    """Names of which it is noted how many are taken at once."""

    most = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if isinstance(at, slice) and not at.step:
            self.most = max(self.most, len(found))
        return found


@pytest.mark.parametrize("in_order", [False, True])
def test_names_are_sorted_some_a_step(in_order: bool) -> None:
    names = Slices(f"{number:x}" for number in range(7 * NAMES_A_STEP + 5))
    names.sort() if in_order else random.Random(1).shuffle(names)
    steps = Walk(sorted_in_steps(names))
    count = len(list(steps))
    found = steps.result
    assert list(found.from_name("")) == sorted(names)
    assert names.most == NAMES_A_STEP
    assert count >= 2 * 8, "each part is sorted in a step of its own"
    assert max(map(len, found.blocks)) <= NAMES_A_BLOCK // 2
