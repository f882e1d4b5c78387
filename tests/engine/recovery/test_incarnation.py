"""When a topic gets another incarnation, and when it keeps the one it has."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from tests.engine.fake_store import FakeLoop, small_config
from tests.engine.harness import Harness
from tests.engine.shared.plain_images import topic_images
from topics.common.bounded_steps import result_of
from topics.common.default_incarnation import incarnation_of_id
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import TopicsSnapshot
from topics.engine.state.topic import Topic


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_each_topic_has_one_of_its_own(h: Harness) -> None:
    """R-INC-2."""
    h.put("a")
    h.put("b")
    seen = {h.state("a").incarnation, h.state("b").incarnation}
    h.delete_topic("a")
    h.put("a")
    seen.add(h.state("a").incarnation)
    assert len(seen) == 3
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in seen)


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("power_lost", [False, True])
def test_it_outlasts_starts_by_the_log_and_by_a_snapshot(h: Harness, durability: str, power_lost: bool) -> None:
    """R-INC-2."""
    h.put(durability=durability)
    known = h.state().incarnation
    h.restart(power_lost=power_lost)
    assert h.state().incarnation == known
    h.checkpoint()
    h.restart(power_lost=power_lost)
    assert h.state().incarnation == known


@pytest.mark.parametrize("durability", ["memory", "ephemeral"])
@pytest.mark.parametrize("power_lost", [False, True])
def test_each_start_gives_another_one_where_seqs_may_come_again(h: Harness, durability: str, power_lost: bool) -> None:
    """R-INC-2."""
    h.put(durability=durability)
    seen = [h.state().incarnation]
    for _ in range(3):
        h.checkpoint()
        h.restart(power_lost=power_lost)
        seen.append(h.state().incarnation)
        assert h.state().incarnation == seen[-1]
    assert len(set(seen)) == 4


def test_a_seq_that_names_another_record_has_another_incarnation(h: Harness) -> None:
    """R-INC-1: a power cut in class `memory` takes records, and their seqs are given out again."""
    h.put(durability="memory")
    h.append("before")
    known, before = h.state().incarnation, h.read()
    h.restart(power_lost=True)
    h.append("after")
    assert [record["$seq"] for record in (*before, *h.read())] == [1, 1]
    assert [record["data"] for record in (*before, *h.read())] == ["before", "after"]
    assert h.state().incarnation != known


@pytest.mark.parametrize("before", ["memory", "ephemeral"])
@pytest.mark.parametrize("after", ["disk", "fsync"])
def test_the_one_that_a_start_has_drawn_lasts_from_a_stronger_class_on(h: Harness, before: str, after: str) -> None:
    """R-INC-2."""
    h.put(durability=before)
    h.restart()
    drawn = h.state().incarnation
    h.put(durability=after)
    h.restart(power_lost=True)
    assert h.state().incarnation == drawn
    h.put(durability=before)
    assert h.state().incarnation == drawn
    h.restart(power_lost=True)
    assert h.state().incarnation != drawn


def topic_of(stored: StoredState) -> Topic:
    """The first one made."""
    topic = stored.registry.with_id(1)
    assert topic is not None
    return topic


def another_catalog() -> tuple[StoredState, EngineCatalog]:
    """Return the stored state and the catalog of another process, before its recovery."""
    loop = FakeLoop(random.Random(1))
    stored = StoredState(loop, small_config())
    return stored, EngineCatalog(loop, stored)


def test_a_directory_built_from_its_files_gives_others(h: Harness) -> None:
    """R-INC-2."""
    h.put("t")
    h.append(1)
    topic = topic_of(h.stored)
    description = b"".join(h.catalog.checkpoints.describe(topic.id))
    assert topic.incarnation.encode() not in description
    stored, catalog = another_catalog()
    result_of(catalog.restore(None))
    catalog.adopt(topic.id, description, 0)
    result_of(catalog.recovered(power_lost=True))
    assert topic_of(stored).incarnation not in (topic.incarnation, incarnation_of_id(1))


def test_a_log_of_which_a_part_was_given_up_gives_others(h: Harness) -> None:
    """R-INC-2."""
    h.put("t", durability="fsync")
    known = h.state().incarnation
    for log_cut in (False, True):
        stored, catalog = another_catalog()
        result_of(catalog.restore(b"".join(h.catalog.checkpoints.snapshot()), log_cut=log_cut))
        result_of(catalog.recovered(power_lost=log_cut))
        assert (topic_of(stored).incarnation == known) is not log_cut


def test_a_topic_of_an_earlier_version_has_one_that_stays(h: Harness) -> None:
    """R-INC-2."""
    h.put("a")
    h.put("b")
    image = msgspec.json.decode(b"".join(h.catalog.checkpoints.snapshot()), type=TopicsSnapshot)
    image.topics, image.plain = topic_images(image), []
    for topic in image.topics:
        topic.incarnation = ""
    h.snapshot = msgspec.json.encode(image)
    h.store.log.file.memory = bytearray()
    h.store.log.file.size = 0
    h.restart()
    seen = [h.state(name).incarnation for name in "ab"]
    assert seen == [incarnation_of_id(1), incarnation_of_id(2)]
    h.restart()
    assert [h.state(name).incarnation for name in "ab"] == seen
