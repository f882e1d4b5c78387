"""Calls about the files of the directory."""

from __future__ import annotations

from topics.engine.values.results import CheckpointResult


def snapshot_of(result: CheckpointResult) -> int:
    """Return the number of the snapshot. Raises TimeoutError if the checkpoint has not ended."""
    if not result.done:
        raise TimeoutError("the checkpoint has not ended; it continues: wait with a longer timeout")
    return result.snapshot
