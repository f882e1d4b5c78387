"""The ring's benchmarks run: the smallest size of each, so that none rots."""

import sys
from pathlib import Path

import pytest

from perf import commits, ring_ops
from topics.uring.blocking import BlockingCalls
from topics.uring.probe import probe

SUPPORT = probe()
pytestmark = [pytest.mark.real, pytest.mark.skipif(not SUPPORT.ok, reason=f"io_uring: {SUPPORT.reason}")]


def test_the_cost_of_operations_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ring_ops", "--smoke"])
    ring_ops.main()
    assert "receive 120 B" in capsys.readouterr().out


def test_the_cost_of_commits_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not BlockingCalls().direct_block_bytes(str(tmp_path)):
        pytest.skip("O_DIRECT does not work in the temporary directory")
    monkeypatch.setattr(sys, "argv", ["commits", "--smoke", "--bytes", "4096", "--directory", str(tmp_path)])
    monkeypatch.setattr(commits, "FILE_BYTES", 1 << 20)
    commits.main()
    assert "write linked to fdatasync, O_DIRECT" in capsys.readouterr().out
