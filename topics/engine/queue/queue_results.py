"""Requests to queues and their results: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ClaimRequest(NamedTuple):
    """A claim of jobs. Source: wire contract, 8.2."""

    queue: str
    node: str
    most: int = 1
    """Most jobs; clamped."""
    lease_ms: int | None = None
    """Duration of the lease, clamped; None: the queue's."""
    bytes_apart: bool = False
    """Whether data of bytes comes in `ClaimResult.payloads`, for a claimer in this process."""


class HeldJobs(NamedTuple):
    """Jobs that a node states it holds: the arguments of ack, nack and extend (8.1)."""

    queue: str
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int | None] = ()
    """Fences: a lease id, or None for no fence, for each seq; empty: no fences (R-Q-8)."""


class ClaimResult(NamedTuple):
    records: bytes
    """Elements of the JSON array `claimed`, joined by commas; b"" for none."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not called on a result
    ready: int
    """Number of claimable jobs after the pass (R-Q-13)."""
    each: Sequence[tuple[int, bytes]] = ()
    """Jobs for a push stream, instead of `records`: (seq, element) of each."""
    payloads: Sequence[tuple[int, bytes]] = ()
    """Data of bytes, if it was to come apart, and the index of its job; the JSON has null."""


class AckResult(NamedTuple):
    """Result of an ack or nack: `done` jobs ended; `skipped` has the others, in order."""

    done: int
    skipped: list[int]
    ready: int
    in_flight: int
    sync_ns: int = 0
    """Time from the commit to the sync's completion; 0 unless the class is `fsync`."""


class ExtendResult(NamedTuple):
    deadlines: dict[int, int]
    """New deadline by seq, ms."""
    skipped: list[int]
