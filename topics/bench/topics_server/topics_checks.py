"""Checks of a run against a topics server: every acknowledged record is read back and counted."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from topics.bench.load.load_client import GroupFigures, LoadFigures
from topics.bench.load.load_plan import LoadGroup
from topics.bench.outcome import BenchCheck
from topics.bench.round_checks import delivery_check, read_check, request_checks
from topics.bench.topics_server.topics_target import BenchTargetError, TopicsTarget
from topics.bench.workload import LoadSpec, Workload
from topics.clock import SystemClock

HEARTBEAT_BYTES = len(b": hb\n\n")
SETTLE_NS = 30_000_000_000
"""How long copies of a router may take to arrive after the load."""


def answer_checks(workload: Workload, groups: list[LoadGroup], figures: LoadFigures) -> list[BenchCheck]:
    """Check what the load client itself has seen: answers, and what readers were sent."""
    found = request_checks(groups, figures)
    plans = {plan.name: plan for plan in groups}
    for spec, group in zip(workload.loads, figures.groups, strict=True):
        plan = plans[group.name]
        if plan.hears and not plan.shares and spec.kind != "idle":
            found.append(delivery_check(plan, group))
        if spec.kind == "read":
            found.append(read_check(spec, group))
        if spec.kind == "poll":
            name = f"{spec.name}: no answer has a record"
            found.append(BenchCheck(name, not group.all_deliveries, f"{group.all_deliveries:,} records"))
        if spec.kind == "idle":
            found.append(_heartbeats(spec, group, workload.run.warmup + figures.seconds))
    return found


def _heartbeats(spec: LoadSpec, group: GroupFigures, seconds: float) -> BenchCheck:
    """Count heartbeats by their bytes, as chunks. The last one of each stream may be on its way."""
    wanted = max(0, int(seconds * 1000 / spec.heartbeat_ms) - 1) * spec.connections
    arrived = group.bytes_received // HEARTBEAT_BYTES
    return BenchCheck(f"{spec.name}: heartbeats arrive", arrived >= wanted, f"at least {wanted:,} are due")


def stored_checks(
    workload: Workload,
    target: TopicsTarget,
    topic: str,
    figures: LoadFigures,
    destinations: list[str],
    *,
    stored: int = 0,
) -> list[BenchCheck]:
    """Read back what was acknowledged, from the topic and from each destination of its routers.

    stored: records that many topics had before.
    """
    acked = figures.acked
    found = []
    if workload.topic.type == "queue":
        return [_queue_check(workload, target, topic, figures)]
    if any(load.topics > 1 for load in workload.loads):
        total, count = target.heads(f"{topic}-") - stored, int(acked.sum())
        return [BenchCheck("as many records as were acknowledged", total == count, f"{total:,} of {count:,}")]
    if workload.topic.cap_records:
        head, count = target.state(topic)["head_seq"], int(acked.sum())
        return [BenchCheck("as many seqs as were acknowledged", head == count, f"head {head:,} of {count:,}")]
    for name in (topic, *destinations):
        if name != topic:
            _await_head(target, name, int(acked.sum()))
        found.append(read_back_check(target, name, acked, workload.record_sizes))
    return found


def read_back_check(
    target: TopicsTarget, topic: str, acked: np.ndarray[tuple[int], np.dtype[np.uint8]], sizes: Collection[int]
) -> BenchCheck:
    """Read a topic, and compare its records, by number and byte by byte, with the acknowledged."""
    where = "" if not topic.rpartition("-copy-")[1] else f" in {topic}"
    name = f"every acknowledged record is read back once{where}"
    try:
        seen, altered = target.read_back(topic, len(acked), sizes)
    except BenchTargetError as error:
        return BenchCheck(name, False, str(error))
    seen = seen[: len(acked)]
    lost = int(np.count_nonzero((acked == 1) & (seen == 0)))
    twice = int(np.count_nonzero(seen > 1))
    other = int(np.count_nonzero((acked == 0) & (seen > 0)))
    detail = f"{int(acked.sum()):,} acknowledged, {lost:,} lost, {twice:,} twice, {other:,} that were not acknowledged"
    detail += f", {altered:,} altered"
    return BenchCheck(name, not lost and not twice and not other and not altered, detail)


def _await_head(target: TopicsTarget, topic: str, head: int) -> None:
    """Wait until a router has copied everything; a check says so if it never does."""
    clock = SystemClock()
    deadline = clock.monotonic_ns() + SETTLE_NS
    while target.state(topic)["head_seq"] < head and clock.monotonic_ns() < deadline:
        pass


def _queue_check(workload: Workload, target: TopicsTarget, topic: str, figures: LoadFigures) -> BenchCheck:
    """Jobs: each was claimed at most once, and those that were not acknowledged are still there."""
    name = "every job was handed out once, and is acknowledged or still there"
    workers = [group for group in figures.groups if group.seen is not None]
    claimed = sum(group.all_deliveries for group in workers)
    twice = sum(int(np.count_nonzero(group.seen > 1)) for group in workers if group.seen is not None)
    written, left = int(figures.acked.sum()), target.state(topic)["count"]
    altered = sum(group.altered for group in workers)
    detail = f"{written:,} jobs, {claimed:,} claimed and acknowledged, {left:,} left, {twice:,} claimed twice"
    detail += f", {altered:,} altered"
    return BenchCheck(name, written == claimed + left and not twice and not altered, detail)
