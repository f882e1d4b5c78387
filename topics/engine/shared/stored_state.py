"""The part of the engine's state that a start finds again: recovery fills it.

Snapshots describe it.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.common.id_blocks import IdSet
from topics.config import Config
from topics.engine.index.pending_delete_flags import PendingDeleteFlags
from topics.engine.index.usage import Usage
from topics.engine.shared.lease_ids import LeaseIds
from topics.engine.shared.router_registry import Routers
from topics.engine.shared.topic_registry import Registry, only_core
from topics.engine.state.known_producers import ProducerTotals
from topics.engine.state.staged_parts import StagedParts
from topics.engine.state.topic import Topic
from topics.engine.values.ports import TimersPort
from topics.store.format.file_table import FileTable
from topics.store.in_memory.ephemeral import EphemeralFrames


class StoredState:
    """Topics, routers and producers, with the files that their records are in."""

    def __init__(
        self,
        loop: TimersPort,
        config: Config,
        directory_number: int = 0,
        core_of: Callable[[str], int] = only_core,
        own_core: int = 0,
    ) -> None:
        """directory_number, core_of, own_core: as in `Registry`."""
        self.files = FileTable()
        self.memory = EphemeralFrames(self.files)
        self.usage = Usage(
            loop,
            self.files,
            self.memory,
            has_quota=config.max_total_bytes > 0,
            max_attempts=config.max_attempts,
        )
        self.registry = Registry(self.usage, directory_number, core_of, own_core)
        self.routers = Routers()
        self.producers = ProducerTotals(config)
        self.staged = StagedParts()
        self.lease_ids = LeaseIds()
        self.in_log = IdSet()
        """Ids of topics with rows in files of the log, and a few more."""
        self.moving: list[Topic] = []
        """Queues that a start finds with jobs on their way to another core."""
        self.deletions = PendingDeleteFlags(self.usage)
        """Rows in sealed files deleted one by one since the last checkpoint."""
