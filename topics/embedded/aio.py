"""The library from asyncio: the same calls as awaitables, answered by the maintenance thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from topics.embedded.driver import Call, Start
from topics.embedded.jobs import Job, Jobs
from topics.embedded.records import Page, Record
from topics.engine.predicate import Predicate
from topics.engine.queue.results import AckResult, ExtendResult
from topics.engine.results import AppendResult, DeleteResult, DeleteTopicResult, PutResult, TopicState

if TYPE_CHECKING:
    from topics.embedded.log import Log, Values

R = TypeVar("R")


class AsyncLog:
    """`log.aio`. A cancelled await does not undo its call: an append may still happen."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def append(
        self,
        topic: str,
        records: Values,
        *,
        key: str | None = None,
        node: str | None = None,
        create: bool | None = None,
    ) -> AppendResult:
        return await self._run(self._log.appending(topic, records, key=key, node=node, create=create))

    async def append_many(self, topic: str, texts: Sequence[bytes], *, key: str | None = None) -> AppendResult:
        return await self._run(self._log.appending_texts(topic, texts, key=key))

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult:
        return await self._run(self._log.deleting(topic, before_seq=before_seq, match=match))

    async def state(self, topic: str, *, touch: bool = True) -> TopicState:
        return await self._run(self._log.asking_state(topic, touch=touch))

    async def put_topic(self, topic: str, **config: Any) -> PutResult:
        return await self._run(self._log.putting_topic(topic, config))

    async def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult:
        return await self._run(self._log.deleting_topic(topic, if_empty=if_empty))

    async def claim(self, queue: str, node: str, limit: int = 1, *, lease_ms: int | None = None) -> list[Job]:
        return await self._run(self._log.claiming(queue, node, limit, lease_ms=lease_ms))

    async def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult:
        return await self._run(self._log.acking(queue, node, jobs))

    async def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0) -> AckResult:
        return await self._run(self._log.nacking(queue, node, jobs, delay_ms=delay_ms))

    async def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult:
        return await self._run(self._log.extending(queue, node, jobs, lease_ms=lease_ms))

    async def page(self, topic: str, from_seq: int = 0, *, limit: int = 0, node: str = "", wait_ms: int = 0) -> Page:
        return await self._run(self._log.paging(topic, from_seq, limit=limit, node=node, wait_ms=wait_ms))

    async def read(self, topic: str, from_seq: int = 0, *, node: str = "") -> AsyncIterator[Record]:
        """Records above `from_seq` up to the head there is now. Raises GapError like `Log.read`."""
        while True:
            page = await self.page(topic, from_seq, limit=self._log.config.max_limit, node=node)
            page.raise_gap()
            for record in page.records:
                yield record
            from_seq = page.next_from_seq
            if page.caught_up:
                return

    async def tail(self, topic: str, from_seq: int = 0, *, node: str = "") -> AsyncIterator[Record]:
        """Records above `from_seq` as they come; never ends by itself."""
        while True:
            page = await self.page(
                topic, from_seq, limit=self._log.config.max_limit, node=node, wait_ms=self._log.config.max_wait_ms
            )
            page.raise_gap()
            for record in page.records:
                yield record
            from_seq = page.next_from_seq

    async def _run(self, start: Start[R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def settle(call: Call[R]) -> None:
            if future.cancelled():
                return
            if isinstance(call.outcome, BaseException):
                future.set_exception(call.outcome)
            else:
                future.set_result(call.result())

        def on_answer(call: Call[R]) -> None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, call)

        self._log.driver.submit(start, on_answer)
        return await future
