"""Requests to queues and their results: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topics.common.values.answers import AckResult, ExtendResult
from topics.common.values.held_jobs import HeldJobs

__all__ = ["AckResult", "ClaimRequest", "ClaimResult", "ExtendResult", "HeldJobs"]


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
    with_attempts: bool = False
    """Whether jobs come with their attempts (R-Q-34)."""


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
