"""Waiting for news of several topics: what it costs, and that nothing of it remains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.harness import Answer, Harness, records
from topics.common.id_blocks import IDS_A_BLOCK
from topics.engine.read.end_of_waits import ENDS_A_STEP, STEPS_A_PASS
from topics.engine.read.wait import Place, PrefixPlace
from topics.engine.shared import core
from topics.engine.state.topic import Topic
from topics.engine.values.results import KnownTopic, TopicHead
from topics.engine.values.topic_config import make_config
from topics.errors import StorageError


@pytest.fixture
def h() -> Harness:
    return Harness()


def park(h: Harness, known: dict[str, KnownTopic]) -> Answer:
    answer = Answer()
    h.engine.wait(known, 30_000, answer)
    assert not answer.given
    return answer


def assert_nothing_is_left(h: Harness) -> None:
    core = h.engine._core
    assert (core.awaited, core.waits, core.waited_topics, h.loop.waiting) == ({}, 0, 0, 0)
    assert not core.prefix_waits
    assert not any(topic.waiters for topic in core.registry.all_but_staging())


def test_a_parked_wait_is_not_looked_at_until_something_happens_to_its_topics(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-WAIT-1: and then only where it happened."""
    for name in ("a", "b", "other"):
        h.put(name)
    answer = park(h, {"a": KnownTopic(0), "b": KnownTopic(0), "absent": KnownTopic(None)})
    looks: list[Place] = []
    look_again = Place.look_again
    monkeypatch.setattr(Place, "look_again", lambda place: (looks.append(place), look_again(place)))
    for _ in range(5):
        h.append(1, name="other")
        h.settle()
    assert looks == []
    h.append(1, name="b")
    assert len(looks) == 1
    assert answer.get().heads["b"].head_seq == 1
    assert_nothing_is_left(h)


def test_a_creation_looks_only_at_the_waits_for_its_name(h: Harness) -> None:
    """R-WAIT-7: by one look-up for each length of a prefix, not for each wait."""
    answers = [Answer() for _ in range(100)]
    for number, answer in enumerate(answers):
        h.engine.wait({}, 30_000, answer, (f"p{number:02}.",))
    h.put("p07.x")
    assert [number for number, answer in enumerate(answers) if answer.given] == [7]
    assert dict(h.engine._core.prefix_waits._lengths) == {4: 99}


@pytest.mark.parametrize("how", ["answered", "cancelled", "late", "stopped", "gone", "made"])
def test_a_wait_leaves_nothing_behind(h: Harness, how: str) -> None:
    """R-NET-11."""
    h.put("a")
    h.put("b")
    answer = Answer()
    known = {"a": KnownTopic(0), "b": KnownTopic(0), "absent": KnownTopic(0)}
    cancel = h.engine.wait(known, 500, answer, ("ab", "c"))
    if how == "answered":
        h.append(1, name="a")
    elif how == "cancelled":
        cancel()
    elif how == "late":
        h.advance_ms(500)
    elif how == "stopped":
        h.engine.begin_shutdown()
    elif how == "gone":
        h.delete_topic("b")
    else:
        h.put("absent")
    h.settle()
    assert answer.given is (how != "cancelled")
    assert_nothing_is_left(h)
    cancel()
    h.append(2, name="a")
    assert len(answer.results) == (how != "cancelled")


def test_many_answers_are_made_in_turns(h: Harness) -> None:
    """One change that thousands wait for does not hold up a pass."""
    for number in range(30):
        h.put(f"t{number}")
    known = {f"t{number}": KnownTopic(0) for number in range(30)}
    answers = [park(h, known) for _ in range(500)]
    h.start_append(records(1), "t7")
    h.engine.flush()
    h.store.log.commit()
    given: list[int] = []
    while not all(answer.given for answer in answers):
        h.engine.flush()
        given.append(sum(answer.given for answer in answers) - sum(given))
    assert max(given) < 250
    assert all(answer.get().heads["t7"] == TopicHead(1, h.state("t7").incarnation) for answer in answers)
    h.advance_ms(1)
    assert_nothing_is_left(h)


def test_a_creation_that_fails_is_none(h: Harness) -> None:
    """R-WAIT-2: the next one is."""
    answer = park(h, {"t": KnownTopic(None)})
    h.engine.put_topic("t", make_config(), Answer())
    h.settle(StorageError("EIO"))
    assert not answer.given
    h.put("t")
    assert answer.get().heads["t"].head_seq == 0
    assert_nothing_is_left(h)


def test_an_answer_has_the_records_that_came_with_the_topic(h: Harness) -> None:
    """R-WAIT-2: they are of the same pass."""
    answer = park(h, {"t": KnownTopic(None)})
    h.append(1, 2, 3)
    assert answer.get().heads["t"].head_seq == 3


def test_a_topic_made_and_deleted_in_one_pass_is_news(h: Harness) -> None:
    """R-WAIT-2."""
    answer = park(h, {"t": KnownTopic(None)})
    h.engine.put_topic("t", make_config(), Answer())
    h.engine.delete_topic("t", if_empty=False, done=Answer())
    h.settle()
    assert answer.get().heads == {"t": None}
    assert_nothing_is_left(h)


def test_a_wait_that_meets_a_stopping_engine_is_answered(h: Harness) -> None:
    """R-WAIT-4."""
    h.put()
    h.engine.begin_shutdown()
    answer = Answer()
    h.engine.wait({"t": KnownTopic(0)}, 30_000, answer)
    assert answer.get().heads["t"].head_seq == 0


def test_a_stop_ends_some_waits_in_a_pass(h: Harness) -> None:
    h.put("a")
    answers = [park(h, {"a": KnownTopic(0), "absent": KnownTopic(0)}) for _ in range(300)]
    h.engine.begin_shutdown()
    given = [0]
    while not all(answer.given for answer in answers):
        h.engine.flush()
        given.append(sum(answer.given for answer in answers))
        assert 0 < given[-1] - given[-2] <= 2 * STEPS_A_PASS * ENDS_A_STEP
    assert all(answer.get().heads["a"].head_seq == 0 for answer in answers)
    h.advance_ms(0)
    assert_nothing_is_left(h)


def test_a_stop_looks_at_some_topics_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the waits before the routers and the store end."""
    h = Harness(verify=False)
    registry = h.engine._core.registry
    for number in range(20):
        registry.last_id = number * IDS_A_BLOCK
        h.put(f"t{number}")
    last = park(h, {"t19": KnownTopic(0)})
    blocks: list[list[Topic]] = []
    lists = registry.by_id.lists

    def counted() -> Iterator[list[Topic]]:
        for block in lists():
            blocks.append(block)
            yield block

    monkeypatch.setattr(type(registry.by_id), "lists", lambda _topics: counted())
    h.engine.begin_shutdown()
    assert len(blocks) == STEPS_A_PASS
    ended: list[None] = []
    h.engine.end_routers(lambda: ended.append(None))
    while not ended:
        before = len(blocks)
        assert before == 20 or not last.given
        h.engine.flush()
        assert len(blocks) - before <= STEPS_A_PASS
    assert (len(blocks), last.given) == (20, True)


def test_the_places_of_waits_that_are_given_up_at_once_are_left_some_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-NET-11: 9,000 waits for 64 prefixes each took one pass of 69 ms. None is answered meanwhile."""
    monkeypatch.setattr(core, "_PARTED_A_PASS", 40)
    h = Harness()
    h.put("a")
    answers, cancels = [Answer() for _ in range(100)], []
    starts = tuple(f"p{number:02}" for number in range(64))
    for answer in answers:
        known = {"a": KnownTopic(0), "absent": KnownTopic(None)}
        cancels.append(h.engine.wait(known, 30_000, answer, starts))
    left: list[object] = []
    for kind in (Place, PrefixPlace):
        leave = kind.leave
        monkeypatch.setattr(kind, "leave", lambda place, c, leave=leave: (left.append(place), leave(place, c)))
    a_pass = h.count_in_passes(left)
    for cancel in cancels:
        cancel()
        cancel()
    assert h.engine._core.waits == 0
    h.put("absent")
    h.append(1, name="a")
    h.put("p07.x")
    for _ in range(100):
        h.engine.flush()
    assert len(left) == 3 * len(answers)
    assert max(a_pass) <= 2 * 40, "what is left of one budget, and the next"
    h.advance_ms(0)
    assert not any(answer.given for answer in answers)
    assert_nothing_is_left(h)
