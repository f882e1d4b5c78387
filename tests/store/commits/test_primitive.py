"""The meaning of the results of a commit."""

import errno

import pytest

from topics.store.commits.primitive import Primitive, Verdict, judge, rest_begins

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
