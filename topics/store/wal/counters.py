"""Numbers of the log for metrics. Names and buckets: wire contract, section 12.3."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from topics.common.histograms import Histogram

FSYNC_BUCKETS_US = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)
"""Upper bounds of the buckets; one more bucket counts what is above."""


@dataclass(slots=True)
class LogCounters:
    """Numbers over all shards since start-up."""

    all_frames: int = 0
    uncounted_frames: int = 0
    """Frames of routers' positions and copies, which `frames` leaves out (R-RTR-17)."""
    fsyncs: int = 0
    bytes_written: int = 0
    """Bytes of batches as the log holds them, without blocks written again and without padding."""
    in_place: int = 0
    """Number of commits that the loop waited for; a library's own are not counted."""
    rotations: int = 0
    submit_full: int = 0
    fsync_buckets: list[int] = field(default_factory=lambda: [0] * (len(FSYNC_BUCKETS_US) + 1))
    """Number of syncs by bucket, not cumulative."""
    fsync_us_sum: int = 0
    sync: Histogram = field(default_factory=Histogram)
    """Time of a sync, as `fsync_buckets` counts it."""
    commit: Histogram = field(default_factory=Histogram)
    """Time of a batch from its submission to its last completion."""
    _queue_depth_peak: int = 0
    answer: Histogram = field(default_factory=Histogram)
    """Time of the callbacks of a batch: publication and answers."""

    @property
    def frames(self) -> int:
        """Number of frames, without the uncounted ones."""
        return self.all_frames - self.uncounted_frames

    @property
    def batches(self) -> int:
        """Number of batches committed."""
        return self.commit.count

    @property
    def queue_depth_peak(self) -> int:
        """The most submissions that have waited for their commit at a time.

        At least 1 once a batch was written.
        """
        return self._queue_depth_peak or min(1, self.batches)

    def on_queue_depth(self, submissions: int) -> None:
        """Note the number of waiting submissions.

        A submission committed in the call that stages it need not be noted.
        """
        self._queue_depth_peak = max(self._queue_depth_peak, submissions)

    def count_sync(self, ns: int) -> None:
        """Count one sync of the log and its time."""
        us = ns // 1000
        self.fsyncs += 1
        self.sync.add(ns)
        self.fsync_us_sum += us
        self.fsync_buckets[bisect_left(FSYNC_BUCKETS_US, us)] += 1
