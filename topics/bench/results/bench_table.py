"""The tables that a run and a comparison print, and the live table of a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from topics.bench.outcome import RoundOutcome
from topics.bench.results.bench_compare import MetricComparison, RoundsVerdict, compare_sides
from topics.bench.results.bench_result import BenchResult
from topics.bench.results.figure_text import spread
from topics.bench.sides import Side
from topics.bench.workload import Case

WIDTH = 150
_COLORS = {RoundsVerdict.BETTER: "green", RoundsVerdict.WORSE: "red"}


def plain(text: str) -> str:
    """Return a text of a file with its hidden characters spelled out, so that none of them moves
    the cursor of a terminal.
    """
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def _print_plain(console: Console, text: str) -> None:
    console.print(plain(text), markup=False, highlight=False, soft_wrap=True)


class _PlainTable(Table):
    """A table whose cells are shown as they are: names of a file are no markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(escape(plain(str(cell))) for cell in cells), **options)


def _table(*columns: str) -> Table:
    table = _PlainTable(box=box.SIMPLE, pad_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < 2 else "right", overflow="fold")
    return table


@dataclass
class LiveRow:
    """One side of one case, so far."""

    rates: list[float] = field(default_factory=list)
    unit: str = ""
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    status: str = "waits"
    server: str = "-"
    client: str = "-"


class LiveTable:
    """The observer of a run that shows it: a table that changes, or a line for each round."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        self.title = title
        self._rows: dict[tuple[str, str], LiveRow] = {}
        self._current: LiveRow | None = None
        self._status = ""
        self.finished = 0
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> LiveTable:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *unused: object) -> None:
        if self._live:
            self._live.stop()

    def starts(self, case: Case, side: Side, number: int, rounds: int) -> None:
        self._current = self._rows.setdefault((case.label, side.name), LiveRow())
        self._current.status = f"round {number + 1} of {rounds}"
        self._status = self._current.status
        self._show()

    def progress(self, phase: str, count: int) -> None:
        if self._current is not None:
            self._current.status = f"{self._status}: {phase}{f', {count:,}' if count else ''}"
        self._show()

    def ended(self, case: Case, side: Side, outcome: RoundOutcome | None, error: str) -> None:
        row = self._rows[case.label, side.name]
        if outcome is None:
            row.status = f"failed: {error}"
        else:
            self.finished += 1
            self._add(row, outcome)
        self._show()
        if self._live is None:
            place = " ".join(filter(None, (case.label, side.name)))
            shown = f"{row.unit} {spread(row.rates)}" if row.rates else ""
            _print_plain(self.console, f"{self.title}: {place}: {self._status}: {shown} {row.status}")

    def _add(self, row: LiveRow, outcome: RoundOutcome) -> None:
        first = outcome.loads[-1] if outcome.loads[-1].latencies else outcome.loads[0]
        row.rates.append(first.rate)
        row.unit = first.unit
        latencies = list(first.latencies.values())
        if latencies:
            row.p50.append(latencies[-1].quantile(0.5) / 1000)
            row.p99.append(latencies[-1].quantile(0.99) / 1000)
        if outcome.server_cpu_seconds is not None:
            row.server = f"{outcome.server_cpu_seconds / outcome.seconds:.2f}"
        if outcome.client_cpu_seconds is not None:
            row.client = f"{outcome.client_cpu_seconds / outcome.seconds:.2f}"
        row.status = outcome.verdict

    def _show(self) -> None:
        if self._live is None:
            return
        table = _table("case", "side", "rate", "p50 us", "p99 us", "server CPU", "client CPU", "now")
        table.title = escape(self.title)
        for (case, side), row in self._rows.items():
            rates = f"{spread(row.rates)} {row.unit}" if row.rates else "-"
            p50, p99 = (spread(values) if values else "-" for values in (row.p50, row.p99))
            table.add_row(case, side, rates, p50, p99, row.server, row.client, row.status)
        self._live.update(table)


def wide_enough(console: Console) -> Console:
    """Return a console with room for a table, where no terminal says how wide it is."""
    return console if console.is_terminal else Console(file=console.file, width=WIDTH)


def print_result(console: Console, result: BenchResult) -> None:
    """Print a result: its figures, ratios to peers, warnings, and what failed."""
    document = result.document
    console = wide_enough(console)
    title, question = (escape(document["workload"][name]) for name in ("title", "question"))
    console.print(f"[bold]{title}[/bold]: {question}")
    facts = document["machine"]
    _print_plain(
        console,
        f"{facts['cores']} cores of {facts['cpu']}, {facts['system']}, {facts['file_system']}, "
        f"{facts['python']}, topics {facts['topics']} {facts['commit']}",
    )
    columns = ("load", "rate", "latency", "p50 us", "p99 us", "p99.9 us", "server CPU", "client CPU", "MB")
    table = _table("case", "side", *columns)
    for row in result_rows(result):
        table.add_row(*row)
    console.print(table)
    for metric in result.metrics():
        if not metric.unit:
            _print_plain(console, f"{metric.case} {metric.side}: {metric.name} {spread(metric.values)}".strip())
    if rows := compare_sides(result):
        console.print("topics beside each peer: its figure divided by the peer's")
        console.print(_comparison_table(rows, "peer", "topics"))
    for line in _remarks(result):
        _print_plain(console, line)


def result_rows(result: BenchResult) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a row for each latency of each load, and for a load without any."""
    shown: tuple[str, str] | None = None
    for case in result.document["cases"]:
        for side in case["sides"]:
            rounds = side["rounds"]
            for name, first in rounds[0]["loads"].items() if rounds else ():
                loads = [one["loads"][name] for one in rounds]
                head = (case["label"], side["name"])
                rate = spread([one["rate"] for one in loads], f" {first['unit']}\n")
                rate += "" if "\n" in rate else f" {first['unit']}"
                usage = _usage_cells(rounds) if head != shown else ("", "", "")
                for latency in first["latencies"] or [""]:
                    cells = [latency, "-", "-", "-"]
                    if latency:
                        rows = [one["latencies"][latency] for one in loads if latency in one["latencies"]]
                        for at, quantile in enumerate(("p50_ns", "p99_ns", "p999_ns"), 1):
                            cells[at] = spread([row[quantile] / 1000 for row in rows], "\n")
                    place = head if head != shown else ("", "")
                    yield (*place, name, rate, *cells, *usage)
                    shown, rate, name, usage = head, "", "", ("", "", "")


def _usage_cells(rounds: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Cores that server and client used, and the server's memory at its largest."""
    cells = []
    for who in ("server", "client"):
        shares = [one[who]["cpu_seconds"] / one["seconds"] for one in rounds if one[who]["cpu_seconds"] is not None]
        cells.append(spread(shares, "\n") if shares else "-")
    most = [max(row[2] for row in one["server"]["usage"]) / 1e6 for one in rounds if one["server"]["usage"]]
    return cells[0], cells[1], spread(most, "\n") if most else "-"


def _remarks(result: BenchResult) -> Iterator[str]:
    for sentence in result.document["left_out"]:
        yield f"left out: {sentence}"
    for sentence in result.warnings():
        yield f"warning: {sentence}"
    failures = result.failures()
    for sentence in failures:
        yield f"FAILED: {sentence}"
    if not failures:
        yield result.established()


def _comparison_table(rows: list[MetricComparison], before: str, after: str) -> Table:
    table = _table("case", "side", "load", "figure", before, after, "unit", "ratio", "")
    for row in rows:
        metric = row.metric
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(
            metric.case,
            metric.side,
            metric.load,
            metric.name + (" (less is better)" if metric.less else ""),
            spread(row.before, "\n"),
            spread(row.after, "\n"),
            metric.unit,
            ratio,
            row.verdict.value,
            style=_COLORS.get(row.verdict),
        )
    return table


def print_comparison(console: Console, rows: list[MetricComparison], reasons: list[str]) -> None:
    """Print a comparison of two results, after what speaks against it."""
    console = wide_enough(console)
    for sentence in reasons:
        _print_plain(console, f"doubtful: {sentence}")
    console.print(_comparison_table(rows, "first", "second"))
