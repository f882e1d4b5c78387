"""The engine over the store of a data directory, for the server and the library."""

from __future__ import annotations

from collections.abc import Callable

from topics.config import Config
from topics.engine.engine import FLUSH_ORDER, Engine
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.engine.shared.stored_state import StoredState
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.store.disk.data_directory import TakenDirectory
from topics.store.store import Store
from topics.store.wal.counters import CheckpointCounters
from topics.store.wal.sharded_log import ShardedLog


class StoredEngine:
    """An engine and its store, both open."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self.engine = engine
        self.store = store

    @classmethod
    async def open(
        cls,
        loop: Loop,
        config: Config,
        on_progress: Callable[[float], None] = lambda _share: None,
        *,
        directory: TakenDirectory | None = None,
    ) -> StoredEngine:
        """Recover the data directory; return an engine that accepts requests, with its hooks set.

        directory, on_progress: as in `Store.open`. Raises: as `Store.open`.
        """
        stored = StoredState(loop, config)
        catalog = EngineCatalog(loop, stored)
        store = await Store.open(loop, config, catalog, directory=directory, on_progress=on_progress)
        engine = Engine(loop, config, stored, store)
        loop.on_pass_end(engine.flush, FLUSH_ORDER)
        return cls(engine, store)

    @property
    def log(self) -> ShardedLog:
        return self.store.log

    @property
    def checkpoints(self) -> CheckpointCounters:
        return self.store.checkpointer.counters

    async def close(self) -> None:
        """End routers, write a checkpoint, and close the store, which releases the directory.

        With TOPICS_VERIFY, the counters are compared first, when nothing is staged any more. On
        return, all acknowledged writes are durable and checkpointed, unless the log is read-only.
        """
        ended: Future[None] = Future()
        self.engine.end_routers(lambda: ended.set_result(None))
        await ended
        self.engine.verify()
        await self.store.close(checkpoint=True)
