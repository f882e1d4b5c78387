"""A side of a comparison, as runs see it: this server, this library, or a peer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from topics.bench.load.load_client import LoadClient, LoadError, LoadFigures
from topics.bench.load.load_plan import LoadGroup
from topics.bench.outcome import RoundOutcome, UsageSample, load_outcome
from topics.bench.processes import ProcessUsage, stolen_seconds
from topics.bench.round_checks import client_warnings, server_warnings, stolen_warnings
from topics.bench.workload import Case

LOOK_SECONDS = 0.1
HERE = "is here"
Progress = Callable[[str, int], None]
"""Called while a load runs, with its phase and what was answered and delivered so far."""


class Side(Protocol):
    """A system under test."""

    name: str

    def missing(self) -> str:
        """Return why this side cannot run on this machine, with the remedy; empty if it can.

        A side whose program has to be built is built here, once.
        """

    def refuses(self, case: Case) -> str:
        """Return why this side has no equivalent of a case; empty if it has one."""

    def version(self) -> str:
        """Return the version of the program that is measured, and its settings that matter."""

    def measure(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        """Measure one round, in an empty directory.

        Raises: TopicsError if the side could not be measured at all.
        """


class BenchPeer(Side, Protocol):
    """A side that is not ours."""

    def at_hand(self) -> str:
        """Return the line about this peer in `topics bench peers`. Builds nothing."""


class ClientRun:
    """One run of the load client beside a process whose usage is sampled."""

    def __init__(
        self,
        case: Case,
        groups: list[LoadGroup],
        address: tuple[str, int],
        usage: Callable[[], ProcessUsage] | None,
        progress: Progress,
        *,
        first_number: int = 0,
    ) -> None:
        self.case = case
        run = case.workload.run
        self.client = LoadClient(groups, *address, seconds=run.seconds, warmup=run.warmup, next_number=first_number)
        self._usage = usage
        self._progress = progress
        self._samples: list[tuple[int, ProcessUsage]] = []

    def run(self, now_ns: Callable[[], int]) -> tuple[RoundOutcome, LoadFigures]:
        """Run the load. now_ns: CLOCK_MONOTONIC."""
        before = self._usage() if self._usage else None

        def look(client: LoadClient) -> None:
            if self._usage:
                self._samples.append((now_ns(), self._usage()))
            self._progress(client.phase, client.requests_so_far())

        stolen = stolen_seconds()
        figures = self.client.run_watched(LOOK_SECONDS, look)
        stolen = stolen_seconds() - stolen
        if not figures.seconds:
            raise LoadError("the load ended within its warm-up: nothing was measured")
        specs = {spec.name: spec for spec in self.case.workload.loads}
        outcome = RoundOutcome(
            [load_outcome(specs[group.name], group, figures.seconds) for group in figures.groups],
            figures.seconds,
            figures.slot_seconds,
            client_cpu_seconds=figures.client_cpu_seconds,
            client_without_core_seconds=figures.client_without_core_seconds,
            rss_before=before.rss_bytes if before else None,
            warnings=client_warnings(figures) + stolen_warnings(stolen, self.client.warmup + figures.seconds),
        )
        if self._usage:
            self._add_usage(outcome, figures)
        return outcome, figures

    def _add_usage(self, outcome: RoundOutcome, figures: LoadFigures) -> None:
        """Lay the samples over the run's time. CPU counts within the measured time."""
        began = self.client.started_ns()
        samples = [((at - began) / 1e9, each) for at, each in self._samples]
        outcome.usage = [UsageSample(at, each.cpu_seconds, each.rss_bytes) for at, each in samples]
        begin, end = self.client.warmup, self.client.warmup + figures.seconds
        inside = [sample for sample in samples if begin <= sample[0] <= end + LOOK_SECONDS]
        if len(inside) >= 2 and inside[-1][0] > inside[0][0]:
            (first_at, first), (last_at, last) = inside[0], inside[-1]
            share = figures.seconds / (last_at - first_at)
            outcome.server_cpu_seconds = (last.cpu_seconds - first.cpu_seconds) * share
            outcome.server_without_core_seconds = (last.without_core_seconds - first.without_core_seconds) * share
            outcome.warnings += server_warnings(outcome)
