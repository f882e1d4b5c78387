"""The metrics pages of all cores as one: a sample is the sum of theirs, or the worst.

A page is read and joined in steps, so that other work has its turn. Source: R-CORE-3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
from prometheus_client import utils

LINES_A_STEP = 500
SHOWN = 1000
"""Topics, and named readers, that a page shows: one of all cores, and one of a single core."""

_LARGEST = frozenset(
    {
        "topics_uptime_ms",
        "topics_pressure",
        "topics_pressure_step",
        "topics_delivery_latency_us",
        "topics_delivery_latency_seconds",
        "topics_topic_metrics_truncated",
        "topics_wal_queue_depth_peak",
        "topics_wal_read_only",
        "topics_disk_full",
        "topics_checkpoint_failing",
        "topics_checkpoint_last_ms",
        "topics_checkpoint_last_seconds",
        "topics_cold_failed",
        "topics_archive_lag_ms",
        "topics_archive_lag_seconds",
        "topics_archive_mirror_lag_ms",
        "topics_archive_mirror_lag_seconds",
        "topics_recovery_ms",
        "topics_recovery_seconds",
        "topics_backup_last_success_timestamp_seconds",
        "topics_build_info",
    }
)
"""Families that show the largest value of any core: states, ages, durations."""
_SMALLEST = frozenset({"topics_ready", "topics_recovery_progress", "process_start_time_seconds"})
"""Families that show the smallest one: what holds once it holds for all."""
_OF_TOPICS = "topics_topic_head_seq"
"""The family that has a sample of each topic that is shown."""
_BY_TOPIC = "topics_topic_"
_BY_READER = "topics_reader_"
_TRUNCATED = "topics_topic_metrics_truncated"
_BY_CORE = (
    ("topics_ready", "topics_core_ready", "gauge", "1 when the core serves"),
    ("topics_topics", "topics_core_topics", "gauge", "Topics of the core"),
    ("topics_records_appended_total", "topics_core_records_appended_total", "counter", "Records appended there"),
    ("topics_http_requests_total", "topics_core_http_requests_total", "counter", "Requests handled there"),
    ("topics_pressure", "topics_core_pressure", "gauge", "How hard its deliveries are pressed, 0 to 1"),
    ("process_cpu_seconds_total", "topics_core_cpu_seconds_total", "counter", "CPU time of its process"),
    ("process_resident_memory_bytes", "topics_core_resident_memory_bytes", "gauge", "Resident memory of its process"),
)
"""Families that are shown by core, too: what they become, their types, and their texts."""


class _Family:
    """One family: its heading, and its samples by name and labels."""

    __slots__ = ("heading", "samples")

    def __init__(self) -> None:
        self.heading: list[str] = []
        self.samples: dict[str, float] = {}


class SummedPages:
    """The pages of several cores that were read so far."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._by_core: dict[int, dict[str, float]] = {}
        self._away: list[int] = []

    def add(self, core: int, page: bytes) -> Generator[None, None, None]:
        """Add the page of a core, some lines in each step."""
        own: dict[str, float] = {}
        family, name = _Family(), ""
        joined: Callable[[tuple[float, float]], float] = sum
        for number, line in enumerate(page.decode().splitlines(), 1):
            if not number % LINES_A_STEP:
                yield
            if line.startswith("#"):
                _, kind, name, _ = line.split(" ", 3)
                family = self._families.setdefault(name, _Family())
                joined = max if name in _LARGEST else min if name in _SMALLEST else sum
                if kind == "HELP":
                    family.heading = [line]
                elif len(family.heading) < 2:
                    family.heading.append(line)
                continue
            sample, _, text = line.rpartition(" ")
            value, samples = float(text), family.samples
            if "{" not in sample:
                own[sample] = value
            samples[sample] = joined((samples[sample], value)) if sample in samples else value
        self._by_core[core] = own
        yield
        yield from self._cut()

    def note_away(self, core: int) -> None:
        """Note that a core is not there. Sums without it would be none, so the page has none."""
        self._away.append(core)

    def _cut(self) -> Iterator[None]:
        """Leave the first topics and readers, as many as a page shows."""
        of_topics = self._families.get(_OF_TOPICS)
        if of_topics is not None and len(of_topics.samples) > SHOWN:
            shown = {_labels_of(sample) for sample in sorted(of_topics.samples)[:SHOWN]}
            for name, family in self._families.items():
                if name == _TRUNCATED:
                    family.samples[name] = 1.0
                elif name.startswith(_BY_TOPIC):
                    kept = {sample: value for sample, value in family.samples.items() if _labels_of(sample) in shown}
                    family.samples = kept
                    yield
        for name, family in self._families.items():
            if name.startswith(_BY_READER) and len(family.samples) > SHOWN:
                family.samples = {sample: family.samples[sample] for sample in sorted(family.samples)[:SHOWN]}
                yield

    def text(self) -> Generator[None, None, bytes]:
        """Return the page in Prometheus text format 0.0.4, some lines in each step."""
        lines: list[str] = []
        steps = 0
        for family in self._families.values() if not self._away else ():
            lines += family.heading
            lines += [f"{sample} {_shown(value)}" for sample, value in family.samples.items()]
            if len(lines) // LINES_A_STEP > steps:
                steps = len(lines) // LINES_A_STEP
                yield
        lines += self._lines_by_core()
        return "\n".join([*lines, ""]).encode()

    def _lines_by_core(self) -> Iterator[str]:
        own: dict[int, dict[str, float]] = {core: {} for core in self._away} | self._by_core
        for name, shown, kind, text in _BY_CORE:
            yield from (f"# HELP {shown} {text}", f"# TYPE {shown} {kind}")
            for core in sorted(own):
                value = own[core].get(name, 0.0 if name == "topics_ready" else None)
                if value is not None:
                    yield f'{shown}{{core="{core}"}} {_shown(value)}'


def _shown(value: float) -> str:
    return str(utils.floatToGoString(value))  # type: ignore[no-untyped-call]


def _labels_of(sample: str) -> str:
    return sample.partition("{")[2]


def summed_json(pages: list[bytes]) -> bytes:
    """Return the short forms of all cores as one."""
    first, *others = (msgspec.json.decode(page) for page in pages)
    for other in others:
        _add(first, other)
    return msgspec.json.encode(first)


def _add(total: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in other.items():
        before = total[name]
        if isinstance(value, dict):
            _add(before, value)
        elif isinstance(value, bool):
            total[name] = before and value if name == "ready" else before or value
        elif name == "replay_progress":
            total[name] = min(before, value)
        elif name in {"uptime_ms", "queue_depth_peak"}:
            total[name] = max(before, value)
        else:
            total[name] = before + value
