"""Judgements of a round: checks, which fail it, and warnings, which make its figures doubtful."""

from __future__ import annotations

from topics.bench.load.load_client import GroupFigures, LoadFigures
from topics.bench.load.load_plan import LoadGroup
from topics.bench.outcome import DELIVERY, BenchCheck, RoundOutcome
from topics.bench.workload import LoadSpec

CLIENT_BUSY = 0.9
"""Share of a core from which on the client may be what limits a rate."""
WITHOUT_CORE = 0.05
"""Share of the time without a core from which on latencies say much about other programs."""
SERVER_WITHOUT_CORE = 0.01
"""That share for the server, whose slowest percent of answers may be those of that time."""
STOLEN = 0.005
"""Share of a core's time from which on the slowest latencies may be those of a stolen core."""
UNSENT = 0.01
"""Share of requests that were due and never sent from which on the rate was not kept."""
_BROADCAST = ("tail", "watch", "talk")
"""Kinds of loads whose connections are all sent each record."""


def request_checks(groups: list[LoadGroup], figures: LoadFigures) -> list[BenchCheck]:
    """Check what the load client has seen of each request: an answer, which is no error."""
    errors, throttled = (sum(getattr(group, name) for group in figures.groups) for name in ("errors", "throttled"))
    detail = f"{errors:,} answers were errors{': ' + figures.error if errors else ''}"
    if throttled:
        detail += f"; {throttled:,} writes met a limit of the server"
    found = [BenchCheck("every answer is a success", not errors, detail)]
    waits = {plan.name for plan in groups if plan.waits or not plan.messages}
    for group in figures.groups:
        if group.name not in waits:
            ok = group.all_requests > 0 and not group.unanswered
            detail = f"{group.unanswered:,} were not, also after a wait; {group.all_requests:,} were"
            found.append(BenchCheck(f"{group.name}: every request was answered", ok, detail))
    return found


def read_check(spec: LoadSpec, group: GroupFigures) -> BenchCheck:
    """Check that each answer of a load of reads had the records that were asked for, in order."""
    wanted = group.all_requests * spec.limit
    ok = group.all_deliveries == wanted and not group.misread and not group.altered
    detail = f"{group.all_deliveries:,} of {wanted:,} records, {group.misread:,} answers had others or too few"
    detail += f", {group.altered:,} records were altered"
    return BenchCheck(f"{group.name}: each answer has the records that were asked for", ok, detail)


def delivery_check(plan: LoadGroup, group: GroupFigures) -> BenchCheck:
    """Check that each reader was sent what others wrote: each record once, byte for byte."""
    detail = f"{group.wrong:,} of {plan.connections:,} did not; {group.all_deliveries:,} deliveries"
    detail += f", {group.altered:,} of altered records"
    name = f"{group.name}: each reader received each record exactly once"
    return BenchCheck(name, not group.wrong and not group.altered, detail)


def server_warnings(outcome: RoundOutcome) -> list[str]:
    """Return a sentence if the server's threads were ready for long without a core."""
    waited = outcome.server_without_core_seconds
    if not waited or waited / outcome.seconds < SERVER_WITHOUT_CORE:
        return []
    return [
        f"the server waited {waited:.2f} s for a core: other programs used them, or with a real-time priority the "
        "kernel took its share (sched_rt_runtime_us), and the slowest latencies include that"
    ]


def client_warnings(figures: LoadFigures) -> list[str]:
    """Return sentences about what makes a result doubtful: a busy client, a rate not kept."""
    found = []
    if figures.seconds and figures.client_cpu_seconds / figures.seconds >= CLIENT_BUSY:
        found.append(
            f"the load client used {figures.client_cpu_seconds / figures.seconds:.2f} of a core: it may be the "
            "bottleneck, so the rate is a lower bound of the server's"
        )
    if figures.seconds and figures.client_without_core_seconds / figures.seconds >= WITHOUT_CORE:
        found.append(
            f"the load client waited {figures.client_without_core_seconds:.2f} s for a core: other programs or the "
            "server used them, and latencies include that"
        )
    for group in figures.groups:
        why = "every connection was waiting for an answer"
        found += unsent_warnings(group.name, group.unsent, group.all_requests, why)
    return found


def unanswered_warnings(outcome: RoundOutcome) -> list[str]:
    """Return a sentence for each load whose rate is 0, as beside a busy server."""
    return [
        f"{load.name}: nothing was answered in the {outcome.seconds:.2f} s that were measured, so this rate is not the "
        "server's: measure for longer (--seconds)"
        for load in outcome.loads
        if load.is_unanswered
    ]


def few_warnings(outcome: RoundOutcome) -> list[str]:
    """Return a sentence for each latency of which a quantile is the slowest of few values, or that
    of few records which many readers are sent at about one time.
    """
    found = []
    for load in outcome.loads:
        for name, histogram in load.latencies.items():
            total, what = histogram.total, f"values of {name}"
            if name == DELIVERY and load.kind in _BROADCAST and load.connections > 1:
                total, what = -(-total // load.connections), "records, each for all readers"
            if total < 1000:
                which = "p99 and p99.9 are" if total < 100 else "p99.9 is"
                found.append(f"{load.name}: a round has {total:,} {what}, so {which} the slowest of them")
    return found


def stolen_warnings(stolen: float, seconds: float) -> list[str]:
    """Return a sentence if the host of a virtual machine took cores away for long."""
    if not seconds or stolen / seconds < STOLEN:
        return []
    return [
        f"the host of this virtual machine took cores away for {stolen:.2f} s (`steal` in /proc/stat), and the slowest "
        "latencies include that"
    ]


def unsent_warnings(name: str, unsent: int, sent: int, why: str) -> list[str]:
    """Return a sentence if a load did not keep its rate."""
    if unsent <= UNSENT * max(1, sent):
        return []
    return [
        f"{name}: {unsent:,} requests were due and not sent by the end, because {why}: this rate was not kept, so "
        "ask for a lower one, or for more connections"
    ]
