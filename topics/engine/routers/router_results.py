"""Results about routers: plain values."""

from __future__ import annotations

from typing import NamedTuple

from topics.common.values.answers import RouterDeleted, RouterPut, RouterState

__all__ = ["RouterDeleted", "RouterPage", "RouterPut", "RouterState"]


class RouterPage(NamedTuple):
    rows: list[RouterState]
    next_after: str | None
    """Exclusive start of the next page; None on the last one."""
