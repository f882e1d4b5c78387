"""A watch by prefix between the creation of topics and its turn to follow them."""

from __future__ import annotations

from typing import Any

from tests.engine.delivery.test_delivery import Reader
from tests.engine.harness import Harness
from topics.engine.values.results import DiffQuery


class PrefixReader(Reader):
    """A reader of all topics, which may follow a number of them."""

    def __init__(self, h: Harness, most: int) -> None:
        super().__init__(h)
        self.left_out: list[str] = []
        self.feed.watch_prefixes((), most, most).add([""], DiffQuery())
        self.feed.resume()

    def deliver_left_out(self, name: str, most: int) -> bool:
        self.left_out.append(name)
        return True


def spend_passes(h: Harness, count: int) -> Any:
    """Let no read have a turn in so many passes."""
    turns = h.engine._core.turns
    for _ in range(count):
        turns.take(lambda: turns.spend(1 << 40))
    return turns


def test_topics_made_while_one_that_is_gone_had_the_place_are_followed_or_reported() -> None:
    """R-PREFIX-5, R-PREFIX-6: its place is free again when the watch has its turn."""
    h = Harness()
    reader = PrefixReader(h, 1)
    turns = spend_passes(h, 400)
    for name in "abcd":
        h.put(name)
    for name in "ab":
        h.delete_topic(name)
    assert len(turns._waiting) > 1, "the watch has had its turn before"
    while turns._waiting:
        h.settle()
    assert (sorted(reader.feed.subscriptions), reader.left_out) == (["c"], ["d"])
