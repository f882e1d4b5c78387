"""`work` of a log and of a client: jobs that come as long as they are asked for.

While a job is worked on, its lease is extended. It ends with the block `with job:`: completed, or
after an exception returned to the queue. The exception is logged, and its text is the reason that
the queue keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Protocol

from topics.common.values import arguments
from topics.common.values.answers import AckResult, ExtendResult
from topics.common.values.delivered import Job, Jobs
from topics.errors import RequestError, TopicsError, UsageError

LEASE_MS = 30_000
"""Default of the lease: a job of a worker that was killed comes back after it."""
RETRY_MS = 1_000
"""Default of the time after which a job that failed comes back."""
_PARTS = 3
"""A lease is extended when a third of it has passed."""
_WAIT_MS = 30_000
REASON_BYTES = 1024
"""Bytes of a reason that are kept: as many as a server takes by default (R-Q-32)."""

_log = logging.getLogger("topics.work")


class QueueCalls(Protocol):
    """The calls of a queue."""

    def claim(
        self, queue: str, node: str, limit: int = 1, *, lease_ms: int | None = None, wait_ms: int = 0
    ) -> list[Job]: ...

    def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult: ...

    def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None) -> AckResult: ...

    def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult: ...

    @property
    def closed(self) -> bool: ...


class AwaitedQueueCalls(Protocol):
    """The calls of a queue, as awaitables."""

    async def claim(
        self, queue: str, node: str, limit: int = 1, *, lease_ms: int | None = None, wait_ms: int = 0
    ) -> list[Job]: ...

    async def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult: ...

    async def nack(
        self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None
    ) -> AckResult: ...

    async def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult: ...

    @property
    def closed(self) -> bool: ...


class WorkOptions:
    """The arguments of `work`, checked."""

    def __init__(self, queue: str, node: str, most: int, lease_ms: int, retry_ms: int) -> None:
        arguments.text("queue", queue)
        arguments.text("node", node)
        if not node:
            raise UsageError("node is '': use a name of this worker that no other one has")
        arguments.count("max", most, 1000, 1)
        arguments.count("lease_ms", lease_ms, 86_400_000, 100)
        arguments.count("retry_ms", retry_ms, 86_400_000)
        self.queue, self.node, self.most = queue, node, most
        self.lease_ms, self.retry_ms = lease_ms, retry_ms

    @property
    def rest_s(self) -> float:
        """Seconds between two extensions."""
        return self.lease_ms / 1000 / _PARTS


class _JobAtWork:
    """The members of a job that both kinds of work show."""

    def __init__(self, job: Job) -> None:
        self.job = job
        """The job as it was claimed."""
        self.is_lost = False
        """Whether its lease ended, so that another worker may have the job."""
        self.ended = False

    @property
    def seq(self) -> int:
        return self.job.seq

    @property
    def ts(self) -> int:
        return self.job.ts

    @property
    def data(self) -> Any:
        return self.job.data

    @property
    def meta(self) -> Any:
        return self.job.meta

    @property
    def tag(self) -> str | None:
        return self.job.tag

    @property
    def deliveries(self) -> int:
        """How often it was delivered: 1 the first time."""
        return self.job.deliveries

    def __repr__(self) -> str:
        return f"<topics job {self.seq}: {arguments.shown(self.data)}>"

    def _note_end(self, result: AckResult) -> None:
        if result.skipped:
            self.is_lost = True


def _reason_of(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def fitting_reason(reason: str) -> str:
    """Return the characters of a reason that a server takes by default."""
    return reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")


def nack_for(log: QueueCalls, queue: str, node: str, jobs: Jobs, *, delay_ms: int, reason: str | None) -> AckResult:
    """Return jobs to the queue, with what is taken by default of the reason, or without it."""
    kept = None if reason is None else fitting_reason(reason)
    try:
        return log.nack(queue, node, jobs, delay_ms=delay_ms, reason=kept)
    except RequestError as error:
        if not _is_refused(error, kept):
            raise
        return log.nack(queue, node, jobs, delay_ms=delay_ms)


def _is_refused(error: RequestError, reason: str | None) -> bool:
    """Whether the nack may succeed without its reason: a server may take less, or none."""
    return bool(reason) and error.code == "invalid_request"


def _note_failure(queue: str, job: _JobAtWork, error: BaseException) -> None:
    _log.error("job %d of %s failed, and comes back: %s", job.seq, queue, _reason_of(error), exc_info=error)


class WorkJob(_JobAtWork):
    """A job of `work`. `with job:` completes it, or after an exception returns it to the queue.

    An `Exception` is logged and ends only the block; others, as Ctrl-C, end the loop, too.
    """

    def __init__(self, job: Job, work: _Work) -> None:
        super().__init__(job)
        self._work = work

    def ack(self) -> None:
        """Complete the job now."""
        self._work.ack(self)

    def nack(self, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        """Return the job to the queue, to be claimed again after a delay (`retry_ms`).

        reason: kept with the attempt; cut to what the server takes by default.
        """
        self._work.nack(self, delay_ms, reason)

    def __enter__(self) -> WorkJob:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if self.ended:
            return isinstance(error, Exception)
        if error is None:
            self.ack()
            return False
        if isinstance(error, Exception):
            _note_failure(self._work.queue, self, error)
            self.nack(reason=_reason_of(error))
            return True
        with contextlib.suppress(TopicsError):
            self.nack(delay_ms=0, reason=_reason_of(error))
        return False


class _Work:
    """The jobs that one call of `work` holds, and the thread that extends their leases."""

    def __init__(self, log: QueueCalls, options: WorkOptions) -> None:
        self._log = log
        self._options = options
        self.queue = options.queue
        self._changed = threading.Condition()
        self._held: dict[int, WorkJob] = {}
        self._left = False
        self._thread: threading.Thread | None = None

    def jobs(self) -> Iterator[WorkJob]:
        options = self._options
        fresh: deque[WorkJob] = deque()
        try:
            while True:
                while not fresh:
                    with self._changed:
                        self._changed.wait_for(lambda: len(self._held) < options.most)
                        room = options.most - len(self._held)
                    try:
                        found = self._log.claim(
                            options.queue, options.node, room, lease_ms=options.lease_ms, wait_ms=_WAIT_MS
                        )
                    except UsageError:
                        if self._log.closed:
                            return
                        raise
                    fresh.extend(self._hold(found))
                yield fresh.popleft()
        finally:
            self._leave(fresh)

    def _hold(self, jobs: list[Job]) -> list[WorkJob]:
        made = [WorkJob(job, self) for job in jobs]
        with self._changed:
            self._held.update((job.seq, job) for job in made)
            if made and self._thread is None:
                self._thread = threading.Thread(target=self._extend_all, name="topics-work", daemon=True)
                self._thread.start()
        return made

    def _leave(self, fresh: deque[WorkJob]) -> None:
        """End: jobs that were not handed out come back at once."""
        with self._changed:
            self._left = True
            for job in fresh:
                self._held.pop(job.seq, None)
            self._changed.notify_all()
        if fresh:
            with contextlib.suppress(TopicsError):  # their leases end by themselves
                self._log.nack(self.queue, self._options.node, [job.job for job in fresh])

    def ack(self, job: WorkJob) -> None:
        self._end(job, lambda held: self._log.ack(self.queue, self._options.node, held))

    def nack(self, job: WorkJob, delay_ms: int | None, reason: str | None) -> None:
        delay = self._options.retry_ms if delay_ms is None else delay_ms
        node = self._options.node
        self._end(job, lambda held: nack_for(self._log, self.queue, node, held, delay_ms=delay, reason=reason))

    def _end(self, job: WorkJob, call: Callable[[list[Job]], AckResult]) -> None:
        if job.ended:
            return
        try:
            job._note_end(call([job.job]))
        finally:
            job.ended = True
            with self._changed:
                self._held.pop(job.seq, None)
                self._changed.notify_all()

    def _extend_all(self) -> None:
        options = self._options
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._left and not self._held, options.rest_s)
                held = list(self._held.values())
                if not held and self._left:
                    return
            if not held:
                continue
            try:
                extended = self._log.extend(
                    self.queue, options.node, [job.job for job in held], lease_ms=options.lease_ms
                )
            except UsageError:
                if self._log.closed:
                    return
                raise
            except TopicsError as error:
                _log.warning("the leases of %d jobs of %s were not extended: %s", len(held), self.queue, error)
                continue
            for job in held:
                job.is_lost = job.is_lost or (not job.ended and job.seq in extended.skipped)


def work(log: QueueCalls, options: WorkOptions) -> Iterator[WorkJob]:
    """Yield jobs as they come, until the log is closed."""
    return _Work(log, options).jobs()


class AsyncWorkJob(_JobAtWork):
    """A job of `work` for asyncio. `async with job:` ends it as `with` ends a `WorkJob`."""

    def __init__(self, job: Job, work: _AsyncWork) -> None:
        super().__init__(job)
        self._work = work

    async def ack(self) -> None:
        await self._work.ack(self)

    async def nack(self, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        await self._work.nack(self, delay_ms, reason)

    async def __aenter__(self) -> AsyncWorkJob:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if self.ended:
            return isinstance(error, Exception)
        if error is None:
            await self.ack()
            return False
        if isinstance(error, Exception):
            _note_failure(self._work.queue, self, error)
            await self.nack(reason=_reason_of(error))
            return True
        with contextlib.suppress(TopicsError):
            await self.nack(delay_ms=0, reason=_reason_of(error))
        return False


class _AsyncWork:
    """The jobs that one call of `work` holds, and the task that extends their leases."""

    def __init__(self, log: AwaitedQueueCalls, options: WorkOptions) -> None:
        self._log = log
        self._options = options
        self.queue = options.queue
        self._room = asyncio.Condition()
        self._held: dict[int, AsyncWorkJob] = {}
        self._left = False

    async def jobs(self) -> AsyncIterator[AsyncWorkJob]:
        options = self._options
        fresh: deque[AsyncWorkJob] = deque()
        extending = asyncio.ensure_future(self._extend_all())
        try:
            while True:
                while not fresh:
                    async with self._room:
                        await self._room.wait_for(lambda: len(self._held) < options.most)
                        room = options.most - len(self._held)
                    try:
                        found = await self._log.claim(
                            options.queue, options.node, room, lease_ms=options.lease_ms, wait_ms=_WAIT_MS
                        )
                    except UsageError:
                        if self._log.closed:
                            return
                        raise
                    made = [AsyncWorkJob(job, self) for job in found]
                    self._held.update((job.seq, job) for job in made)
                    fresh.extend(made)
                yield fresh.popleft()
        finally:
            for job in fresh:
                self._held.pop(job.seq, None)
            self._left = True
            if not self._held:  # else tasks work on, whose jobs are held until they end
                extending.cancel()
            if fresh:
                with contextlib.suppress(TopicsError):
                    await self._log.nack(self.queue, options.node, [job.job for job in fresh])

    async def ack(self, job: AsyncWorkJob) -> None:
        await self._end(job, lambda held: self._log.ack(self.queue, self._options.node, held))

    async def nack(self, job: AsyncWorkJob, delay_ms: int | None, reason: str | None) -> None:
        delay = self._options.retry_ms if delay_ms is None else delay_ms
        kept = None if reason is None else fitting_reason(reason)

        async def call(held: list[Job]) -> AckResult:
            try:
                return await self._log.nack(self.queue, self._options.node, held, delay_ms=delay, reason=kept)
            except RequestError as error:
                if not _is_refused(error, kept):
                    raise
                return await self._log.nack(self.queue, self._options.node, held, delay_ms=delay)

        await self._end(job, call)

    async def _end(self, job: AsyncWorkJob, call: Callable[[list[Job]], Awaitable[AckResult]]) -> None:
        if job.ended:
            return
        try:
            job._note_end(await call([job.job]))
        finally:
            job.ended = True
            self._held.pop(job.seq, None)
            async with self._room:
                self._room.notify_all()

    async def _extend_all(self) -> None:
        options = self._options
        while True:
            await asyncio.sleep(options.rest_s)
            held = list(self._held.values())
            if not held:
                if self._left:
                    return
                continue
            try:
                extended = await self._log.extend(
                    self.queue, options.node, [job.job for job in held], lease_ms=options.lease_ms
                )
            except UsageError:
                if self._log.closed:
                    return
                raise
            except TopicsError as error:
                _log.warning("the leases of %d jobs of %s were not extended: %s", len(held), self.queue, error)
                continue
            for job in held:
                job.is_lost = job.is_lost or (not job.ended and job.seq in extended.skipped)


def work_awaited(log: AwaitedQueueCalls, options: WorkOptions) -> AsyncIterator[AsyncWorkJob]:
    """Yield jobs as they come, until the log is closed."""
    return _AsyncWork(log, options).jobs()
