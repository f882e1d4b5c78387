"""Delivery of changed topics at the end of a pass, within a budget of time, without starvation.

Usually all topics that changed in a pass are delivered at its end, in order of names. When the time
has passed before that, the rest stays for the following passes, and receives and commits continue
in between.

Source: docs/guides/scheduling.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

from topics.clock import Clock
from topics.config import Config
from topics.engine.scheduling.governor import SAMPLE_NS, Governor, Sample
from topics.engine.scheduling.ready_topics import ReadySet
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort, LoopPort, TimerPort
from topics.engine.values.priority import effective_priority

_AT_ONCE_MAX = 64
"""Topics in one pass above which all are taken by priority from the start."""


_QUIET_NS = 1_000_000
"""Length of a drain that counts as load.

Shorter ones are not sampled, so an idle server has no timer.
"""


class LoadStats(NamedTuple):
    """Load, for metrics.

    backlog: topics that wait for their delivery; steps: how often each step of the ladder was
    taken, and whether it is now.
    """

    pressure: float
    backlog: int
    latency_ns: int
    refused: int
    steps: dict[str, tuple[int, bool]]


class SchedulerCore(Protocol):
    """The part of the core that the scheduler needs."""

    awake: dict[Topic, None]
    clock: Clock
    config: Config
    log: LogPort
    loop: LoopPort


class Scheduler:
    """The delivery of changed topics.

    `drain` is called at the end of every pass, for `core.awake`.
    """

    def __init__(self, core: SchedulerCore) -> None:
        self._core = core
        self._now_ns = core.clock.monotonic_ns
        self._budget_ns = core.config.delivery_budget_us * 1000
        self.governor = Governor(core.config)
        self.refused = 0
        """Writes that got 429."""
        self._ready: ReadySet[Topic] = ReadySet()
        self._cooling: list[tuple[int, int, Topic]] = []
        """Heap of topics delivered a moment ago: (earliest time of the next, a number, topic)."""
        self._in_cooling: set[Topic] = set()
        self._served: dict[Topic, int] = {}
        """Last deliveries of topics, recorded while frames are coalesced."""
        self._number = 0
        self._sampling = False
        self._sample_due_ns = 0
        self._asked: TimerPort | None = None
        self._asked_ns = 0
        """Time of the pass that was asked for."""
        self._window_ns = core.config.commit_window_us * 1000

    # --- the end of a pass -------------------------------------------------------------------------------------------
    def drain(self) -> None:
        core = self._core
        if not (core.awake or self._ready or self._cooling):
            return
        started_ns = self._now_ns()
        until_ns = started_ns + self._budget_ns if self._budget_ns else 1 << 62
        if self._ready or self._cooling or self.governor.pressure or len(core.awake) > _AT_ONCE_MAX:
            self._drain_by_priority(started_ns, until_ns)
        else:
            self._drain_by_name(started_ns, until_ns)
        waits = bool(self._ready or self._cooling)
        if waits:
            self._ask_for_a_pass()
        if not self._sampling and (waits or self._now_ns() - started_ns > _QUIET_NS):
            self._sample_later(started_ns)

    def deliver_lone(self, deliver: Callable[[Topic], bool]) -> bool:
        """Deliver the only changed topic of a pass before its end, if no other waits for that.

        deliver: returns whether the delivery has left nothing to the end of the pass.
        Returns: whether it was called. Unless it returned True, the topic is delivered by `drain`.
        """
        awake = self._core.awake
        if len(awake) > 1 or self._ready or self._cooling or self.governor.pressure:
            return False
        started_ns = self._now_ns()
        if deliver(next(iter(awake))):
            awake.clear()
        self.governor.on_delivered(0)
        if not self._sampling and self._now_ns() - started_ns > _QUIET_NS:
            self._sample_later(started_ns)
        return True

    def _drain_by_name(self, started_ns: int, until_ns: int) -> None:
        """Deliver all changed topics, unless the time has passed before."""
        core = self._core
        now_ns = started_ns
        served = False
        # repeated, because a delivery may wake its own topic, as a push stream does after some jobs
        while core.awake:
            awake, core.awake = core.awake, {}
            names = sorted(awake, key=_by_name) if len(awake) > 1 else list(awake)
            for at, topic in enumerate(names):
                if served and (now_ns := self._now_ns()) >= until_ns:
                    for left in names[at:]:
                        self._add(left, started_ns)
                    self._collect(started_ns)
                    return
                served = True
                _serve(topic)
        # how long the last of them waited for the others
        self.governor.on_delivered(now_ns - started_ns)

    def _drain_by_priority(self, started_ns: int, until_ns: int) -> None:
        core, ready, governor = self._core, self._ready, self.governor
        self._collect(started_ns)
        ready.age(started_ns)
        now_ns = started_ns
        while True:
            entry = ready.take(without_band_0=governor.defer.taken)
            if entry is None:
                break
            governor.on_delivered(now_ns - entry.since_ns)
            _serve(entry.topic)
            now_ns = self._now_ns()
            if governor.coalesce.taken:
                self._served[entry.topic] = now_ns
            if core.awake:
                self._collect(now_ns)
            if now_ns >= until_ns:
                break

    def _collect(self, now_ns: int) -> None:
        """Sort changed topics into cooling and ready ones, and make cooled ones ready."""
        core = self._core
        cooling = self._cooling
        while cooling and cooling[0][0] <= now_ns:
            due_ns, _, topic = heapq.heappop(cooling)
            self._in_cooling.discard(topic)
            self._add(topic, due_ns)
        awake, core.awake = core.awake, {}
        coalesce_ns = self.governor.coalesce_ns
        for topic in awake:
            if topic in self._in_cooling:
                continue
            served_ns = self._served.get(topic, 0) if coalesce_ns else 0
            if served_ns and served_ns + coalesce_ns > now_ns:
                self._number += 1
                self._in_cooling.add(topic)
                heapq.heappush(cooling, (served_ns + coalesce_ns, self._number, topic))
            else:
                self._add(topic, now_ns)

    def _add(self, topic: Topic, since_ns: int) -> None:
        priority = effective_priority(topic.config, topic.consumed_ms, self._core.clock.now_ms())
        self._ready.add(topic, priority, since_ns)

    def _ask_for_a_pass(self) -> None:
        """Ask the loop for a pass: at once for ready topics, later for cooling or paused ones."""
        now_ns = self._now_ns()
        if self._may_serve():
            at_ns = now_ns
        elif self._cooling:
            at_ns = max(now_ns, self._cooling[0][0])
        else:
            at_ns = now_ns + SAMPLE_NS  # only paused ones
        if self._asked is not None:
            if self._asked_ns <= at_ns:
                return
            self._asked.cancel()
        self._asked_ns = at_ns
        self._asked = self._core.loop.call_later(at_ns - now_ns, self._on_asked)

    def _may_serve(self) -> bool:
        return self._ready.count(without_band_0=self.governor.defer.taken) > 0

    def _on_asked(self) -> None:
        self._asked = None

    # --- pressure ----------------------------------------------------------------------------------------------------
    def _sample_later(self, now_ns: int) -> None:
        self._sampling = True
        self._sample_due_ns = now_ns + SAMPLE_NS
        self._core.loop.call_later(SAMPLE_NS, self._sample)

    def _sample(self) -> None:
        now_ns = self._now_ns()
        paused = self.governor.defer.taken
        backlog = self._ready.count(without_band_0=paused)
        oldest_ns = self._ready.oldest_ns(without_band_0=paused)
        waited_ns = 0 if oldest_ns is None else now_ns - oldest_ns
        self.governor.sample(Sample(backlog, waited_ns, max(0, now_ns - self._sample_due_ns)))
        self._apply()
        if self.governor.pressure or self._ready:
            self._sample_later(now_ns)
        else:
            self._sampling = False

    def _apply(self) -> None:
        if not self.governor.coalesce.taken and self._served:
            self._served.clear()
        window_ns = self.governor.commit_window_ns
        if window_ns != self._window_ns:
            self._window_ns = window_ns
            self._core.log.set_commit_window(window_ns)

    @property
    def throttle_window_ns(self) -> int:
        """Delay of a commit due to pressure; 0 without pressure."""
        return self._window_ns if self.governor.widen.taken else 0

    @property
    def defers_routers(self) -> bool:
        """Whether forwarding is delayed where only long polls wait for it."""
        return self.governor.defer.taken

    def stats(self) -> LoadStats:
        governor = self.governor
        steps = {name: (step.times, step.taken) for name, step in governor.steps.items()}
        backlog = len(self._ready) + len(self._cooling)
        return LoadStats(governor.pressure, backlog, int(governor.latency_ns), self.refused, steps)


def _serve(topic: Topic) -> None:
    for waiter in list(topic.waiters):
        waiter.look_again()


def _by_name(topic: Topic) -> str:
    return topic.name
