"""A request by itself, and eight at once, may not cost more of the interpreter than they do.

Bytecodes are counted, because they are the same on any machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perf import lone
from perf.traced_passes import Effort, Passes
from tests.server.test_calls_of_writes import COSTS, CountingWorld
from topics.uring.probe import probe

MOST = {
    "write": 1840,
    "write-fsync": 1940,
    "read": 1225,
    "tail": 1225,
    "publish": 1735,
    "append": 180,
}
"""Bytecodes of a whole pass of perf.lone.

A change that needs more of them says for what in its commit, and changes them here.
"""
MOST_OF_EIGHT = {
    "lane": 8100,
    "group": 19815,
}
"""Bytecodes of eight writes of eight connections that one pass takes, in the lane and without it."""
EFFORT = Effort(rounds=1, passes=8, pause_us=0)


def least(row: str) -> int:
    """Return the fewest bytecodes of a pass. A slow pass has more, which renders a longer time."""
    for _ in range(3):
        found: int = lone.measure(row, EFFORT).bytecodes.total()
        if found <= MOST[row]:
            break
    return found


def bytecodes_of_eight(case: str) -> int:
    """Return the bytecodes of eight writes, of the quickest of some rounds."""
    cost = COSTS[f"{case}, d"]
    world = CountingWorld(**cost.settings)
    writers = [world.connect() for _ in cost.topics]
    world.warm(cost.topics, writers)
    found = []
    for _ in range(12):
        passes = Passes()
        passes.begin()
        with passes.traced():
            world.write(cost.topics, writers, rounds=1)
        found.append(passes.bytecodes.total())
    return min(found)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions of Python have other bytecodes")
@pytest.mark.skipif(not probe().ok, reason="without io_uring a pass has other calls")
def test_a_request_by_itself_takes_no_more_bytecodes_than_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOPICS_VERIFY")
    monkeypatch.chdir(tmp_path)
    found = {row: least(row) for row in MOST}
    assert {row: count for row, count in found.items() if count > MOST[row]} == {}, found


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions of Python have other bytecodes")
@pytest.mark.parametrize("case", MOST_OF_EIGHT)
def test_eight_writes_that_come_at_once_take_no_more_bytecodes_than_they_did(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.delenv("TOPICS_VERIFY")
    assert bytecodes_of_eight(case) <= MOST_OF_EIGHT[case]
