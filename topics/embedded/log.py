"""`topics.open(path)`: a log in this process, without a server. Any thread may call it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from topics.clock import Clock, SystemClock
from topics.config import Config
from topics.embedded import arguments
from topics.embedded.aio import AsyncLog
from topics.embedded.driver import Driver, Start
from topics.embedded.jobs import Job, Jobs, held_jobs, parse_jobs
from topics.embedded.records import Page, Record, parse_page
from topics.embedded.soon import Gatherer, Soon
from topics.engine.column_read import ColumnPage
from topics.engine.engine import Engine
from topics.engine.predicate import Predicate
from topics.engine.queue.results import AckResult, ClaimRequest, ExtendResult
from topics.engine.results import (
    AppendRequest,
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    DiffQuery,
    Done,
    PutResult,
    TopicPage,
    TopicState,
)
from topics.engine.topic_config import TopicConfig
from topics.engine.value_rows import NewRecord, rows_from_data, rows_from_values
from topics.engine.write_body import WriteScanner
from topics.errors import TopicsError, UsageError
from topics.loop import Loop, Ring
from topics.loop.choose import open_ring
from topics.loop.tasks import Future
from topics.store.directory import take
from topics.store.store import Store
from topics.tuples import make_tuple

R = TypeVar("R")
Values = Iterable[Any]
"""What `append` takes: JSON-encodable values (each becomes a record's data) or NewRecord for tag, node and meta."""


def open_log(path: str, **settings: Any) -> Log:
    """Opens the log in directory `path`, creating it if it is missing, and recovers what is there.

    settings: any field of `Config` (docs/settings.md), e.g. io="portable", commit="link", sync_every_ms=100. Nothing is
    read from the environment, so several logs may be open in one process, each on its own settings.
    Raises: LockedError, another process has it open; StorageError, it cannot be trusted; UsageError, a bad setting.
    """
    try:
        config = replace(Config(), data_dir=str(path), **settings)
    except TypeError as error:
        raise UsageError(f"{error}: see docs/settings.md for the settings there are") from None
    return Log(config)


class Log:
    """A log in this process. Use as a context manager, or call `close`.

    Every method that waits returns once its topic's durability class is met. Errors: RequestError (with the wire
    contract's `code`) for what cannot be done as asked, StorageError when the disk failed or is full.
    """

    def __init__(self, config: Config, ring: Ring | None = None, clock: Clock | None = None) -> None:
        """ring, clock: a world of the caller's, who then also drives what is due between calls (`driver.drive_due`)."""
        self.config = config
        alone = ring is not None
        if ring is None:
            ring, self.engine_reason = open_ring(config, shared=True)
        else:
            self.engine_reason = "given"
        self._loop = Loop(ring, clock or SystemClock())
        try:
            self._engine = Engine(self._loop, config)
            directory = take(ring, config)
            opening = Store.open(self._loop, config, self._engine.catalog, directory=directory)
            self._store = self._loop.run_task(opening, "open")
            self._engine.start(self._store)
        except BaseException:
            self._loop.close()
            raise
        self._loop.on_pass_end(self._engine.flush, 10)
        self._store.log.commit_in_place()
        self._scanner = WriteScanner(config)
        self._scanning = threading.Lock()
        self._driver = Driver(self._loop, alone=alone)
        self._gatherer = Gatherer(
            self._driver, self._loop.clock, lambda topic, texts: self.appending_texts(topic, texts, key=None)
        )
        self._closed = False
        self.aio = AsyncLog(self)
        """The same from asyncio: `await log.aio.append(...)`."""

    # --- writing -----------------------------------------------------------------------------------------------------
    def append(
        self,
        topic: str,
        records: Values,
        *,
        key: str | None = None,
        node: str | None = None,
        create: bool | None = None,
    ) -> AppendResult:
        """Appends records, all or none; returns their seqs once the topic's class is met.

        key: idempotency key, a repeated one answers with the seqs of the first time. node: origin for records without
        their own. create False: the topic must exist.
        """
        return self._write(self._request(topic, records, key=key, node=node, create=create))

    def append_many(self, topic: str, texts: Sequence[bytes], *, key: str | None = None) -> AppendResult:
        """Appends ready-made JSON texts, one record each: nothing is encoded, only validated."""
        return self._write(self._request_of_texts(topic, texts, key=key))

    def _write(self, request: AppendRequest) -> AppendResult:
        """In one go when nothing else is going on, which is what a lone caller finds; else as a call on the loop."""
        driver = self._driver
        if driver.take_alone():
            unexpected: BaseException | None = None
            try:
                result = self._engine.append_alone(request)
            except TopicsError:
                raise
            except BaseException as error:
                unexpected = error
                raise
            finally:
                driver.leave(unexpected)
            if result is not None:
                return result

        def start(done: Done[AppendResult]) -> None:
            self._engine.append(request, done)

        return driver.call(start)

    def append_soon(self, topic: str, value: Any) -> Soon:
        """Appends one JSON-encodable value with others that come soon; returns at once, or when too much is under way.

        Its `result()` is the record's seq once the topic's class is met. What was gathered leaves after a millisecond,
        when it is much, or when a result is asked for; records of one thread keep their order in a topic.
        """
        return self._gatherer.append(topic, value)

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult:
        """Deletes records for good: below a seq, with a tag ("a", or "a*" for a prefix), or both conditions."""
        return self._driver.call(self.deleting(topic, before_seq=before_seq, match=match))

    # --- reading -----------------------------------------------------------------------------------------------------
    def read(self, topic: str, from_seq: int = 0, *, limit: int | None = None, node: str = "") -> Iterator[Record]:
        """Records above `from_seq` up to the head there is now, oldest first; at most `limit`.

        node: leaves out records this node wrote. Raises GapError where records were lost (a cap, an expiry, a power
        cut below fsync): read on from its `resume_from`.
        """
        left = limit
        while left is None or left > 0:
            page = self.page(
                topic, from_seq, limit=min(left or self.config.max_limit, self.config.max_limit), node=node
            )
            page.raise_gap()
            yield from page.records
            from_seq = page.next_from_seq
            if left is not None:
                left -= len(page.records)
            if page.caught_up:
                return

    def tail(self, topic: str, from_seq: int | None = None, *, node: str = "") -> Iterator[Record]:
        """Records above `from_seq` (None: the head there is now) as they come; ends when the log is closed."""
        at = self.state(topic, touch=False).head_seq if from_seq is None else from_seq
        while True:
            page = self.page(topic, at, limit=self.config.max_limit, node=node, wait_ms=self.config.max_wait_ms)
            page.raise_gap()
            yield from page.records
            if self._closed:
                return
            at = page.next_from_seq

    def page(self, topic: str, from_seq: int = 0, *, limit: int = 0, node: str = "", wait_ms: int = 0) -> Page:
        """One read: records, the next cursor, and a tombstone where something was lost."""
        return self._driver.call(self.paging(topic, from_seq, limit=limit, node=node, wait_ms=wait_ms))

    def columns(self, topic: str, from_seq: int = 0, *, limit: int = 100_000, max_bytes: int = 64 << 20) -> ColumnPage:
        """One read as numpy columns seq, ts, offsets and the payloads' bytes back to back: nothing is decoded.

        At most `limit` records of `max_bytes` (accounted) in all. Look at `tombstone`, and go on from `next_from_seq`.
        """
        arguments.text("topic", topic)
        arguments.count("from_seq", from_seq)
        arguments.count("limit", limit)
        arguments.count("max_bytes", max_bytes)
        if limit < 1:
            raise UsageError("limit must be 1 at least")

        def start(done: Done[ColumnPage]) -> None:
            self._engine.columns(topic, from_seq, limit, max_bytes, done)

        return self._driver.call(start)

    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        """Head, floor, counts, config. touch: counts as a consumption for the priority by recency."""
        return self._driver.call(self.asking_state(topic, touch=touch))

    # --- queues ------------------------------------------------------------------------------------------------------
    def claim(self, queue: str, node: str, limit: int = 1, *, lease_ms: int | None = None) -> list[Job]:
        """Leases up to `limit` jobs to `node`, the oldest first; none is no error. lease_ms None: the queue's own."""
        return self._driver.call(self.claiming(queue, node, limit, lease_ms=lease_ms))

    def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult:
        """Completes jobs for good, at the queue's class; those no longer held (by these leases) are `skipped`."""
        return self._driver.call(self.acking(queue, node, jobs))

    def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0) -> AckResult:
        """Hands jobs back, to be claimed again at once or after a delay."""
        return self._driver.call(self.nacking(queue, node, jobs, delay_ms=delay_ms))

    def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult:
        """New deadlines, `lease_ms` from now."""
        return self._driver.call(self.extending(queue, node, jobs, lease_ms=lease_ms))

    # --- topics ------------------------------------------------------------------------------------------------------
    def put_topic(self, topic: str, **config: Any) -> PutResult:
        """Creates a topic or replaces its whole config, e.g. durability="fsync", ttl_ms=60_000, cap_records=1000."""
        return self._driver.call(self.putting_topic(topic, config))

    def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult:
        """Removes a topic with all that hangs on it; an absent one is no error."""
        return self._driver.call(self.deleting_topic(topic, if_empty=if_empty))

    def topics(self, prefix: str = "") -> list[TopicState]:
        """Every topic whose name begins with `prefix`, by name."""

        def start(done: Done[list[TopicState]]) -> None:
            found: list[TopicState] = []

            def ask(after: str) -> None:
                self._engine.list_topics(prefix, after, self.config.max_limit, False, _any_name, on_page)

            def on_page(page: TopicPage | TopicsError) -> None:
                if isinstance(page, TopicsError):
                    done(page)
                    return
                found.extend(page.rows)
                if page.next_after is None:
                    done(found)
                else:
                    ask(page.next_after)

            ask("")

        return self._driver.call(start)

    # --- ending ------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Writes a checkpoint and gives the directory back. Waiting tails end. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self._gatherer.flush()
            self._driver.end(self._engine.begin_shutdown)
            self._loop.run_task(self._end(), "close")
        finally:
            self._store.release()
            self._loop.close()
            self._driver.tell_the_rest()

    async def _end(self) -> None:
        ended: Future[None] = Future()
        self._engine.end_routers(lambda: ended.set_result(None))
        await ended
        await self._store.close(checkpoint=True)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- calls as values, for whoever drives --------------------------------------------------------------------------
    def appending(
        self, topic: str, records: Values, *, key: str | None, node: str | None, create: bool | None
    ) -> Start[AppendResult]:
        request = self._request(topic, records, key=key, node=node, create=create)
        return lambda done: self._engine.append(request, done)

    def asking_state(self, topic: str, *, touch: bool) -> Start[TopicState]:
        arguments.text("topic", topic)
        return lambda done: self._engine.state(topic, touch=touch, done=done)

    def putting_topic(self, topic: str, config: dict[str, Any]) -> Start[PutResult]:
        arguments.text("topic", topic)
        made = TopicConfig.make(**config)
        return lambda done: self._engine.put_topic(topic, made, done)

    def deleting_topic(self, topic: str, *, if_empty: bool) -> Start[DeleteTopicResult]:
        arguments.text("topic", topic)
        return lambda done: self._engine.delete_topic(topic, if_empty=if_empty, done=done)

    def appending_texts(self, topic: str, texts: Sequence[bytes], *, key: str | None) -> Start[AppendResult]:
        request = self._request_of_texts(topic, texts, key=key)
        return lambda done: self._engine.append(request, done)

    def _request(
        self, topic: str, records: Values, *, key: str | None, node: str | None, create: bool | None
    ) -> AppendRequest:
        arguments.text("topic", topic)
        arguments.optional_text("key", key)
        arguments.optional_text("node", node)
        values = records if isinstance(records, list | tuple) else list(records)
        if not values:
            raise UsageError("append needs one record at least")
        with self._scanning:
            if NewRecord in map(type, values):
                made = [value if isinstance(value, NewRecord) else NewRecord(value) for value in values]
                rows = rows_from_values(made, self._scanner)
            else:
                rows = rows_from_data(values, self._scanner)
        return make_tuple(AppendRequest, (topic, rows, _encoded(node), _encoded(key), create, None, True, None))

    def _request_of_texts(self, topic: str, texts: Sequence[bytes], *, key: str | None) -> AppendRequest:
        arguments.text("topic", topic)
        arguments.optional_text("key", key)
        arguments.texts(texts)
        if not texts:
            raise UsageError("append_many needs one record at least")
        with self._scanning:
            rows = self._scanner.scan_texts(texts)
        return AppendRequest(topic, rows, key=_encoded(key))

    def deleting(self, topic: str, *, before_seq: int | None, match: str | Predicate | None) -> Start[DeleteResult]:
        arguments.text("topic", topic)
        arguments.optional_count("before_seq", before_seq)
        predicate = Predicate.of(match) if isinstance(match, str) else match
        if before_seq is None and predicate is None:
            raise UsageError("delete needs before_seq, match, or both")
        return lambda done: self._engine.delete_records(topic, before_seq, predicate, done)

    def claiming(self, queue: str, node: str, limit: int, *, lease_ms: int | None) -> Start[list[Job]]:
        arguments.text("queue", queue)
        arguments.text("node", node)
        arguments.count("limit", limit)
        arguments.optional_count("lease_ms", lease_ms)
        request = ClaimRequest(queue, node, limit, lease_ms)
        return lambda done: self._engine.claim(request, lambda result: done(parse_jobs(result)))

    def acking(self, queue: str, node: str, jobs: Jobs) -> Start[AckResult]:
        request = held_jobs(queue, node, jobs)
        return lambda done: self._engine.ack(request, done)

    def nacking(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int) -> Start[AckResult]:
        arguments.count("delay_ms", delay_ms)
        request = held_jobs(queue, node, jobs)
        return lambda done: self._engine.nack(request, delay_ms, done)

    def extending(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> Start[ExtendResult]:
        arguments.count("lease_ms", lease_ms)
        request = held_jobs(queue, node, jobs)
        return lambda done: self._engine.extend(request, lease_ms, done)

    def paging(self, topic: str, from_seq: int, *, limit: int, node: str, wait_ms: int) -> Start[Page]:
        arguments.text("topic", topic)
        arguments.count("from_seq", from_seq)
        arguments.count("limit", limit)
        arguments.text("node", node)
        arguments.count("wait_ms", wait_ms)
        nodes = (node.encode(),) if node else ()
        query = DiffQuery(from_seq, limit, nodes, include_tags=True, wait_ms=wait_ms)
        return lambda done: self._engine.diff(topic, query, lambda result: done(parse_page(topic, result)))

    @property
    def driver(self) -> Driver:
        return self._driver


def _any_name(_name: str) -> bool:
    return True


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
