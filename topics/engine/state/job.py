"""One job that was leased at least once; a job that never was is just a record above the cursor of its queue."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class JobState(IntEnum):
    LEASED = 1
    DELAYED = 2
    """Handed back for later."""
    RETURNED = 3
    """Claimable again: expired, handed back, released, or its delay is over."""
    ENDING = 4
    """Its ack is on the way to the disk; still counted as in flight."""
    MOVING = 5
    """Its copy is on the way to the dead-letter topic; still counted as ready."""


class Holder(Protocol):
    """Who wants to know what it holds: a push stream."""

    def on_leased(self, job: LeasedJob) -> None: ...

    def on_lease_ended(self, job: LeasedJob) -> None: ...


class LeasedJob:
    """`until`: a lease holds, and a delay lasts, while now <= until (ms, wall clock)."""

    __slots__ = ("deliveries", "holder", "lease_id", "live", "node", "seq", "state", "until")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.state = JobState.RETURNED
        self.deliveries = 0
        self.lease_id = 0
        self.until = 0
        self.node = ""
        self.holder: Holder | None = None
        self.live = True
        """False: the record is gone (deleted, expired, evicted), its lease may still be answered for (R-DEL-10)."""
