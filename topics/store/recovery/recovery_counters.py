"""Numbers of a start for metrics. Names: wire contract, section 12.3."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RecoveryCounters:
    """Numbers of the start."""

    ms: int = 0
    """How long it took to read the directory, until the log accepted writes."""
    frames: int = 0
    """Frames that were read from the log."""
    cut_bytes: int = 0
    """Bytes of batches at the end of the log that were not whole, and of files after them."""
