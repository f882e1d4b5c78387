"""The page of a result: figures, comparisons, charts, and everything that a reader may doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from statistics import median
from typing import Any

from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.report.svg_chart import Axis, ChartLine, Point, line_chart
from topics.bench.results.bench_compare import RoundsVerdict, compare_sides
from topics.bench.results.bench_result import BenchResult, Metric
from topics.bench.results.figure_text import duration, number, short

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1d2430; --soft: #5b6472; --line: #dde1e7; --panel: #f6f7f9;
  --good: #18794e; --bad: #c02b2b; --warn: #8a5a00; --c0: #1f6feb; --c1: #d1540a; --c2: #18794e; --c3: #8a3ffc;
  --c4: #b3206f; --c5: #0b7285; --c6: #7a5c00; --c7: #5b6472; }
@media (prefers-color-scheme: dark) { :root { --bg: #12161c; --fg: #e3e7ee; --soft: #9aa5b4; --line: #2d3542;
  --panel: #1a2029; --good: #4cc38a; --bad: #ff7b72; --warn: #e3b341; --c0: #6cb0ff; --c1: #ff9d5c; --c2: #4cc38a;
  --c3: #c4a2ff; --c4: #ff8ac4; --c5: #4fd0dd; --c6: #e3b341; --c7: #9aa5b4; } }
body { margin: 0 auto; max-width: 1240px; padding: 24px 20px 60px; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 10px; }
h3 { font-size: 16px; margin: 22px 0 6px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
.ok { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 10px 4px 0; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td.t { white-space: nowrap; } td.t, th.t { text-align: left; } td small { color: var(--soft); }
td small { display: block; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 16px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
figcaption { font-weight: 600; font-size: 14px; margin-bottom: 4px; }
svg { width: 100%; height: auto; display: block; } .grid { stroke: var(--line); stroke-width: 1; }
.tick, .axis { fill: var(--soft); font-size: 11px; } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.faint { opacity: .7; stroke-width: 1.1; } .dot { stroke: none; }
.legend { list-style: none; padding: 0; margin: 6px 0 0; display: flex; flex-wrap: wrap; gap: 4px 14px;
  font-size: 12.5px; }
.key { display: inline-block; width: 14px; height: 3px; margin: 0 6px 3px 0; vertical-align: middle; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px;
  overflow-x: auto; font-size: 13px; }
ul.plain { padding-left: 18px; margin: 6px 0; }
""" + "".join(
    f".c{at} {{ stroke: var(--c{at}); }} .dot.c{at} {{ fill: var(--c{at}); }} .k{at} {{ background: var(--c{at}); }}\n"
    for at in range(8)
)
_NINES = [(1.0, "0 %"), (2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1000.0, "99.9 %"), (10_000.0, "99.99 %")]
_VERDICTS = {RoundsVerdict.BETTER: "ok", RoundsVerdict.WORSE: "bad"}


def html_report(result: BenchResult) -> str:
    """Return the whole page."""
    document = result.document
    workload = document["workload"]
    parts = [
        f"<h1>{escape(workload['title'])}</h1><p>{escape(workload['question'])}</p>",
        _summary(result),
        "<h2>Figures</h2>",
        _figures(result),
        _beside_peers(result),
        _growth(result),
    ]
    for case in document["cases"]:
        parts.append(_case(case))
    parts += [_checks(result), _about(result)]
    head = '<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>'
    title = f"<title>{escape(workload['name'])} - topics bench</title><style>{STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}{title}</head><body>{"".join(parts)}</body></html>\n'


def _summary(result: BenchResult) -> str:
    """The line that says whether to read on: checks, machine, time."""
    document, failures = result.document, result.failures()
    verdict = f'<p class="ok">{escape(result.established())}.</p>'
    if failures:
        verdict = f'<p class="bad"><strong>{len(failures)} failures: these figures are void.</strong></p>'
    facts, run = document["machine"], workload_run(document)
    about = (
        f"{document['started']} - {facts['cores']} cores of {facts['cpu']}, {facts['system']}, "
        f"{facts['file_system']} - "
        f"rounds of {run['seconds']:g} s after {run['warmup']:g} s"
    )
    warnings = "".join(f"<li>{escape(sentence)}</li>" for sentence in result.warnings())
    shown = f'<ul class="plain warn">{warnings}</ul>' if warnings else ""
    return f'{verdict}<p class="soft">{escape(about)}</p>{shown}'


def workload_run(document: dict[str, Any]) -> dict[str, Any]:
    run: dict[str, Any] = document["workload"]["run"]
    return run


def _cell(values: list[float] | None, unit: str = "") -> str:
    """A median, and the range below it."""
    if not values:
        return "<td>-</td>"
    ends = f"<small>{number(min(values))} - {number(max(values))}</small>" if len(values) > 1 else ""
    return f"<td>{number(median(values))} {escape(unit)}{ends}</td>"


def _table(heads: Sequence[str], rows: Iterable[str], texts: int) -> str:
    """A table; the first `texts` columns are texts."""
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads[texts:])
    first = "".join(f'<th class="t">{escape(head)}</th>' for head in heads[:texts])
    return (
        f'<div class="wide"><table><thead><tr>{first}{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _row(texts: Sequence[str], cells: Iterable[str]) -> str:
    first = "".join(f'<td class="t">{escape(text)}</td>' for text in texts)
    return f"<tr>{first}{''.join(cells)}</tr>"


def _figures(result: BenchResult) -> str:
    """One row for each latency of each load of each side."""
    rows = []
    for case in result.document["cases"]:
        for side in case["sides"]:
            rounds = side["rounds"]
            for name, first in rounds[0]["loads"].items() if rounds else ():
                loads = [one["loads"][name] for one in rounds]
                for latency in first["latencies"] or [""]:
                    found = [one["latencies"][latency] for one in loads if latency in one["latencies"]]
                    cells = [_cell([one["rate"] for one in loads], first["unit"])]
                    cells += [
                        _cell([one[f"{quantile}_ns"] / 1000 for one in found])
                        for quantile in ("p50", "p90", "p99", "p999", "max")
                    ]
                    cells += [_cell(_shares(rounds, "server")), _cell(_shares(rounds, "client"))]
                    rows.append(_row((case["label"], side["name"], name, latency), cells))
    heads = ("case", "side", "load", "latency", "rate", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us")
    note = '<p class="soft">Medians of the rounds, with the lowest and the highest below; CPU in cores.</p>'
    return note + _table((*heads, "server CPU", "client CPU"), rows, 4)


def _shares(rounds: list[dict[str, Any]], who: str) -> list[float]:
    return [one[who]["cpu_seconds"] / one["seconds"] for one in rounds if one[who]["cpu_seconds"] is not None]


def _beside_peers(result: BenchResult) -> str:
    """Ratios of our figures to those of each peer."""
    rows = []
    for one in compare_sides(result):
        metric = one.metric
        ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
        name = metric.name + (" (less is better)" if metric.less else "")
        kind = _VERDICTS.get(one.verdict, "soft")
        cells = [_cell(one.after), _cell(one.before), f'<td class="t">{escape(metric.unit)}</td>']
        cells += [f"<td><strong>{ratio}</strong></td>", f'<td class="t {kind}">{escape(one.verdict.value)}</td>']
        rows.append(_row((metric.case, metric.side, metric.load, name), cells))
    if not rows:
        return ""
    heads = ("case", "peer", "load", "figure", "topics", "peer's", "", "ratio", "topics is")
    return "<h2>Beside peers</h2>" + _table(heads, rows, 4)


def _growth(result: BenchResult) -> str:
    """Figures over the values of the sweep."""
    cases = result.document["cases"]
    if len(cases) < 2:
        return ""
    labels = [case["label"] for case in cases]
    values = [case["value"] for case in cases]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)
    places = [float(value) for value in values] if numbers else [float(at) for at in range(len(values))]
    ticks = [(place, short(value) if numbers else str(value)) for place, value in zip(places, values, strict=True)]
    found: dict[str, list[Metric]] = {}
    for metric in result.metrics():
        if metric.name.endswith(("rate", "time", "p50", "p99", "server CPU", "memory grown")):
            found.setdefault(f"{metric.name}, {metric.unit}", []).append(metric)
    colors = dict[tuple[str, str], int]()
    for metric in result.metrics():
        colors.setdefault((metric.side, metric.load), len(colors))
    charts = []
    field = result.document["workload"]["sweep"]
    for title, metrics in found.items():
        lines = []
        names = dict.fromkeys((metric.side, metric.load) for metric in metrics)
        for side, load in names:
            own = {metric.case: metric for metric in metrics if (metric.side, metric.load) == (side, load)}
            points = [(place, own[label].middle) for place, label in zip(places, labels, strict=True) if label in own]
            ranges = [(min(own[label].values), max(own[label].values)) for label in labels if label in own]
            lines.append(
                ChartLine(" ".join(filter(None, (side, load))), points, colors[side, load], ranges=ranges, marks=True)
            )
        y = Axis("", log=True, text=lambda us: duration(us * 1000)) if title.endswith(", us") else Axis("")
        title = title.removesuffix(", us")
        charts.append(line_chart(title, Axis(field, log=numbers, ticks=ticks), y, lines))
    return f'<h2>Growth</h2><div class="charts">{"".join(charts)}</div>'


def _case(case: dict[str, Any]) -> str:
    """The charts of one case."""
    sides = [side for side in case["sides"] if side["rounds"]]
    charts = [
        _percentiles(sides),
        _over_time(sides, 0, "Answers over time", "answers/s"),
        _over_time(sides, 1, "Deliveries over time", "deliveries/s"),
        _slowest(sides),
        _cpu(sides),
        _memory(sides),
    ]
    if not any(charts):
        return ""
    title = f"<h2>{escape(case['label'] or 'Over time and by percentile')}</h2>"
    return f'{title}<div class="charts">{"".join(charts)}</div>'


def _percentiles(sides: list[dict[str, Any]]) -> str:
    """Percentile curves of all rounds together, as HdrHistogram's plotter draws them."""
    lines: list[ChartLine] = []
    for side in sides:
        for name, load in side["rounds"][0]["loads"].items():
            for latency in load["latencies"]:
                rows = [one["loads"][name]["latencies"].get(latency) for one in side["rounds"]]
                counts = [LatencyHistogram.decoded(row["hdr"]) for row in rows if row]
                both = counts[0]
                for other in counts[1:]:
                    both = both + other
                points = list(_nines(both))
                label = " ".join(dict.fromkeys((side["name"], name, latency)))
                lines.append(ChartLine(label, points, len(lines)))
    if not lines:
        return ""
    most = max(point[0] for line in lines for point in line.points)
    ticks = [tick for tick in _NINES if tick[0] <= most * 10]
    x = Axis("share of requests that take at most so long", log=True, ticks=ticks)
    return line_chart("Latency by percentile", x, Axis("", log=True, text=duration), lines)


def _nines(histogram: LatencyHistogram) -> Iterator[Point]:
    """Points of the curve over 1 / (1 - share), up to where one value is left."""
    total = histogram.total
    for share, ns in histogram.curve():
        yield min(1 / max(1 - share, 1 / (2 * total)), total), float(ns)


def _each_round(sides: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    for at, side in enumerate(sides):
        for one in side["rounds"]:
            yield at, side, one


def _over_time(sides: list[dict[str, Any]], column: int, title: str, unit: str) -> str:
    """A line for each round of each side; loads are added up."""
    lines = []
    for at, side, one in _each_round(sides):
        width = one["slot_seconds"]
        series = [load["series"] for load in one["loads"].values() if load["series"]]
        if not series or not any(row[column] for rows in series for row in rows):
            continue
        # the last slot is not a whole one
        points = [
            (slot * width, sum(row[column] for row in rows) / width)
            for slot, rows in enumerate(zip(*series, strict=False))
        ]
        lines.append(ChartLine(side["name"], points[:-1] or points, at, faint=len(side["rounds"]) > 1))
    return line_chart(title, Axis("seconds since the warm-up began"), Axis(unit), lines)


def _slowest(sides: list[dict[str, Any]]) -> str:
    lines = []
    for at, side, one in _each_round(sides):
        width = one["slot_seconds"]
        series = [load["series"] for load in one["loads"].values() if load["series"]]
        points = [
            (slot * width, float(max(row[2] for row in rows))) for slot, rows in enumerate(zip(*series, strict=False))
        ]
        points = [point for point in points if point[1]]
        lines.append(ChartLine(side["name"], points, at, faint=len(side["rounds"]) > 1))
    x = Axis("seconds since the warm-up began")
    return line_chart("Slowest of each moment", x, Axis("", log=True, text=duration), lines)


def _cpu(sides: list[dict[str, Any]]) -> str:
    """Cores of the server between two samples."""
    lines = []
    for at, side, one in _each_round(sides):
        usage = one["server"]["usage"]
        points = [
            (later[0], (later[1] - earlier[1]) / (later[0] - earlier[0]))
            for earlier, later in zip(usage, usage[5:], strict=False)
            if later[0] > earlier[0]
        ]
        lines.append(ChartLine(side["name"], points, at, faint=len(side["rounds"]) > 1))
    return line_chart("CPU of the server", Axis("seconds since the warm-up began"), Axis("cores"), lines)


def _memory(sides: list[dict[str, Any]]) -> str:
    lines = []
    for at, side, one in _each_round(sides):
        points = [(row[0], row[2] / 1e6) for row in one["server"]["usage"]]
        lines.append(ChartLine(side["name"], points, at, faint=len(side["rounds"]) > 1))
    return line_chart("Resident memory of the server", Axis("seconds since the warm-up began"), Axis("MB"), lines)


def _checks(result: BenchResult) -> str:
    """Every check by name, and how often it held."""
    held: dict[tuple[str, str], list[bool]] = {}
    for _, side, _, one in result.rounds():
        for check in one["checks"]:
            held.setdefault((side, check["name"]), []).append(check["ok"])
    rows = []
    for (side, name), each in held.items():
        kind = "ok" if all(each) else "bad"
        rows.append(_row((side, name), [f'<td class="{kind}">{sum(each)} of {len(each)}</td>']))
    failures = "".join(f"<li>{escape(sentence)}</li>" for sentence in result.failures())
    shown = f'<ul class="plain bad">{failures}</ul>' if failures else ""
    return f"<h2>Checks</h2>{shown}" + _table(("side", "check", "rounds in which it held"), rows, 2)


def _about(result: BenchResult) -> str:
    """The machine, the sides, what was left out, and the workload's file."""
    document = result.document
    facts = [_row((name.replace("_", " "), str(value)), ()) for name, value in document["machine"].items()]
    settings = [_row((name, value), ()) for name, value in document["settings"].items()]
    sides = [_row((side["name"], side["version"]), ()) for side in document["sides"]]
    left_out = "".join(f"<li>{escape(sentence)}</li>" for sentence in document["left_out"])
    return (
        "<h2>How it was measured</h2>"
        f"<p>Command: <code>{escape(document['command'])}</code></p>"
        + (f'<p>Left out:</p><ul class="plain">{left_out}</ul>' if left_out else "")
        + f"<h3>Sides</h3>{_table(('side', 'version'), sides, 2)}"
        + f"<h3>Machine</h3>{_table(('', ''), facts, 2)}"
        + (f"<h3>Settings of the server</h3>{_table(('variable', 'value'), settings, 2)}" if settings else "")
        + f"<h3>Workload</h3><pre>{escape(document['workload']['text'])}</pre>"
        + '<p class="soft">docs/guides/bench.md says how to read this page, and how to distrust it.</p>'
    )
