"""Exceptions as clients see them, and as the log shows them."""

from __future__ import annotations

import logging
import pickle

import pytest

from topics.errors import (
    FSCK_REMEDY,
    CorruptError,
    LogReadOnlyError,
    NoLogFileError,
    NotCreatedError,
    RequestError,
    StorageError,
    as_request_error,
    without_paths,
    without_remedy,
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "opening /var/lib/topics/seg/12.seg failed: Too many open files",
            "opening (a file) failed: Too many open files",
        ),
        ("./topics-data/wal-00/3.log: checksum of the frame is wrong", "(a file): checksum of the frame is wrong"),
        ("topic a:b: '/d/x y', 'data/x' ends at 5", "topic a:b: '(a file) y', '(a file)' ends at 5"),
        ("topic jobs: record 7 is not in its place", "topic jobs: record 7 is not in its place"),
    ],
)
def test_messages_for_clients_name_no_files(text: str, told: str) -> None:
    """3.2: `internal` says what happened, not where."""
    assert without_paths(text) == told
    assert as_request_error(StorageError(text)).message == f"storage failed: {told}"


def test_the_detail_has_what_the_contract_lists() -> None:
    """3.2: topic, seq, reason; no path, no offset."""
    detail = {"topic": "a", "seq": 3, "path": "/x", "offset": 9}
    assert as_request_error(CorruptError("rotten", detail)).detail == {"topic": "a", "seq": 3}
    assert as_request_error(CorruptError("rotten", {"path": "/x"})).detail is None
    assert as_request_error(LogReadOnlyError("no more")).detail == {"reason": "read_only"}
    refusal = RequestError("not_found", "there is no /v0/x")
    assert as_request_error(refusal) is refusal


def test_the_log_keeps_the_whole_story_once(caplog: pytest.LogCaptureFixture) -> None:
    """3.2: however many requests fail the same way."""
    with caplog.at_level(logging.ERROR, "topics"):
        for _ in range(3):
            as_request_error(StorageError("reading /data/seg/1.seg failed: EIO"))
        as_request_error(StorageError("reading /data/seg/2.seg failed: EIO"))
    assert [record.getMessage().rsplit(" ", 3)[1] for record in caplog.records] == [
        "/data/seg/1.seg",
        "/data/seg/2.seg",
    ]


def test_a_client_is_told_why_nothing_of_its_request_is_there() -> None:
    for error, reason in ((NoLogFileError("no"), "no_log_file"), (NotCreatedError("no"), "not_created")):
        assert as_request_error(error).detail == {"reason": reason}


def test_damage_is_told_with_one_remedy_which_a_report_leaves_out() -> None:
    error = CorruptError("wal/1.log: checksum of the file header is wrong", {"path": "wal/1.log"})
    assert str(error) == f"wal/1.log: checksum of the file header is wrong: {FSCK_REMEDY}"
    assert str(CorruptError(f"topic t: {error}")) == f"topic t: {error}"
    assert without_remedy(error) == "wal/1.log: checksum of the file header is wrong"
    sent = pickle.loads(pickle.dumps(error))
    assert (str(sent), sent.detail) == (str(error), error.detail)
