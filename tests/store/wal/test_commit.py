"""The decisions of group commit, as values."""

import errno

import pytest

from topics.store.wal.commit import (
    BARE_DIRECT_BYTES_MIN,
    BARE_IN_PLACE_BYTES_MAX,
    DSYNC_BYTES_MAX,
    Batch,
    Durability,
    Primitive,
    Verdict,
    choose_primitive,
    judge,
    rest_begins,
)


@pytest.mark.parametrize("setting", ["auto", "link", "direct", "dsync"])
def test_a_batch_nobody_wants_synced_is_a_bare_write(setting: str) -> None:
    for unsynced in (True, False):
        primitive = choose_primitive(
            setting, wants_sync=False, unsynced_precedes=unsynced, direct_works=True, size=100, in_place=False
        )
        assert primitive is Primitive.BARE


def test_a_large_batch_nobody_wants_synced_goes_past_the_page_cache_where_that_works() -> None:
    def chosen(setting: str, *, direct: bool) -> Primitive:
        size = BARE_DIRECT_BYTES_MIN
        return choose_primitive(
            setting, wants_sync=False, unsynced_precedes=True, direct_works=direct, size=size, in_place=False
        )

    assert chosen("auto", direct=True) is Primitive.BARE_DIRECT
    assert chosen("auto", direct=False) is Primitive.BARE
    assert chosen("link", direct=True) is Primitive.BARE
    assert not Primitive.BARE_DIRECT.syncs


def test_a_large_batch_nobody_wants_synced_is_copied_into_the_page_cache_by_a_caller_that_waits() -> None:
    def chosen(size: int) -> Primitive:
        return choose_primitive(
            "auto", wants_sync=False, unsynced_precedes=True, direct_works=True, size=size, in_place=True
        )

    assert chosen(BARE_DIRECT_BYTES_MIN) is Primitive.BARE
    assert chosen(BARE_IN_PLACE_BYTES_MAX) is Primitive.BARE
    assert chosen(BARE_IN_PLACE_BYTES_MAX + 1) is Primitive.BARE_DIRECT


@pytest.mark.parametrize("setting", ["auto", "link", "direct", "dsync"])
def test_unsynced_bytes_before_a_batch_and_disks_without_o_direct_call_for_the_buffered_chain(setting: str) -> None:
    for unsynced, direct in ((True, True), (True, False), (False, False)):
        primitive = choose_primitive(
            setting, wants_sync=True, unsynced_precedes=unsynced, direct_works=direct, size=100, in_place=True
        )
        assert primitive is Primitive.LINK


def test_auto_takes_one_write_in_place_the_buffered_chain_for_groups_and_the_direct_one_for_large_batches() -> None:
    def chosen(setting: str, size: int, *, in_place: bool) -> Primitive:
        return choose_primitive(
            setting, wants_sync=True, unsynced_precedes=False, direct_works=True, size=size, in_place=in_place
        )

    assert chosen("auto", DSYNC_BYTES_MAX, in_place=True) is Primitive.DSYNC
    assert chosen("auto", DSYNC_BYTES_MAX + 1, in_place=True) is Primitive.DIRECT
    assert chosen("auto", BARE_DIRECT_BYTES_MIN - 1, in_place=False) is Primitive.LINK
    assert chosen("auto", BARE_DIRECT_BYTES_MIN, in_place=False) is Primitive.DIRECT
    for in_place in (True, False):
        assert chosen("direct", 10, in_place=in_place) is Primitive.DIRECT
        assert chosen("dsync", 1 << 20, in_place=in_place) is Primitive.DSYNC
        assert chosen("link", 10, in_place=in_place) is Primitive.LINK


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


def test_durability_is_a_prefix_over_files() -> None:
    durable = Durability(10)
    assert not durable.unsynced
    durable.on_written(11, synced=True)
    assert (durable.written, durable.synced) == (11, 11)
    durable.on_written(12, synced=False)
    durable.on_written(13, synced=False)
    durable.on_synced(12)
    assert durable.unsynced
    durable.on_file_left(1, 7)
    durable.on_written(14, synced=False)
    assert [file.last_batch_no for file in durable.sealed] == [13]
    durable.on_synced(13)
    assert not durable.sealed
    durable.on_file_left(2, 8)
    durable.on_synced(14)
    assert not durable.unsynced
    durable.on_file_left(3, 9)
    assert not durable.sealed, "a file without unsynced bytes owes no sync"


def test_batches_end_in_order() -> None:
    durable = Durability(1)
    with pytest.raises(AssertionError):
        durable.on_written(3, synced=False)
    with pytest.raises(AssertionError):
        durable.on_synced(2)


def test_a_batch_keeps_its_bytes_when_it_grows() -> None:
    batch = Batch(128)
    batch.memory[64:70] = b"frames"
    batch.used = 70
    batch.grow(5000)
    assert batch.room == 8192
    assert bytes(batch.memory[64:70]) == b"frames"
    batch.clear()
    assert batch.used == 64
