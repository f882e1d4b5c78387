"""Numbers of checkpoints for metrics. Names and buckets: wire contract, section 12.3."""

from __future__ import annotations

from dataclasses import dataclass, field

from topics.common.histograms import Histogram


@dataclass(slots=True)
class CheckpointCounters:
    """Numbers of checkpoints since start-up.

    Those of the last one are of the last that ended well.
    """

    done: int = 0
    failed: int = 0
    error: str = ""
    """The reason why the last attempt failed; "" if it did not."""
    copied_rows: int = 0
    copied_bytes: int = 0
    last_ms: int = 0
    seal: Histogram = field(default_factory=Histogram)
    """Time in which a segment or pack was completed: index, footer and, of a segment, its sync."""
    sealed_bytes: Histogram = field(default_factory=Histogram)
    """Bytes of each segment and pack that was completed."""
    cold_failed: bool = False
    """The cold directory failed: nothing is moved there until the next start."""

    def count_seal(self, took_ns: int, size: int) -> None:
        """Count a segment or pack that was completed, and its bytes."""
        self.seal.add(took_ns)
        self.sealed_bytes.add(size)

    def count(self, rows: int, size: int, took_ms: int) -> None:
        """Count a checkpoint that ended well."""
        self.done += 1
        self.copied_rows += rows
        self.copied_bytes += size
        self.last_ms = took_ms
