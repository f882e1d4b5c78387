"""`work` of a log and of a client: jobs that come as long as they are asked for.

While a job is worked on, its lease is extended. It ends with the block `with job:`: completed, or
after an exception returned to the queue. The exception is logged, and its text is the reason that
the queue keeps.

A job whose block never begins returns to the queue: when the loop is left, or after `start_ms`.

The steps of all this are in `work_steps.py`; here they are made, by threads or by tasks of asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, TypeVar

from topics.common.values.answers import AckResult, ExtendResult, TopicState
from topics.common.values.delivered import Job, Jobs, Record
from topics.common.work_steps import JobAtWork, Steps, WaitFor, WorkOptions, WorkSteps
from topics.errors import TopicsError

T = TypeVar("T")


class QueueCalls(Protocol):
    """The calls of a log or a client that `work` makes."""

    def claim(
        self, queue: str, node: str, limit: int = 1, *, lease_ms: int | None = None, wait_ms: int = 0
    ) -> list[Job]: ...

    def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult: ...

    def nack(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None) -> AckResult: ...

    def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult: ...

    def get(self, topic: str, seq: int) -> Record | None: ...

    def state(self, topic: str, *, touch: bool = True) -> TopicState: ...

    @property
    def closed(self) -> bool: ...


class AwaitedQueueCalls(Protocol):
    """The calls that `work` of asyncio makes, each of which returns an awaitable."""

    async def claim(
        self, queue: str, node: str, limit: int = 1, *, lease_ms: int | None = None, wait_ms: int = 0
    ) -> list[Job]: ...

    async def ack(self, queue: str, node: str, jobs: Jobs) -> AckResult: ...

    async def nack(
        self, queue: str, node: str, jobs: Jobs, *, delay_ms: int = 0, reason: str | None = None
    ) -> AckResult: ...

    async def extend(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ExtendResult: ...

    async def get(self, topic: str, seq: int) -> Record | None: ...

    async def state(self, topic: str, *, touch: bool = True) -> TopicState: ...

    @property
    def closed(self) -> bool: ...


class WorkJob(JobAtWork):
    """A job of `work`. `with job:` completes it, or after an exception returns it to the queue.

    An `Exception` is logged and ends only the block; others, as Ctrl-C, end the loop, too.
    """

    def __init__(self, job: Job, worker: Worker) -> None:
        super().__init__(job)
        self._worker = worker

    def ack(self) -> None:
        """Complete the job now."""
        self._worker.do(self._worker.held.acking(self))

    def nack(self, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        """Return the job to the queue, to be claimed again after a delay (`retry_ms`).

        reason: kept with the attempt; cut to what the server takes by default.
        """
        self._worker.do(self._worker.held.nacking(self, delay_ms, reason))

    def __enter__(self) -> WorkJob:
        with self._worker.changed:
            self.begin()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        return self._worker.do(self._worker.held.leaving_block(self, error))


class Worker:
    """One call of `work`, made by threads: the caller's, and one that extends the leases."""

    def __init__(self, log: QueueCalls, options: WorkOptions) -> None:
        self._log = log
        self.held = WorkSteps(options, lambda job: WorkJob(job, self), time.monotonic, lambda: log.closed)
        self.changed = threading.Condition()
        """Held between two steps, and notified after each."""
        self._thread: threading.Thread | None = None

    def jobs(self) -> Iterator[WorkJob]:
        try:
            while (job := self.next_job()) is not None or not self._log.closed:
                if job is not None:
                    yield job
        finally:
            self.leave()

    def next_job(self, **limits: int) -> WorkJob | None:
        """Return a job, whose lease is extended from now on. Arguments: `WorkSteps.next_job`."""
        job = self.do(self.held.next_job(**limits))
        with self.changed:
            if job is not None and self._thread is None:
                self._thread = threading.Thread(
                    target=lambda: self.do(self.held.extending()), name="topics-work", daemon=True
                )
                self._thread.start()
        return job

    def leave(self) -> None:
        """Hand out no more jobs, and give back those whose blocks have not begun."""
        self.do(self.held.leaving())

    def do(self, steps: Steps[T]) -> T:
        """Make the calls and waits of some steps; return their result."""
        answer: Any = None
        error: TopicsError | None = None
        try:
            while True:
                with self.changed:
                    try:
                        step = steps.send(answer) if error is None else steps.throw(error)
                    finally:
                        self.changed.notify_all()
                    if isinstance(step, WaitFor):
                        self.changed.wait_for(step.until, step.seconds)
                        answer, error = None, None
                        continue
                try:
                    answer, error = step(self._log), None
                except TopicsError as raised:
                    answer, error = None, raised
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            with self.changed:
                steps.close()
                self.changed.notify_all()


def work(log: QueueCalls, options: WorkOptions) -> Iterator[WorkJob]:
    """Yield jobs as they come, until the log is closed."""
    return Worker(log, options).jobs()


class AsyncWorkJob(JobAtWork):
    """A job of `work` for asyncio. `async with job:` ends it as `with` ends a `WorkJob`."""

    def __init__(self, job: Job, worker: AsyncWorker) -> None:
        super().__init__(job)
        self._worker = worker

    async def ack(self) -> None:
        await self._worker.do(self._worker.held.acking(self))

    async def nack(self, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        await self._worker.do(self._worker.held.nacking(self, delay_ms, reason))

    async def __aenter__(self) -> AsyncWorkJob:
        self.begin()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        return await self._worker.do(self._worker.held.leaving_block(self, error))


class AsyncWorker:
    """One call of `work`, made by tasks: the caller's, and one that extends the leases."""

    def __init__(self, log: AwaitedQueueCalls, options: WorkOptions) -> None:
        self._log = log
        self.held = WorkSteps(options, lambda job: AsyncWorkJob(job, self), time.monotonic, lambda: log.closed)
        self._changed = asyncio.Event()
        """Set after each step; a task that waits clears it."""
        self._extending: asyncio.Task[None] | None = None

    async def jobs(self) -> AsyncIterator[AsyncWorkJob]:
        try:
            while (job := await self.do(self.held.next_job())) is not None or not self._log.closed:
                if job is None:
                    continue
                if self._extending is None:
                    self._extending = asyncio.create_task(self.do(self.held.extending()))
                yield job
        finally:
            await self.do(self.held.leaving())

    async def do(self, steps: Steps[T]) -> T:
        """Make the calls and waits of some steps; return their result."""
        answer: Any = None
        error: TopicsError | None = None
        try:
            while True:
                try:
                    step = steps.send(answer) if error is None else steps.throw(error)
                finally:
                    self._changed.set()
                answer, error = None, None
                try:
                    if isinstance(step, WaitFor):
                        await self._wait(step)
                    else:
                        answer = await step(self._log)
                except TopicsError as raised:
                    error = raised
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
            self._changed.set()

    async def _wait(self, wait: WaitFor) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait.seconds):
                while not wait.until():
                    self._changed.clear()
                    await self._changed.wait()


def work_awaited(log: AwaitedQueueCalls, options: WorkOptions) -> AsyncIterator[AsyncWorkJob]:
    """Yield jobs as they come, until the log is closed."""
    return AsyncWorker(log, options).jobs()
