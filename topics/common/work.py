"""`work` of a log and of a client: jobs that come as long as they are asked for.

While a job is worked on, its lease is extended. It ends with the block `with job:`: completed, or
after an exception returned to the queue. The exception is logged, and its text is the reason that
the queue keeps.

A job whose block never begins returns to the queue: when the loop is left, or after `start_ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from topics.common.values import arguments
from topics.common.values.answers import AckResult, ExtendResult, TopicState
from topics.common.values.delivered import GapError, Job, Jobs, Record
from topics.errors import NoAnswerError, RequestError, TopicsError, UsageError

RETRY_MS = 1_000
"""Default of the time after which a job that failed comes back."""
START_MS = 600_000
"""Default of the time that a job which was handed out may wait for its block."""
_PARTS = 3
"""A lease is extended when a third of it has passed."""
_PAUSE_S = 0.25
"""The pause before an ack or a nack without an answer is repeated."""
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

    def get(self, topic: str, seq: int) -> Record | None: ...

    def state(self, topic: str, *, touch: bool = True) -> TopicState: ...

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

    async def get(self, topic: str, seq: int) -> Record | None: ...

    async def state(self, topic: str, *, touch: bool = True) -> TopicState: ...

    @property
    def closed(self) -> bool: ...


class WorkOptions:
    """The arguments of `work`, checked."""

    def __init__(  # noqa: PLR0917 - the arguments of `work`, in its order
        self, queue: str, node: str, most: int, lease_ms: int | None, retry_ms: int, start_ms: int
    ) -> None:
        arguments.text("queue", queue)
        arguments.text("node", node)
        if not node:
            raise UsageError("node is '': use a name of this worker that no other one has")
        arguments.count("max", most, 1000, 1)
        if lease_ms is not None:
            arguments.count("lease_ms", lease_ms, 86_400_000, 100)
        arguments.count("retry_ms", retry_ms, 86_400_000)
        arguments.count("start_ms", start_ms, 86_400_000)
        self.queue, self.node, self.most = queue, node, most
        self.lease_ms, self.retry_ms, self.start_ms = lease_ms, retry_ms, start_ms


class _JobAtWork:
    """The members of a job that both kinds of work show."""

    def __init__(self, job: Job) -> None:
        self.job = job
        """The job as it was claimed."""
        self.is_lost = False
        """Whether its lease ended, so that another worker may have the job."""
        self.ended = False
        self._lease_until = 0.0
        """When its lease ends, as far as is known, on the clock of `time.monotonic`."""
        self._start_until: float | None = None
        """When it is given back unless its block has begun; None: it was not handed out yet."""
        self._has_begun = False
        """Whether its block, its ack or its nack has begun."""
        self._is_ending = False
        self._is_unsure = False
        """Whether an ack or a nack of it may have been done though there was no answer."""
        self._why_back = ""
        """Why it was given back without a block."""

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

    def _begin(self) -> None:
        """Note that the block begins. Raises: UsageError, the job was given back."""
        if self._why_back:
            raise UsageError(f"job {self.seq} was given back {self._why_back}")
        self._has_begun = True


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


J = TypeVar("J", bound=_JobAtWork)


class _HeldJobs(Generic[J]):
    """The jobs that one call of `work` holds, and what becomes of them: without calls."""

    def __init__(self, options: WorkOptions) -> None:
        self.options = options
        self.queue = options.queue
        self._lease_ms = options.lease_ms or 0
        """The lease of all jobs; 0: the queue has not been asked for its own yet."""
        self._held: dict[int, J] = {}
        self._left = False

    @property
    def _rest_s(self) -> float:
        """Seconds between two extensions."""
        return self._lease_ms / 1000 / _PARTS

    def _hold(self, jobs: Iterable[J]) -> list[J]:
        made = list(jobs)
        until = time.monotonic() + self._lease_ms / 1000
        for job in made:
            job._lease_until = until
            self._held[job.seq] = job
        return made

    def _hand_out(self, job: J) -> J:
        job._start_until = time.monotonic() + self.options.start_ms / 1000
        return job

    def _take_late(self) -> list[J]:
        """Return the jobs whose blocks did not begin in time; they are held no longer."""
        now = time.monotonic()
        late = [job for job in self._waiting() if job._start_until is not None and job._start_until <= now]
        return self._end_waiting(late, "because its block did not begin in time: begin it sooner, or raise start_ms")

    def _take_left(self) -> list[J]:
        """Return the jobs whose blocks have not begun when the loop is left."""
        return self._end_waiting(self._waiting(), "when the loop over work was left: begin its block before")

    def _waiting(self) -> list[J]:
        return [job for job in self._held.values() if not job._has_begun]

    def _end_waiting(self, jobs: list[J], why: str) -> list[J]:
        for job in jobs:
            del self._held[job.seq]
            job.ended = job.is_lost = True
            job._why_back = why
        return jobs

    def _note_late(self, jobs: list[J]) -> None:
        seqs = ", ".join(str(job.seq) for job in jobs)
        _log.warning("no block of jobs %s of %s began within %d ms", seqs, self.queue, self.options.start_ms)

    def _note_extended(self, jobs: list[J], extended: ExtendResult) -> None:
        until = time.monotonic() + self._lease_ms / 1000
        for job in jobs:
            if job.seq in extended.deadlines:
                job._lease_until = until
            elif not job._is_ending:  # else its ack, which has no answer yet, may have ended it
                job.is_lost = True

    def _is_late(self, job: J, error: NoAnswerError) -> bool:
        """Note an ack or a nack without an answer. Return whether it is too late to repeat it."""
        job._is_unsure = True
        if time.monotonic() < job._lease_until:
            return False
        job.is_lost = True
        _log.warning("whether job %d of %s has ended is not known: %s", job.seq, self.queue, error)
        return True

    def _may_be_ours(self, job: J, result: AckResult) -> bool:
        """Note an answer. Return whether it skips a job that an earlier try may have ended."""
        if not result.skipped:
            return False
        job._is_unsure = job._is_unsure or result.repeated
        job.is_lost = not job._is_unsure or time.monotonic() >= job._lease_until
        return not job.is_lost


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
        self._work.begin(self)
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


class _Work(_HeldJobs[WorkJob]):
    """The jobs that one call of `work` holds, and the thread that extends their leases."""

    def __init__(self, log: QueueCalls, options: WorkOptions) -> None:
        super().__init__(options)
        self._log = log
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def jobs(self) -> Iterator[WorkJob]:
        options = self.options
        fresh: deque[WorkJob] = deque()
        try:
            self._lease_ms = self._lease_ms or self._log.state(self.queue, touch=False).config.lease_ms
        except UsageError:
            if self._log.closed:
                return
            raise
        try:
            while True:
                while not fresh:
                    with self._changed:
                        self._changed.wait_for(lambda: len(self._held) < options.most)
                        room = options.most - len(self._held)
                    try:
                        found = self._log.claim(
                            options.queue, options.node, room, lease_ms=self._lease_ms, wait_ms=_WAIT_MS
                        )
                    except UsageError:
                        if self._log.closed:
                            return
                        raise
                    fresh.extend(self._hold_claimed(found))
                yield self._hand_out(fresh.popleft())
        finally:
            self._leave()

    def _hold_claimed(self, jobs: list[Job]) -> list[WorkJob]:
        with self._changed:
            made = self._hold(WorkJob(job, self) for job in jobs)
            if made and self._thread is None:
                self._thread = threading.Thread(target=self._extend_all, name="topics-work", daemon=True)
                self._thread.start()
        return made

    def _leave(self) -> None:
        """End: jobs whose blocks have not begun come back at once."""
        with self._changed:
            self._left = True
            left = self._take_left()
            self._changed.notify_all()
        self._give_back(left)

    def _give_back(self, jobs: list[WorkJob]) -> None:
        if jobs:
            with contextlib.suppress(TopicsError):  # their leases end by themselves
                self._log.nack(self.queue, self.options.node, [job.job for job in jobs])

    def begin(self, job: WorkJob) -> None:
        with self._changed:
            job._begin()

    def ack(self, job: WorkJob) -> None:
        if self._end(job, lambda held: self._log.ack(self.queue, self.options.node, held)):
            job.is_lost = self._is_there(job)

    def nack(self, job: WorkJob, delay_ms: int | None, reason: str | None) -> None:
        delay = self.options.retry_ms if delay_ms is None else delay_ms
        node = self.options.node
        self._end(job, lambda held: nack_for(self._log, self.queue, node, held, delay_ms=delay, reason=reason))

    def _end(self, job: WorkJob, call: Callable[[list[Job]], AckResult]) -> bool:
        """End a job. Return whether it is not known if an earlier try did, or another worker."""
        with self._changed:
            if job.ended:
                return False
            job._has_begun = job._is_ending = True
        try:
            while True:
                try:
                    return self._may_be_ours(job, call([job.job]))
                except NoAnswerError as error:
                    if self._is_late(job, error):
                        return False
                time.sleep(_PAUSE_S)
        finally:
            with self._changed:
                job.ended = True
                self._held.pop(job.seq, None)
                self._changed.notify_all()

    def _is_there(self, job: WorkJob) -> bool:
        """Whether the queue has the job, or does not say so: then no ack was done."""
        try:
            return self._log.get(self.queue, job.seq) is not None
        except GapError:
            return False
        except TopicsError:
            return True

    def _extend_all(self) -> None:
        options = self.options
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._left and not self._held, self._rest_s)
                late = self._take_late()
                held = list(self._held.values())
                if late:
                    self._changed.notify_all()
                elif not held and self._left:
                    return
            if late:
                self._note_late(late)
                self._give_back(late)
            if not held:
                continue
            try:
                extended = self._log.extend(
                    self.queue, options.node, [job.job for job in held], lease_ms=self._lease_ms
                )
            except UsageError:
                if self._log.closed:
                    return
                raise
            except TopicsError as error:
                _log.warning("the leases of %d jobs of %s were not extended: %s", len(held), self.queue, error)
                continue
            self._note_extended(held, extended)


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
        self._begin()
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


class _AsyncWork(_HeldJobs[AsyncWorkJob]):
    """The jobs that one call of `work` holds, and the task that extends their leases."""

    def __init__(self, log: AwaitedQueueCalls, options: WorkOptions) -> None:
        super().__init__(options)
        self._log = log
        self._room = asyncio.Condition()

    async def jobs(self) -> AsyncIterator[AsyncWorkJob]:
        options = self.options
        fresh: deque[AsyncWorkJob] = deque()
        try:
            self._lease_ms = self._lease_ms or (await self._log.state(self.queue, touch=False)).config.lease_ms
        except UsageError:
            if self._log.closed:
                return
            raise
        extending = asyncio.ensure_future(self._extend_all())
        try:
            while True:
                while not fresh:
                    async with self._room:
                        await self._room.wait_for(lambda: len(self._held) < options.most)
                        room = options.most - len(self._held)
                    try:
                        found = await self._log.claim(
                            options.queue, options.node, room, lease_ms=self._lease_ms, wait_ms=_WAIT_MS
                        )
                    except UsageError:
                        if self._log.closed:
                            return
                        raise
                    fresh.extend(self._hold(AsyncWorkJob(job, self) for job in found))
                yield self._hand_out(fresh.popleft())
        finally:
            self._left = True
            left = self._take_left()
            if not self._held:  # else tasks work on, whose jobs are held until they end
                extending.cancel()
            await self._give_back(left)

    async def _give_back(self, jobs: list[AsyncWorkJob]) -> None:
        if jobs:
            with contextlib.suppress(TopicsError):
                await self._log.nack(self.queue, self.options.node, [job.job for job in jobs])

    async def ack(self, job: AsyncWorkJob) -> None:
        if await self._end(job, lambda held: self._log.ack(self.queue, self.options.node, held)):
            job.is_lost = await self._is_there(job)

    async def nack(self, job: AsyncWorkJob, delay_ms: int | None, reason: str | None) -> None:
        delay = self.options.retry_ms if delay_ms is None else delay_ms
        kept = None if reason is None else fitting_reason(reason)

        async def call(held: list[Job]) -> AckResult:
            try:
                return await self._log.nack(self.queue, self.options.node, held, delay_ms=delay, reason=kept)
            except RequestError as error:
                if not _is_refused(error, kept):
                    raise
                return await self._log.nack(self.queue, self.options.node, held, delay_ms=delay)

        await self._end(job, call)

    async def _end(self, job: AsyncWorkJob, call: Callable[[list[Job]], Awaitable[AckResult]]) -> bool:
        if job.ended:
            return False
        job._has_begun = job._is_ending = True
        try:
            while True:
                try:
                    return self._may_be_ours(job, await call([job.job]))
                except NoAnswerError as error:
                    if self._is_late(job, error):
                        return False
                await asyncio.sleep(_PAUSE_S)
        finally:
            job.ended = True
            self._held.pop(job.seq, None)
            async with self._room:
                self._room.notify_all()

    async def _is_there(self, job: AsyncWorkJob) -> bool:
        try:
            return await self._log.get(self.queue, job.seq) is not None
        except GapError:
            return False
        except TopicsError:
            return True

    async def _extend_all(self) -> None:
        options = self.options
        while True:
            await asyncio.sleep(self._rest_s)
            late = self._take_late()
            held = list(self._held.values())
            if late:
                self._note_late(late)
                await self._give_back(late)
                async with self._room:
                    self._room.notify_all()
            elif not held and self._left:
                return
            if not held:
                continue
            try:
                extended = await self._log.extend(
                    self.queue, options.node, [job.job for job in held], lease_ms=self._lease_ms
                )
            except UsageError:
                if self._log.closed:
                    return
                raise
            except TopicsError as error:
                _log.warning("the leases of %d jobs of %s were not extended: %s", len(held), self.queue, error)
                continue
            self._note_extended(held, extended)


def work_awaited(log: AwaitedQueueCalls, options: WorkOptions) -> AsyncIterator[AsyncWorkJob]:
    """Yield jobs as they come, until the log is closed."""
    return _AsyncWork(log, options).jobs()
