"""Verdicts of comparisons: a difference is shown by rounds that do not overlap, and by nothing less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cli.bench.results_of_rounds import outcome, result
from topics.bench.outcome import RoundOutcome
from topics.bench.results.bench_compare import RoundsVerdict, compare_results, compare_sides, compare_values, doubts
from topics.bench.results.bench_result import BenchResult
from topics.errors import UsageError

LOW, HIGH = [1.0, 1.1, 1.2, 1.3], [1.4, 1.5, 1.6, 1.7]


def test_ranges_that_do_not_overlap_are_a_difference_in_the_direction_of_the_figure() -> None:
    assert compare_values(LOW, HIGH, less=True)[1] is RoundsVerdict.WORSE
    assert compare_values(LOW, HIGH, less=False)[1] is RoundsVerdict.BETTER
    assert compare_values(HIGH, LOW, less=True)[1] is RoundsVerdict.BETTER
    assert compare_values(HIGH, LOW, less=False)[1] is RoundsVerdict.WORSE


def test_ranges_that_touch_or_overlap_are_within_the_spread_however_large_the_ratio_is() -> None:
    ratio, verdict = compare_values([1, 1, 1, 9], [9, 20, 20, 20], less=True)
    assert (ratio, verdict) == (20, RoundsVerdict.WITHIN)


def test_fewer_than_four_rounds_show_nothing() -> None:
    assert compare_values(LOW[:3], HIGH, less=True)[1] is RoundsVerdict.FEW
    assert compare_values(LOW, HIGH[:3], less=True)[1] is RoundsVerdict.FEW


def test_a_ratio_to_nothing_is_left_out() -> None:
    assert compare_values([0.0] * 4, HIGH, less=True) == (None, RoundsVerdict.WORSE)


def test_two_results_are_compared_figure_by_figure() -> None:
    before = result({"topics": [outcome(1000 + n, 100) for n in range(4)]})
    after = result({"topics": [outcome(2000 + n, 50) for n in range(4)]})
    rows = {row.metric.name: row for row in compare_results(before, after)}
    assert rows["rate"].verdict is RoundsVerdict.BETTER
    assert rows["answer p50"].verdict is RoundsVerdict.BETTER
    assert round(rows["answer p50"].ratio or 0, 2) == 0.5
    assert rows["server CPU"].verdict is RoundsVerdict.BETTER, "the same cores did twice as much"


def test_the_cpu_of_a_server_is_compared_for_each_unit_of_its_work() -> None:
    """A rate of 1.5 times with a CPU of 1.25 times was "worse"."""
    before, after = ([outcome(rate + n, cpu=cpu) for n in range(4)] for rate, cpu in ((1000, 0.4), (1500, 0.5)))
    (cpu,) = [row for row in compare_results(*map(topics_only, (before, after))) if row.metric.name == "server CPU"]
    assert (cpu.verdict, cpu.metric.unit) == (RoundsVerdict.BETTER, "us a record")
    assert cpu.before[0] == pytest.approx(400)
    for idle in before:
        idle.loads[0] = replace(idle.loads[0], rate=0)
    (cpu,) = [metric for metric in topics_only(before).metrics() if metric.name == "server CPU"]
    assert (cpu.unit, cpu.values) == ("cores", [0.4] * 4)


def test_a_figure_in_another_unit_is_another_figure() -> None:
    """CPU in cores, of a load without any work, had a ratio to CPU for each record, and a verdict."""
    before, after = [outcome(1000) for _ in range(4)], [outcome(1000) for _ in range(4)]
    for idle in after:
        idle.loads[0] = replace(idle.loads[0], rate=0)
    results = topics_only(before), topics_only(after)
    assert "server CPU" not in {row.metric.name for row in compare_results(*results)}
    assert "only the first result has topics, server CPU, us a record" in doubts(*results)


def topics_only(rounds: list[RoundOutcome]) -> BenchResult:
    return result({"topics": rounds})


def test_what_only_one_result_has_is_said() -> None:
    """A case that the second file lacked was not in the table, and in no sentence."""
    one, other = result({"topics": [outcome(1)], "Redis": [outcome(1)]}), result({"topics": [outcome(1)]})
    assert doubts(one, other) == ["only the first result has Redis"]
    assert doubts(other, one) == ["only the second result has Redis"]
    other.document["cases"].append({**other.document["cases"][0], "label": "connections 5"})
    assert doubts(other, topics_only([outcome(1)])) == ["only the first result has connections 5, topics"]
    fewer = outcome(1)
    fewer.rss_before = None
    assert doubts(topics_only([outcome(1)]), topics_only([fewer])) == ["only the first result has topics, memory grown"]


def test_a_busy_machine_and_warnings_are_doubts() -> None:
    one, other = topics_only([outcome(1)]), topics_only([outcome(1, warning="the client was busy")])
    other.document["machine"] |= {"load_average": 3.25, "memory_bytes": 1 << 30, "governor": "powersave"}
    assert doubts(one, other) == [
        f"memory_bytes differs: {1 << 32} and {1 << 30}",
        "governor differs: not shown and powersave",
        "the load average differs: 0.1 and 3.2",
        "the second result warns: topics: the client was busy",
    ]


def test_results_of_other_workloads_have_nothing_in_common() -> None:
    assert compare_results(result({"topics": [outcome(1)]}), result({"redis": [outcome(1)]})) == []


def test_results_of_two_workloads_are_not_compared() -> None:
    """Their CPU had a ratio and a verdict: that of reads beside that of writes."""
    one, other = topics_only([outcome(1)]), topics_only([outcome(1)])
    other.document["workload"] |= {"name": "mine"}
    assert compare_results(one, other), "the same file by another name"
    other.document["workload"] |= {"text": "title = 'y'"}
    with pytest.raises(UsageError, match=r"workload 'write-lone', and the second of 'mine': compare results of one"):
        compare_results(one, other)


def test_ours_stands_beside_each_peer_as_its_figure_divided_by_theirs() -> None:
    one = result({"topics": [outcome(3000)] * 4, "Redis": [outcome(1000)] * 4})
    (rate,) = [row for row in compare_sides(one) if row.metric.name == "rate"]
    assert (rate.metric.side, rate.ratio, rate.verdict) == ("Redis", 3.0, RoundsVerdict.BETTER)


def test_another_machine_file_or_setting_and_failed_checks_are_doubts() -> None:
    one = result({"topics": [outcome(1)]})
    other = result(
        {"topics": [outcome(1, ok=False)]},
        machine={**one.document["machine"], "cores": 64},
        settings={"TOPICS_SPIN_US": "5"},
        workload={**one.document["workload"], "text": "y"},
    )
    assert doubts(one, one) == []
    said = " | ".join(doubts(one, other))
    for part in (
        "cores differs: 2 and 64",
        "files of the workload differ",
        "settings differ",
        "second result has failed",
    ):
        assert part in said


def test_other_times_and_other_versions_of_a_side_are_doubts() -> None:
    """A file compared with itself and other times was compared without a word."""
    one = result({"topics": [outcome(1)], "Redis": [outcome(1)], "NATS": [outcome(1)]})
    run = {"seconds": 99.0, "warmup": 0.2, "rounds": 7}
    other = result({"topics": [outcome(1)]}, workload={**one.document["workload"], "run": run})
    other.document["sides"] = [{"name": "topics", "version": "topics 1"}, {"name": "Redis", "version": "Redis 2"}]
    assert doubts(one, other) == [
        "run.seconds differs: 1 s and 99 s",
        "run.warmup differs: 0.1 s and 0.2 s",
        "the version of Redis differs: Redis 1 and Redis 2",
        "only the first result has Redis",
        "only the first result has NATS",
    ]
