"""What queues are asked and what they answer: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ClaimRequest(NamedTuple):
    """Source: wire contract, 8.2."""

    queue: str
    node: str
    most: int = 1
    """Jobs; clamped."""
    lease_ms: int | None = None
    """None: the queue's; clamped."""


class HeldJobs(NamedTuple):
    """Jobs a node says it holds: what ack, nack and extend begin with (8.1)."""

    queue: str
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int | None] = ()
    """Fences: a lease id, or None for no fence, for each seq; empty: none at all (R-Q-8)."""


class ClaimResult(NamedTuple):
    records: bytes
    """The elements of the JSON array `claimed`, joined by commas; b"" for none."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a result
    ready: int
    """After the pass (R-Q-13)."""
    each: Sequence[tuple[int, bytes]] = ()
    """For a push stream, instead of `records`: (seq, element) of each job."""


class AckResult(NamedTuple):
    """`done` jobs were acked (or handed back, see nack); the others are in `skipped`, in the order asked for."""

    done: int
    skipped: list[int]
    ready: int
    in_flight: int
    sync_ns: int = 0
    """From the commit to the sync's completion; 0 unless the class is `fsync`."""


class ExtendResult(NamedTuple):
    deadlines: dict[int, int]
    """New deadline by seq, ms."""
    skipped: list[int]
