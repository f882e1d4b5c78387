"""`check`: topics against rules on `data`, the seqs that they gave out, and an export of them.

    run(Options(origin=Origin(path="/var/lib/topics"), rules="rules.toml", export="/data/lake"))

A seq has an explanation if its record is live, reported as lost, removed by a delete of all seqs
below a bound, or still in the files as deleted. A record deleted by tag or seq before a checkpoint
could copy it leaves no trace, nor does a record whose file has been removed since. Seqs without a
trace are listed, and are an error only if the options say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock, SystemClock
from topics.errors import CorruptError, UsageError
from topics.files import Loss, deleted_seqs
from topics.pipelines.check_export import check_export, layout_of
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, RunContext, Stop, silent
from topics.pipelines.report import LISTED_MAX, WELL, WRONG, Report, count
from topics.pipelines.seqs import Seqs, Span, holes, seqs_of
from topics.pipelines.source import Origin, Slice, SourceTopic, open_selection, read
from topics.pipelines.values.rules import Rule, document, read_rules, rules_for, value_of

FAIL_ON = ("loss", "unexplained")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a check.

    rules: a TOML or JSON file (values/rules.py).
    export: the target of an export.
    fail_on: the entries of FAIL_ON that count as errors.
    """

    origin: Origin
    rules: str = ""
    export: str = ""
    fail_on: tuple[str, ...] = ()


@dataclass
class CheckedTopic:
    """Counts of a topic's seqs. head: the last seq that the files cover."""

    head: int
    live: int = 0
    deleted: int = 0
    """Deleted records that are still in the files."""
    lost: int = 0
    losses: list[dict[str, Any]] = field(default_factory=list)
    """The first LISTED_MAX losses."""
    unexplained: int = 0
    unexplained_ranges: list[Span] = field(default_factory=list)
    """The first LISTED_MAX ranges."""


@dataclass
class RuleReport:
    """Counts of a rule.

    broken: the number of records, by the part of the rule that they break.
    examples: the first LISTED_MAX of these records.
    """

    rule: str
    checked: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class CheckReport(Report):
    """Report of a check: counts of seqs and rules, and the errors found."""

    pipeline: ClassVar[str] = "check"

    path: str
    snapshot: int = 0
    topics: dict[str, CheckedTopic] = field(default_factory=dict)
    rules: list[RuleReport] = field(default_factory=list)
    export: dict[str, Any] | None = None
    unreadable: list[str] = field(default_factory=list)
    """Damage that ended the reading of a range, which is therefore not fully checked."""
    wrong: list[str] = field(default_factory=list)
    """A sentence for each kind of error."""

    @property
    def exit_code(self) -> int:
        """Return WRONG if there is an error, else WELL."""
        return WRONG if self.wrong else WELL

    def summary(self) -> str:
        """Return the result in one sentence."""
        live = sum(topic.live for topic in self.topics.values())
        looked = f"{self.path}: {count(live, 'live record')} of {count(len(self.topics), 'topic')}"
        return f"{looked}: {'; '.join(self.wrong) or 'nothing wrong'}"


def run(
    options: Options, *, engine: PipelineEngine | None = None, clock: Clock | None = None, progress: Progress = silent
) -> CheckReport:
    """Check seqs and losses, and the rules and the export of the options.

    Raises: UsageError, StoppedError; FormatError and TargetError, the export cannot be read; errors
        of opening a directory.
    """
    clock = clock or SystemClock()
    engine = engine or LocalEngine()
    began = clock.monotonic_ns()
    for name in options.fail_on:
        if name not in FAIL_ON:
            raise UsageError(f"--fail-on {name!r} means nothing: use {' or '.join(FAIL_ON)}")
    rules = read_rules(options.rules) if options.rules else ()
    layout = layout_of(options.export) if options.export else None
    selection = open_selection(options.origin)
    report = CheckReport(options.origin.path, selection.snapshot, rules=[RuleReport(str(rule)) for rule in rules])
    with Stop() as stop:
        job = RunContext(engine, stop, progress)
        work = partial(check_unit, rules, options.origin.verify)
        _check_records(report, selection.topics, work, job)
        if layout is not None:
            report.export = check_export(layout, options.export, selection.topics, options.origin, job)
    report.wrong = list(_wrong(report, options))
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def _wrong(report: CheckReport, options: Options) -> Iterator[str]:
    if report.unreadable:
        yield f"{count(len(report.unreadable), 'range')} could not be read to the end"
    for rule in report.rules:
        if rule.broken:
            yield f"{count(sum(rule.broken.values()), 'record')} broke {rule.rule}"
    topics = report.topics.values()
    if "loss" in options.fail_on and (lost := sum(topic.lost for topic in topics)):
        yield f"{count(lost, 'seq')} lost"
    if "unexplained" in options.fail_on and (unexplained := sum(topic.unexplained for topic in topics)):
        yield f"{count(unexplained, 'seq')} without an explanation"
    if report.export is not None and report.export["wrong"]:
        yield f"the export differs in {count(report.export['wrong'], 'place')}"


# --- records: seqs, and rules


class CheckUnit(NamedTuple):
    """A slice, and the losses in it."""

    slice: Slice
    losses: tuple[Span, ...]


class CheckedUnit(NamedTuple):
    """The result of a unit."""

    topic: str
    live: int
    deleted: int
    unexplained: int
    ranges: list[Span]
    """The first LISTED_MAX ranges."""
    lost: list[Loss]
    """Losses since the slice was planned."""
    rules: list[RuleResult]
    unreadable: str


class RuleResult(NamedTuple):
    """The result of one rule in a unit. hashes, seqs: of the values that must be unique."""

    number: int
    checked: int
    broken: dict[str, int]
    examples: list[dict[str, Any]]
    hashes: NDArray[np.uint64]
    seqs: Seqs


def _check_records(
    report: CheckReport, topics: Mapping[str, SourceTopic], work: Callable[[CheckUnit], CheckedUnit], job: RunContext
) -> None:
    units: list[CheckUnit] = []
    for topic in topics.values():
        losses = topic.losses(1, topic.head)
        spans = [(loss.from_seq, loss.to_seq) for loss in losses]
        about = report.topics[topic.name] = CheckedTopic(topic.head)
        _report_losses(about, losses)
        slices = topic.slices(topic.first, topic.head) if topic.first <= topic.head else []
        units += [
            CheckUnit(one, tuple(span for span in spans if span[0] <= one.to_seq and span[1] >= one.from_seq))
            for one in slices
        ]
        between = [(one.from_seq, one.to_seq) for one in slices] + spans
        if topic.first <= topic.head:
            _report_holes(about, holes((topic.first, topic.head), np.empty(0, np.int64), between))
    unique: dict[tuple[int, str], list[RuleResult]] = {}
    for found in job.results(work, units, "checked"):
        about = report.topics[found.topic]
        about.live += found.live
        about.deleted += found.deleted
        about.unexplained += found.unexplained - sum(high - low + 1 for low, high in found.ranges)
        _report_holes(about, found.ranges)
        _report_losses(about, found.lost)
        report.unreadable += [found.unreadable] if found.unreadable else []
        for result in found.rules:
            _add_result(report.rules[result.number - 1], result)
            if len(result.hashes):
                unique.setdefault((result.number, found.topic), []).append(result)
    for (rule, name), results in unique.items():
        _add_repeated(report.rules[rule - 1], name, results)


def _report_losses(about: CheckedTopic, losses: Iterable[Loss]) -> None:
    for loss in losses:
        about.lost += loss.to_seq - loss.from_seq + 1
        if len(about.losses) < LISTED_MAX:
            about.losses.append({"from_seq": loss.from_seq, "to_seq": loss.to_seq, "reason": loss.reason})


def _report_holes(about: CheckedTopic, ranges: list[Span]) -> None:
    about.unexplained += sum(high - low + 1 for low, high in ranges)
    room = max(0, LISTED_MAX - len(about.unexplained_ranges))
    about.unexplained_ranges += ranges[:room]


def _add_result(about: RuleReport, result: RuleResult) -> None:
    about.checked += result.checked
    about.broken = dict(Counter(about.broken) + Counter(result.broken))
    about.examples += result.examples[: max(0, LISTED_MAX - len(about.examples))]


def _add_repeated(about: RuleReport, topic: str, results: list[RuleResult]) -> None:
    """Count the records with the value of an earlier record."""
    hashes = np.concatenate([result.hashes for result in results])
    seqs = np.concatenate([result.seqs for result in results])
    order = np.lexsort((seqs, hashes))
    hashes, seqs = hashes[order], seqs[order]
    again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(again):
        return
    about.broken["unique"] = about.broken.get("unique", 0) + len(again)
    firsts = np.searchsorted(hashes, hashes[again], "left")
    rows = sorted(zip(seqs[again].tolist(), seqs[firsts].tolist(), strict=True))
    for seq, first in rows[: max(0, LISTED_MAX - len(about.examples))]:
        about.examples.append({"topic": topic, "seq": seq, "broke": "unique", "same_as_seq": first})


def check_unit(rules: tuple[Rule, ...], verify: bool, unit: CheckUnit) -> CheckedUnit:
    """Check the records of a slice, on an executor."""
    one = unit.slice
    checks = [_RuleCheck(rule) for rule in rules_for(rules, one.topic)]
    live: list[Seqs] = []
    lost: list[Loss] = []
    try:
        for item in read(one, ["seq", "data", "bytes"] if checks else ["seq"], verify=verify):
            if isinstance(item, Loss):
                lost.append(item)
                continue
            seqs = seqs_of(item)
            live.append(seqs.copy())
            if checks:
                _check_rules(checks, one.topic, seqs.tolist(), item.column("data").to_pylist())
        deleted = [gone for piece in one.pieces if (gone := deleted_seqs(one.location, piece)) is not None]
    except CorruptError as error:
        results = [check.result() for check in checks]
        return CheckedUnit(one.topic, sum(map(len, live)), 0, 0, [], lost, results, str(error))
    present = np.concatenate([*live, *deleted, np.empty(0, np.int64)])
    spans = [*unit.losses, *((loss.from_seq, loss.to_seq) for loss in lost)]
    ranges = holes((one.from_seq, one.to_seq), present, spans)
    return CheckedUnit(
        one.topic,
        sum(map(len, live)),
        sum(map(len, deleted)),
        sum(high - low + 1 for low, high in ranges),
        ranges[:LISTED_MAX],
        lost,
        [check.result() for check in checks],
        "",
    )


class _RuleCheck:
    """A rule while it is applied to records, with its counts so far."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.checked = 0
        self.broken: dict[str, int] = {}
        self.examples: list[dict[str, Any]] = []
        self.hashes: list[int] = []
        self.seqs: list[int] = []

    def result(self) -> RuleResult:
        hashes = np.array(self.hashes, np.uint64)
        seqs = np.array(self.seqs, np.int64)
        return RuleResult(self.rule.number, self.checked, self.broken, self.examples, hashes, seqs)


def _check_rules(checks: list[_RuleCheck], topic: str, seqs: list[int], texts: list[str | None]) -> None:
    for seq, text in zip(seqs, texts, strict=True):
        found = document(text)
        for check in checks:
            value = value_of(found, check.rule)
            check.checked += 1
            broke = check.rule.broken_by(value)
            if broke:
                check.broken[broke] = check.broken.get(broke, 0) + 1
                if len(check.examples) < LISTED_MAX:
                    check.examples.append({"topic": topic, "seq": seq, "broke": broke})
            identity = check.rule.identity(value)
            if identity is not None:
                check.hashes.append(identity)
                check.seqs.append(seq)
