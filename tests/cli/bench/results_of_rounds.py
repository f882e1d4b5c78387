"""Results without a run: rounds whose figures a test chooses."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.load.load_client import GroupFigures, LoadFigures
from topics.bench.outcome import BenchCheck, LoadOutcome, RoundOutcome, UsageSample
from topics.bench.results.bench_result import FORMAT, VERSION, BenchResult, outcome_json


def outcome(
    rate: float, latency_us: int = 100, *, ok: bool = True, warning: str = "", cpu: float = 0.5
) -> RoundOutcome:
    """One round: a load of writes, half of which took `latency_us` and the rest twice that."""
    histogram = LatencyHistogram.of([latency_us * 1000] * 50 + [latency_us * 2000] * 50)
    series = [(10, 0, latency_us * 1000), (12, 0, latency_us * 2000)]
    load = LoadOutcome("write", "write", rate, "records/s", 100, 100, 0, 0, {"answer": histogram}, series)
    return RoundOutcome(
        [load],
        1.0,
        usage=[UsageSample(0.1, 0.05, 50_000_000), UsageSample(0.2, 0.1, 60_000_000)],
        server_cpu_seconds=cpu,
        rss_before=40_000_000,
        client_cpu_seconds=0.1,
        client_without_core_seconds=0.0,
        checks=[BenchCheck("every acknowledged record is read back once", ok, "100 acknowledged")],
        warnings=[warning] if warning else [],
    )


def group_figures(name: str = "load", seen: list[int] | None = None, **counts: int) -> GroupFigures:
    """Measurements of a group: counts that a test chooses, and none of the others."""
    others = {field.name: 0 for field in fields(GroupFigures)} | counts
    none = LatencyHistogram.of([])
    others |= {"name": name, "steps": {}, "delivery": none, "slots": np.zeros((0, 3)), "samples": np.zeros((0, 3))}
    others |= {"seen": None if seen is None else np.array(seen, np.uint8)}
    return GroupFigures(**others)


def load_figures(acked: list[int], *groups: GroupFigures, cpu: float = 0, without_core: float = 0) -> LoadFigures:
    """Measurements of a second."""
    marks, stalls = np.array(acked, np.uint8), np.zeros((0, 2), np.uint64)
    return LoadFigures(list(groups), 1.0, 0.1, cpu, without_core, marks, stalls, "")


def result(sides: dict[str, list[RoundOutcome]], label: str = "", value: Any = None, **changes: Any) -> BenchResult:
    """A result with one case of these sides and rounds."""
    case = {
        "label": label,
        "value": value,
        "sides": [{"name": name, "rounds": [outcome_json(one) for one in rounds]} for name, rounds in sides.items()],
    }
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "started": "2026-11-26T18:00:00+00:00",
        "command": "topics bench run write-lone",
        "workload": {
            "name": "write-lone",
            "title": "Single writes <one & only>",
            "question": "How long?",
            "text": "title = 'x'",
            "sweep": "",
            "run": {"seconds": 1.0, "warmup": 0.1, "rounds": 1},
        },
        "machine": {
            "system": "Linux", "cpu": "a cpu", "cores": 2, "memory_bytes": 1 << 32, "governor": "not shown",
            "load_average": 0.1, "file_system": "ext4", "device": "/dev/vda", "python": "CPython 3.11",
            "topics": "0.1.0", "commit": "",
        },
        "settings": {},
        "sides": [{"name": name, "version": f"{name} 1"} for name in sides],
        "left_out": [],
        "warnings": [],
        "errors": [],
        "cases": [case],
    }  # fmt: skip
    document.update(changes)
    return BenchResult(document)
