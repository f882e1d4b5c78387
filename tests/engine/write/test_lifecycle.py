"""Topics come, change and go; the list of them."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.engine.harness import Answer, Harness, records
from topics.engine.shared.names_in_blocks import SortedNames
from topics.engine.state.producer_part import Part
from topics.engine.state.topic import Topic
from topics.engine.values.name_rules import starts_of
from topics.engine.values.results import DiffQuery
from topics.engine.values.topic_config import DURABILITIES, make_config
from topics.errors import RequestError, StorageError


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_a_fresh_topic_is_empty(h: Harness) -> None:
    h.put()
    state = h.state()
    assert (state.head_seq, state.earliest_seq, state.count, state.bytes) == (0, 1, 0, 0)
    assert (state.last_write_ts, state.last_read_ts, state.queue) == (None, None, None)
    assert h.put("q", type="queue").config.is_queue
    assert h.state("q").queue is not None


def test_of_concurrent_creates_exactly_one_reports_created(h: Harness) -> None:
    answers = [Answer() for _ in range(3)]
    for answer in answers:
        h.engine.put_topic("t", make_config(ttl_ms=5), answer)
    h.settle()
    assert [answer.get().created for answer in answers] == [True, False, False]


def test_a_topic_is_invisible_before_its_creation_is_durable(h: Harness) -> None:
    """R-DUR-1."""
    answer = Answer()
    h.engine.put_topic("t", make_config(), answer)
    assert h.store.log.filling.synced
    assert h.engine.stats().topics == 0
    assert not answer.given
    h.settle(StorageError("EIO"))
    with pytest.raises(StorageError):
        answer.get()
    assert h.put().created


def test_a_type_cannot_change(h: Harness) -> None:
    h.put(type="queue")
    with pytest.raises(RequestError) as refused:
        h.put()
    detail = {"topic": "t", "existing_type": "queue", "requested_type": "log"}
    assert (refused.value.code, refused.value.detail) == ("topic_exists_incompatible", detail)


def test_the_same_config_again_costs_no_frame(h: Harness) -> None:
    h.put(ttl_ms=5)
    size = h.store.log.file.size
    assert not h.put(ttl_ms=5).created
    assert h.store.log.file.size == size


def test_tighter_caps_take_effect_at_once_and_looser_ones_bring_nothing_back(h: Harness) -> None:
    """R-CFG-2."""
    h.append(1, 2, 3, 4)
    h.put(cap_records=2)
    assert h.state().earliest_seq == 3
    h.put(cap_records=100)
    assert h.state().earliest_seq == 3
    h.put(ttl_ms=10)
    h.advance_ms(11)
    h.put(ttl_ms=0)
    state = h.state()
    assert (state.earliest_seq, state.count) == (5, 0)


def test_a_failed_change_changes_nothing(h: Harness) -> None:
    h.put()
    answer = Answer()
    h.engine.put_topic("t", make_config(cap_records=1, durability="ephemeral"), answer)
    h.settle(StorageError("EIO"))
    with pytest.raises(StorageError):
        answer.get()
    h.append(1, 2)
    assert h.state().count == 2
    assert h.state().config.durability == "disk"


def test_deleting_an_absent_topic_is_no_error(h: Harness) -> None:
    assert h.delete_topic("a b") == (False, [])


def test_if_empty_refuses_a_topic_with_records_after_retention(h: Harness) -> None:
    h.put(ttl_ms=10)
    h.append(1)
    with pytest.raises(RequestError) as refused:
        h.delete_topic(if_empty=True)
    assert (refused.value.code, refused.value.detail) == ("topic_not_empty", {"topic": "t", "count": 1})
    h.advance_ms(11)
    assert h.delete_topic(if_empty=True).deleted


def test_changes_wait_for_a_deletion_and_reads_see_the_topic_until_then(h: Harness) -> None:
    h.append(1)
    gone, again, put, other = Answer(), Answer(), Answer(), Answer()
    h.engine.delete_topic("t", if_empty=False, done=gone)
    h.engine.delete_topic("t", if_empty=False, done=again)
    write = h.start_append(records(7))
    h.engine.put_topic("t", make_config(ttl_ms=9), put)
    h.engine.delete_records("t", 1, None, other)
    assert h.start_diff(0).get().count == 1
    h.settle()
    assert gone.get().deleted
    assert not again.get().deleted
    assert (write.get().first_seq, write.get().created) == (1, True)
    assert not put.get().created
    assert other.results[0].code == "topic_not_found"  # the new topic was not there yet


def test_a_failed_deletion_leaves_the_topic_and_lets_changes_go_on(h: Harness) -> None:
    h.append(1)
    gone = Answer()
    h.engine.delete_topic("t", if_empty=False, done=gone)
    write = h.start_append(records(2))
    h.engine.flush()
    h.store.log.commit(StorageError("EIO"))
    h.settle()
    with pytest.raises(StorageError):
        gone.get()
    assert write.get().first_seq == 2


def test_a_new_instance_has_another_id(h: Harness) -> None:
    """R-REC-1."""
    h.append(1)
    first = h.engine._core.registry.by_name["t"].id
    h.delete_topic()
    h.append(1)
    assert h.engine._core.registry.by_name["t"].id > first
    assert [file.live_rows for file in h.store.files] == [1]


@pytest.mark.parametrize("if_empty", [False, True])
def test_a_topic_may_be_deleted_while_it_is_being_created(h: Harness, if_empty: bool) -> None:
    created, gone = Answer(), Answer()
    h.engine.put_topic("t", make_config(), created)
    h.engine.delete_topic("t", if_empty=if_empty, done=gone)
    write = h.start_append(records(1))
    h.settle()
    assert created.get().created
    assert gone.get().deleted
    assert (write.get().first_seq, write.get().created) == (1, True)


def test_a_topic_that_is_deleted_while_it_is_being_created_is_never_visible(h: Harness) -> None:
    """Its creation may fail, and who waited there would hear of nothing any more."""
    made, gone = Answer(), Answer()
    h.engine.put_topic("t", make_config(), made)
    h.engine.delete_topic("t", if_empty=False, done=gone)
    with pytest.raises(RequestError, match="does not exist"):
        h.start_diff(wait_ms=1000).get()
    assert h.engine.stats().topics == 0
    h.settle(StorageError("no"))
    assert [type(answer.results[0]) for answer in (made, gone)] == [StorageError, StorageError]
    h.put()
    poll = h.start_diff(wait_ms=1000)
    h.append("new")
    assert poll.get().count == 1


def test_expiry_staged_behind_a_deletion_finds_the_topic_gone(h: Harness) -> None:
    h.put(ttl_ms=10)
    h.append(1)
    h.advance_ms(11)
    gone, state, page = Answer(), Answer(), Answer()
    h.engine.delete_topic("t", if_empty=False, done=gone)
    h.engine.state("t", touch=False, done=state)
    h.engine.list_topics("", "", 10, False, (), page)
    read = h.start_diff(0)
    h.settle()
    assert state.results[0].code == read.results[0].code == "topic_not_found"
    assert page.get().rows == []


def test_a_backlogged_disk_throttles_every_change(h: Harness) -> None:
    """3.2, throttled [+]."""
    h.append(1)
    h.store.log.backlogged = True
    for change in (lambda: h.put(ttl_ms=1), lambda: h.put("new"), lambda: h.delete(before_seq=1), h.delete_topic):
        with pytest.raises(RequestError) as refused:
            change()
        assert refused.value.code == "throttled"
    assert h.seqs() == [1]


def test_the_list_is_by_name_and_pages_go_on_behind_a_name(h: Harness) -> None:
    for name in ("b", "a:2", "B", "a:1", "a:3"):
        h.put(name)
    assert [row.name for row in h.list().rows] == ["B", "a:1", "a:2", "a:3", "b"]
    page = h.list(page_size=2)
    assert ([row.name for row in page.rows], page.next_after) == (["B", "a:1"], "a:1")
    page = h.list(after="a:1", page_size=3)
    assert ([row.name for row in page.rows], page.next_after) == (["a:2", "a:3", "b"], None)
    assert [row.name for row in h.list("a:").rows] == ["a:1", "a:2", "a:3"]
    h.delete_topic("a:2")
    assert [row.name for row in h.list("a:", after="a:1").rows] == ["a:3"]
    assert h.list("zzz").rows == []


def test_the_list_applies_retention_and_touch_moves_the_priority_clock_alone(h: Harness) -> None:
    """7.3, R-FLOOR-7."""
    h.put("a", ttl_ms=10)
    h.put("b", ttl_ms=10)
    h.append(1, name="a")
    h.append(1, name="b")
    h.advance_ms(11)
    rows = h.list(touch=True).rows
    assert [(row.count, row.earliest_seq, row.effective_priority, row.last_read_ts) for row in rows] == [
        (0, 2, 500, None)
    ] * 2


def test_stats_count_every_class(h: Harness) -> None:
    for name in ("ephemeral", "memory", "disk", "fsync"):
        h.put(name, durability=name)
    h.put("q", type="queue")
    stats = h.engine.stats()
    assert stats.topics_by_class == {"ephemeral": 1, "memory": 1, "disk": 2, "fsync": 1}
    assert (stats.topics, stats.queues) == (5, 1)
    assert len(h.engine.topic_states("", (), 3)) == 3


@pytest.mark.usefixtures("no_old_garbage")
def test_an_idle_topic_is_small(h: Harness) -> None:
    """At most 3 KiB all in all."""
    h.put("warm")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(500):
        h.engine.put_topic(f"idle-{number}", make_config(), lambda result: None)
    h.settle()
    used = tracemalloc.get_traced_memory()[0] - before - h.store.log.file.size
    tracemalloc.stop()
    assert used / 500 < 3 * 1024


def test_queries_are_clamped(h: Harness) -> None:
    h.append(*range(10))
    assert h.start_diff(0, limit=0, max_batch_bytes=0).get().count == 10
    assert DiffQuery().limit == 0


def counted(h: Harness) -> tuple[dict[str, int], int]:
    """The findings of a walk over all topics: topics by class, and queues."""
    by_class = dict.fromkeys(DURABILITIES, 0)
    queues = 0
    for state in h.list(page_size=1000).rows:
        by_class[state.config.durability] += 1
        queues += state.config.is_queue
    return by_class, queues


@pytest.mark.parametrize("seed", range(4))
def test_topics_are_counted_as_they_come_change_and_go(seed: int) -> None:
    """12.2, 12.3: nothing is walked for the numbers, so they follow every way a topic can go."""
    rng = random.Random(seed)
    h = Harness()

    def start(step: str, name: str) -> None:
        if step == "put":
            h.engine.put_topic(name, make_config(durability=rng.choice(DURABILITIES)), Answer())
        elif step == "queue":
            h.engine.put_topic(f"q{name}", make_config(type="queue"), Answer())
        elif step == "delete":
            h.engine.delete_topic(rng.choice([name, f"q{name}"]), if_empty=False, done=Answer())
        else:
            h.start_append(records(1), name, identity=Part(b"p", rng.randrange(1, 5), 0, 1, False, b"a"))

    for _ in range(150):
        for _ in range(rng.randrange(1, 4)):
            start(rng.choice(["put", "queue", "delete", "piece"]), f"t{rng.randrange(6)}")
        way = rng.randrange(10)
        h.settle(StorageError("no space") if way == 0 else None)
        if way == 1:
            h.restart()
        elif way == 2:
            h.checkpoint()
        stats = h.engine.stats()
        assert (stats.topics_by_class, stats.queues) == counted(h)
        assert h.engine.topic_count() == stats.topics == sum(stats.topics_by_class.values())
    assert stats.topics > 3


@pytest.mark.usefixtures("no_old_garbage")
def test_numbers_of_all_topics_take_as_many_steps_however_many_there_are(h: Harness) -> None:
    """12.2: a probe needs no key. With 10^6 topics it took 158 ms."""
    made, steps = 0, []
    before = sys.gettrace()

    def step(_frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        steps[-1] += 1
        return step

    for count in (10, 200):
        while made < count:
            h.put(f"t{made}")
            made += 1
        steps.append(0)
        sys.settrace(step)
        try:
            topics, stats = h.engine.topic_count(), h.engine.stats()
        finally:
            sys.settrace(before)
        assert topics == stats.topics == count
    assert steps[0] == steps[1] > 0


@pytest.mark.parametrize(
    ("prefix", "within", "names"),
    [
        ("", ("b-", "a"), ["a", "a1", "b-1", "b-2"]),
        ("", ("b", "b-"), ["b", "b-1", "b-2", "bb"]),
        ("b-", ("b", "c"), ["b-1", "b-2"]),
        ("b", ("b-1", "b-2"), ["b-1", "b-2"]),
        ("c", ("b",), []),
        ("", ("\udcff",), []),
        ("", (), ["a", "a1", "b", "b-1", "b-2", "bb", "c"]),
    ],
)
def test_a_list_for_some_prefixes_walks_their_names_alone(
    monkeypatch: pytest.MonkeyPatch, h: Harness, prefix: str, within: tuple[str, ...], names: list[str]
) -> None:
    """R-AUTH-4: whatever else there is."""
    for name in ("a", "a1", "b", "b-1", "b-2", "bb", "c", *(f"x{number}" for number in range(50))):
        h.put(name)
    h.delete_topic("a1")
    h.put("a1")
    for number in range(50):
        if not within:
            h.delete_topic(f"x{number}")
    registry = h.engine._core.registry
    walked: list[str] = []

    look_up = registry.by_name.get

    def noted(name: str) -> Topic | None:
        walked.append(name)
        return look_up(name)

    looked_at: list[str] = []
    from_name = SortedNames.from_name

    def counted(sorted_names: SortedNames, name: str) -> Iterator[str]:
        for found in from_name(sorted_names, name):
            looked_at.append(found)
            yield found

    registry.by_name.get = noted
    monkeypatch.setattr(SortedNames, "from_name", counted)
    assert [topic.name for topic in registry.after("", prefix, within)] == names == walked
    assert len(looked_at) <= len(names) + len(starts_of((prefix,), within)), "and the one that ends each range"
    assert [topic.name for topic in registry.after("b-1", prefix, within)] == [name for name in names if name > "b-1"]
