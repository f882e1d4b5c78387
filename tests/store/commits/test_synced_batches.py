"""The batches that are written and those that are synced, and the seqs of topics that are not."""

import numpy as np
import pytest

from topics.store.commits.synced_batches import TOPICS_NOTED, SyncedBatches


def test_the_seqs_of_a_topic_are_synced_by_the_sync_that_began_after_them() -> None:
    batches = SyncedBatches(0)
    batches.on_written(synced=False)
    batches.topics.setdefault(7, 1)
    batches.cover()  # a sync begins
    batches.on_written(synced=False)
    batches.topics.setdefault(7, 5)
    batches.topics.setdefault(8, 1)
    assert [batches.unsynced_from(topic) for topic in (7, 8, 9)] == [1, 1, None]
    batches.on_synced(1)
    assert [batches.unsynced_from(topic) for topic in (7, 8)] == [5, 1]
    batches.on_file_left(1, 7)
    batches.on_written(synced=False)
    batches.topics.setdefault(9, 3)
    assert [batches.unsynced_from(topic) for topic in (7, 8, 9)] == [5, 1, 3]
    batches.on_synced(2)
    assert [batches.unsynced_from(topic) for topic in (7, 8, 9)] == [None, None, 3]
    batches.on_written(synced=True)
    assert batches.unsynced_from(9) is None


def test_a_sync_covers_what_is_published_after_it_began() -> None:
    batches = SyncedBatches(0)
    batches.on_written(synced=False)
    of_first = batches.topics
    batches.cover()  # a sync begins before the engine publishes the commit
    of_first.setdefault(7, 1)
    batches.on_written(synced=False)
    batches.topics.setdefault(8, 1)
    assert [batches.unsynced_from(topic) for topic in (7, 8)] == [1, 1]
    batches.on_synced(1)
    assert [batches.unsynced_from(topic) for topic in (7, 8)] == [None, 1]
    batches.on_synced(2)
    batches.on_written(synced=False)
    of_third = batches.topics
    batches.on_written(synced=True)
    of_third.setdefault(7, 2)
    batches.on_written(synced=False)
    assert batches.unsynced_from(7) is None


def test_a_copy_by_position_is_synced_with_its_original() -> None:
    batches = SyncedBatches(0)
    for first in (1, 4, 6):
        batches.on_written(synced=False)
        batches.topics.setdefault(7, first)
        batches.cover()
    batches.on_synced(1)  # up to seq 3 of topic 7
    batches.note_shared(8, 20, 7, np.array([6, 7], np.uint64))
    batches.note_shared(8, 22, 7, np.array([1, 2, 5], np.uint64))
    batches.note_shared(9, 10, 7, np.array([2, 3], np.uint64))
    batches.note_shared(10, 1, 6, np.array([1], np.uint64))
    assert [batches.unsynced_from(topic) for topic in (7, 8, 9, 10)] == [4, 20, None, None]
    batches.on_synced(2)
    assert [batches.unsynced_from(topic) for topic in (7, 8)] == [6, 20]
    batches.note_shared(11, 1, 8, np.array([19, 20, 24], np.uint64))  # a copy of a copy
    assert batches.unsynced_from(11) == 2
    batches.on_synced(3)
    assert [batches.unsynced_from(topic) for topic in (7, 8, 11)] == [None] * 3


def test_durability_is_a_prefix_over_files() -> None:
    batches = SyncedBatches(10)
    assert not batches.unsynced
    batches.on_written(synced=True)
    assert (batches.written, batches.synced) == (11, 11)
    batches.on_written(synced=False)
    batches.on_written(synced=False)
    batches.on_synced(12)
    assert batches.unsynced
    batches.on_file_left(1, 7)
    batches.on_written(synced=False)
    assert [file.last_batch_no for file in batches.sealed] == [13]
    batches.on_synced(13)
    assert not batches.sealed
    batches.on_file_left(2, 8)
    batches.on_synced(14)
    assert not batches.unsynced
    batches.on_file_left(3, 9)
    assert not batches.sealed, "a file without unsynced bytes owes no sync"


def test_nothing_is_synced_before_it_is_written() -> None:
    batches = SyncedBatches(1)
    with pytest.raises(AssertionError):
        batches.on_synced(2)


def test_topics_of_many_commits_are_noted_in_several_mappings_none_of_which_is_large() -> None:
    batches, a_batch = SyncedBatches(0), 1000
    count = 5 * TOPICS_NOTED
    for begin in range(0, count, a_batch):
        of_commit = batches.topics
        batches.on_written(synced=False)
        for topic_id in range(begin, begin + a_batch):
            of_commit.setdefault(topic_id, topic_id + 1)
    mappings = list(batches._uncovered())
    assert max(map(len, mappings)) <= TOPICS_NOTED + 2 * a_batch
    assert len(mappings) >= count // (TOPICS_NOTED + 2 * a_batch)
    batches.topics.setdefault(7, 20)  # once more, in the newest
    assert [batches.unsynced_from(topic_id) for topic_id in (0, 7, count - 1, count + a_batch)] == [1, 8, count, None]
    batches.on_synced(batches.written)
    assert batches.unsynced_from(count - 1) is None
