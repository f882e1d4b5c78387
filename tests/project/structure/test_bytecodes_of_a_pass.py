"""A request by itself may not cost more of the interpreter than it does.

Bytecodes are counted, because they are the same on any machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perf import lone
from perf.traced_passes import Effort
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
EFFORT = Effort(rounds=1, passes=8, pause_us=0)


def least(row: str) -> int:
    """Return the fewest bytecodes of a pass. A slow pass has more, which renders a longer time."""
    for _ in range(3):
        found: int = lone.measure(row, EFFORT).bytecodes.total()
        if found <= MOST[row]:
            break
    return found


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions of Python have other bytecodes")
@pytest.mark.skipif(not probe().ok, reason="without io_uring a pass has other calls")
def test_a_request_by_itself_takes_no_more_bytecodes_than_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOPICS_VERIFY")
    monkeypatch.chdir(tmp_path)
    found = {row: least(row) for row in MOST}
    assert {row: count for row, count in found.items() if count > MOST[row]} == {}, found
