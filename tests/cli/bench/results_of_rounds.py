"""Results without a run: rounds whose figures a test chooses."""

from __future__ import annotations

from typing import Any

from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.outcome import BenchCheck, LoadOutcome, RoundOutcome, UsageSample
from topics.bench.results.bench_result import FORMAT, VERSION, BenchResult, outcome_json


def outcome(rate: float, latency_us: int = 100, *, ok: bool = True, warning: str = "") -> RoundOutcome:
    """One round: a load of writes, half of which took `latency_us` and the rest twice that."""
    histogram = LatencyHistogram.of([latency_us * 1000] * 50 + [latency_us * 2000] * 50)
    series = [(10, 0, latency_us * 1000), (12, 0, latency_us * 2000)]
    load = LoadOutcome("write", "write", rate, "records/s", 100, 100, 0, 0, {"answer": histogram}, series)
    return RoundOutcome(
        [load],
        1.0,
        usage=[UsageSample(0.1, 0.05, 50_000_000), UsageSample(0.2, 0.1, 60_000_000)],
        server_cpu_seconds=0.5,
        rss_before=40_000_000,
        client_cpu_seconds=0.1,
        client_without_core_seconds=0.0,
        checks=[BenchCheck("every acknowledged record is read back once", ok, "100 acknowledged")],
        warnings=[warning] if warning else [],
    )


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
