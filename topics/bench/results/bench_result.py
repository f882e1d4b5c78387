"""Results as JSON, in the format `topics-bench`, version 1.

Source: docs/guides/bench.md, "The file".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.outcome import LoadOutcome, RoundOutcome
from topics.bench.results.result_shape import shape_fault
from topics.errors import UsageError

FORMAT, VERSION = "topics-bench", 1
_READ_BACK, _COUNTED = "what was acknowledged was read back", "what was acknowledged was counted, not read back"
_ESTABLISHED = (
    ("is read back once", _READ_BACK),
    ("is in the file once", _READ_BACK),
    ("as many records as were acknowledged", _COUNTED),
    ("as many seqs as were acknowledged", _COUNTED),
    ("every job was handed out once", "each job was counted"),
    ("received each record exactly once", "what each reader received was counted"),
    ("has the records that were asked for", "the number of each record of each answer was compared"),
    ("no answer has a record", "the records of each answer were counted"),
    ("heartbeats arrive", "heartbeats were counted"),
    ("every answer is a success", "answers were checked, and nothing was read back"),
)
"""Parts of names of checks, and what a check of that name shows: the strongest first."""
_A_SECOND = "s/s"
"""The end of the unit of a rate: records/s, requests/s, jobs/s."""
_NOTHING = "nothing was read back or counted"
SHOWN = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "max": 1.0}


def outcome_json(outcome: RoundOutcome) -> dict[str, Any]:
    """Return one round as the format has it."""
    return {
        "seconds": outcome.seconds,
        "slot_seconds": outcome.slot_seconds,
        "loads": {load.name: _load_json(load) for load in outcome.loads},
        "server": {
            "cpu_seconds": outcome.server_cpu_seconds,
            "without_core_seconds": outcome.server_without_core_seconds,
            "rss_bytes_before": outcome.rss_before,
            "usage": [[round(one.at, 3), round(one.cpu_seconds, 3), one.rss_bytes] for one in outcome.usage],
        },
        "client": {
            "cpu_seconds": outcome.client_cpu_seconds,
            "without_core_seconds": outcome.client_without_core_seconds,
        },
        "figures": outcome.figures,
        "checks": [{"name": one.name, "ok": one.ok, "detail": one.detail} for one in outcome.checks],
        "warnings": outcome.warnings,
    }


def _load_json(load: LoadOutcome) -> dict[str, Any]:
    return {
        "kind": load.kind,
        "rate": load.rate,
        "unit": load.unit,
        "requests": load.requests,
        "records": load.records,
        "deliveries": load.deliveries,
        "unsent": load.unsent,
        "fewest": load.fewest,
        "most": load.most,
        "latencies": {name: histogram_json(histogram) for name, histogram in load.latencies.items()},
        "series": [list(row) for row in load.series],
    }


def histogram_json(histogram: LatencyHistogram) -> dict[str, Any]:
    """Return count, mean and quantiles in ns, and the whole histogram as HdrHistogram V2."""
    figures: dict[str, Any] = {"count": histogram.total, "mean_ns": round(histogram.mean_ns())}
    figures |= {f"{name}_ns": histogram.quantile(share) for name, share in SHOWN.items()}
    return {**figures, "hdr": histogram.encoded()}


class Metric(NamedTuple):
    """One number of each round. less: whether a lower one is better."""

    case: str
    side: str
    load: str
    name: str
    unit: str
    less: bool
    values: list[float]

    @property
    def middle(self) -> float:
        return median(self.values)


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A result as its document, and questions about it."""

    document: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["workload"]["name"])

    def rounds(self) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
        """Yield case, side, number and document of each round that was measured."""
        for case in self.document["cases"]:
            for side in case["sides"]:
                for number, one in enumerate(side["rounds"]):
                    yield case["label"], side["name"], number, one

    def failures(self) -> list[str]:
        """Return a sentence for each check that failed and each round that could not be run."""
        found = [str(sentence) for sentence in self.document["errors"]]
        if not found and not any(self.rounds()):
            found.append("nothing was measured: every side was left out")
        for case, side, number, one in self.rounds():
            place = ", ".join(filter(None, (side, case, f"round {number + 1}")))
            found += [f"{place}: {each['name']}: {each['detail']}" for each in one["checks"] if not each["ok"]]
        return found

    def established(self) -> str:
        """Return how many checks hold, and what those of each side show: by its weakest round."""
        count, weakest = 0, dict[str, int]()
        for _, side, _, one in self.rounds():
            count += len(one["checks"])
            names = [check["name"] for check in one["checks"]]
            best = [at for at, (part, _) in enumerate(_ESTABLISHED) if any(part in name for name in names)]
            weakest[side] = max(weakest.get(side, 0), min(best, default=len(_ESTABLISHED)))
        sides = dict[str, list[str]]()
        for side, at in weakest.items():
            shown = _ESTABLISHED[at][1] if at < len(_ESTABLISHED) else _NOTHING
            sides.setdefault(shown, []).append(side)
        shown = "; ".join(f"{', '.join(names)}: {text}" for text, names in sides.items())
        return f"{count} check{'' if count == 1 else 's'} hold{'s' if count == 1 else ''}: {shown}"

    def warnings(self) -> list[str]:
        """Return one warning of each kind; others differ by numbers, or by side and case."""
        found = {str(sentence): (str(sentence), [""]) for sentence in self.document["warnings"]}
        for case, side, _, one in self.rounds():
            place = ", ".join(filter(None, (side, case)))
            for sentence in one["warnings"]:
                places = found.setdefault(re.sub(r"[0-9.,]+", "", sentence), (sentence, []))[1]
                places += [place] if place not in places else []
        return [_with_places(sentence, places) for sentence, places in found.values()]

    def metrics(self) -> list[Metric]:
        """Return every metric: rates, quantiles, and CPU of the server for each unit of work."""
        found: list[Metric] = []
        for case in self.document["cases"]:
            for side in case["sides"]:
                if side["rounds"]:
                    found += _metrics(case["label"], side["name"], side["rounds"])
        return found


def _with_places(sentence: str, places: list[str]) -> str:
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return f"{places[0]}{more}: {sentence}" if places[0] else sentence


def _metrics(case: str, side: str, rounds: list[dict[str, Any]]) -> Iterator[Metric]:
    for load, first in rounds[0]["loads"].items():
        loads = [one["loads"][load] for one in rounds if load in one["loads"]]
        unit = first["unit"]
        less = unit.startswith("s ")
        yield Metric(case, side, load, "time" if less else "rate", unit, less, [one["rate"] for one in loads])
        for latency in first["latencies"]:
            rows = [one["latencies"][latency] for one in loads if latency in one["latencies"]]
            for name in ("p50", "p99", "p999"):
                values = [row[f"{name}_ns"] / 1000 for row in rows]
                yield Metric(case, side, load, f"{latency} {name}", "us", True, values)
    with_cpu = [one for one in rounds if one["server"]["cpu_seconds"] is not None]
    if with_cpu:
        yield Metric(case, side, "", "server CPU", *_cpu(with_cpu))
    for name in rounds[0]["figures"]:
        yield Metric(case, side, "", name, "", True, [one["figures"][name] for one in rounds if name in one["figures"]])
    grown = [_grown(one["server"]) for one in rounds]
    if all(value is not None for value in grown):
        yield Metric(case, side, "", "memory grown", "MB", True, [value for value in grown if value is not None])


def _cpu(rounds: list[dict[str, Any]]) -> tuple[str, bool, list[float]]:
    """Unit, whether less is better, and values of the server's CPU: for each unit of work, so that
    a server that does more with it is not worse; cores where there is no work.
    """
    units = dict.fromkeys(load["unit"] for one in rounds for load in one["loads"].values())
    works = [sum(load["rate"] for load in one["loads"].values()) * one["seconds"] for one in rounds]
    if not all(unit.endswith(_A_SECOND) for unit in units) or not all(works):
        return "cores", True, [one["server"]["cpu_seconds"] / one["seconds"] for one in rounds]
    what = " or ".join(unit.removesuffix(_A_SECOND) for unit in units)
    values = [one["server"]["cpu_seconds"] / work * 1e6 for one, work in zip(rounds, works, strict=True)]
    return f"us a {what}", True, values


def _grown(server: dict[str, Any]) -> float | None:
    """MB that the process had more at its largest than before the load."""
    if server["rss_bytes_before"] is None or not server["usage"]:
        return None
    most: int = max(row[2] for row in server["usage"])
    before: int = server["rss_bytes_before"]
    return max(0.0, (most - before) / 1e6)


def read_result(path: str) -> BenchResult:
    """Return the result in a file. Raises: UsageError if it has none that this version can read."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {reason}: name a JSON file that `topics bench run` has written") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(f"{path}: this is no result of `topics bench run`: its format is not {FORMAT!r}")
    # 1.0 and true equal 1
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise UsageError(f"{path}: version {document.get('version')} of the format: this build reads {VERSION}")
    if fault := shape_fault(document):
        raise UsageError(f"{path}: {fault}: the file is damaged: run the workload again")
    return BenchResult(document)
