"""The benchmarks of the store still run."""

import sys
from pathlib import Path

import pytest

from perf import bare_log, frame_costs


@pytest.mark.parametrize("module", [frame_costs, bare_log])
def test_a_benchmark_runs_in_its_small_size(
    module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--smoke"])
    monkeypatch.chdir(tmp_path)
    module.main()  # type: ignore[attr-defined]
    assert capsys.readouterr().out.count("\n| ") >= 4
