"""A run of a workload: in each round, every case is measured on every side."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from topics.bench.hidden_keys import hidden_settings, hidden_text
from topics.bench.independent_histograms import decoder_warnings, disagreements
from topics.bench.machine_facts import command_line, machine_facts, machine_warnings
from topics.bench.outcome import BenchCheck, RoundOutcome
from topics.bench.results.bench_result import FORMAT, VERSION, BenchResult, outcome_json
from topics.bench.round_checks import few_warnings, unanswered_warnings
from topics.bench.sides import Side
from topics.bench.workload import Case, Workload, checked_option
from topics.clock import Clock
from topics.errors import TopicsError, UsageError


class RunWatcher(Protocol):
    """The observer of a run, such as the table on the terminal."""

    def starts(self, case: Case, side: Side, number: int, rounds: int) -> None:
        """A round begins."""

    def progress(self, phase: str, count: int) -> None:
        """The round that runs is in this phase, and so many answers and deliveries have come."""

    def ended(self, case: Case, side: Side, outcome: RoundOutcome | None, error: str) -> None:
        """A round has an outcome, or an error instead."""


class _CaseRounds:
    """A case, its sides, and what their rounds gave so far."""

    def __init__(self, case: Case, sides: list[Side]) -> None:
        self.case = case
        self.sides = sides
        self.rounds: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}


@dataclass
class BenchRun:
    """One run. sides: the first one is ours. directory: where scratch directories are made.

    url: of a server that runs already, whose settings and machine are not known; else empty.
    """

    workload: Workload
    sides: list[Side]
    watcher: RunWatcher
    clock: Clock
    directory: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    url: str = ""

    def run(self) -> BenchResult:
        """Measure every case; return the result, whether or not its checks hold."""
        scratch = Path(tempfile.mkdtemp(prefix="topics-bench-", dir=self.directory))
        try:
            facts = machine_facts(scratch)
            began = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")
            errors: list[str] = []
            cases = self._cases(scratch, errors)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        run = self.workload.run
        return BenchResult(
            {
                "format": FORMAT,
                "version": VERSION,
                "started": began,
                "command": command_line(),
                "workload": {
                    "name": self.workload.name,
                    "title": self.workload.title,
                    "question": self.workload.question,
                    "text": hidden_text(self.workload.text, self.workload.server),
                    "sweep": self.workload.sweep.field,
                    "run": {"seconds": run.seconds, "warmup": run.warmup, "rounds": run.rounds},
                },
                "machine": facts,
                "settings": {} if self.url else hidden_settings({**self.workload.server, **self.settings}),
                "sides": [{"name": side.name, "version": side.version()} for side in self.sides],
                "left_out": list(dict.fromkeys(self.left_out)),
                "warnings": machine_warnings(facts) + self._of_another() + decoder_warnings(),
                "errors": errors,
                "cases": cases,
            }
        )

    def _of_another(self) -> list[str]:
        """Return a sentence about what the result does not have of a server at a URL."""
        if not self.url:
            return []
        asked = ", ".join(f"{name}={value}" for name, value in hidden_settings(self.workload.server).items())
        unset = f"; it was not given {asked}, which the workload asks for" if asked else ""
        return [f"the server at {self.url} has settings and a machine of its own: those here are the client's{unset}"]

    def _cases(self, scratch: Path, errors: list[str]) -> list[dict[str, Any]]:
        """Run each round of all cases before the next round, so that cases, too, take turns. Odd
        rounds take cases and sides in the other order.
        """
        cases = self.workload.cases()
        turns = [_CaseRounds(case, self._sides_of(case)) for case in cases]
        for number in range(max(case.workload.run.rounds for case in cases)):
            for turn in turns if number % 2 == 0 else reversed(turns):
                if number < turn.case.workload.run.rounds:
                    self._turn(turn, number, scratch, errors)
        return [
            {
                "label": turn.case.label,
                "value": turn.case.value,
                "sides": [{"name": name, "rounds": each} for name, each in turn.rounds.items()],
            }
            for turn in turns
        ]

    def _sides_of(self, case: Case) -> list[Side]:
        """Return the sides that have an equivalent of a case, and note the others."""
        sides = []
        for side in self.sides:
            if reason := side.refuses(case):
                self.left_out.append(f"{side.name}{f' ({case.label})' if case.label else ''}: {reason}")
            else:
                sides.append(side)
        return sides

    def _turn(self, turn: _CaseRounds, number: int, scratch: Path, errors: list[str]) -> None:
        """Run one round of each side of a case."""
        case = turn.case
        for side in turn.sides if number % 2 == 0 else reversed(turn.sides):
            self.watcher.starts(case, side, number, case.workload.run.rounds)
            outcome, error = self._round(case, side, scratch / f"{side.name}-{number}".replace(" ", "-"))
            if outcome is None:
                errors.append(f"{side.name}, round {number + 1}{f', {case.label}' if case.label else ''}: {error}")
            else:
                turn.rounds[side.name].append(outcome_json(outcome))
            self.watcher.ended(case, side, outcome, error)

    def _round(self, case: Case, side: Side, scratch: Path) -> tuple[RoundOutcome | None, str]:
        try:
            scratch.mkdir(parents=True)
            outcome = side.measure(case, scratch, self.watcher.progress)
        except TopicsError as error:
            return None, str(error)
        except Exception as error:  # of a disk or a library; other rounds have their figures
            return None, f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        outcome.warnings += unanswered_warnings(outcome) + few_warnings(outcome)
        histograms = [one for load in outcome.loads for one in load.latencies.values()]
        wrong = disagreements(histograms)
        if wrong is not None:
            outcome.checks.append(
                BenchCheck(
                    "the package hdrhistogram computes the same quantiles", not wrong, "; ".join(wrong) or "they agree"
                )
            )
        return outcome, ""


def with_run(workload: Workload, seconds: float | None, warmup: float | None, rounds: int | None) -> Workload:
    """Return a workload with other times, where they are given.

    Raises: UsageError that names the option, for a time that a file may not have either.
    """
    given = {"seconds": seconds, "warmup": warmup, "rounds": rounds}
    times = {name: checked_option(name, value) for name, value in given.items() if value is not None}
    for name in times:
        if workload.sweep.field == f"run.{name}":
            raise UsageError(f"--{name}: {workload.source} has other values of it in sweep.values: leave it out")
    return replace(workload, run=replace(workload.run, **times))
