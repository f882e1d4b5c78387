"""A start takes the topics of a snapshot in bounded steps, and ends their recovery so."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.engine.harness import Harness
from topics.common.bounded_steps import result_of
from topics.engine.recovery.engine_catalog import IMAGES_A_STEP, EngineCatalog
from topics.engine.shared.dormant import DormantBlocks
from topics.engine.shared.stored_state import StoredState
from topics.engine.state.topic import Topic

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
