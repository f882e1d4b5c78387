"""Numbers of backups for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BackupCounters:
    """Numbers of backups since start-up."""

    done: int = 0
    failed: int = 0
    copied_bytes: int = 0
    """Bytes that were written by those that ended well: what has not changed is copied once."""
    done_ms: int = 0
    """The time at which the last one ended well; by its name, if before start-up; 0: none has."""
