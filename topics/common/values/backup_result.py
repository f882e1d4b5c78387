"""Results of backups, and their progress."""

from __future__ import annotations

from typing import NamedTuple

SKIPPED_SEQS = 1 << 20
"""Seqs that a restore leaves out above those of the backup, unless another number is given."""
SKIPPED_SEQS_MAX = 1 << 48
"""Most seqs that a restore leaves out: after thirty such restores seqs are still exact in JSON."""

UNWRITTEN = "the backup could not be written: "
"""The begin of the sentence about a place in which no backup can be made."""


class BackupResult(NamedTuple):
    """A backup of a log: one instant of all its topics, as a directory that can be restored."""

    path: str
    """Its directory."""
    taken_ms: int
    """Unix ms of the instant."""
    files: int
    bytes: int
    """Bytes of all its files, those that it shares with earlier backups included."""
    copied_bytes: int
    """Bytes that were copied for it."""
    linked_files: int
    """Files that had not changed since the backup before, and are the same files."""


class BackupProgress(NamedTuple):
    """The newest backup since the log was opened."""

    number: int
    """Counts the backups since then; 0: there was none."""
    state: str
    """"none", "running", "done" or "failed"."""
    copied_bytes: int = 0
    files: int = 0
    """Files that are there by now."""
    result: BackupResult | None = None
    """Once it is done."""
    error: str = ""
    """Why it failed."""
