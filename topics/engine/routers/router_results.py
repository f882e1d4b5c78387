"""What the engine answers about routers: plain values."""

from __future__ import annotations

from typing import NamedTuple

from topics.engine.state.router import RouterConfig


class RouterPut(NamedTuple):
    created: bool
    config: RouterConfig


class RouterState(NamedTuple):
    name: str
    config: RouterConfig
    forwarded: int
    """`forwarded_total`."""


class RouterPage(NamedTuple):
    rows: list[RouterState]
    next_after: str | None
    """Where the next page starts, exclusively; None on the last."""


class RouterDeleted(NamedTuple):
    deleted: bool
