"""Results as files, and the questions about them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.bench.results_of_rounds import outcome, result
from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.outcome import BenchCheck, RoundOutcome
from topics.bench.results.bench_result import read_result
from topics.errors import UsageError


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = result({"topics": [outcome(1000)]})
    path = tmp_path / "one.json"
    path.write_text(json.dumps(one.document))
    assert read_result(str(path)).document == one.document


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[]", "format is not 'topics-bench'"),
        ('{"format":"topics-bench","version":9}', "version 9"),
        ('{"format":"topics-bench","version":1.0}', "version 1.0"),
        ('{"format":"topics-bench","version":true}', "version True"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_its_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"x.json.*{said}"):
        read_result(str(path))
    with pytest.raises(UsageError, match=r"nowhere.*No such file"):
        read_result("nowhere.json")


ROUND = "cases[0].sides[0].rounds[0]"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("cases", 5, "cases is 5, and not a list"),
        (f"{ROUND}.loads", None, f"{ROUND}.loads is missing"),
        (f"{ROUND}.loads", {}, f"{ROUND}.loads is empty"),
        (f"{ROUND}.loads.write.rate", "x", f"{ROUND}.loads.write.rate is 'x', and not a number"),
        (f"{ROUND}.loads.write.rate", math.nan, f"{ROUND}.loads.write.rate is nan, and not a number"),
        (f"{ROUND}.loads.write.rate", 10**400, f"rate is 1{'0' * 39}..., and not a number"),
        (f"{ROUND}.loads.write.latencies.answer.p50_ns", "", "latencies.answer.p50_ns is '', and not a number"),
        (f"{ROUND}.seconds", 0, f"{ROUND}.seconds is 0, and not a number above 0"),
        (f"{ROUND}.server.usage", [[1, 2]], f"{ROUND}.server.usage has a row without time, CPU and memory"),
        (f"{ROUND}.checks", [{"name": "x", "ok": 1, "detail": ""}], "checks[0].ok is 1, and not true or false"),
        ("machine", [], "machine is [], and not an object"),
        ("workload", None, "workload is missing"),
        ("sides", [{"name": "a"}], "sides[0].version is missing"),
    ],
)
def test_a_damaged_result_is_refused_by_the_member_that_is_wrong(
    path: str, value: Any, said: str, tmp_path: Path
) -> None:
    """Tracebacks and exit code 1, which with --fail means that a figure is worse."""
    document: Any = json.loads(json.dumps(result({"topics": [outcome(1000)]}).document))
    *places, last = re.findall(r"\w+", path)
    member = document
    for place in places:
        member = member[int(place) if place.isdigit() else place]
    if value is None:
        del member[last]
    else:
        member[last] = value
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError) as caught:
        read_result(str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert f"{said}: the file is damaged: run the workload again" in str(caught.value)


def test_a_failed_check_and_a_round_that_could_not_run_are_failures() -> None:
    one = result({"topics": [outcome(1), outcome(1, ok=False)]}, label="durability fsync", errors=["Redis: it ended"])
    assert one.failures() == [
        "Redis: it ended",
        "topics, durability fsync, round 2: every acknowledged record is read back once: 100 acknowledged",
    ]
    assert result({"topics": [outcome(1)]}).failures() == []


def test_a_result_says_of_each_side_what_its_checks_show() -> None:
    """Pub/Sub, an echo and a file were said to be read back; Redis and SQLite only count."""

    def checked(*names: str) -> RoundOutcome:
        one = outcome(1)
        one.checks = [BenchCheck(name, True, "") for name in names]
        return one

    answers, count = "every answer is a success", "as many records as were acknowledged"
    sides = {
        "topics": [checked(answers, "every acknowledged record is read back once"), checked(answers, count)],
        "Redis": [checked(answers, count)],
        "Pub/Sub": [checked(answers, "watch: each reader received each record exactly once")],
        "echo": [checked(answers)],
        "a file": [checked("the package hdrhistogram computes the same quantiles")],
    }
    assert result(sides).established() == (
        "10 checks hold: topics, Redis: what was acknowledged was counted, not read back; "
        "Pub/Sub: what each reader received was counted; echo: answers were checked, and nothing was read back; "
        "a file: nothing was read back or counted"
    )


def test_a_result_in_which_nothing_was_measured_is_a_failure() -> None:
    """It said: 0 checks hold."""
    assert result({}).failures() == ["nothing was measured: every side was left out"]
    assert result({"topics": []}).failures() == ["nothing was measured: every side was left out"]


def test_warnings_of_all_rounds_are_shown_once() -> None:
    one = result({"topics": [outcome(1, warning="busy")] * 3}, warnings=["tmpfs"])
    assert one.warnings() == ["tmpfs", "topics: busy"]


def test_the_metrics_are_rates_quantiles_and_usage_of_each_round() -> None:
    metrics = {metric.name: metric for metric in result({"topics": [outcome(5), outcome(7)]}).metrics()}
    assert metrics["rate"].values == [5, 7]
    assert not metrics["rate"].less
    assert [round(value) for value in metrics["answer p50"].values] == [100, 100]
    assert [round(value) for value in metrics["answer p99"].values] == [200, 200]
    assert metrics["server CPU"].values == pytest.approx([0.5e6 / 5, 0.5e6 / 7]), "us a record"
    assert metrics["memory grown"].values == [20.0, 20.0]


def test_the_whole_histogram_is_in_the_file() -> None:
    (round_,) = result({"topics": [outcome(5, 100)]}).document["cases"][0]["sides"][0]["rounds"]
    row = round_["loads"]["write"]["latencies"]["answer"]
    assert row["count"] == 100
    assert LatencyHistogram.decoded(row["hdr"]).quantile(0.5) == row["p50_ns"]
