"""A watch by prefix between the creation of topics and its turn to follow them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.delivery.test_delivery import Reader
from tests.engine.harness import Answer, Harness
from topics.engine.delivery.prefix_watch import PrefixWatch
from topics.engine.values.results import DiffQuery
from topics.engine.values.topic_config import make_config


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


MANY = 5000


def test_a_creation_notifies_some_of_very_many_watches_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 creations with 2,000 watches took a pass of 28 ms."""
    h = Harness(max_watch_sessions=0)
    readers = [PrefixReader(h, 2) for _ in range(MANY)]
    noted, on_topic_made = list[PrefixWatch](), PrefixWatch.on_topic_made
    monkeypatch.setattr(
        PrefixWatch, "on_topic_made", lambda watch, topic: (noted.append(watch), on_topic_made(watch, topic))
    )
    wait = Answer()
    h.engine.wait({}, 30_000, wait, ("",))
    h.engine.put_topic("a", make_config(), Answer())
    h.store.log.commit(None)
    passes = [len(noted)]
    readers[-1].feed.close()
    while len(noted) < MANY - 1:
        h.engine.flush()
        passes.append(len(noted))
        assert passes[-2] < passes[-1] <= passes[-2] + 2 * 2048
    assert len(set(noted)) == MANY - 1
    for _ in range(200):
        h.advance_ms(0)
        h.settle()
    assert all(reader.told == [("a", "caught up", 0)] for reader in readers[:-1])
    assert readers[-1].told == []
    assert wait.given, "it came after all of them"


@pytest.mark.parametrize("remade", [False, True])
def test_who_is_notified_after_the_topic_has_gone_follows_the_one_that_is_there(remade: bool) -> None:
    h = Harness()
    readers = [PrefixReader(h, 2) for _ in range(MANY)]
    h.engine._core.notices._left = 0
    h.put("a")
    h.delete_topic("a")
    if remade:
        h.put("a")
        h.append("b", name="a")
    for _ in range(200):
        h.advance_ms(0)
        h.settle()
    told = [("a", 0, 1, 1, [1]), ("a", "caught up", 1)]
    assert readers[-1].told == (told if remade else [])
    assert list(readers[-1].feed.subscriptions) == (["a"] if remade else [])
