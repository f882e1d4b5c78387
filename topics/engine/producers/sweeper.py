"""Deletion of pieces that no part needs: appended, begun again, too old, or without topic.

All of it is bounded work a pass.

Source: R-PROD-8, R-PROD-12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from topics.clock import Clock
from topics.config import Config
from topics.engine.producers.compared_parts import ComparedParts
from topics.engine.queue.job_removal import RemoveJobsCore, remove_jobs
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.control_frames import RemovalPayload, encode
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.staged_parts import Name, StagedPart, StagedParts
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LoopPort, TimerPort
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType

_DROPPED_RUNS, _DROPPED_ROWS = 8, 4096
"""Most runs and records that one frame, and so one pass, deletes."""
_FORGOTTEN_PARTS = 2048
"""Most parts that one pass drops, because of their age or because their topic is gone."""
_RETRY_MS = 1000


class DropCore(RemoveJobsCore, OperationCore, Protocol):
    """The part of the core that a deletion from the staging area needs."""

    clock: Clock


class SweeperCore(DropCore, Protocol):
    """The part of the core that the sweeper needs."""

    config: Config
    loop: LoopPort
    registry: Registry
    staged: StagedParts


class Sweeper:
    """The deletions from the staging area and the table of compared parts."""

    def __init__(self, core: SweeperCore, compared: ComparedParts) -> None:
        self._core = core
        self._compared = compared
        self._gone: deque[int] = deque()
        """Ids of topics that are gone, whose parts are being dropped."""
        self._timer: TimerPort | None = None
        """Timer of the next check for parts that are too old."""
        self._drop: Drop | None = None
        """Deletion in progress."""

    def start(self) -> None:
        """Check for parts that are too old, and records of no part, after a restart."""
        if self._core.staged.parts or self._core.staged.orphans:
            self._watch(0)

    def watch(self) -> None:
        """Plan a check for parts that are too old, after a piece came."""
        self._watch(self._core.config.staged_ttl_ms)

    def delete(self, runs: list[int]) -> None:
        """Delete records of the staging area, in later passes. runs: see `StagedPart.runs`."""
        self._core.staged.orphans += runs
        self._core.loop.call_later(0, self._sweep)

    def forget(self, topic_id: int) -> None:
        """Drop the parts of a topic that is gone. Source: R-PROD-8."""
        self._gone.append(topic_id)
        if len(self._gone) == 1:
            self._drop_gone()

    # --- parts --------------------------------------------------------------------------------------------------------
    def _drop_gone(self) -> None:
        staged, left = self._core.staged, _FORGOTTEN_PARTS
        while self._gone and left:
            names = staged.of_topic(self._gone[0], left)
            for name in names:
                staged.drop(name)
            left -= len(names)
            if left:
                self._gone.popleft()
        self._sweep()
        if self._gone:
            self._core.loop.call_later(0, self._drop_gone)

    def _watch(self, delay_ms: int) -> None:
        """Check for parts that are too old after a delay, or at a planned check before that."""
        if self._timer is None:
            self._timer = self._core.loop.call_later((delay_ms + 1) * 1_000_000, self._look)

    def _look(self) -> None:
        """Drop parts that are too old. Source: R-PROD-12."""
        self._timer = None
        core = self._core
        too_old_ms = core.clock.now_ms() - core.config.staged_ttl_ms
        dropped = 0
        for name in _older(core.staged.parts, too_old_ms):
            if not self._is_busy(name):
                core.staged.drop(name)
                dropped += 1
        for name in _older(self._compared.parts, too_old_ms):
            self._compared.remove(name)
            dropped += 1
        self._sweep()
        left = [next(iter(parts.values())).last_ms for parts in (core.staged.parts, self._compared.parts) if parts]
        if dropped >= _FORGOTTEN_PARTS:
            self._timer = core.loop.call_later(0, self._look)
        elif left:
            self._watch(max(_RETRY_MS, min(left) - too_old_ms))
        elif core.staged.orphans:
            self._watch(_RETRY_MS)

    def _is_busy(self, name: Name) -> bool:
        """Return whether a write of the part is in progress."""
        topic = self._core.registry.by_id.get(name[0])
        return topic is not None and topic.waiting_for(name[1:]) is not None

    # --- records ------------------------------------------------------------------------------------------------------
    def _sweep(self) -> None:
        """Delete records that belong to no part, as many as one frame can."""
        core, topic = self._core, self._core.registry.staging
        if self._drop is not None or not core.staged.orphans or topic is None:
            return
        runs = core.staged.take_orphans(_DROPPED_RUNS, _DROPPED_ROWS)
        drop = Drop(core, topic, runs, self._on_dropped)
        try:
            drop.log()
        except TopicsError:
            self._on_dropped(runs)
        else:
            self._drop = drop

    def _on_dropped(self, left: list[int]) -> None:
        """Continue after a deletion.

        left: runs that could not be deleted, because the log accepts no writes: they are deleted
        later, or by the next start.
        """
        self._drop = None
        if left:
            self._core.staged.orphans += left
            self._watch(_RETRY_MS)
        else:
            self._core.loop.call_later(0, self._sweep)


class Drop(Operation[DropCore]):
    """The deletion of some records of the staging area. `done` gets the runs that are left."""

    __slots__ = ("done", "runs")

    def __init__(self, core: DropCore, topic: Topic, runs: list[int], done: Callable[[list[int]], None]) -> None:
        super().__init__(core, topic)
        self.runs = runs
        self.done = done

    def log(self) -> None:
        """Stage the deletion. Raises StorageError; nothing is staged then."""
        core, topic = self.core, self.topic
        upto = topic.next_seq - 1
        with core.log.use_reserve():
            payload = encode(RemovalPayload(upto, seqs=self.runs))
            core.log.stage_control(topic.id, FrameType.CONSUME, upto, core.clock.now_ms(), payload)
        self.stage(synced=False)

    def apply(self, commit: Commit) -> None:
        remove_jobs(self.core, self.topic, self.runs)
        self.done([])

    def fail(self, error: TopicsError) -> None:
        self.done(self.runs)


def _older(parts: dict[Name, StagedPart], than_ms: int) -> list[Name]:
    """The oldest parts, as many as a pass drops. parts: in the order of their newest pieces."""
    return [name for name, part in islice(parts.items(), _FORGOTTEN_PARTS) if part.last_ms < than_ms]
