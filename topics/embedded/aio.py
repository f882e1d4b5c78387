"""The library for asyncio: the same calls as awaitables, answered by the maintenance thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from typing_extensions import Unpack

from topics.common.composed_calls import AwaitedComposedCalls
from topics.common.opening_reader import OpeningReader
from topics.common.settings import Delivery, Guarantee, TopicSettings
from topics.common.values import arguments
from topics.common.values.backup_result import BackupResult
from topics.common.values.begin import From
from topics.common.values.delivered import Job, Jobs, Page, Record
from topics.common.values.reader_config import opening
from topics.common.values.routing import router_config
from topics.common.values.seen_topics import Seen
from topics.common.values.which_records import WhichRecords
from topics.common.values.written import Producer, Values
from topics.config import Config
from topics.embedded.appends.offers import Admission, Offer
from topics.embedded.driving.calls import Start, flushed_of, snapshot_of
from topics.embedded.driving.driver import Driver
from topics.embedded.jobs import AwaitedClaim
from topics.embedded.log_reader import AsyncLogReader
from topics.embedded.records import UnreadPage
from topics.embedded.starts import Starts
from topics.engine.queue.queue_results import AckResult, ExtendResult
from topics.engine.read.one_record import Location
from topics.engine.readers.reader_results import ReaderState
from topics.engine.routers.router_results import RouterDeleted, RouterPut, RouterState
from topics.engine.state.append_request import AppendRequest
from topics.engine.stored_engine import LogStats
from topics.engine.values.predicate import Predicate
from topics.engine.values.results import (
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    FlushResult,
    PatchResult,
    PutResult,
    TopicHead,
    TopicState,
)
from topics.errors import TopicsError

R = TypeVar("R")


class DrivenLog(Protocol):
    """The parts of a log that its awaitables use. It stays open while they refer to it."""

    config: Config
    _admission: Admission
    _driver: Driver

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None: ...

    def _asking_stats(self) -> Start[LogStats]: ...

    def _asking_flush(self, topic: str | None, seq: int | None, timeout: float | None) -> Start[FlushResult]: ...


class AsyncLog(AwaitedComposedCalls):
    """The methods of a log as awaitables (`log.aio`).

    `async with topics.open("data").aio as log` ends by closing the log.

    A cancelled await does not undo its call. An append that the driving thread has not admitted by
    then leaves nothing; one that it has is written.
    """

    _reader_type = AsyncLogReader

    def __init__(self, log: DrivenLog, starts: Starts) -> None:
        super().__init__(starts, starts)
        self._log = log
        self._starts = starts

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""
        return self._log.closed

    async def close(self) -> None:
        """Close the log on another thread, as `Log.close` does."""
        await asyncio.shield(asyncio.to_thread(self._log.close))

    async def append(
        self,
        topic: str,
        records: Values,
        *,
        key: str | None = None,
        node: str | None = None,
        create: bool | None = None,
        incarnation: str | None = None,
        producer: Producer | None = None,
        timeout: float | None = None,
    ) -> AppendResult:
        request = self._starts.request(
            topic, records, key=key, node=node, create=create, incarnation=incarnation, producer=producer
        )
        return await self._append(request, timeout)

    async def append_many(
        self,
        topic: str,
        texts: Sequence[bytes],
        *,
        key: str | None = None,
        incarnation: str | None = None,
        producer: Producer | None = None,
        timeout: float | None = None,
    ) -> AppendResult:
        request = self._starts.request_of_texts(topic, texts, key=key, incarnation=incarnation, producer=producer)
        return await self._append(request, timeout)

    async def _append(self, request: AppendRequest, timeout: float | None) -> AppendResult:
        wait_ms = arguments.optional_milliseconds("timeout", timeout)
        offer = Offer(request, wait_ms, is_plain=wait_ms is None)
        try:
            return await self._run(self._log._admission.offering(offer))
        except asyncio.CancelledError:
            offer.cancelled = True
            raise

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult:
        return await self._run(self._starts.deleting(topic, before_seq=before_seq, match=match))

    async def state(self, topic: str, *, touch: bool = True, include_attempts: bool = False) -> TopicState:
        return await self._run(self._starts.asking_state(topic, touch=touch, include_attempts=include_attempts))

    async def put_topic(self, topic: str, **config: Unpack[TopicSettings]) -> PutResult:
        return await self._run(self._starts.putting_topic(topic, config))

    async def patch_topic(self, topic: str, **changes: Unpack[TopicSettings]) -> PatchResult:
        return await self._run(self._starts.patching_topic(topic, changes))

    async def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult:
        return await self._run(self._starts.deleting_topic(topic, if_empty=if_empty))

    async def topics(self, prefix: str = "") -> list[TopicState]:
        """Return every topic whose name begins with `prefix`, by name."""
        return await self._run(self._starts.listing(prefix))

    async def claim(
        self,
        queue: str,
        node: str,
        limit: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        include_attempts: bool = False,
    ) -> list[Job]:
        """Claim as `Log.claim`. If the await is cancelled, the jobs are claimable again."""
        starts = self._starts
        claim = AwaitedClaim(
            starts.claiming(queue, node, limit, lease_ms=lease_ms, wait_ms=wait_ms, include_attempts=include_attempts),
            lambda jobs: starts.nacking(queue, node, jobs, delay_ms=0, reason=None),
        )
        try:
            return await self._run(claim.begin)
        except asyncio.CancelledError:
            with contextlib.suppress(TopicsError):  # the log was closed, which ended the claim
                self._log._driver.submit(claim.give_up)
            raise

    async def put_router(
        self,
        name: str,
        source: str,
        dest: str,
        *,
        filter: str | Predicate | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Guarantee = "at_least_once",
    ) -> RouterPut:
        options = (preserve_node, preserve_tag, create_dest, allow_cycle, guarantee)
        return await self._run(self._starts.putting_router(name, router_config(source, dest, filter, *options)))

    async def router(self, name: str) -> RouterState:
        return await self._run(self._starts.asking_router(name))

    async def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> list[RouterState]:
        found: list[RouterState] = []
        after: str | None = ""
        while after is not None:
            page = await self._run(self._starts.listing_routers(prefix, source, dest, after))
            found += page.rows
            after = page.next_after
        return found

    async def delete_router(self, name: str) -> RouterDeleted:
        return await self._run(self._starts.deleting_router(name))

    async def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult:
        return await self._run(self._starts.acking(queue, node, jobs))

    async def nack(
        self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None
    ) -> AckResult:
        return await self._run(self._starts.nacking(queue, node, jobs, delay_ms=delay_ms, reason=reason))

    async def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult:
        return await self._run(self._starts.extending(queue, node, jobs, lease_ms=lease_ms))

    async def page(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        limit: int = 0,
        max_bytes: int = 0,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        wait_ms: int = 0,
        from_: From | None = None,
        from_time: int | None = None,
    ) -> Page:
        start = self._starts.paging(
            topic,
            from_seq,
            limit=limit,
            max_bytes=max_bytes,
            which=WhichRecords.of(node, only_node, match),
            wait_ms=wait_ms,
            from_=from_,
            from_time=from_time,
        )
        return await self._finish(await self._run(start))

    async def get(self, topic: str, seq: int) -> Record | None:
        return await self._run(self._starts.getting(topic, seq))

    async def locate(self, topic: str, seq: int) -> Location | None:
        return await self._run(self._starts.locating(topic, seq))

    async def wait(self, topics: Mapping[str, Seen], *, wait_ms: int = 0) -> dict[str, TopicHead | None]:
        return (await self._run(self._starts.waiting(topics, wait_ms=wait_ms))).heads

    def reader(
        self,
        topic: str,
        name: str,
        *,
        delivery: Delivery | None = None,
        commit_every: int = 1,
        holds: bool | None = None,
        trims: bool | None = None,
        from_seq: int | None = None,
        from_: From | None = None,
    ) -> OpeningReader[AsyncLogReader]:
        """Open a named reader, as `Log.reader`: `await` it, or use it by `async with`."""

        async def open_reader() -> AsyncLogReader:
            begin = self._starts.beginning(from_seq, from_, None)
            asked = opening(topic, name, delivery, commit_every, holds, trims, from_seq, begin)
            put = await self._run(self._starts.opening_reader(asked))
            return self._reader_type(self._starts.reader_home(self._log._driver), asked, put, self._run, self._finish)

        return OpeningReader(open_reader())

    async def readers(self, topic: str) -> list[ReaderState]:
        return await self._run(self._starts.listing_readers(topic))

    async def delete_reader(self, topic: str, name: str) -> bool:
        return await self._run(self._starts.deleting_reader(topic, name))

    async def backup(self, to: str | os.PathLike[str] | None = None) -> BackupResult:
        return await self._run(self._starts.backing_up(to))

    async def checkpoint(self, *, timeout: float | None = None) -> int:
        return snapshot_of(await self._run(self._starts.checkpointing(timeout)), timeout)

    async def flush(self, topic: str | None = None, seq: int | None = None, timeout: float | None = None) -> int:
        return flushed_of(await self._run(self._log._asking_flush(topic, seq, timeout)), timeout)

    async def stats(self) -> LogStats:
        return await self._run(self._log._asking_stats())

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<topics.{type(self).__name__} of {self._log.config.data_dir!r}, {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        await self._log.__aexit__(kind, error, traceback)

    async def _make(self, call: Start[Any]) -> Any:
        """Make a call, and read its page, if it is one."""
        answer = await self._run(call)
        return await self._finish(answer) if isinstance(answer, UnreadPage) else answer

    async def _finish(self, unread: UnreadPage) -> Page:
        """Read a page: a short one in memory here, since another thread costs more than that."""
        if unread.is_short:
            return unread.read(_no_pause)
        return await asyncio.to_thread(unread.read, self._log._driver.rests.pause)

    async def _run(self, start: Start[R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def settle(outcome: R | BaseException) -> None:
            if future.done():  # the await was cancelled
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def on_answer(outcome: R | BaseException) -> None:
            # the event loop is closed, so no caller waits any more
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, outcome)

        self._log._driver.submit(start, on_answer)
        return await future


def _no_pause() -> bool:
    return False
