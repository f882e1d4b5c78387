"""The share that one of several cores has of the limits of the server, and its CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from topics.config import Config

SHARED = (
    "max_connections",
    "max_client_bytes",
    "hot_tail_bytes",
    "prefetch_bytes",
    "max_inflight_per_key",
)
"""Limits of the whole server, and memory of its process, of which each core has the same share.

Those of one topic, of one connection and of one request stay, and so do those of the log, of which
each core has its own. Shares of the other limits change while cores run (`share_ledger.py`).
"""


def share_of(config: Config, cores: int) -> Config:
    """Return the settings of one of several cores. Of each limit it has the same share, rounded up.

    0 stays 0, which is no limit.
    """
    shares: dict[str, Any] = {name: -(-getattr(config, name) // cores) for name in SHARED}
    return replace(config, **shares)


def cpu_of(core: int, cores: int, cpus: Sequence[int]) -> int | None:
    """Return the CPU of a core, of those that the process may use; None: there are too few."""
    return sorted(cpus)[core] if cores <= len(cpus) else None
