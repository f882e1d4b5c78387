"""Group commit as values: what the results of a commit mean, and what is batches."""

import errno

import numpy as np
import pytest

from topics.store.commits.write_batch import (
    TOPICS_NOTED,
    Batch,
    Primitive,
    SyncedBatches,
    Verdict,
    judge,
    rest_begins,
)

CANCELED = -errno.ECANCELED


@pytest.mark.parametrize(
    ("primitive", "write", "sync", "verdict"),
    [
        (Primitive.LINK, 8192, 0, Verdict.DONE),
        (Primitive.DIRECT, 8192, 0, Verdict.DONE),
        (Primitive.DSYNC, 8192, 0, Verdict.DONE),
        (Primitive.BARE, 8192, 0, Verdict.DONE),
        (Primitive.BARE_DIRECT, 8192, 0, Verdict.DONE),
        (Primitive.BARE_DIRECT, 4096, 0, Verdict.REST),
        (Primitive.LINK, 8192, -errno.EIO, Verdict.FAILED),
        (Primitive.LINK, 8192, CANCELED, Verdict.FAILED),
        (Primitive.LINK, 4096, CANCELED, Verdict.REST),
        (Primitive.LINK, 4096, 0, Verdict.FAILED),
        (Primitive.LINK, -errno.ENOSPC, 0, Verdict.FAILED),
        (Primitive.LINK, -errno.ENOSPC, CANCELED, Verdict.FULL),
        (Primitive.LINK, -errno.EDQUOT, CANCELED, Verdict.FULL),
        (Primitive.LINK, -errno.EIO, CANCELED, Verdict.FAILED),
        (Primitive.LINK, -errno.EINTR, CANCELED, Verdict.REST),
        (Primitive.BARE, 0, 0, Verdict.REST),
        (Primitive.BARE, 100, 0, Verdict.REST),
        (Primitive.BARE, -errno.ENOSPC, 0, Verdict.FULL),
        (Primitive.BARE, -errno.ESTALE, 0, Verdict.FAILED),
        (Primitive.DSYNC, -errno.EIO, 0, Verdict.FAILED),
        (Primitive.BARE, 8193, 0, Verdict.FAILED),
    ],
)
def test_only_the_full_count_and_a_clean_sync_are_an_ack(
    primitive: Primitive, write: int, sync: int, verdict: Verdict
) -> None:
    assert judge(primitive, 8192, write, sync) is verdict


def test_the_rest_of_a_short_write_begins_at_a_block() -> None:
    assert [rest_begins(n) for n in (-4, 0, 1, 4095, 4096, 9000)] == [0, 0, 0, 0, 4096, 8192]


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


def test_a_batch_keeps_its_bytes_when_it_grows() -> None:
    batch = Batch(128)
    batch.memory[64:70] = b"frames"
    batch.used = 70
    batch.grow(5000)
    assert batch.room == 8192
    assert bytes(batch.memory[64:70]) == b"frames"
    batch.clear()
    assert batch.used == 64


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
