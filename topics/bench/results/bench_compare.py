"""Comparison of two sets of rounds: a ratio, and whether the rounds show a difference at all.

A difference is shown if each side has at least `ROUNDS_MIN` rounds and their ranges do not overlap.
By chance that happens in fewer than 3 of 100 comparisons of equals. Anything else is said to be
within the spread, whatever the ratio is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median

from topics.bench.results.bench_result import BenchResult, Metric
from topics.errors import UsageError

ROUNDS_MIN = 4
BESIDE = ("rate", "time", "p50", "p99")
"""Ends of the names of figures that are shown beside those of a peer."""
_OURS = "topics"
_SAME = ("cpu", "cores", "memory_bytes", "governor", "file_system", "device", "python", "system")
_LOAD_DIFFERS = 1.0
"""Difference of load averages from which on they are a doubt."""


class RoundsVerdict(Enum):
    """The outcome of a comparison of B with A."""

    BETTER = "better"
    WORSE = "worse"
    WITHIN = "within the spread"
    FEW = f"fewer than {ROUNDS_MIN} rounds"


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of both. ratio: of the medians, B divided by A; None if A's is 0."""

    metric: Metric
    before: list[float]
    after: list[float]
    ratio: float | None
    verdict: RoundsVerdict


def compare_values(before: list[float], after: list[float], *, less: bool) -> tuple[float | None, RoundsVerdict]:
    """Return ratio and verdict of two lists of rounds. less: a lower number is better."""
    middle = median(before)
    ratio = median(after) / middle if middle else None
    if min(len(before), len(after)) < ROUNDS_MIN:
        return ratio, RoundsVerdict.FEW
    if max(after) < min(before):
        return ratio, RoundsVerdict.BETTER if less else RoundsVerdict.WORSE
    if min(after) > max(before):
        return ratio, RoundsVerdict.WORSE if less else RoundsVerdict.BETTER
    return ratio, RoundsVerdict.WITHIN


def compare_results(before: BenchResult, after: BenchResult) -> list[MetricComparison]:
    """Return a comparison for each metric that both results have in one unit, in the order of the
    second.

    Raises: UsageError for results of two workloads: a figure of the same name is another one there.
    """
    names, texts = ([one.document["workload"][key] for one in (before, after)] for key in ("name", "text"))
    if names[0] != names[1] and texts[0] != texts[1]:
        raise UsageError(
            f"the first result is of the workload {names[0]!r}, and the second of {names[1]!r}: compare results of one "
            "workload"
        )
    known = {metric[:5]: metric for metric in before.metrics()}
    found = []
    for metric in after.metrics():
        if (other := known.get(metric[:5])) is not None:
            ratio, verdict = compare_values(other.values, metric.values, less=metric.less)
            found.append(MetricComparison(metric, other.values, metric.values, ratio, verdict))
    return found


def compare_sides(result: BenchResult) -> list[MetricComparison]:
    """Return, for each peer's metric, ours beside it: before is the peer, after is `topics`."""
    known = {(metric.case, metric.load, metric.name): metric for metric in result.metrics() if metric.side == _OURS}
    found = []
    for metric in result.metrics():
        own = known.get((metric.case, metric.load, metric.name))
        if own is not None and metric.side != _OURS and metric.name.endswith(BESIDE):
            ratio, verdict = compare_values(metric.values, own.values, less=own.less)
            found.append(MetricComparison(metric, metric.values, own.values, ratio, verdict))
    return found


def doubts(before: BenchResult, after: BenchResult) -> list[str]:
    """Return sentences about why two results are hard to compare."""
    found = []
    for name in _SAME:
        one, other = before.document["machine"].get(name), after.document["machine"].get(name)
        if one != other:
            found.append(f"{name} differs: {one} and {other}")
    if before.document["workload"]["text"] != after.document["workload"]["text"]:
        found.append("the files of the workload differ")
    for name, unit in (("seconds", " s"), ("warmup", " s")):
        one, other = (result.document["workload"]["run"][name] for result in (before, after))
        if one != other:
            found.append(f"run.{name} differs: {one:g}{unit} and {other:g}{unit}")
    versions = [{side["name"]: side["version"] for side in one.document["sides"]} for one in (before, after)]
    for name, version in versions[0].items():
        if versions[1].get(name, version) != version:
            found.append(f"the version of {name} differs: {version} and {versions[1][name]}")
    if before.document["settings"] != after.document["settings"]:
        found.append(f"the settings differ: {before.document['settings']} and {after.document['settings']}")
    busy = [one.document["machine"].get("load_average") for one in (before, after)]
    if all(isinstance(one, int | float) for one in busy) and abs(busy[0] - busy[1]) > _LOAD_DIFFERS:
        found.append(f"the load average differs: {busy[0]:.1f} and {busy[1]:.1f}")
    for label, result, other in (("first", before, after), ("second", after, before)):
        if result.failures():
            found.append(f"the {label} result has failed checks")
        found += [f"the {label} result warns: {sentence}" for sentence in result.warnings()]
        found += [f"only the {label} result has {place}" for place in _only(result, other)]
    return found


def _only(result: BenchResult, other: BenchResult) -> list[str]:
    """Return each case of a side, and each figure of a case of both, that only one result has, with
    its unit if that is what differs.
    """
    known, names = ({metric[:length] for metric in other.metrics()} for length in (5, 4))
    sides = {name[:2] for name in names}
    found = dict[str, None]()
    for metric in result.metrics():
        if metric[:5] not in known:
            place = metric[:5] if metric[:4] in names else metric[:4] if metric[:2] in sides else metric[:2]
            found[", ".join(filter(None, place))] = None
    return list(found)
