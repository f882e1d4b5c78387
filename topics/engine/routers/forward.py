"""One step of a router, staged on its destination: holes for what the source lost, copies, and the new position.

All of it lies in one batch of the destination's shard, so a crash leaves all or none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics.engine.append import AppendBatch, Appender, reserve
from topics.engine.controls import encode
from topics.engine.core import Core
from topics.engine.floors import TRIM, Gap
from topics.engine.results import AppendResult
from topics.engine.routers.controls import ForwardPayload
from topics.engine.routers.hops import Hops, Run
from topics.engine.routers.router import Router
from topics.engine.topic import Topic
from topics.errors import TopicsError
from topics.store.commit import Commit
from topics.store.format import FrameType
from topics.store.rows import Rows

if TYPE_CHECKING:
    from topics.engine.routers.driver import Forwarding


class Step:
    """What one step is to do, as far as it is known."""

    __slots__ = ("blocked", "found", "holes", "hops", "rows", "upto")

    def __init__(self, upto: int, holes: int) -> None:
        self.upto = upto
        """The router's position afterwards."""
        self.holes = holes
        self.rows: Rows | None = None
        self.hops: list[int] = []
        """Of each copy."""
        self.found = 0
        """Records that exactly_once found in the destination already."""
        self.blocked = False
        """More would be there, and finds no room."""

    @property
    def copies(self) -> int:
        return self.rows.count if self.rows is not None else 0


class Forward(AppendBatch):
    """Applied: holes and copies are there for readers, and the router has come to `step.upto`."""

    __slots__ = ("driver", "first_hole", "router", "runs", "step", "total")

    def __init__(self, driver: Forwarding, appender: Appender, router: Router, step: Step, *, fsync: bool) -> None:
        topic = router.dest
        self.first_hole = topic.next_seq
        topic.next_seq += step.holes
        super().__init__(appender, topic, fsync=fsync)
        self.driver = driver
        self.router = router
        self.step = step
        self.total = router.forwarded + step.holes + step.copies + step.found
        self.runs: list[Run] = []

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        if self.step.holes:
            take_holes(topic, self.first_hole, self.step.holes)
            self.core.wake(topic)
        if self.rows:
            if topic.routers:
                add_hops(topic, self.runs)
            super().apply(commit)
        self.driver.on_applied(self)

    def fail(self, error: TopicsError) -> None:
        if self.file_id and self.rows:
            self.core.usage.left(self.file_id, self.rows)
        super().fail(error)
        self.driver.on_failed(self)


def take_holes(topic: Topic, first: int, count: int) -> None:
    """Seqs that stand for what the source had lost: never live (R-TRIM-1, -2)."""
    last = first + count - 1
    topic.head = max(topic.head, last)
    topic.floors.add_gap(Gap(first, last, TRIM))
    topic.floors.settle_gaps(topic.earliest)


def add_hops(topic: Topic, runs: list[Run]) -> None:
    if topic.hops is None:
        topic.hops = Hops()
    for run in runs:
        topic.hops.add(*run)


def stage_forward(driver: Forwarding, appender: Appender, router: Router, step: Step) -> Forward:
    """Stages the step. Raises TopicsError, and then nothing was."""
    core, topic = appender.core, router.dest
    now_ms = core.clock.now_ms()
    first = topic.next_seq
    last = first + step.holes + step.copies - 1
    ts = max(now_ms, topic.last_ts)
    core.check_backlog()
    fsync = topic.stage_class == "fsync"
    runs = hop_runs(first + step.holes, step.hops)
    total = router.forwarded + step.holes + step.copies + step.found
    payload = encode(ForwardPayload(router.id, step.upto, total, step.holes, runs))
    reserved = reserve(core, topic, last, now_ms) if last > topic.reserved else 0
    core.log.stage_control(topic.id, FrameType.FORWARD, first, ts, payload, counted=False)
    forward = Forward(driver, appender, router, step, fsync=fsync)
    forward.runs = runs
    if step.rows is not None and step.rows.count:
        _stage_copies(core, forward, step.rows, ts, fsync=fsync)
        topic.last_ts = ts
    topic.filling = None
    if reserved:
        forward.reserves = True
        topic.reserved = reserved
    forward.stage(synced=fsync or bool(reserved))
    return forward


def _stage_copies(core: Core, forward: Forward, rows: Rows, ts: int, *, fsync: bool) -> None:
    topic = forward.topic
    if topic.stage_class == "ephemeral":
        forward.file_id, framed = core.memory.stage_records(topic.id, forward.first_seq, ts, rows)
    else:
        framed = core.log.stage_records(topic.id, forward.first_seq, ts, rows, fsync=fsync, counted=False)
    forward.add((rows.count, None, False, _nobody), rows, framed)


def hop_runs(first: int, hops: list[int]) -> list[Run]:
    """Neighbours with the same hops, as runs of seqs from `first` on."""
    runs: list[Run] = []
    for seq, count in enumerate(hops, first):
        if runs and runs[-1][2] == count:
            runs[-1] = (runs[-1][0], seq, count)
        else:
            runs.append((seq, seq, count))
    return runs


def _nobody(_result: AppendResult | TopicsError) -> None:
    """Nobody waits for a copy by itself."""
