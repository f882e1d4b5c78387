"""The real backend: the engine over the store of a data directory."""

from __future__ import annotations

from collections.abc import Callable

from topics.config import Config
from topics.engine.engine import FLUSH_ORDER, Engine
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.server.backend import Backend, OpenBackend
from topics.store.disk.data_directory import TakenDirectory
from topics.store.store import Store
from topics.store.wal.counters import CheckpointCounters
from topics.store.wal.sharded_log import ShardedLog


class StoredEngine:
    """An engine and its store, both open."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self.engine = engine
        self._store = store

    @property
    def log(self) -> ShardedLog:
        return self._store.log

    @property
    def checkpoints(self) -> CheckpointCounters:
        return self._store.checkpointer.counters

    async def close(self) -> None:
        """Whatever was acknowledged is durable and checkpointed on return, unless the log is read-only."""
        ended: Future[None] = Future()
        self.engine.end_routers(lambda: ended.set_result(None))
        await ended
        self.engine.verify()
        await self._store.close(checkpoint=True)


def backend_opener(directory: TakenDirectory) -> OpenBackend:
    """How a server opens a directory this process holds the lock of; the store gives the lock back when it closes."""

    async def open_backend(loop: Loop, config: Config, on_progress: Callable[[float], None]) -> Backend:
        engine = Engine(loop, config)
        store = await Store.open(loop, config, engine.catalog, directory=directory, on_progress=on_progress)
        engine.start(store)
        loop.on_pass_end(engine.flush, FLUSH_ORDER)
        return StoredEngine(engine, store)

    return open_backend
