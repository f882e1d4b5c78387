"""The table of goals: what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perf import goals
from tests.cli.bench.results_of_rounds import outcome, result


def test_the_versions_and_the_warnings_of_the_runs_are_below_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run on tmpfs with a busy client gave the same table as any other."""
    goal = goals.Goal("writes", goals.Figure("write", goals.RATE), (), ">=", 1)
    measured = result({"topics": [outcome(2e6, warning="the client was busy")]}, warnings=["tmpfs"])
    monkeypatch.setattr(goals, "measure", lambda workload, peers: measured)
    monkeypatch.setattr(goals, "PARTS", {"one": (goals.Measurement("write-lone", (goal,)),) * 2})
    goals.print_table(["one"], 1, 1.0, smoke=False)
    assert capsys.readouterr().out.split("\n\n")[1:] == [
        "topics: topics 1",
        "warning (write-lone): tmpfs",
        "warning (write-lone): topics: the client was busy\n",
    ]


def test_the_targets_of_make_install_what_peers_take_from_pip() -> None:
    """On a clean clone they were left out."""
    makefile = Path(__file__).parents[3].joinpath("Makefile").read_text()
    (packages,) = re.findall(r"^BENCH_PACKAGES = (.*)$", makefile, re.MULTILINE)
    for name in ("uvloop", "lmdb", "hdrhistogram"):
        assert f'"{name}>=' in packages
    for target in ("bench-peers", "bench-goals"):
        (rules,) = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert "pip install -q --disable-pip-version-check $(BENCH_PACKAGES)" in rules
