"""Protocols of the HTTP side's backend: an engine over an opened store, and the store's numbers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from topics.config import Config
from topics.engine.scheduling.scheduler import LoadStats
from topics.engine.shared.limits import Limits
from topics.engine.shared.outside import Outside
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import EngineStats, TopicState
from topics.http.plan.engine_api import EngineApi
from topics.loop.loop import Loop
from topics.store.archive.archiver import ArchiveStats
from topics.store.backup.backup_counters import BackupCounters
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.recovery.recovery_counters import RecoveryCounters
from topics.store.wal.counters import LogCounters
from topics.store.wal.log_bound import LogBound


class ServedEngine(EngineApi, Protocol):
    """An engine, with the calls that a server needs besides those of the handlers."""

    @property
    def limits(self) -> Limits: ...

    def begin_shutdown(self) -> None:
        """Answer long polls with the records that they have."""

    def stats(self) -> EngineStats: ...

    def topic_count(self) -> int: ...

    def leases_in_flight(self) -> Iterator[int]: ...

    def load(self) -> LoadStats: ...

    def moving_jobs(self, name: str) -> int: ...

    def topic_states(self, after: str, within: Prefixes, limit: int) -> list[TopicState]: ...


class LogNumbers(Protocol):
    """The log, as metrics and readiness see it."""

    @property
    def counters(self) -> LogCounters: ...

    @property
    def bound(self) -> LogBound: ...

    @property
    def queue_depth(self) -> int: ...

    @property
    def unsynced_bytes(self) -> int: ...

    @property
    def read_only(self) -> str: ...

    @property
    def disk_full(self) -> bool: ...


class Backend(Protocol):
    """A serving engine, and how to close it."""

    @property
    def engine(self) -> ServedEngine: ...

    @property
    def log(self) -> LogNumbers: ...

    @property
    def checkpoints(self) -> CheckpointCounters: ...

    @property
    def archive(self) -> ArchiveStats: ...

    @property
    def backups(self) -> BackupCounters: ...

    @property
    def recovery(self) -> RecoveryCounters: ...

    @property
    def checksum_failures(self) -> int: ...

    async def close(self) -> None:
        """Make everything durable, write a checkpoint, and close."""


OpenBackend = Callable[[Loop, Config, Callable[[float], None], Outside], Coroutine[Any, Any, Backend]]
"""Recovers a data directory; the callback gets the share done, 0..1."""
