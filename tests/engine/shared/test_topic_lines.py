"""The lines of topics that a pass loads into the caches: how many, of topics in every state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.harness import Harness
from topics.engine.index.chunk import Chunk
from topics.engine.index.index import Index
from topics.engine.shared import topic_lines
from topics.engine.shared.topic_lines import load_lines
from topics.engine.state.topic import Topic


def lines(of: type) -> int:
    """The lines of 64 bytes that an object has from its start on."""
    return -(-of.__basicsize__ // 64)


def test_what_a_write_uses_of_each_topic_is_asked_for() -> None:
    """Its object, its index and the last chunk of that, and what is in the slots of each."""
    world = Harness()
    world.put("empty")
    world.append(1, 2, 3, name="full")
    empty, full = (world.engine._core.registry.named(name) for name in ("empty", "full"))
    assert empty is not None
    assert full is not None
    bare = lines(Topic) + 7 + lines(Index) + 4 + 1
    assert load_lines([empty]) == bare
    assert load_lines([full]) == bare + 1 + lines(Chunk) + 5
    assert load_lines([None, full, None, empty, full]) == 3 * bare + 2 * (1 + lines(Chunk) + 5)
    assert load_lines([]) == load_lines([None]) == 0


def test_the_slots_are_where_the_classes_have_them() -> None:
    """By a class of three slots, whose objects are laid out one after the other."""

    class Laid:
        __slots__ = ("a", "b", "c")

    offset = topic_lines.slot_offset
    found = [offset(getattr(Laid, name)) for name in ("a", "b", "c")]
    assert found == [found[0], found[0] + 8, found[0] + 16]
    assert found[2] == Laid.__basicsize__ - 8
    for other in (property(), len, None):
        assert offset(other) == 0
    for row, (of, names, following) in zip(topic_lines._CLASSES, topic_lines._USED, strict=True):
        assert row.bytes == of.__basicsize__
        assert list(row.at)[: row.count] == [offset(getattr(of, name)) for name in names]
        assert all(0 < at < row.bytes for at in (*list(row.at)[: row.count], offset(getattr(of, following))))


@pytest.mark.parametrize("missing", ["chunks", "index"])
def test_an_object_without_one_of_its_slots_is_left_at_that(missing: str) -> None:
    world = Harness()
    world.append(1, name="t")
    topic: Any = world.engine._core.registry.named("t")
    holder = topic if missing == "index" else topic.index
    value = getattr(holder, missing)
    delattr(holder, missing)
    try:
        assert load_lines([topic]) >= lines(Topic)
    finally:
        setattr(holder, missing, value)
