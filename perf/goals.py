"""The table of goals: what `topics` is to reach beside its peers, and whether it does, from runs of `topics bench`.

    python -m perf.goals [--rounds 5] [--seconds 2] [--only pass,lone,tails,...] [--smoke]

Each row is a ratio of two figures of one run, in which the sides take turns: ours by a peer's, or ours by another of
ours. The ratio is the median of those of the rounds, the range in brackets; a goal is met if the median meets it. Goals
of the tails hold in each of at least five rounds in a row: the worst round decides. A peer that is not on this machine
leaves its rows out with a sentence. The checks of `topics bench` (every record is read back, every delivery counted)
apply to every run; one that fails ends the table. What the runs warn of, and the versions of their sides, are below the
table. The rows of `pass` are those of perf.lone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from perf import lone
from perf.figures import commit_id, interpreter, machine
from perf.traced_passes import Effort
from topics.bench.bench_run import BenchRun, with_run
from topics.bench.outcome import RoundOutcome
from topics.bench.peers.known_peers import known_peers, own_side
from topics.bench.results.bench_result import BenchResult
from topics.bench.results.figure_text import number, spread
from topics.bench.sides import Side
from topics.bench.workload import Case, SweepSpec, Workload
from topics.bench.workload_files import find_workload
from topics.clock import SystemClock
from topics.errors import UsageError

P50, P99, RATE = "answer p50", "answer p99", "rate"
HEARD50, HEARD99 = "delivery p50", "delivery p99"
SECONDS_OF_DELIVERIES = 4.0
"""A round has 50 writes a second: of so many seconds the p99 is the third slowest of 200."""
HALF = 0.5
"""Share of the peak at which tails are measured."""
IN_A_ROW = 5
"""Rounds that a goal of the tails has to be met in, one after the other."""
MISSED = "**missed**"


class Figure(NamedTuple):
    """One metric of one side in one case. case: the label of `topics bench`; peer empty: ours."""

    load: str
    name: str
    case: str = ""
    peer: str = ""


@dataclass(frozen=True)
class Goal:
    """One row. by: figures whose sum divides ours; none for a goal that is a number by itself."""

    what: str
    ours: Figure
    by: tuple[Figure, ...]
    sign: str
    limit: float
    in_each: bool = False
    """Whether each of IN_A_ROW rounds has to meet it, and not their median."""

    def verdict(self, ratios: list[float]) -> str:
        """Return whether the ratios of the rounds meet the goal, as the table says it."""
        at_most = self.sign == "<="
        worst = max(ratios) if at_most else min(ratios)
        judged = worst if self.in_each else statistics.median(ratios)
        if not (judged <= self.limit if at_most else judged >= self.limit):
            return MISSED
        return f"not decided: it takes {IN_A_ROW} rounds" if self.in_each and len(ratios) < IN_A_ROW else "met"


@dataclass(frozen=True)
class Measurement:
    """One run of a workload of `topics bench`, and the goals that it decides.

    sweep: other values of its sweep, or another sweep; rate_of: a load whose rate is to be half of its peak;
    connections: of its loads, by their names, where they are to be others; seconds_min: of a round, so that a quantile
    is not that of its slowest write.
    """

    workload: str
    goals: tuple[Goal, ...]
    sweep: SweepSpec | None = None
    rate_of: str = ""
    connections: dict[str, int] = field(default_factory=dict)
    seconds_min: float = 0.0

    @property
    def peers(self) -> list[str]:
        return sorted({figure.peer for goal in self.goals for figure in goal.by if figure.peer})


def _beside(what: str, load: str, name: str, case: str, peer: str, sign: str, limit: float) -> Goal:  # noqa: PLR0917
    """Our figure by the same one of a peer."""
    return Goal(what, Figure(load, name, case), (Figure(load, name, case, peer),), sign, limit)


def _own(what: str, ours: Figure, by: Figure, sign: str, limit: float) -> Goal:
    return Goal(what, ours, (by,), sign, limit)


def _classes(*names: str) -> SweepSpec:
    return SweepSpec("topic.durability", names)


def _deliveries(workload: str, over: str) -> Measurement:
    limits = {1: 1.2, 10: 1.2, 100: 1.0, 1000: 1.0}
    goals: list[Goal] = []
    for count, limit in limits.items():
        case, what = f"connections {count}", f"a write reaches {count:,} {over} watchers"
        goals.append(_beside(f"{what}, p50", "watch", HEARD50, case, "redis-pubsub", "<=", limit))
        tail, middle = Figure("watch", HEARD99, case), Figure("watch", HEARD50, case)
        goals.append(_own(f"{what}, p99 by p50", tail, middle, "<=", 3.0))
    return Measurement(workload, tuple(goals), seconds_min=SECONDS_OF_DELIVERIES)


def _half_of_peak(durability: str) -> Measurement:
    what = f"single writes, `{durability}`, open loop at half the peak, p99 by p50, in each round"
    goal = Goal(what, Figure("write", P99), (Figure("write", P50),), "<=", 4.0, in_each=True)
    return Measurement(f"write-open-{durability}", (goal,), SweepSpec(), rate_of="write")


PARTS: dict[str, tuple[Measurement, ...]] = {
    "lone": (
        Measurement(
            "write-lone",
            (
                _beside("lone write, `fsync`, p50", "write", P50, "durability fsync", "redis", "<=", 1.0),
                Goal(
                    "the same by bare write and sync, and an echo",
                    Figure("write", P50, "durability fsync"),
                    (
                        Figure("write", P50, "durability fsync", "commit"),
                        Figure("write", P50, "durability fsync", "echo"),
                    ),
                    "<=",
                    1.1,
                ),
                _beside("lone write, `disk`, p50", "write", P50, "durability disk", "redis", "<=", 1.15),
            ),
            _classes("disk", "fsync"),
        ),
        Measurement(
            "read-one",
            (
                _beside("lone read of one record, p50", "read", P50, "connections 1", "redis", "<=", 1.3),
                _beside("the same, 64 connections, requests/s", "read", RATE, "connections 64", "redis", ">=", 1.3),
            ),
            SweepSpec("load.read.connections", (1, 64)),
        ),
        Measurement(
            "tail-empty",
            (
                _beside("read at the end, p50", "poll", P50, "connections 1", "redis", "<=", 1.3),
                _beside("the same, 64 connections, requests/s", "poll", RATE, "connections 64", "redis", ">=", 1.3),
            ),
        ),
    ),
    "deliveries": (
        _deliveries("deliver-sse", "SSE"),
        _deliveries("deliver-ws", "WebSocket"),
        Measurement(
            "deliver-flat-out",
            tuple(
                _beside(f"deliveries/s to 1,000 {name}", "watch", RATE, f"over {over}", "redis-pubsub", ">=", 1.0)
                for over, name in (("sse", "SSE watchers"), ("ws", "WebSockets"))
            ),
            SweepSpec("load.watch.over", ("sse", "ws")),
            connections={"watch": 1000},
        ),
        Measurement(
            "router-visible",
            (
                _own(
                    "a routed record reaches a watcher, p50 by a direct one's",
                    Figure("watch", HEARD50, "topic destination"),
                    Figure("watch", HEARD50, "topic "),
                    "<=",
                    1.3,
                ),
            ),
            SweepSpec("load.watch.topic", ("", "destination")),
        ),
    ),
    "writes": (
        Measurement(
            "write-64",
            (
                _beside("single writes, 64 connections, `disk`", "write", RATE, "durability disk", "redis", ">=", 1.6),
                _beside("the same, `fsync`", "write", RATE, "durability fsync", "redis", ">=", 1.4),
            ),
            _classes("disk", "fsync"),
        ),
        Measurement(
            "write-open-fsync",
            (_beside("single writes, 256 connections, `fsync`", "write", RATE, "connections 256", "redis", ">=", 1.6),),
            SweepSpec("load.write.connections", (256,)),
        ),
        Measurement(
            "write-batch",
            (_beside("batches of 100, 16 connections, `disk`", "write", RATE, "durability disk", "redis", ">=", 4.0),),
            _classes("disk"),
        ),
    ),
    "tails": (_half_of_peak("disk"), _half_of_peak("fsync")),
    "topics": (
        Measurement(
            "many-topics",
            tuple(
                _own(
                    f"single writes to {count:,} topics by turns, by those to 10",
                    Figure("write", RATE, f"topics {count}"),
                    Figure("write", RATE, "topics 10"),
                    ">=",
                    limit,
                )
                for count, limit in ((1000, 0.85), (100_000, 0.75))
            ),
        ),
    ),
    "embedded": (
        Measurement(
            "embedded-append",
            (
                _beside(
                    "library: `append`, `fsync`, calls/s", "append", RATE, "durability fsync", "sqlite", ">=", 1.05
                ),
                _beside("the same, `disk`", "append", RATE, "durability disk", "sqlite", ">=", 1.5),
            ),
        ),
        Measurement(
            "embedded-batch",
            (
                Goal(
                    "library: `append_many(1000)`, `disk`, millions of records/s",
                    Figure("append", RATE, "durability disk"),
                    (),
                    ">=",
                    6.0,
                ),
            ),
            _classes("disk"),
        ),
    ),
}
PASS = "pass"
ALL_PARTS = (PASS, *PARTS)


@dataclass
class Remarks:
    """Sentences below the table, each once, and with the workloads of which it is true."""

    left_out: dict[str, str] = field(default_factory=dict)
    versions: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def add(self, result: BenchResult) -> None:
        self.versions |= {f"{side['name']}: {side['version']}": None for side in result.document["sides"]}
        for sentence in result.warnings():
            self.warnings.setdefault(sentence, []).append(result.name)

    def lines(self) -> Iterator[str]:
        for name, reason in self.left_out.items():
            yield f"{name} is left out: {reason}"
        yield from self.versions
        for sentence, names in self.warnings.items():
            yield f"warning ({', '.join(dict.fromkeys(names))}): {sentence}"


class Silent:
    """The observer of a run that shows nothing."""

    def starts(self, case: Case, side: Side, number: int, rounds: int) -> None: ...

    def progress(self, phase: str, count: int) -> None: ...

    def ended(self, case: Case, side: Side, outcome: RoundOutcome | None, error: str) -> None:
        if error:
            print(f"{side.name}, {case.label}: {error}", file=sys.stderr)


def measure(workload: Workload, peers: list[Side]) -> BenchResult:
    """Run a workload with its sides by turns. Raises: UsageError if a check failed."""
    result = BenchRun(workload, [own_side(workload, "", "", {}), *peers], Silent(), SystemClock()).run()
    if failures := result.failures():
        raise UsageError(f"{workload.name}: {'; '.join(failures)}")
    return result


def prepared(measurement: Measurement, seconds: float | None, rounds: int | None) -> Workload:
    """Return the workload as its goals want it: the sweep changed, and the rate half of its peak."""
    workload = find_workload(measurement.workload)
    if measurement.sweep is not None:
        workload = replace(workload, sweep=measurement.sweep)
    loads = (
        replace(load, connections=measurement.connections.get(load.name, load.connections)) for load in workload.loads
    )
    workload = replace(workload, loads=tuple(loads))
    if seconds is not None:
        workload = with_run(workload, max(seconds, measurement.seconds_min), min(1.0, seconds), None)
    workload = with_run(workload, None, None, rounds)
    swept = measurement.sweep is not None and measurement.sweep.field.startswith("load.write.connections")
    if measurement.rate_of or swept:  # a workload of the open loop without its rate is a closed one
        workload = _with_rate(workload, 0.0)
    if measurement.rate_of:
        peak = measure(with_run(workload, None, None, 1), [])
        workload = _with_rate(workload, values(peak, Figure(measurement.rate_of, RATE), {})[0] * HALF)
    return workload


def _with_rate(workload: Workload, rate: float) -> Workload:
    return replace(workload, loads=tuple(replace(load, rate=rate) for load in workload.loads))


def values(result: BenchResult, figure: Figure, names: dict[str, str]) -> list[float]:
    """Return a figure of each round. names: of the sides, by the names of peers."""
    side = names[figure.peer] if figure.peer else result.document["sides"][0]["name"]
    for metric in result.metrics():
        if (metric.case, metric.side, metric.load, metric.name) == (figure.case, side, figure.load, figure.name):
            return metric.values
    raise UsageError(f"{result.name}: there is no {figure}")


def rows(measurement: Measurement, result: BenchResult, names: dict[str, str]) -> Iterator[str]:
    """Yield a line of the table for each goal whose peers took part."""
    for goal in measurement.goals:
        if any(figure.peer not in names for figure in goal.by if figure.peer):
            continue
        ours = values(result, goal.ours, names)
        shares = [values(result, figure, names) for figure in goal.by]
        by = [sum(each) for each in zip(*shares, strict=True)] if shares else [1e6] * len(ours)
        ratios = [a / b for a, b in zip(ours, by, strict=True)]
        peer = " + ".join(names.get(figure.peer, "ours") for figure in goal.by) or "-"
        theirs = spread(by) if shares else "-"
        yield (
            f"| {goal.what} | {spread(ours)} | {peer} | {theirs} | {spread(ratios)} "
            f"| {goal.sign} {number(goal.limit)} | {goal.verdict(ratios)} |"
        )


def pass_rows(rounds: int, passes: int) -> Iterator[str]:
    """Yield a line for each kind of lone request: what its pass costs until the answer, by itself."""
    for row, name in lone.NAMES.items():
        if row not in lone.ROWS:
            continue
        figures = lone.measure(row, Effort(rounds, passes, lone.PAUSE_US))
        for found, when in (figures.to_answer, "in a series"), (figures.to_answer_apart, "after a pause of 0.2 ms"):
            goal = Goal("", Figure("", ""), (), "<=", lone.GOAL_US)
            yield (
                f"| CPU of Python and C from request to answer, {name}, {when}, us | {spread(found)} | - | - "
                f"| {spread(found)} | <= {number(lone.GOAL_US)} | {goal.verdict(found)} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="", help=f"parts by commas: {', '.join(ALL_PARTS)}")
    parser.add_argument("--smoke", action="store_true", help="one short round of everything")
    options = parser.parse_args()
    rounds, seconds = (1, 0.2) if options.smoke else (options.rounds, options.seconds)
    if rounds < 1:
        parser.error(f"--rounds is {rounds}: use 1 or more, and {IN_A_ROW} or more for goals of the tails")
    if not 0.05 <= seconds <= 3600:
        parser.error(f"--seconds is {seconds}: use 0.05 to 3600")
    wanted = list(filter(None, options.only.split(","))) or list(ALL_PARTS)
    if unknown := set(wanted) - set(ALL_PARTS):
        parser.error(f"--only has {', '.join(sorted(unknown))}: use parts of {', '.join(ALL_PARTS)}")
    print(f"machine {machine()}, commit {commit_id()}, {rounds} rounds of {seconds} s\n{interpreter()}\n")
    try:
        print_table(wanted, rounds, seconds, smoke=options.smoke)
    except UsageError as error:
        parser.exit(1, f"perf.goals: {error}\n")


def print_table(wanted: list[str], rounds: int, seconds: float, *, smoke: bool) -> None:
    print("| what | topics | beside | theirs | ratio | goal | |\n|---|---|---|---|---|---|---|", flush=True)
    remarks = Remarks()
    run = smaller if smoke else prepared
    for line in pass_rows(rounds, lone.PASSES_OF_A_SMOKE if smoke else lone.PASSES) if PASS in wanted else ():
        print(line, flush=True)
    for measurement in (each for part in wanted for each in PARTS.get(part, ())):
        print_rows(measurement, run, seconds, rounds, remarks)
    for line in remarks.lines():
        print(f"\n{line}")


def smaller(measurement: Measurement, seconds: float | None, rounds: int | None) -> Workload:
    """Return the workload with as little as it can do before and beside its load."""
    workload = prepared(replace(measurement, seconds_min=0.0), seconds, rounds)
    return replace(workload, fill=replace(workload.fill, records=min(workload.fill.records, 1000)))


def print_rows(
    measurement: Measurement,
    run: Callable[[Measurement, float, int], Workload],
    seconds: float,
    rounds: int,
    remarks: Remarks,
) -> None:
    known: dict[str, Any] = known_peers()
    here = {}
    for name in measurement.peers:
        if reason := known[name].missing():
            remarks.left_out[known[name].name] = reason
        else:
            here[name] = known[name]
    result = measure(run(measurement, seconds, rounds), list(here.values()))
    remarks.add(result)
    for row in rows(measurement, result, {name: side.name for name, side in here.items()}):
        print(row, flush=True)


if __name__ == "__main__":
    main()
