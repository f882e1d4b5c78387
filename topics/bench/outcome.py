"""The outcome of one round of one side: histograms, usage of CPU and memory, checks, warnings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.load.load_client import GroupFigures
from topics.bench.workload import LoadSpec

_WRITING, _HEARING = ("write", "talk"), ("tail", "watch", "work")
ANSWER, DELIVERY = "answer", "delivery"


class BenchCheck(NamedTuple):
    """A property of the result that was verified. detail: numbers, or what is wrong."""

    name: str
    ok: bool
    detail: str


class UsageSample(NamedTuple):
    """ProcessUsage of the server's process at a time, seconds since the load began."""

    at: float
    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Measurements of one load. rate: records a second where it writes, deliveries where it only
    hears, else requests; of what came in the measured time. series: by slot of time answers,
    deliveries and the slowest in ns.
    """

    name: str
    kind: str
    rate: float
    unit: str
    requests: int
    records: int
    deliveries: int
    unsent: int
    latencies: dict[str, LatencyHistogram]
    series: list[tuple[int, int, int]] = field(default_factory=list)
    fewest: int = 0
    most: int = 0
    connections: int = 1

    @property
    def is_unanswered(self) -> bool:
        """Whether no request was answered and no record delivered in the measured time, as of a
        load that is not to be idle.
        """
        return self.kind != "idle" and not (self.requests or self.records or self.deliveries)


@dataclass
class RoundOutcome:
    """One round of one side."""

    loads: list[LoadOutcome]
    seconds: float
    slot_seconds: float = 0.1
    usage: list[UsageSample] = field(default_factory=list)
    server_cpu_seconds: float | None = None
    server_without_core_seconds: float | None = None
    rss_before: int | None = None
    client_cpu_seconds: float | None = None
    client_without_core_seconds: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    checks: list[BenchCheck] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return not all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        """The end of the line about the round, after its rate."""
        if self.failed:
            return "CHECK FAILED"
        return "nothing was answered" if all(load.is_unanswered for load in self.loads) else "ok"


def load_outcome(spec: LoadSpec, figures: GroupFigures, seconds: float) -> LoadOutcome:
    """Return the outcome of a load that the client ran."""
    count, unit = figures.requests, "requests/s"
    if spec.kind in _WRITING or figures.all_records:
        count, unit = figures.records, "records/s"
    elif spec.kind in _HEARING or figures.all_deliveries:
        count, unit = figures.deliveries, "jobs/s" if spec.kind == "work" else "records/s"
    latencies = {name: histogram for name, histogram in figures.steps.items() if histogram.total}
    if figures.delivery.total:
        latencies[DELIVERY] = figures.delivery
    return LoadOutcome(
        spec.name,
        spec.kind,
        count / seconds if seconds else 0.0,
        unit,
        figures.requests,
        figures.records,
        figures.deliveries,
        figures.unsent,
        latencies,
        [(int(a), int(b), int(c)) for a, b, c in figures.slots],
        figures.fewest,
        figures.most,
        spec.connections,
    )
