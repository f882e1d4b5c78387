"""The state of a shard that decides how its next batch is committed, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topics.clock import Clock
from topics.config import Config
from topics.store.commits.commit_delay_tuner import CommitDelayTuner
from topics.store.commits.in_place_limit import InPlaceLimit
from topics.store.commits.synced_batches import SyncedBatches
from topics.store.disk.disk_space import DiskSpace
from topics.store.disk.log_sizes import LogSizes
from topics.store.in_memory.hot_tail import HotTail
from topics.store.wal.background_sync import BackgroundSync
from topics.store.wal.commitment import Commitment
from topics.store.wal.counters import LogCounters
from topics.store.wal.log_bound import LogBound
from topics.store.wal.log_end import LogEnd
from topics.store.wal.write_latch import WriteLatch


class SharedParts(NamedTuple):
    """The parts of a log that all its shards use."""

    tail: HotTail
    latch: WriteLatch
    space: DiskSpace
    counters: LogCounters
    bound: LogBound
    sizes: LogSizes


class ShardSettings(NamedTuple):
    """The settings of a log, as each of its shards follows them."""

    commit: str
    """The primitive to use, or auto."""
    sync_every_ns: int | None
    max_unsynced: int
    """Bytes of this shard; 0: no limit."""
    window_ns: int
    gather_ns: int
    in_place_max_ns: int
    prepared_files: int
    is_one_shard: bool

    @classmethod
    def of(cls, config: Config, shards: int) -> ShardSettings:
        """Return the settings of one of so many shards."""
        return cls(
            commit=config.commit,
            sync_every_ns=None if config.sync_every_ms is None else config.sync_every_ms * 1_000_000,
            max_unsynced=-(-config.max_unsynced_bytes // shards),
            window_ns=config.commit_window_us * 1000,
            gather_ns=config.commit_gather_us * 1000,
            in_place_max_ns=config.commit_in_place_max_us * 1000,
            prepared_files=config.wal_spare_files,
            is_one_shard=shards == 1,
        )


class ShardState:
    """The `ShardView` of one shard, and what the thread that drives it may wait for.

    `ShardView` says what the properties mean that have no docstring here.
    """

    def __init__(
        self,
        clock: Clock,
        settings: ShardSettings,
        *,
        batches: SyncedBatches,
        end: LogEnd,
        sync: BackgroundSync,
        bound: LogBound,
        commitment: Commitment,
    ) -> None:
        self._clock = clock
        self._batches = batches
        self._end = end
        self._sync = sync
        self._bound = bound
        self._commitment = commitment
        self._is_one_shard = settings.is_one_shard
        self.setting = settings.commit
        self.exclusive = False
        self.has_callers = False
        """Whether callers drive the loop, see `commit_in_place`."""
        self.has_no_waiters: Callable[[], bool] = _never
        """Whether no other call waits for the thread, which may then wait for a sync."""
        self.max_unsynced = settings.max_unsynced
        self.window_ns = settings.window_ns
        """Delay of a commit after the end of the previous one, to gather more."""
        self.delay = CommitDelayTuner(settings.gather_ns)
        self.limit = InPlaceLimit(clock, settings.in_place_max_ns)

    # --- what callers allow ------------------------------------------------------------------------------------------
    def commit_in_place(self) -> None:
        """Let commits block the thread from here on, which waits for nothing else."""
        self.exclusive = self.has_callers = True

    def set_exclusive(self, has_no_waiters: Callable[[], bool] | None) -> None:
        """Let commits block the thread from here on, and small syncs while it returns True."""
        self.exclusive = has_no_waiters is not None
        self.has_no_waiters = has_no_waiters or _never

    def set_commit_window(self, ns: int) -> None:
        """Set the delay of a commit after the previous one, to gather more."""
        self.window_ns = ns

    # --- what `choose` asks ------------------------------------------------------------------------------------------
    @property
    def unsynced(self) -> bool:
        return self._batches.written > self._batches.synced

    @property
    def unsynced_bytes(self) -> int:
        return self._batches.unsynced_bytes

    @property
    def syncing(self) -> bool:
        return self._sync.running or bool(self._batches.sealed)

    @property
    def sync_planned(self) -> bool:
        return self._sync.planned

    @property
    def room(self) -> int:
        file = self._end.file
        return 0 if file is None or self._end.leaves_file else file.size - file.position

    @property
    def held_ns(self) -> int:
        return self._bound.held_ns() if self._bound.pressed else 0

    @property
    def delay_ns(self) -> int:
        return self.delay.delay_ns

    @property
    def idle_ns(self) -> int:
        return self._clock.monotonic_ns() - self._commitment.ended_ns

    @property
    def quick(self) -> bool:
        return self.limit.allows()

    @property
    def quick_beside_sync(self) -> bool:
        return not self._sync.running or self.limit.allows_beside_sync()

    @property
    def is_only(self) -> bool:
        return self._is_one_shard and not self.has_callers


def _never() -> bool:
    return False
