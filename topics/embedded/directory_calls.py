"""Calls about the files of the directory."""

from __future__ import annotations

from topics.engine.values.results import CheckpointResult, FlushResult


def snapshot_of(result: CheckpointResult) -> int:
    """Return the number of the snapshot. Raises TimeoutError if the checkpoint has not ended."""
    if not result.done:
        raise TimeoutError("the checkpoint has not ended; it continues: wait with a longer timeout")
    return result.snapshot


def flushed_of(result: FlushResult) -> int:
    """Return the seq up to which all is on stable storage.

    Raises: TimeoutError if a record that was to be there is not.
    """
    if not result.done:
        raise TimeoutError("the sync has not ended; it continues: wait with a longer timeout")
    return result.synced_seq
