"""The methods that a log in this process and a client of a server have in common, as types.

A function that takes an `AnyLog` works with `topics.open(...)` and with `topics.connect(...)`, one
that takes an `AnyAsyncLog` with `topics.open(...).aio` and with `await topics.connect_async(...)`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from typing_extensions import Unpack

from topics.common.record_steps import OnGap, OnLeftOut
from topics.common.settings import Delivery, Guarantee, TopicSettings
from topics.common.values.answers import (
    AckResult,
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    ExtendResult,
    PatchResult,
    PutResult,
    ReaderLag,
    ReaderState,
    RedriveResult,
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
from topics.common.values.seen_topics import Seen
from topics.common.values.written import Producer, Values
from topics.common.work import AsyncWorkJob, WorkJob
from topics.common.work_steps import RETRY_MS, START_MS


class AnyReader(Protocol):
    """A named reader, of a log or of a client. See `LogReader`."""

    topic: str
    name: str

    @property
    def closed(self) -> bool: ...

    @property
    def position(self) -> int: ...

    @property
    def committed(self) -> int: ...

    @property
    def lag(self) -> ReaderLag: ...

    def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]: ...

    def peek(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]: ...

    def commit(self, seq: int | None = None) -> int: ...

    def seek(self, seq: int) -> int: ...

    def state(self) -> ReaderState: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object, /) -> None: ...


class AnyPending(Protocol):
    """A record that is on its way, of a log or of a client. See `Pending`."""

    def done(self) -> bool: ...

    def result(self, timeout: float | None = None) -> int: ...

    def add_done_callback(self, fn: Callable[[Any], object]) -> None: ...

    def __await__(self) -> Generator[Any, None, int]: ...


class AnyLog(Protocol):
    """A log of this process or of a server. See `Log`, which says what each method does."""

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
    ) -> AppendResult: ...

    def append_many(
        self,
        topic: str,
        texts: Sequence[bytes],
        *,
        key: str | None = None,
        incarnation: str | None = None,
        producer: Producer | None = None,
        timeout: float | None = None,
    ) -> AppendResult: ...

    def append_soon(self, topic: str, value: Any) -> AnyPending: ...

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult: ...

    def read(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
    ) -> Iterator[Record]: ...

    def tail(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
        reader: str | None = None,
    ) -> Iterator[Record]: ...

    def tail_many(
        self,
        topics: Mapping[str, int | From | None] = ...,
        *,
        prefixes: Mapping[str, int | From | None] = ...,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        on_gap: OnGap = "raise",
        on_left_out: OnLeftOut = None,
    ) -> Iterator[tuple[str, Record]]: ...

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
    ) -> Page: ...

    def get(self, topic: str, seq: int) -> Record | None: ...

    def wait(self, topics: Mapping[str, Seen], *, wait_ms: int = 0) -> dict[str, TopicHead | None]: ...

    def state(self, topic: str, *, touch: bool = True, include_attempts: bool = False) -> TopicState: ...

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
    ) -> AnyReader: ...

    def readers(self, topic: str) -> list[ReaderState]: ...

    def delete_reader(self, topic: str, name: str) -> bool: ...

    def claim(
        self,
        queue: str,
        node: str,
        limit: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        include_attempts: bool = False,
    ) -> list[Job]: ...

    def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult: ...

    def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None) -> AckResult: ...

    def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult: ...

    def work(
        self,
        queue: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        retry_ms: int = RETRY_MS,
        start_ms: int = START_MS,
    ) -> Iterator[WorkJob]: ...

    def dead(self, queue: str, from_seq: int = 0, *, limit: int | None = None) -> Iterator[Record]: ...

    def redrive(self, queue: str, seqs: Iterable[Record | int] | None = None) -> RedriveResult: ...

    def put_topic(self, topic: str, **config: Unpack[TopicSettings]) -> PutResult: ...

    def patch_topic(self, topic: str, **changes: Unpack[TopicSettings]) -> PatchResult: ...

    def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult: ...

    def topics(self, prefix: str = "") -> list[TopicState]: ...

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
    ) -> RouterPut: ...

    def router(self, name: str) -> RouterState: ...

    def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> list[RouterState]: ...

    def delete_router(self, name: str) -> RouterDeleted: ...

    def backup(self, to: str | os.PathLike[str] | None = None) -> BackupResult: ...

    def checkpoint(self, *, timeout: float | None = None) -> int: ...

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object, /) -> None: ...


class AnyAsyncReader(Protocol):
    """A named reader, of a log or of a client, whose calls are awaited. See `LogReader`."""

    topic: str
    name: str

    @property
    def closed(self) -> bool: ...

    @property
    def position(self) -> Awaitable[int]: ...

    @property
    def committed(self) -> Awaitable[int]: ...

    @property
    def lag(self) -> Awaitable[ReaderLag]: ...

    async def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]: ...

    async def peek(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]: ...

    async def commit(self, seq: int | None = None) -> int: ...

    async def seek(self, seq: int) -> int: ...

    async def state(self) -> ReaderState: ...

    async def close(self) -> None: ...

    def abandon(self) -> Awaitable[None] | None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object, /
    ) -> None: ...


class AnyOpening(Protocol):
    """The call `reader(...)`: awaited for the reader, or used by `async with`."""

    def __await__(self) -> Generator[Any, Any, AnyAsyncReader]: ...

    async def __aenter__(self) -> AnyAsyncReader: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object, /
    ) -> None: ...


class AnyAsyncLog(Protocol):
    """A log of this process or of a server, whose calls are awaited. See `AnyLog`."""

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
    ) -> AppendResult: ...

    async def append_many(
        self,
        topic: str,
        texts: Sequence[bytes],
        *,
        key: str | None = None,
        incarnation: str | None = None,
        producer: Producer | None = None,
        timeout: float | None = None,
    ) -> AppendResult: ...

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult: ...

    def read(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
    ) -> AsyncIterator[Record]: ...

    def tail(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
        reader: str | None = None,
    ) -> AsyncIterator[Record]: ...

    def tail_many(
        self,
        topics: Mapping[str, int | From | None] = ...,
        *,
        prefixes: Mapping[str, int | From | None] = ...,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        on_gap: OnGap = "raise",
        on_left_out: OnLeftOut = None,
    ) -> AsyncIterator[tuple[str, Record]]: ...

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
    ) -> Page: ...

    async def get(self, topic: str, seq: int) -> Record | None: ...

    async def wait(self, topics: Mapping[str, Seen], *, wait_ms: int = 0) -> dict[str, TopicHead | None]: ...

    async def state(self, topic: str, *, touch: bool = True, include_attempts: bool = False) -> TopicState: ...

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
    ) -> AnyOpening: ...

    async def readers(self, topic: str) -> list[ReaderState]: ...

    async def delete_reader(self, topic: str, name: str) -> bool: ...

    async def claim(
        self,
        queue: str,
        node: str,
        limit: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        include_attempts: bool = False,
    ) -> list[Job]: ...

    async def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult: ...

    async def nack(
        self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None
    ) -> AckResult: ...

    async def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult: ...

    def work(
        self,
        queue: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        retry_ms: int = RETRY_MS,
        start_ms: int = START_MS,
    ) -> AsyncIterator[AsyncWorkJob]: ...

    def dead(self, queue: str, from_seq: int = 0, *, limit: int | None = None) -> AsyncIterator[Record]: ...

    async def redrive(self, queue: str, seqs: Iterable[Record | int] | None = None) -> RedriveResult: ...

    async def put_topic(self, topic: str, **config: Unpack[TopicSettings]) -> PutResult: ...

    async def patch_topic(self, topic: str, **changes: Unpack[TopicSettings]) -> PatchResult: ...

    async def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult: ...

    async def topics(self, prefix: str = "") -> list[TopicState]: ...

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
    ) -> RouterPut: ...

    async def router(self, name: str) -> RouterState: ...

    async def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> list[RouterState]: ...

    async def delete_router(self, name: str) -> RouterDeleted: ...

    async def backup(self, to: str | os.PathLike[str] | None = None) -> BackupResult: ...

    async def checkpoint(self, *, timeout: float | None = None) -> int: ...

    @property
    def closed(self) -> bool: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object, /
    ) -> None: ...
