"""Requests to named readers and their results. Source: wire contract, R-READER."""

from __future__ import annotations

from typing import NamedTuple

from topics.common.values.answers import ReaderState
from topics.engine.values.results import DiffResult
from topics.store.read.lender import Lender

__all__ = ["ReaderPage", "ReaderPut", "ReaderQuery", "ReaderState"]


class ReaderQuery(NamedTuple):
    """One read of a named reader. 0 for `limit` and `max_bytes` takes the default."""

    limit: int = 0
    max_bytes: int = 0
    wait_ms: int = 0
    peek: bool = False
    """Whether the page is only shown: nothing moves."""
    done: int = 0
    """The token of the page that is done with this read; 0: none."""
    commit_every: int = 1
    """The number of done records from which the position is committed before the answer."""
    lease_ms: int | None = None
    """How long the page is the caller's; None: until it is done or given back."""
    passes_gaps: bool = False
    """Whether a page with a tombstone is handed out. Otherwise nothing moves before a seek."""
    bytes_apart: bool = False
    """See `DiffQuery`."""
    lender: Lender | None = None
    """Lends a page that may be given back, whose result is a `ChosenResult` then."""


class ReaderPage(NamedTuple):
    """One page."""

    result: DiffResult
    token: int
    """The token with which the page is committed; 0: it needs none."""
    until_ms: int
    """The end of its lease; 0: it has none."""
    upto: int = 0
    """The page is done with a commit up to here."""


class ReaderPut(NamedTuple):
    created: bool
    state: ReaderState
    incarnation: str
    """The topic's incarnation."""
