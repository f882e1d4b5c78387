"""Alarms that wake push streams when time has made jobs claimable (R-Q-2, R-Q-28)."""

from __future__ import annotations

from typing import Protocol

from topics.clock import Clock
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import WakeCore, wake
from topics.engine.values.ports import LoopPort

_LATEST_MS = 5000
"""Longest wait of an alarm (ms), because the wall clock may be moved.

In the same interval, streams try again to move jobs that could not be moved.
"""


class AlarmCore(WakeCore, Protocol):
    """The part of the core that an alarm needs."""

    clock: Clock
    loop: LoopPort


def tend(core: AlarmCore, topic: Topic, *, again: bool = False) -> None:
    """Set the queue's alarm for the next end of a lease or delay.

    again: claimable jobs could not be claimed, so the alarm is set for later in any case.
    """
    leases = topic.queue
    if leases is None or not leases.streams or topic.life is Life.GONE:
        return
    due_ms = leases.next_due()
    if again:
        latest_ms = core.clock.now_ms() + _LATEST_MS
        due_ms = latest_ms if due_ms is None else min(due_ms, latest_ms)
    if due_ms is None:
        return
    if leases.alarm is not None:
        if leases.alarm_ms <= due_ms:
            return
        leases.alarm.cancel()
    left_ms = min(max(due_ms + 1 - core.clock.now_ms(), 1), _LATEST_MS)
    leases.alarm_ms = due_ms

    def ring() -> None:
        leases.alarm = None
        if leases.counters(core.clock.now_ms()).ready:
            wake(core, topic)
        tend(core, topic)

    leases.alarm = core.loop.call_later(left_ms * 1_000_000, ring)
