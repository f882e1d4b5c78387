"""Results about routers: plain values."""

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
    """Exclusive start of the next page; None on the last one."""


class RouterDeleted(NamedTuple):
    deleted: bool
