"""The store of idempotency keys."""

from __future__ import annotations

import random

from tests.engine.harness import Harness
from topics.engine.state.idempotency import KeyEntry, KeyStore

MANY = 10_000
"""More keys than are in one dict."""


def test_an_entry_that_is_old_when_its_write_is_published_is_not_kept() -> None:
    keys = KeyStore()
    keys.store(b"k", KeyEntry(1, 1, 1000), 1001, 0)
    assert len(keys) == 0


def test_old_entries_go_a_few_at_a_time() -> None:
    keys = KeyStore()
    for number in range(10):
        keys.store(b"%d" % number, KeyEntry(number, 1, number), number, 100)
    keys.store(b"new", KeyEntry(11, 1, 500), 500, 100)
    assert len(keys) == 7
    assert keys.find(b"new", 500, 100) == KeyEntry(11, 1, 500)


def test_very_many_keys_are_what_a_dict_says() -> None:
    keys, known, rng = KeyStore(), dict[bytes, KeyEntry](), random.Random(0)
    for seq in range(1, 2 * MANY):
        key = b"%d" % rng.randrange(MANY)
        known[key] = KeyEntry(seq, 1, 0)
        keys.store(key, known[key], 0, 1)
    assert len(keys) == len(known)
    assert {key: keys.find(key, 0, 1) for key in known} == known
    assert {key for some in keys.within(0, 1, 2 * MANY) for key, _entry in some} == known.keys()
    keys.forget_through(MANY)
    assert {key: entry for some in keys.within(0, 1, 2 * MANY) for key, entry in some} == {
        key: entry for key, entry in known.items() if entry.first_seq > MANY
    }
    for seq in range(MANY):  # all are old
        keys.store(b"%d" % rng.randrange(MANY), KeyEntry(seq, 1, 10), 10, 1)
    assert {entry.started_ms for some in keys.within(10, 10, MANY) for _key, entry in some} == {10}


def test_a_snapshot_takes_some_keys_at_a_time_and_none_that_came_meanwhile() -> None:
    keys = KeyStore()
    for seq in range(1, MANY + 1):
        keys.store(b"%d" % seq, KeyEntry(seq, 1, seq % 2, in_memory=seq % 5 == 0), 0, 1)
    found, seq = list[int](), MANY
    for some in keys.within(1, 0, MANY):
        assert len(some) <= 1000
        found += [entry.first_seq for _key, entry in some]
        for _ in range(100):
            seq += 1
            keys.store(b"%d" % seq, KeyEntry(seq, 1, 1), 1, 1)
    assert sorted(found) == [number for number in range(1, MANY + 1) if number % 2 and number % 5]


def test_the_keys_of_a_deleted_topic_are_freed_in_steps() -> None:
    h = Harness()
    h.append(1)
    topic = h.engine._core.registry.by_name["t"]
    for seq in range(1, MANY + 1):
        topic.key_store().store(b"%d" % seq, KeyEntry(1, 1, 0), 0, 1)
    dicts = topic.key_store()._entries.dicts  # type: ignore[union-attr]
    h.delete_topic("t")
    assert len(topic.key_store()) == 0
    left = sum(map(len, dicts))
    assert left > MANY / 2, "a few passes have freed a few dicts"
    for _ in range(100):
        h.settle()
    assert not any(dicts)
