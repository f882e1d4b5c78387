"""The log in this process (`topics.open(path)`), without a server. Any thread may call it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from typing_extensions import Unpack

from topics.clock import Clock, SystemClock
from topics.common.composed_calls import ComposedCalls
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
from topics.embedded.aio import AsyncLog
from topics.embedded.appends.offers import Admission, Offer
from topics.embedded.appends.pending import Pending
from topics.embedded.appends.soon import Gatherer
from topics.embedded.driving.calls import Start, flushed_of, snapshot_of
from topics.embedded.driving.driver import Driver, called_within
from topics.embedded.driving.interrupts import signals
from topics.embedded.log_reader import LogReader
from topics.embedded.open_logs import open_logs
from topics.embedded.records import UnreadPage
from topics.embedded.starts import Starts
from topics.engine.queue.queue_results import AckResult, ExtendResult
from topics.engine.read.column_read import ColumnPage
from topics.engine.read.one_record import Location
from topics.engine.readers.reader_results import ReaderState
from topics.engine.routers.router_results import RouterDeleted, RouterPut, RouterState
from topics.engine.state.append_request import AppendRequest
from topics.engine.stored_engine import LogStats, StoredEngine
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
from topics.errors import DiskFullError, LogFailedError, StorageError, TopicsError
from topics.loop import Loop, Ring
from topics.loop.choose import open_ring
from topics.store.disk.data_directory import LockedDirectory, lock_directory, lock_to_read
from topics.store.read.lender import Lender

R = TypeVar("R")
_BEGINS = 10
"""Share of the time for requests of a pass in which calls of other threads begin: they wait for the
interpreter meanwhile.
"""


class _Opened(NamedTuple):
    """A loop, and the engine that it has opened."""

    loop: Loop
    engine_reason: str
    directory: LockedDirectory
    opened: StoredEngine


def _open(config: Config, ring: Ring | None, clock: Clock | None, *, is_frozen: bool) -> _Opened:
    """Open the directory of a log. Everything is closed again if that fails.

    is_frozen: nothing in the directory changes.
    """
    engine_reason = "given"
    if ring is None:
        ring, engine_reason = open_ring(config, shared=True)
    loop = Loop(ring, clock or SystemClock())
    directory: LockedDirectory | None = None
    try:
        directory = lock_to_read(ring, config) if is_frozen else lock_directory(ring, config)
        opened = _run(loop, StoredEngine.open(loop, config, directory=directory), "open")
    except BaseException:
        _abandon(loop, directory)
        raise
    opened.log.commit_in_place()
    return _Opened(loop, engine_reason, directory, opened)


def _abandon(loop: Loop, directory: LockedDirectory | None) -> None:
    """Close a loop and release its directory, without a last checkpoint."""
    try:
        loop.close()
    finally:
        if directory is not None:
            directory.release()


def _run(loop: Loop, coro: Coroutine[Any, Any, R], name: str) -> R:
    """Run a coroutine as `Loop.run_task`, which an exception of a signal's handler may end."""
    task = loop.spawn(coro, name)
    task.observe()

    def done() -> bool:
        signals.let_through()
        return task.done and not loop.files.closing

    loop.run_until(done)
    return task.result()


class Log(ComposedCalls):
    """A log in this process. Use it as a context manager, or call `close`.

    Every method that waits returns once its topic's durability class is met.
    Raises: RequestError (with the wire contract's `code`) if the request cannot be met;
    StorageError if the disk failed or is full.
    """

    _starts_type = Starts
    _aio_type = AsyncLog
    _reader_type = LogReader

    def __init__(self, config: Config, ring: Ring | None = None, clock: Clock | None = None) -> None:
        """Open a log.

        A caller that passes ring and clock also drives due work (`driver.drive_due`).
        """
        self.config = config
        self._closed_by: int | None = None
        """Id of the thread that closes the log."""
        self._ended = threading.Event()
        signals.hold()
        try:
            parts = _open(config, ring, clock, is_frozen=self._starts_type.is_frozen)
            try:
                self._loop = parts.loop
                self.engine_reason = parts.engine_reason
                """Why the ring is the one that it is."""
                self._opened = parts.opened
                self._engine = parts.opened.engine
                self._lender = Lender(parts.opened.store.reader, self._loop.call_later, config.max_held_files)
                starts = self._starts_type(self._engine, config, self._lender, self._loop.clock.monotonic_ns)
                super().__init__(starts, starts)
                self._starts = starts
                line: deque[Offer] = deque()
                self._driver = Driver(
                    self._loop,
                    line=line,
                    begin_us=config.pass_requests_us // _BEGINS,
                    allow_in_place=parts.opened.log.allow_in_place,
                    make_quick=partial(self._engine.quick_streak, times=starts.append_times),
                )
                self._rests = self._driver.rests
                self._admission = Admission(self._loop, self._engine, starts.appending, self._driver, config, line=line)
                driver = self._driver
                self._quick = quick = driver.quick
                self._append_quick = (
                    quick.append if parts.loop.ring.write_address else partial(driver.append_held, quick.append)
                )
                self._gatherer = Gatherer(self._driver, self._loop.clock, starts.request_of_gathered, self._admission)
                if ring is None:
                    self._driver.start()  # last: a failure before leaves no thread that drives
            except BaseException:
                _abandon(parts.loop, parts.directory)
                raise
        except OSError as error:
            signals.release()
            raise _storage_error(f"data directory {config.data_dir} cannot be opened", error) from error
        except BaseException:
            signals.release()
            raise
        self._closed = False
        open_logs.add(self)
        try:
            signals.release()
        except BaseException:
            self.close()
            raise

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
        """Append records, all or none. Return their seqs once the topic's durability class is met.

        records: bytes (or a bytearray, a memoryview) are stored as they are, other values as JSON.

        key: idempotency key; a repeated one answers with the seqs of the first write. node: origin
        of records without their own. create False: the topic must exist. incarnation: the topic
        must have this one, see `state`. producer: the part that these records are, which is
        appended once even if it is sent again much later. timeout: for so many seconds it waits for
        room in the log; an append that has found room is waited for.
        Raises: WouldBlockError if there is no room (by then); nothing of it is there.
        """
        # As in each append: a helper would cost every one of them another call, and an object.
        rests, thread = self._rests, threading.get_ident()
        rests.appending.add(thread)
        try:
            request = self._starts.request(
                topic, records, key=key, node=node, create=create, incarnation=incarnation, producer=producer
            )
            return self._write(request, timeout, thread)
        finally:
            rests.end_append(thread)

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
        """Append ready-made JSON texts, one record each: they are validated, and not encoded."""
        rests, thread = self._rests, threading.get_ident()
        rests.appending.add(thread)
        try:
            request = self._starts.request_of_texts(topic, texts, key=key, incarnation=incarnation, producer=producer)
            return self._write(request, timeout, thread)
        finally:
            rests.end_append(thread)

    def append_nowait(
        self,
        topic: str,
        records: Values,
        *,
        key: str | None = None,
        node: str | None = None,
        create: bool | None = None,
        incarnation: str | None = None,
        producer: Producer | None = None,
    ) -> Pending[AppendResult]:
        """Append records, as `append`, without waiting: not for a commit, a file or a thread.

        Raises: WouldBlockError if it would have to wait, by its `reason` for "admission" or
        "rollover"; nothing of it is there. What the topic refuses, the result raises.
        """
        rests, thread = self._rests, threading.get_ident()
        rests.appending.add(thread)
        try:
            request = self._starts.request(
                topic, records, key=key, node=node, create=create, incarnation=incarnation, producer=producer
            )
            return self._admission.nowait(request)
        finally:
            rests.end_append(thread)

    def _write(self, request: AppendRequest, timeout: float | None, thread: int) -> AppendResult:
        """Write in one step if the log has no other work; else as a call on the loop."""
        if timeout is None:
            result = self._append_quick(request, thread)
            if result is not None:
                return result
        wait_ms = None if timeout is None else arguments.optional_milliseconds("timeout", timeout)
        admission = self._admission
        if not admission.line:
            result = self._driver.run_exclusively(self._append_lone, request)
            if result is not None:
                return result
            if wait_ms is None:
                return self._driver.call(admission.appending(request))
        return self._driver.call(admission.offering(Offer(request, wait_ms, is_plain=wait_ms is None)))

    def _append_lone(self, request: AppendRequest) -> AppendResult | None:
        """Append in this call. The next ones to the topic may be quick then."""
        result = self._starts.append_lone(request)
        if result is not None:
            self._quick.note(request)
        return result

    def append_soon(self, topic: str, value: Any) -> Pending[int]:
        """Append one value, bytes or JSON, with others that follow soon. Do not wait for it.

        Waits only if too many batches are in progress. `result()` of the return value is the
        record's seq once the topic's durability class is met. The gathered records are written
        after a millisecond, or if they are many, or when a result is asked for. Records that
        one thread appends like this keep their order in a topic; what it appends by another call
        meanwhile may come before them.
        """
        return self._gatherer.append(topic, value)

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: str | Predicate | None = None
    ) -> DeleteResult:
        """Delete records permanently: below a seq, with a tag ("a", "a*" for a prefix), or both."""
        return self._driver.call(self._starts.deleting(topic, before_seq=before_seq, match=match))

    # --- reading -----------------------------------------------------------------------------------------------------
    def _make(self, call: Start[Any]) -> Any:
        """Make a call, and read its page here, if it is one."""
        answer = self._driver.call(call)
        return answer.read(self._rests.pause) if isinstance(answer, UnreadPage) else answer

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
        """Return one read: records, the next cursor, and a tombstone if records were lost.

        limit, max_bytes: as many records as fit both, one at least; 0: the default (of the limit,
        beside `max_bytes`: its maximum). Bytes are accounted ones, see `Page.size`.

        from_, from_time: as in `read`.
        """
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
        return self._driver.call(start).read(self._rests.pause)

    def get(self, topic: str, seq: int) -> Record | None:
        """Return one record; None if it is not live: deleted, or not written yet.

        Raises: GapError if it was lost.
        """
        return self._driver.call(self._starts.getting(topic, seq))

    def locate(self, topic: str, seq: int) -> Location | None:
        """Return the place of a record's bytes now; None and GapError as `get`.

        Raises: UsageError, the record is only in memory (class ephemeral).
        """
        return self._driver.call(self._starts.locating(topic, seq))

    def wait(self, topics: Mapping[str, Seen], *, wait_ms: int = 0) -> dict[str, TopicHead | None]:
        """Return heads and incarnations of topics once one of them has news, or after `wait_ms`.

        topics: names to the last known state of each: the head, or the value this method returned
        for it; None: it was absent.
        """
        return self._driver.call(self._starts.waiting(topics, wait_ms=wait_ms)).heads

    def columns(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        limit: int = 100_000,
        max_bytes: int = 64 << 20,
        from_: From | None = None,
    ) -> ColumnPage:
        """Return one read as numpy columns seq, ts, offsets, kind, and undecoded payloads.

        At most `limit` records of `max_bytes` (accounted) in all. Check `tombstone`, and continue
        from `next_from_seq`. from_: as in `read`.
        """
        driver = self._driver
        start = self._starts.reading_columns(topic, from_seq, limit, max_bytes, from_)
        return driver.call(start).read(driver.call, driver.rests.pause)

    def state(self, topic: str, *, touch: bool = True, include_attempts: bool = False) -> TopicState:
        """Return head, floor, counts, config.

        touch: counts as a consumption for the priority by recency. include_attempts: whether
        `queue.failed` has the jobs that failed last.
        """
        return self._driver.call(self._starts.asking_state(topic, touch=touch, include_attempts=include_attempts))

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
    ) -> LogReader:
        """Return a named reader, which the topic remembers; it is created if it is missing.

        delivery: "at-least-once" (the default) or "at-most-once". commit_every: records that are
        done before the position is committed. holds: no cap and no expiry takes what it has not
        committed. trims: what all such readers have committed is deleted. from_seq, from_: where a
        new reader begins, as in `read`. What is None stays as it is.
        """
        begin = self._starts.beginning(from_seq, from_, None)
        asked = opening(topic, name, delivery, commit_every, holds, trims, from_seq, begin)
        put = self._driver.call(self._starts.opening_reader(asked))
        return self._reader_type(self._starts.reader_home(self._driver), asked, put)

    def readers(self, topic: str) -> list[ReaderState]:
        """Return the named readers of a topic by name, with position, committed and lag."""
        return self._driver.call(self._starts.listing_readers(topic))

    def delete_reader(self, topic: str, name: str) -> bool:
        """Delete a named reader. Return whether it existed."""
        return self._driver.call(self._starts.deleting_reader(topic, name))

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
        """Lease up to `limit` jobs to `node`, oldest first; an empty list is no error.

        lease_ms: None for the queue's own. wait_ms: if no job is claimable, wait so long for the
        first, at most `max_wait_ms` of the config. include_attempts: whether `Job.attempts` has how
        earlier leases ended.
        """
        start = self._starts.claiming(
            queue, node, limit, lease_ms=lease_ms, wait_ms=wait_ms, include_attempts=include_attempts
        )
        return self._driver.call(start)

    def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult:
        """Complete jobs, at the queue's class.

        Jobs no longer held (by these leases) are `skipped`.
        """
        return self._driver.call(self._starts.acking(queue, node, jobs))

    def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None) -> AckResult:
        """Return jobs to the queue, to be claimed again at once or after a delay.

        reason: kept with the attempts that end here, and in a dead letter.
        """
        return self._driver.call(self._starts.nacking(queue, node, jobs, delay_ms=delay_ms, reason=reason))

    def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult:
        """Set new deadlines, `lease_ms` from now."""
        return self._driver.call(self._starts.extending(queue, node, jobs, lease_ms=lease_ms))

    # --- topics ------------------------------------------------------------------------------------------------------
    def put_topic(self, topic: str, **config: Unpack[TopicSettings]) -> PutResult:
        """Create a topic or replace its whole config, e.g.

        durability="fsync", ttl_ms=60_000, cap_records=1000.
        """
        return self._driver.call(self._starts.putting_topic(topic, config))

    def patch_topic(self, topic: str, **changes: Unpack[TopicSettings]) -> PatchResult:
        """Change some fields of a topic's config, which keeps the others.

        None sets the default. Returns: the whole config before and after.
        Raises: RequestError topic_not_found.
        """
        return self._driver.call(self._starts.patching_topic(topic, changes))

    def delete_topic(self, topic: str, *, if_empty: bool = False) -> DeleteTopicResult:
        """Remove a topic with all state that depends on it; an absent one is no error."""
        return self._driver.call(self._starts.deleting_topic(topic, if_empty=if_empty))

    def topics(self, prefix: str = "") -> list[TopicState]:
        """Return every topic whose name begins with `prefix`, by name."""
        return self._driver.call(self._starts.listing(prefix))

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
        """Create a router that forwards what `source` gets from now on to `dest`, or configure it.

        filter: forwards records with a tag ("a", "a*" for a prefix). guarantee: "at_least_once" or
        "exactly_once".
        """
        options = (preserve_node, preserve_tag, create_dest, allow_cycle, guarantee)
        return self._driver.call(self._starts.putting_router(name, router_config(source, dest, filter, *options)))

    def router(self, name: str) -> RouterState:
        """Return a router's settings and the number of records it has forwarded."""
        return self._driver.call(self._starts.asking_router(name))

    def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> list[RouterState]:
        """Return every router whose name begins with `prefix`, by name; "" for any end."""
        found: list[RouterState] = []
        after: str | None = ""
        while after is not None:
            page = self._driver.call(self._starts.listing_routers(prefix, source, dest, after))
            found += page.rows
            after = page.next_after
        return found

    def delete_router(self, name: str) -> RouterDeleted:
        """Delete a router; its copies stay, and an absent one is no error."""
        return self._driver.call(self._starts.deleting_router(name))

    # --- files -------------------------------------------------------------------------------------------------------
    def checkpoint(self, *, timeout: float | None = None) -> int:
        """Write all acknowledged records to the directory's files. Return the snapshot's number.

        timeout: in seconds.
        Raises: TimeoutError if it has not ended by then; it continues.
        """
        return snapshot_of(self._driver.call(self._starts.checkpointing(timeout)), timeout)

    def backup(self, to: str | os.PathLike[str] | None = None) -> BackupResult:
        """Write a backup below the directory `to`: one instant of all topics (docs/backup.md).

        Everything acknowledged before the call is in it, and other calls continue meanwhile. What
        has not changed since the newest backup in `to` is not copied again.

        to: None for the setting `backup_dir`.
        Raises: UsageError, `to` is in the directory of this log; RequestError, another backup is
            being written; StorageError, `to` failed: there is no backup, and the log is as it was.
        """
        return self._driver.call(self._starts.backing_up(to))

    def flush(self, topic: str | None = None, seq: int | None = None, timeout: float | None = None) -> int:
        """Return once a record and all before it are on stable storage, whatever the class.

        Flushes at the same time share a sync. No append waits for it, except for a small one (up to
        256 KiB), which is made in place if no other call waits then. topic: None for all topics.
        seq: None for all records there are. timeout: in seconds.
        Returns: the seq up to which all records of the topic are on stable storage; 0 without one.
        Raises: TimeoutError if the sync has not ended by then; it continues.
        """
        if timeout is None:
            self._starts.check_flush(topic, seq)
            self._write_gathered()
            if not self._admission.line:
                result = self._driver.run_exclusively(self._starts.flush_lone, (topic, seq))
                if result is not None:
                    return result.synced_seq
        return flushed_of(self._driver.call(self._asking_flush(topic, seq, timeout)), timeout)

    def _asking_flush(self, topic: str | None, seq: int | None, timeout: float | None) -> Start[FlushResult]:
        """Return the call of `flush`, for its awaitable, after what `append_soon` has gathered."""
        start = self._starts.flushing(topic, seq, timeout, self._admission.after_line)
        self._write_gathered()
        return start

    def _write_gathered(self) -> None:
        """Have written what `append_soon` has gathered."""
        if not self._gatherer.gathers_here:  # else a signal's handler, in the midst of an append
            self._gatherer.flush()

    def stats(self) -> LogStats:
        """Return counters since the log was opened, gauges, distributions of times and sizes."""
        return self._driver.call(self._asking_stats())

    def _asking_stats(self) -> Start[LogStats]:
        """Return the call of `stats`, for its awaitable."""
        admission = self._admission
        return lambda done: done(self._opened.stats(self._starts.append_times, admission.pendings, admission.refused))

    # --- ending ------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Write a checkpoint and release the directory, even when it raises. Idempotent.

        Waiting tails end. If another thread is closing the log, it waits for that.
        Raises: StorageError if the checkpoint failed. Acknowledged records are in the log all the
        same, and found there.
        """
        signals.hold(self._loop.ring.wake)
        try:
            here = threading.get_ident()
            within = self._driver.drives_here or here in self._driver.inside
            if within and not self._closed:
                raise called_within()
            # in one step: threads are switched only where a function is called
            first, self._closed = not self._closed, True
            if first:
                self._closed_by = here
                self._close()
        finally:
            signals.release()
        if not (first or self._is_waited_for(here, within)):
            self._ended.wait()

    def _is_waited_for(self, thread: int, within: bool) -> bool:
        """Return whether the close in progress waits for this thread.

        within: it is in the midst of a pass.
        """
        return within or thread == self._closed_by or self._driver.maintenance.turns_here or self._gatherer.gathers_here

    def _close(self) -> None:
        try:
            # callers that ask for the results get the errors
            with contextlib.suppress(TopicsError):
                self._gatherer.drain(self.config.shutdown_grace_ms)
            try:
                self._driver.end(self._begin_end)
            finally:
                self._lender.end()
            self._run(self._opened.close(), "close")
        except OSError as error:
            raise _storage_error("closing failed, and left out the checkpoint", error) from error
        finally:
            self._give_back()

    def _begin_end(self) -> None:
        self._admission.end()
        self._engine.begin_shutdown()

    def _give_back(self) -> None:
        open_logs.discard(self)
        self._opened.store.release()
        try:
            self._loop.close()
        finally:
            self._driver.refuse_the_rest()
            self._ended.set()

    def _run(self, coro: Coroutine[Any, Any, R], name: str) -> R:
        return _run(self._loop, coro, name)

    def __del__(self) -> None:
        """Close as a file does: an interrupt may come before the caller has the open log.

        The collector runs on any thread: if closing waits for that thread, or other logs do,
        another one closes.
        """
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            warnings.warn("a log was dropped without close()", ResourceWarning, stacklevel=2)
            waited_for = self._is_waited_for(threading.get_ident(), self._driver.drives_here)
            if waited_for or self._driver.maintenance.runs_here:
                threading.Thread(target=self.close, name="topics-close").start()
            else:
                self.close()

    def _disown(self) -> None:
        """Release the log in a forked child, without its threads and its lock."""
        # the thread that held the old lock is not in this process
        self._closed, self._ended = True, threading.Event()
        self._ended.set()
        self._admission.disown()
        self._gatherer.disown()
        self._driver.disown()
        self._opened.store.release()

    def __repr__(self) -> str:
        state = "closed" if getattr(self, "_closed", True) else "open"
        return f"<topics.{type(self).__name__} of {self.config.data_dir!r}, {state}>"

    def __enter__(self) -> Log:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            self.close()
        except LogFailedError:
            if error is None:  # else the caller needs the first error
                raise

    async def __aenter__(self) -> Log:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close the log on another thread, so that the event loop continues meanwhile."""
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, traceback))

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def aio(self) -> AsyncLog:
        """The log's methods for asyncio: `await log.aio.append(...)`."""
        return self._aio_type(self, self._starts)


def _storage_error(what: str, error: OSError) -> StorageError:
    kind = DiskFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
    where = f" ({error.filename})" if error.filename else ""
    return kind(f"{what}: {error.strerror or error}{where}")
