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


@dataclass(slots=True)
class RecoveryCounters:
    """Numbers of the start."""

    ms: int = 0
    """How long it took to read the directory, until the log accepted writes."""
    frames: int = 0
    """Frames that were read from the log."""
    cut_bytes: int = 0
    """Bytes of batches at the end of the log that were not whole, and of files after them."""
