"""Verdicts of comparisons: a difference is shown by rounds that do not overlap, and by nothing less."""

from __future__ import annotations

from tests.cli.bench.results_of_rounds import outcome, result
from topics.bench.results.bench_compare import RoundsVerdict, compare_results, compare_sides, compare_values, doubts

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
    assert rows["server CPU"].verdict is RoundsVerdict.WITHIN


def test_results_of_other_workloads_have_nothing_in_common() -> None:
    assert compare_results(result({"topics": [outcome(1)]}), result({"redis": [outcome(1)]})) == []


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
    ]
