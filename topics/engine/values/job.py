"""A job that was leased at least once.

A job that was never leased is only a record above the cursor of its queue.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from topics.common.values.answers import Attempt


class JobState(IntEnum):
    LEASED = 1
    DELAYED = 2
    """Handed back to be claimed later."""
    RETURNED = 3
    """Claimable again: expired, handed back, released, or after its delay."""
    ENDING = 4
    """Its ack is being committed; still counted as in flight."""
    MOVING = 5
    """Its copy to the dead-letter topic is being committed; still counted as ready."""


class Holder(Protocol):
    """A holder of leases that is notified of their begin and end: a push stream."""

    def on_leased(self, job: LeasedJob) -> None: ...

    def on_lease_ended(self, job: LeasedJob) -> None: ...


class LeasedJob:
    """One job. A lease holds, and a delay lasts, while now <= `until` (ms, wall clock)."""

    __slots__ = ("attempts", "deliveries", "holder", "lease_id", "live", "node", "seq", "state", "until")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.state = JobState.RETURNED
        self.deliveries = 0
        self.lease_id = 0
        self.until = 0
        self.node = ""
        self.holder: Holder | None = None
        self.attempts: tuple[Attempt, ...] = ()
        """Its last attempts, ascending. Changed by `Leases.note`."""
        self.live = True
        """False if the record was deleted, expired or evicted; its lease may still be answered
        (R-DEL-10).
        """

    @property
    def reason(self) -> str:
        """The last reason among its attempts; "" for none."""
        return next((attempt.reason for attempt in reversed(self.attempts) if attempt.reason), "")
