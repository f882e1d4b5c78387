"""The page of a result: well-formed, by itself, and showing what a reader has to know."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from tests.cli.bench.results_of_rounds import outcome, result
from topics.bench.report.html_report import html_report
from topics.bench.report.svg_chart import Axis, ChartLine, line_chart, thinned, ticks_of
from topics.bench.results.bench_result import BenchResult


def page_of(one: BenchResult) -> str:
    page = html_report(one)
    ElementTree.fromstring(page)
    return page


def two_cases(**changes: Any) -> BenchResult:
    sides = {"topics": [outcome(1000, 100), outcome(1100, 120)], "Redis": [outcome(900, 200), outcome(950, 210)]}
    one = result(sides, "connections 1", 1, **changes)
    other = result(sides, "connections 64", 64)
    one.document["cases"] += other.document["cases"]
    return one


def test_the_page_is_well_formed_and_names_nothing_outside_itself() -> None:
    page = page_of(two_cases())
    assert not re.search(r"https?:|//[a-z]|src=|href=|@import|url\(|<script|<link|<iframe", page)


def test_it_is_readable_in_light_and_in_dark() -> None:
    page = page_of(two_cases())
    light, dark = page.split("@media (prefers-color-scheme: dark)")[:2]
    colors = set(re.findall(r"(--\w+): #", light))
    assert colors == set(re.findall(r"(--\w+): #", dark.partition("} }")[0]))
    assert set(re.findall(r"var\((--\w+)\)", page)) <= colors


def test_names_from_a_file_are_escaped() -> None:
    page = page_of(result({'<b>"x"&': [outcome(1)]}, label="<i>"))
    assert "<b>" not in page
    assert "&lt;b&gt;&quot;x&quot;&amp;" in page
    assert "Single writes &lt;one &amp; only&gt;" in page


def test_it_has_curves_of_percentiles_time_usage_and_growth() -> None:
    page = page_of(two_cases())
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert {"Latency by percentile", "Answers over time", "Slowest of each moment"} < set(titles)
    assert {"Resident memory of the server", "rate, records/s", "answer p50"} < set(titles)
    assert "nan" not in "".join(re.findall(r'points="(.*?)"', page))


def test_a_load_has_one_color_in_every_chart_of_growth() -> None:
    """Writes of a peer were green in one chart and orange in the next, where another load had no figure."""
    one = two_cases()
    for case in one.document["cases"]:
        for measured in case["sides"][0]["rounds"]:
            measured["loads"]["read"] = {**measured["loads"]["write"], "latencies": {}}
    growth = page_of(one).partition("<h2>Growth</h2>")[2].partition("<h2>")[0]
    keys = re.findall(r'class="key k(\d)"[^>]*></span>Redis write', growth)
    assert len(keys) >= 3
    assert len(set(keys)) == 1


def test_failed_checks_void_the_figures_and_are_named_first() -> None:
    page = page_of(result({"topics": [outcome(1, ok=False)]}, errors=["Redis: it ended"]))
    assert "2 failures: these figures are void." in page
    assert "Redis: it ended" in page
    assert "0 of 1" in page


def test_warnings_what_was_left_out_and_settings_are_shown() -> None:
    page = page_of(
        result(
            {"topics": [outcome(1, warning="the client was busy")]},
            left_out=["NATS: neither Go nor nats-server is here"],
            settings={"TOPICS_SPIN_US": "50"},
        )
    )
    for text in ("the client was busy", "NATS: neither Go nor nats-server is here", "TOPICS_SPIN_US", "title = "):
        assert text in page


def test_a_result_without_any_round_has_a_page_too() -> None:
    assert "figures are void" in page_of(result({"topics": []}, errors=["topics: no port"]))


def test_ticks_are_round_values_within_the_axis() -> None:
    assert ticks_of(0, 1.9, log=False) == [0, 0.4, 0.8, 0.4 * 3, 1.6]
    assert ticks_of(0, 50, log=False) == [0, 10, 20, 30, 40, 50]
    assert ticks_of(1, 1000, log=True) == [1, 10, 100, 1000]


def test_no_tick_is_written_over_another() -> None:
    """0 % and 50 % were one over the other."""
    ticks = [(1.0, "0 %"), (2.0, "50 %"), (10.0, "90 %"), (1e9, "99.9999 %")]
    line = ChartLine("l", [(1.0, 1.0), (1e9, 2.0)], 0)
    chart = line_chart("x", Axis("a", log=True, ticks=ticks), Axis("b"), [line])
    assert [text for _, text in ticks if f">{text}<" in chart] == ["0 %", "90 %", "99.9999 %"]


def test_long_lines_are_thinned_and_keep_their_peaks() -> None:
    points = [(float(at), 5.0 if at == 777 else 1.0) for at in range(2000)]
    few = thinned(points, 100)
    assert len(few) <= 100
    assert (777.0, 5.0) in few
    assert few[-1] == points[-1]


def test_a_chart_without_points_is_left_out() -> None:
    assert line_chart("x", Axis("a"), Axis("b"), [ChartLine("l", [], 0)]) == ""
    chart = line_chart("x", Axis("a"), Axis("b"), [ChartLine("l", [(1.0, 0.0)], 0)])
    assert "nan" not in chart
