"""The log's numbers for metrics. Names and buckets: wire contract, section 12.3."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from topics.common.metrics import Histogram

FSYNC_BUCKETS_US = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)
"""Upper bounds; one more bucket counts what is above."""


@dataclass(slots=True)
class LogCounters:
    """Counted over all shards since start-up."""

    all_frames: int = 0
    uncounted_frames: int = 0
    """Positions of routers and copies that they make: not among `frames` (R-RTR-17)."""
    fsyncs: int = 0
    bytes_written: int = 0
    """Batches as the log holds them; blocks written again and padding not counted."""
    in_place: int = 0
    """Commits for which the loop waited; a library's own are not counted."""
    rotations: int = 0
    submit_full: int = 0
    fsync_buckets: list[int] = field(default_factory=lambda: [0] * (len(FSYNC_BUCKETS_US) + 1))
    """Not cumulative."""
    fsync_us_sum: int = 0
    commit: Histogram = field(default_factory=Histogram)
    """A batch, from its submission to its last completion."""
    _queue_depth_peak: int = 0
    answer: Histogram = field(default_factory=Histogram)
    """Running the callbacks of a batch: publication and answers."""

    @property
    def frames(self) -> int:
        """Those that count."""
        return self.all_frames - self.uncounted_frames

    @property
    def batches(self) -> int:
        """Those committed."""
        return self.commit.count

    @property
    def queue_depth_peak(self) -> int:
        """The most submissions that have waited for their commit at a time, whatever they hold: one at least, once a
        batch was written."""
        return self._queue_depth_peak or min(1, self.batches)

    def on_queue_depth(self, submissions: int) -> None:
        """So many wait; nobody need say it for one that is committed in the call that stages it."""
        self._queue_depth_peak = max(self._queue_depth_peak, submissions)

    def count_sync(self, ns: int) -> None:
        """One sync of the log that took so long."""
        us = ns // 1000
        self.fsyncs += 1
        self.fsync_us_sum += us
        self.fsync_buckets[bisect_left(FSYNC_BUCKETS_US, us)] += 1


@dataclass(slots=True)
class CheckpointCounters:
    """Checkpoints since start-up; what the last one did is of the last that ended well."""

    done: int = 0
    failed: int = 0
    error: str = ""
    """Why the last attempt failed; "" when it did not."""
    copied_rows: int = 0
    copied_bytes: int = 0
    last_ms: int = 0
    cold_failed: bool = False
    """The cold directory failed: nothing moves there until the next start."""

    def count(self, rows: int, size: int, took_ms: int) -> None:
        """One that ended well."""
        self.done += 1
        self.copied_rows += rows
        self.copied_bytes += size
        self.last_ms = took_ms
