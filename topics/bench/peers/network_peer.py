"""A peer with a server of its own, driven by the same load client as ours.

A peer says how its program starts, how a load becomes requests of its protocol, and how many
records it has afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from topics.bench.load.load_client import LoadFigures
from topics.bench.load.load_plan import LoadGroup
from topics.bench.outcome import BenchCheck, RoundOutcome
from topics.bench.processes import BenchProcess
from topics.bench.round_checks import delivery_check, read_check, request_checks
from topics.bench.sides import HERE, ClientRun, Progress
from topics.bench.workload import Case, LoadSpec, Workload
from topics.clock import SystemClock

READY_SECONDS = 30


class NetworkPeer:
    """The shared part of these sides."""

    name = ""
    kinds: frozenset[str] = frozenset()
    """Kinds of load that the peer has an equivalent of."""

    def missing(self) -> str:
        return ""

    def at_hand(self) -> str:
        return self.missing() or HERE

    def version(self) -> str:
        return self.name

    def refuses(self, case: Case) -> str:
        workload = case.workload
        if other := workload.kinds - self.kinds:
            return f"it has no equivalent of loads of kind {', '.join(sorted(other))}"
        if workload.topic.type == "queue" or workload.destinations or workload.topic.cap_records:
            return "it has no equivalent of this workload's topic"
        if any(load.topics > 1 for load in workload.loads):
            return "many topics are not compared"
        return ""

    def started(self, case: Case, scratch: Path) -> tuple[BenchProcess, int]:
        """Start its server, ready for the load; return it and its port on loopback."""
        raise NotImplementedError

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        """Return a load as requests of its protocol."""
        raise NotImplementedError

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        """Compare what the server has with what it acknowledged."""
        raise NotImplementedError

    def measure(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        with self._running(case, scratch) as (process, port):
            sizes = tuple(case.workload.record_sizes)
            groups = [replace(self.group(case, spec), record_bytes=sizes) for spec in case.workload.loads]
            run = ClientRun(
                case,
                groups,
                ("127.0.0.1", port),
                process.usage,
                progress,
                first_number=case.workload.fill.records,
            )
            outcome, figures = run.run(SystemClock().monotonic_ns)
            figures.acked[: case.workload.fill.records] = 1
            outcome.checks += request_checks(groups, figures)
            outcome.checks += heard_checks(case.workload, groups, figures)
            progress("reading back", 0)
            outcome.checks += self.checks(case, port, scratch, figures)
        return outcome

    @contextmanager
    def _running(self, case: Case, scratch: Path) -> Iterator[tuple[BenchProcess, int]]:
        process, port = self.started(case, scratch)
        try:
            yield process, port
        finally:
            process.stop()


def heard_checks(workload: Workload, groups: list[LoadGroup], figures: LoadFigures) -> list[BenchCheck]:
    """Check that readers were sent what they asked for, and watchers each record once."""
    found = []
    for spec, plan, group in zip(workload.loads, groups, figures.groups, strict=True):
        if plan.hears and not plan.shares:
            found.append(delivery_check(plan, group))
        elif plan.hears:
            found.append(read_check(spec, group))
    return found


def stored_check(found: int, figures: LoadFigures) -> BenchCheck:
    """Compare a peer's number of records with those that it acknowledged."""
    acked = int(figures.acked.sum())
    return BenchCheck("as many records as were acknowledged", found == acked, f"{found:,} of {acked:,}")
