"""`topics.connect`: the methods of a log, of a server. Any thread may call them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from typing_extensions import Unpack

from topics.client import scripts
from topics.client import server_calls as calls
from topics.client.async_client import AsyncClient
from topics.client.attempts import Attempts, Send, ServerCall
from topics.client.client_options import Address, ClientSettings, new_key, options_of
from topics.client.reader_script import HeldPage
from topics.client.scripts import Script
from topics.client.sent_soon import ClientPending, RecordGatherer
from topics.client.server_calls import ClientDeadLetters, ClientReads
from topics.client.sockets import Sockets
from topics.client.sync_reader import ClientReader
from topics.common.composed_calls import ComposedCalls
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


def connect(url: str, **settings: Unpack[ClientSettings]) -> Client:
    """Return a client of the server at `url`. It connects when it is first used.

    settings: key, timeout and others (docs/guides/client.md).
    Raises: UsageError, an address or a setting that cannot be used.
    """
    return Client(url, **settings)


class Client(ComposedCalls):
    """A log in a server. Use it as a context manager, or call `close`.

    The methods are those of `Log`, with its arguments, results and errors. What fails to be
    answered is asked again for `timeout` seconds, so that a restart of the server is not noticed;
    a write is repeated by its key, and done once.
    Raises: NoAnswerError, there was no answer in time; OutcomeUnknown, and the call may have been
    done.
    """

    def __init__(self, url: str, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(ClientReads(), ClientDeadLetters())
        self._address = Address.parse(url)
        self._options = options_of(dict(settings))
        self._now = time.monotonic
        self._sockets = Sockets(self._address, self._options)
        self._attempts = Attempts(self._address.url, self._options, self._now, random.random)
        self._aio = AsyncClient(url, **settings)
        self._gatherer = RecordGatherer(self._options, self._run)

    def _make(self, call: ServerCall[Any]) -> Any:
        return self._run(call)

    def _run(self, call: ServerCall[R]) -> R:
        """Make one call."""
        steps = self._attempts.steps(call)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Send):
                    step = steps.send(self._sockets.exchange(step))
                else:
                    self._sockets.pause(step)
                    step = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result

    def _play(self, script: Script[R]) -> R:
        """Make the calls of a script."""
        try:
            step = next(script)
            while True:
                if isinstance(step, ServerCall):
                    try:
                        answer = self._run(step)
                    except Exception as error:
                        step = script.throw(error)
                        continue
                    step = script.send(answer)
                else:
                    self._sockets.pause(step)
                    step = next(script)
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            script.close()  # now: what it puts back is there when the next call begins

    # --- writing -----------------------------------------------------------------------------------------------------
    def append(
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
        return self._run(
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

    def append_many(
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
        return self._run(
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

    def append_soon(self, topic: str, value: Any) -> ClientPending:
        """Append one value, bytes or JSON, with others that follow soon. Do not wait for it.

        `result()` of the return value is the record's seq. The records of all threads are sent over
        one connection, and those of a topic in their order.
        """
        return self._gatherer.add(topic, value)

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult:
        return self._run(calls.delete(topic, before_seq, match))

    # --- reading -----------------------------------------------------------------------------------------------------
    def page(
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
        return self._run(
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

    def get(self, topic: str, seq: int) -> Record | None:
        return self._run(calls.get(topic, seq))

    def wait(self, topics: Mapping[str, Seen], *, wait_ms: int = 0) -> dict[str, TopicHead | None]:
        return self._run(calls.wait(topics, wait_ms))

    def state(self, topic: str, *, touch: bool = True, include_attempts: bool = False) -> TopicState:
        """Return head, floor, counts and config; `synced_seq` is 0, since no server reports it."""
        return self._run(calls.state(topic, touch=touch, include_attempts=include_attempts))

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
    ) -> ClientReader:
        begin = calls.beginning(from_seq, from_, None)
        asked = opening(topic, name, delivery, commit_every, holds, trims, from_seq, begin)
        put = self._play(scripts.open_reader(asked))
        return ClientReader(HeldPage(asked, *put, self._options.page_lease_ms), self._play)

    def readers(self, topic: str) -> list[ReaderState]:
        return self._run(calls.readers(topic))

    def delete_reader(self, topic: str, name: str) -> bool:
        return self._run(calls.delete_reader(topic, name))

    # --- queues ------------------------------------------------------------------------------------------------------
    def claim(
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
        return self._play(script)

    def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult:
        """Complete jobs. If it is `repeated`, jobs that the first try ended are `skipped`."""
        return self._run(calls.ack(queue, node, jobs))

    def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None) -> AckResult:
        return self._run(calls.nack(queue, node, jobs, delay_ms, reason))

    def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult:
        return self._run(calls.extend(queue, node, jobs, lease_ms))

    # --- topics ------------------------------------------------------------------------------------------------------
    def put_topic(self, topic: str, **config: Unpack[TopicSettings]) -> PutResult:
        return self._run(calls.put_topic(topic, config))

    def patch_topic(self, topic: str, **changes: Unpack[TopicSettings]) -> PatchResult:
        return self._run(calls.patch_topic(topic, changes))

    def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult:
        return self._run(calls.delete_topic(topic, if_empty=if_empty))

    def topics(self, prefix: str = "") -> list[TopicState]:
        """Return every topic whose name begins with `prefix`: one request for each."""
        return self._play(scripts.topics(prefix))

    # --- routers -----------------------------------------------------------------------------------------------------
    def put_router(
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
        return self._run(calls.put_router(name, router_config(source, dest, filter, *options)))

    def router(self, name: str) -> RouterState:
        return self._run(calls.router(name))

    def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> list[RouterState]:
        return self._play(scripts.routers(prefix, source, dest))

    def delete_router(self, name: str) -> RouterDeleted:
        return self._run(calls.delete_router(name))

    # --- files -------------------------------------------------------------------------------------------------------
    def backup(self, to: str | os.PathLike[str] | None = None) -> BackupResult:
        """Have the server make a backup of all topics, and wait for its end (docs/backup.md).

        to: the server's TOPICS_BACKUP_DIR, or an absolute path below it; None: that directory.
        Raises: RequestError, `to` is no such path, or another backup is being written;
            StorageError, it failed.
        """
        return self._play(scripts.backup(None if to is None else os.fsdecode(to)))

    def checkpoint(self, *, timeout: float | None = None) -> int:
        return self._play(scripts.checkpoint(timeout, self._now))

    # --- ending ------------------------------------------------------------------------------------------------------
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._sockets.closed

    def close(self) -> None:
        """Send what `append_soon` has gathered, and drop all connections. Idempotent.

        Tails end, and calls in progress raise UsageError.
        """
        self._gatherer.drain()
        self._sockets.close()
        self._aio.drop()

    @property
    def aio(self) -> AsyncClient:
        """The client's methods for asyncio: `await client.aio.append(...)`."""
        return self._aio

    def __repr__(self) -> str:
        return f"<topics.Client of {self._address.url!r}, {'closed' if self.closed else 'open'}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        self.close()
