"""Checks of what a server has stored, beside a server that loses and repeats."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cli.bench.results_of_rounds import group_figures, load_figures
from tests.cli.bench.scripted_server import http_answer, scripted_server
from topics.bench.load.load_plan import LoadGroup, LoadMessage, numbered_json
from topics.bench.peers import library_side
from topics.bench.peers.network_peer import heard_checks
from topics.bench.peers.python_servers import FILE, AsyncioServer
from topics.bench.topics_server.topics_checks import answer_checks, read_back_check, stored_checks
from topics.bench.topics_server.topics_side import remove_topics
from topics.bench.topics_server.topics_target import BenchTargetError, TopicsTarget
from topics.bench.workload import parse_workload
from topics.embedded.opening import open_log

SIZES = (60,)
ACKED = np.array([1, 1, 1, 0], np.uint8)
"""Four records were sent, and the last one was refused."""


class Stored(TopicsTarget):
    """A server of which a test says how often it has each number."""

    def __init__(self, seen: list[int], reports: str = "", altered: int = 0) -> None:
        self.seen = seen
        self.altered = altered
        self.reports = reports

    def read_back(self, topic: str, numbers: int, sizes: Collection[int]) -> tuple[NDArray[np.uint8], int]:
        if self.reports:
            raise BenchTargetError(self.reports)
        return np.array(self.seen, np.uint8), self.altered


def test_what_was_acknowledged_and_is_there_once_holds() -> None:
    assert read_back_check(Stored([1, 1, 1, 0]), "bench", ACKED, SIZES).ok


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([1, 0, 1, 0], "1 lost, 0 twice, 0 that were not acknowledged"),
        ([1, 2, 1, 0], "0 lost, 1 twice, 0 that were not acknowledged"),
        ([1, 1, 1, 1], "0 lost, 0 twice, 1 that were not acknowledged"),
    ],
)
def test_a_record_that_is_lost_twice_or_never_acknowledged_fails_the_check(seen: list[int], said: str) -> None:
    check = read_back_check(Stored(seen), "bench", ACKED, SIZES)
    assert not check.ok
    assert check.detail == f"3 acknowledged, {said}, 0 altered"


def test_a_record_that_was_altered_fails_the_check() -> None:
    check = read_back_check(Stored([1, 1, 1, 0], altered=2), "bench", ACKED, SIZES)
    assert not check.ok
    assert check.detail.endswith("0 lost, 0 twice, 0 that were not acknowledged, 2 altered")


def test_each_page_of_a_topic_is_compared_byte_by_byte() -> None:
    rows = [numbered_json(60, number) for number in range(3)]
    rows[1] = rows[1].replace(b"xx", b"xy", 1)
    pages = iter([(b",".join(rows[:2]), 2), (rows[2], 3), (b"", 3)])

    def answer(data: bytes) -> bytes:
        if b"from_seq" not in data:  # the head, whose body comes by itself
            return b""
        return http_answer(b'{"records":[%b],"tombstone":null,"next_from_seq":%d,"head_seq":3}' % next(pages))

    with scripted_server(answer) as port, closing(TopicsTarget("127.0.0.1", port)) as target:
        check = read_back_check(target, "bench", np.ones(3, np.uint8), SIZES)
    assert (check.ok, check.detail.rpartition(", ")[2]) == (False, "1 altered")


@pytest.mark.parametrize("at", [1, 2])
def test_a_record_that_was_never_sent_is_found(at: int) -> None:
    """One without a number was in no count, also on a page of its own."""
    page = b'{"records":[%b],"tombstone":null,"next_from_seq":%d,"head_seq":3}'
    row, other = b'{"$seq":1,"data":%b}' % numbered_json(60, 0), b'{"$seq":2,"data":"other"}'
    pages = iter([page % (row + b"," + other if at == 1 else row, 1), page % (b"" if at == 1 else other, 2)])
    with (
        scripted_server(lambda data: http_answer(next(pages)) if b"from_seq" in data else b"") as port,
        closing(TopicsTarget("127.0.0.1", port)) as target,
    ):
        check = read_back_check(target, "bench", np.ones(1, np.uint8), SIZES)
    assert (check.ok, check.detail.rpartition(", ")[2]) == (False, "1 altered")


def test_a_server_that_sends_one_page_for_ever_fails_the_check() -> None:
    page = b'{"records":[%b],"tombstone":null,"next_from_seq":1,"head_seq":3}' % numbered_json(60, 0)
    answer = http_answer(page)
    with (
        scripted_server(lambda data: answer if b"from_seq" in data else b"") as port,
        closing(TopicsTarget("127.0.0.1", port)) as target,
    ):
        check = read_back_check(target, "bench", np.ones(3, np.uint8), SIZES)
    assert (check.ok, check.detail) == (False, "a read of bench from 1 has records, and continues at 1")


def test_what_the_plain_server_and_the_library_have_is_compared_byte_by_byte(tmp_path: Path) -> None:
    (case,) = parse_workload('[[load]]\nbytes = 60\nkind = "write"\n', "x").cases()
    text = numbered_json(60, 0)
    for stored, ok in ((text, True), (text.replace(b"xx", b"xy", 1), False)):
        (tmp_path / FILE).write_bytes(b'{"records":[%b]}' % stored)
        (check,) = AsyncioServer().checks(case, 0, tmp_path, load_figures([1]))
        assert check.ok == ok
        with open_log(str(tmp_path / f"log{ok}")) as log:
            log.put_topic("bench")
            log.append_many("bench", [stored])
            check = library_side._read_back(log, 1, 60)
        assert (check.ok, check.detail) == (ok, f"1 acknowledged, 1 there once, {1 - ok} altered")


class Queue(TopicsTarget):
    """A server of which a test says how many jobs a queue still has."""

    def __init__(self, left: int) -> None:
        self.left = left

    def state(self, topic: str) -> dict[str, Any]:
        return {"count": self.left}


@pytest.mark.parametrize(
    ("claimed", "left", "ok", "said"),
    [
        ([1, 1, 1, 0], 1, True, "4 jobs, 3 claimed and acknowledged, 1 left, 0 claimed twice, 0 altered"),
        ([1, 1, 1, 1], 0, True, "4 jobs, 4 claimed and acknowledged, 0 left, 0 claimed twice, 0 altered"),
        ([1, 1, 1, 0], 0, False, "4 jobs, 3 claimed and acknowledged, 0 left, 0 claimed twice, 0 altered"),
        ([1, 1, 1, 1], 1, False, "4 jobs, 4 claimed and acknowledged, 1 left, 0 claimed twice, 0 altered"),
        ([2, 1, 0, 1], 0, False, "4 jobs, 4 claimed and acknowledged, 0 left, 1 claimed twice, 0 altered"),
    ],
)
def test_each_job_is_claimed_once_or_still_there(claimed: list[int], left: int, *, ok: bool, said: str) -> None:
    (case,) = parse_workload('[[load]]\nkind = "work"\n[topic]\ntype = "queue"\n', "x").cases()
    figures = load_figures([1, 1, 1, 1], group_figures("work", claimed, all_deliveries=sum(claimed)))
    (check,) = stored_checks(case.workload, Queue(left), "bench", figures, [])
    assert (check.ok, check.detail) == (ok, said)
    altered = group_figures("work", claimed, all_deliveries=sum(claimed), altered=1)
    (check,) = stored_checks(case.workload, Queue(left), "bench", load_figures([1, 1, 1, 1], altered), [])
    assert (check.ok, check.detail.rpartition(", ")[2]) == (False, "1 altered")


@pytest.mark.parametrize(("records", "misread", "ok"), [(30, 0, True), (29, 0, False), (31, 0, False), (30, 1, False)])
def test_a_load_of_reads_has_each_record_that_it_asked_for(records: int, misread: int, *, ok: bool) -> None:
    (case,) = parse_workload('[fill]\nrecords = 9\n[[load]]\nlimit = 3\nkind = "read"\n', "x").cases()
    group = group_figures("read", all_requests=10, all_deliveries=records, misread=misread)
    plan = LoadGroup("read", 1, (LoadMessage(b""),), hears=True, shares=True)
    checks = answer_checks(case.workload, [plan], load_figures([], group))
    assert [check.ok for check in checks if "records that were asked for" in check.name] == [ok]
    assert [check.ok for check in heard_checks(case.workload, [plan], load_figures([], group))] == [ok]


def test_a_loss_that_the_server_reports_fails_the_check_with_its_report() -> None:
    check = read_back_check(Stored([], "the server reports lost records"), "bench", ACKED, SIZES)
    assert (check.ok, check.detail) == (False, "the server reports lost records")


def test_a_topic_that_stays_after_its_deletion_ends_the_cleaning() -> None:
    class Kept(TopicsTarget):
        def call(self, method: str, path: str, body: Any = None) -> Any:
            return {"topics": [{"topic": "bench-1"}]} if method == "GET" else {"deleted": True}

    with pytest.raises(BenchTargetError, match="bench-1 was deleted 10 times, and is still there"):
        remove_topics(Kept("127.0.0.1", 1), "bench")
