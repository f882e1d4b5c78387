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


def test_rounds_of_deliveries_have_more_than_a_few_writes() -> None:
    """In a second of 50 writes the p99 of all deliveries was that of the slowest write."""
    for measurement in goals.PARTS["deliveries"][:2]:
        assert goals.prepared(measurement, 1.0, 1).run.seconds == 4.0
        assert goals.prepared(measurement, 9.0, 1).run.seconds == 9.0
        assert goals.smaller(measurement, 0.2, 1).run.seconds == 0.2
    lone = goals.prepared(goals.PARTS["lone"][0], 1.0, 3).run
    assert (lone.seconds, lone.warmup, lone.rounds) == (1.0, 1.0, 3)


def test_the_targets_of_make_install_what_peers_take_from_pip() -> None:
    """On a clean clone they were left out."""
    makefile = Path(__file__).parents[3].joinpath("Makefile").read_text()
    (packages,) = re.findall(r"^BENCH_PACKAGES = (.*)$", makefile, re.MULTILINE)
    for name in ("uvloop", "lmdb", "hdrhistogram"):
        assert f'"{name}>=' in packages
    for target in ("bench-peers", "bench-goals"):
        (rules,) = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert "pip install -q --disable-pip-version-check $(BENCH_PACKAGES)" in rules


def test_the_rows_that_meet_their_goal_are_counted_as_the_table_marks_them() -> None:
    """The page took what each build meets for what both meet."""
    text = Path(__file__).parents[3].joinpath("perf", "README.md").read_text()
    _, _, table = text.partition("| what | topics | beside | ratio | Debian's build | earlier | goal |")
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()[2:]]
    missed = [{at for at, row in enumerate(rows) if "**missed**" in row[column]} for column in (6, 4)]
    one, other, both = (len(rows) - len(found) for found in (*missed, missed[0] | missed[1]))
    assert one == other
    said = f"{one} of the {len(rows)} rows meet their goal with each build, and {both} with both."
    assert said in " ".join(text.split())
