"""`topics.connect_async`: the methods of a log, of a server, as awaitables."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from typing_extensions import Unpack

from topics.client import scripts
from topics.client import server_calls as calls
from topics.client.aio_sockets import AioSockets
from topics.client.async_reader import AsyncClientReader
from topics.client.attempts import Attempts, Send, ServerCall
from topics.client.client_options import Address, ClientSettings, new_key, options_of
from topics.client.reader_script import HeldPage
from topics.client.scripts import Script
from topics.client.server_calls import ClientDeadLetters, ClientReads
from topics.common.composed_calls import AwaitedComposedCalls
from topics.common.opening_reader import OpeningReader
from topics.common.settings import Delivery, Guarantee, TopicSettings
from topics.common.values.answers import (
    AckResult,
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    ExtendResult,
    PatchResult,
    PutResult,
    ReaderState,
    RouterDeleted,
    RouterPut,
    RouterState,
    TopicHead,
    TopicState,
)
from topics.common.values.backup_result import BackupResult
from topics.common.values.begin import From
from topics.common.values.configs import Predicate
from topics.common.values.delivered import Job, Jobs, Page, Record
from topics.common.values.reader_config import opening
from topics.common.values.routing import router_config
from topics.common.values.seen_topics import Seen
from topics.common.values.which_records import WhichRecords
from topics.common.values.written import Producer, Values

R = TypeVar("R")


async def connect_async(url: str, **settings: Unpack[ClientSettings]) -> AsyncClient:
    """Return a client of the server at `url`, for asyncio. It connects when it is first used.

    settings, Raises: as `connect`.
    """
    return AsyncClient(url, **settings)


class AsyncClient(AwaitedComposedCalls):
    """The methods of a client as awaitables. Use it by `async with`, or await `close`.

    A cancelled await drops its connection. What it asked for may be done, or not.
    """

    def __init__(self, url: str, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(ClientReads(), ClientDeadLetters())
        self._address = Address.parse(url)
        self._options = options_of(dict(settings))
        self._now = time.monotonic
        self._sockets = AioSockets(self._address, self._options)
        self._attempts = Attempts(self._address.url, self._options, self._now, random.random)

    async def _make(self, call: ServerCall[Any]) -> Any:
        return await self._run(call)

    async def _run(self, call: ServerCall[R]) -> R:
        """Make one call."""
        steps = self._attempts.steps(call)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Send):
                    step = steps.send(await self._sockets.exchange(step))
                else:
                    await self._sockets.pause(step)
                    step = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result

    async def _play(self, script: Script[R]) -> R:
        """Make the calls of a script."""
        try:
            step = next(script)
            while True:
                if isinstance(step, ServerCall):
                    try:
                        answer = await self._run(step)
                    except Exception as error:
                        step = script.throw(error)
                        continue
                    step = script.send(answer)
                else:
                    await self._sockets.pause(step)
                    step = next(script)
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            script.close()  # now: what it puts back is there when the next call begins

    # --- writing -----------------------------------------------------------------------------------------------------
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
        """Append records as `Log.append`. Without a key it gets one of its own.

        timeout: for so many seconds it waits for room in the server's log.
        """
        return await self._run(
            calls.append(
                topic,
                records,
                key=key,
                node=node,
                create=create,
                incarnation=incarnation,
                producer=producer,
                timeout=timeout,
                new_key=new_key,
            )
        )

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
        """Append ready-made JSON texts, one record each."""
        return await self._run(
            calls.append_texts(
                topic,
                texts,
                key=key,
                incarnation=incarnation,
                producer=producer,
                timeout=timeout,
                new_key=new_key,
            )
        )

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult:
        return await self._run(calls.delete(topic, before_seq, match))

    # --- reading -----------------------------------------------------------------------------------------------------
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
        begin = calls.beginning(from_seq, from_, from_time)
        return await self._run(
            calls.page(
                topic,
                from_seq,
                limit=limit,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                wait_ms=wait_ms,
                begin=begin,
                is_sized=True,
            )
        )

    async def get(self, topic: str, seq: int) -> Record | None:
        return await self._run(calls.get(topic, seq))

    async def wait(self, topics: Mapping[str, Seen], *, wait_ms: int = 0) -> dict[str, TopicHead | None]:
        return await self._run(calls.wait(topics, wait_ms))

    async def state(self, topic: str, *, touch: bool = True, include_attempts: bool = False) -> TopicState:
        """Return head, floor, counts and config; `synced_seq` is 0, since no server reports it."""
        return await self._run(calls.state(topic, touch=touch, include_attempts=include_attempts))

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
    ) -> OpeningReader[AsyncClientReader]:
        """Open a named reader, as `Client.reader`: `await` it, or use it by `async with`."""

        async def open_reader() -> AsyncClientReader:
            begin = calls.beginning(from_seq, from_, None)
            asked = opening(topic, name, delivery, commit_every, holds, trims, from_seq, begin)
            put = await self._play(scripts.open_reader(asked))
            return AsyncClientReader(HeldPage(asked, *put, self._options.page_lease_ms), self._play)

        return OpeningReader(open_reader())

    async def readers(self, topic: str) -> list[ReaderState]:
        return await self._run(calls.readers(topic))

    async def delete_reader(self, topic: str, name: str) -> bool:
        return await self._run(calls.delete_reader(topic, name))

    # --- queues ------------------------------------------------------------------------------------------------------
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
        script = scripts.claim(
            queue,
            node,
            limit,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            include_attempts=include_attempts,
            now=self._now,
        )
        return await self._play(script)

    async def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult:
        """Complete jobs. If it is `repeated`, jobs that the first try ended are `skipped`."""
        return await self._run(calls.ack(queue, node, jobs))

    async def nack(
        self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None
    ) -> AckResult:
        return await self._run(calls.nack(queue, node, jobs, delay_ms, reason))

    async def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult:
        return await self._run(calls.extend(queue, node, jobs, lease_ms))

    # --- topics ------------------------------------------------------------------------------------------------------
    async def put_topic(self, topic: str, **config: Unpack[TopicSettings]) -> PutResult:
        return await self._run(calls.put_topic(topic, config))

    async def patch_topic(self, topic: str, **changes: Unpack[TopicSettings]) -> PatchResult:
        return await self._run(calls.patch_topic(topic, changes))

    async def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult:
        return await self._run(calls.delete_topic(topic, if_empty=if_empty))

    async def topics(self, prefix: str = "") -> list[TopicState]:
        """Return every topic whose name begins with `prefix`: one request for each."""
        return await self._play(scripts.topics(prefix))

    # --- routers -----------------------------------------------------------------------------------------------------
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
        return await self._run(calls.put_router(name, router_config(source, dest, filter, *options)))

    async def router(self, name: str) -> RouterState:
        return await self._run(calls.router(name))

    async def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> list[RouterState]:
        return await self._play(scripts.routers(prefix, source, dest))

    async def delete_router(self, name: str) -> RouterDeleted:
        return await self._run(calls.delete_router(name))

    # --- files -------------------------------------------------------------------------------------------------------
    async def backup(self, to: str | os.PathLike[str] | None = None) -> BackupResult:
        """Have the server make a backup of all topics, and wait for its end (docs/backup.md).

        to: the server's TOPICS_BACKUP_DIR, or an absolute path below it; None: that directory.
        Raises: RequestError, `to` is no such path, or another backup is being written;
            StorageError, it failed.
        """
        return await self._play(scripts.backup(None if to is None else os.fsdecode(to)))

    async def checkpoint(self, *, timeout: float | None = None) -> int:
        return await self._play(scripts.checkpoint(timeout, self._now))

    # --- ending ------------------------------------------------------------------------------------------------------
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._sockets.closed

    async def close(self) -> None:
        """Drop all connections. Tails end, and calls in progress raise UsageError. Idempotent."""
        self.drop()

    def drop(self) -> None:
        """Close without an await, from any thread."""
        self._sockets.close()

    def __repr__(self) -> str:
        return f"<topics.AsyncClient of {self._address.url!r}, {'closed' if self.closed else 'open'}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, _kind: object, _error: object, _traceback: object) -> None:
        await self.close()
