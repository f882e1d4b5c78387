"""A start takes the topics of a snapshot in bounded steps, and ends their recovery so."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.amount import seeds
from tests.engine.harness import Harness
from topics.common import bounded_steps
from topics.common.bounded_steps import result_of
from topics.engine.recovery.engine_catalog import IMAGES_A_STEP, EngineCatalog
from topics.engine.shared import dormant as dormant_module
from topics.engine.shared.dormant import Dormant, DormantBlocks
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import EncodedSnapshot, PlainTopics, encoded_in_steps
from topics.engine.state.topic import Topic
from topics.store.segments.data_files import Pack, PackRun, Segment
from topics.store.segments.store_part import ReplayStart, StorePart, pack_store_part, unpack_in_steps

A_BLOCK = 50
"""Topics that a step of the snapshot encodes."""


@pytest.fixture
def h() -> Harness:
    """Topics of which half are dormant after a start, some of the others with a key."""
    h = Harness()
    for number in range(4 * A_BLOCK):
        h.put(f"plain{number}", durability="disk")
        h.put(f"other{number}", ttl_ms=60_000)
    for number in range(5):
        h.append(1, name=f"other{number}", key=b"k")
    return h


def snapshot_of(h: Harness) -> bytes:
    result_of(h.catalog.checkpoints.prepare_snapshot(2 * A_BLOCK))
    return b"".join(h.catalog.checkpoints.snapshot())


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, count: Callable[..., int]) -> list[int]:
    """Count units of a method's work; the last member of the result has those since it was appended."""
    found, original = [0], getattr(owner, name)

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        found[-1] += count(*args)
        return original(self, *args, **options)

    monkeypatch.setattr(owner, name, counting)
    return found


def taken(steps: Generator[None, None, Any], *counts: list[int]) -> None:
    for _ in steps:
        for each in counts:
            each.append(0)


def test_a_snapshot_is_restored_some_topics_a_step(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(h)
    dormant = counted(monkeypatch, DormantBlocks, "add", lambda block: len(block.names))
    images = counted(monkeypatch, EngineCatalog, "_take_image", lambda image: 1)
    keys = counted(monkeypatch, EngineCatalog, "add_idempotency", lambda *key: 1)
    other = Harness()
    taken(other.catalog.restore(snapshot), dormant, images, keys)
    result_of(other.catalog.recovered(power_lost=False))
    assert (sum(dormant), sum(images), sum(keys)) == (4 * A_BLOCK, 4 * A_BLOCK, 5)
    assert max(keys) == 1
    both = [a + b + c for a, b, c in zip(dormant, images, keys, strict=True)]
    assert max(both) <= max(A_BLOCK, IMAGES_A_STEP) + 1
    assert [row.name for row in other.list(page_size=1000).rows] == [row.name for row in h.list(page_size=1000).rows]
    assert other.append(1, name="other3", key=b"k").deduped


def test_topics_are_sorted_by_id_some_a_step_and_before_they_are_counted(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a million, one step sorted them in 20 ms, and made a column of them in 28."""
    monkeypatch.setattr(dormant_module, "_ROWS_A_STEP", 64)
    snapshot, other, argsort, sorts = snapshot_of(h), Harness(), np.argsort, [0]

    def sorted_rows(ids: Any, **options: Any) -> Any:
        sorts[-1] += len(ids)
        return argsort(ids, **options)

    monkeypatch.setattr(np, "argsort", sorted_rows)
    made = counted(monkeypatch, Dormant, "__init__", lambda *_: 1)
    taken(other.catalog.restore(snapshot), sorts, made)
    assert sum(sorts) == 4 * A_BLOCK
    assert max(sorts) <= 2 * 64
    assert max(at for at, count in enumerate(sorts) if count) < made.index(1)


@pytest.mark.parametrize("seed", seeds(4))
def test_columns_of_topics_are_joined_and_ordered_as_in_one_step(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(dormant_module, "_ROWS_A_STEP", int(rng.choice([16, 40, 1000])))
    ids = np.unique(rng.integers(0, rng.choice([2000, 1 << 63]), 900, dtype=np.uint64))
    if seed % 2:
        ids[-1] = (1 << 64) - 1
    for at in range(0, len(ids) - 60, 50):  # nearly in order
        rng.shuffle(ids[at : at + 60])
    blocks = DormantBlocks()
    config = msgspec.Raw(b'{"durability":"disk"}')
    at = 0
    while at < len(ids):
        some = ids[at : at + int(rng.integers(1, 90))].tolist()
        ones = [1] * len(some)
        names = [f"t{each}" for each in some]
        blocks.add(PlainTopics(names, some, ones, some, ones, ones, [config], [0] * len(some), "0" * 16 * len(some)))
        at += len(some)
    columns = result_of(blocks.columns())
    assert columns["ids"].tolist() == columns["heads"].tolist() == ids.tolist()
    assert columns["by_id"].tolist() == np.argsort(ids).tolist()
    assert columns["sorted_ids"].tolist() == np.sort(ids).tolist()
    assert set(columns["runs"].tolist()) == {-1}


TROUBLE = (
    *('],"plain":[{"names":[', '},{"names":["', '"topics":[{"name":"', '},{"name":"'),
    *('"}],"keys":[', '\\"}],"keys":[', "}", '"'),
)
"""Texts with the bytes that are looked for, as a client could send them."""


@pytest.mark.parametrize("first", ["a", "name"])
@pytest.mark.parametrize("step", [1, 7, 40, 1 << 20])
def test_a_snapshot_is_searched_some_bytes_a_step_whatever_its_texts_are(
    step: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million topics were decoded in one step of 50 ms."""
    monkeypatch.setattr(bounded_steps, "FOUND_A_STEP", step)
    config = msgspec.Raw(b'{"durability":"disk","x":[{"names":[1]}]}')
    for count in range(4):
        plain = [
            PlainTopics([f"{text}{at}" for text in TROUBLE], [at], [1], [2], [3], [0], [config], [0], "00")
            for at in range(count)
        ]
        topics = [{first: text, "b": [{text: text}]} for text in TROUBLE]
        image = {"topics": topics, "plain": plain}
        data = msgspec.json.encode({**image, "keys": [list(TROUBLE)], "last_id": 7, "last_order": 8})
        whole = msgspec.json.decode(data, type=EncodedSnapshot)
        found, found_topics, found_plain = result_of(encoded_in_steps(data))
        assert [bytes(block) for block in found_plain] == [bytes(block) for block in whole.plain]
        assert [bytes(item) for item in found_topics] == [bytes(item) for item in whole.topics]
        assert bool(found.topics) == (first == "a"), "topics are found by their names"
        assert [bytes(item) for item in found.keys] == [bytes(item) for item in whole.keys]
        assert (found.last_id, found.last_order) == (7, 8)


@pytest.mark.parametrize("step", [1, 30, 1 << 20])
def test_the_files_of_a_snapshot_are_found_some_bytes_a_step(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packs of a million topics were decoded in two steps of 35 ms."""
    monkeypatch.setattr(bounded_steps, "FOUND_A_STEP", step)
    for segments in range(3):
        for packs in range(3):
            part = StorePart(
                {0: ReplayStart(7)},
                [Segment(number, 1, 2, 2, 4096, 10, 5, 6, sealed=True) for number in range(segments)],
                [Pack(number, 5, 6, {0: PackRun(9, 1, 2, 0)}, [1, 2]) for number in range(packs)],
                boot='"}],"packs":[{"number":',
                shards=1,
                flagging=['"packs":[{"number":', '},{"number":', '"segments":[{"topic":'],
            )
            steps = unpack_in_steps(memoryview(pack_store_part(part)))
            assert result_of(steps) == part


def test_a_step_of_a_restore_searches_a_bounded_number_of_bytes(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_steps, "FOUND_A_STEP", 500)
    snapshot = snapshot_of(h)
    steps = encoded_in_steps(memoryview(snapshot))
    number = sum(1 for _ in steps)
    assert number >= len(snapshot) // 2 // 500, "the blocks are half of it"
    image, topics, plain = result_of(encoded_in_steps(snapshot))
    assert (len(topics), len(plain)) == (4 * A_BLOCK, 4)
    assert not image.topics, "half a million were decoded in one step"


def test_dormant_topics_are_made_some_a_step_if_not_all_that_was_given_out_is_known(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredState(h.loop, h.config)
    begun = counted(monkeypatch, Topic, "found_generation", lambda generation: 1)
    snapshot = snapshot_of(h)
    taken(EngineCatalog(h.loop, stored).restore(snapshot, log_cut=True), begun)
    assert sum(begun) == 8 * A_BLOCK
    assert max(begun) <= IMAGES_A_STEP
    assert not len(stored.registry.dormant)


def test_recovery_ends_some_topics_a_step(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredState(h.loop, h.config)
    catalog = EngineCatalog(h.loop, stored)
    result_of(catalog.restore(snapshot_of(h)))
    result_of(stored.registry.make_all())
    ended = counted(monkeypatch, Topic, "retain_caps", lambda: 1)
    taken(catalog.recovered(power_lost=False), ended)
    assert sum(ended) == 8 * A_BLOCK
    assert max(ended) <= IMAGES_A_STEP
