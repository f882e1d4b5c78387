"""Checks of what a server has stored, beside a server that loses and repeats."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from topics.bench.topics_server.topics_checks import read_back_check
from topics.bench.topics_server.topics_target import BenchTargetError, TopicsTarget

ACKED = np.array([1, 1, 1, 0], np.uint8)
"""Four records were sent, and the last one was refused."""


class Stored(TopicsTarget):
    """A server of which a test says how often it has each number."""

    def __init__(self, seen: list[int], reports: str = "") -> None:
        self.seen = seen
        self.reports = reports

    def read_back(self, topic: str, numbers: int) -> NDArray[np.uint8]:
        if self.reports:
            raise BenchTargetError(self.reports)
        return np.array(self.seen, np.uint8)


def test_what_was_acknowledged_and_is_there_once_holds() -> None:
    assert read_back_check(Stored([1, 1, 1, 0]), "bench", ACKED).ok


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([1, 0, 1, 0], "1 lost, 0 twice, 0 that were not acknowledged"),
        ([1, 2, 1, 0], "0 lost, 1 twice, 0 that were not acknowledged"),
        ([1, 1, 1, 1], "0 lost, 0 twice, 1 that were not acknowledged"),
    ],
)
def test_a_record_that_is_lost_twice_or_never_acknowledged_fails_the_check(seen: list[int], said: str) -> None:
    check = read_back_check(Stored(seen), "bench", ACKED)
    assert not check.ok
    assert check.detail == f"3 acknowledged, {said}"


def test_a_loss_that_the_server_reports_fails_the_check_with_its_report() -> None:
    check = read_back_check(Stored([], "the server reports lost records"), "bench", ACKED)
    assert (check.ok, check.detail) == (False, "the server reports lost records")
