"""The jobs that `work` holds, from their claim to their end: which calls are made, and when.

Nothing here waits or calls. Each method that has to yields `Step`s, which a driver makes, with
threads or with asyncio (`work.py`). Between two steps a generator has the jobs for itself.
"""

from __future__ import annotations

import contextlib
import enum
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from topics.common.transitions import Transitions
from topics.common.values import arguments
from topics.common.values.answers import AckResult, ExtendResult
from topics.common.values.delivered import GapError, Job
from topics.errors import NoAnswerError, RequestError, TopicsError, UsageError

RETRY_MS = 1_000
"""Default of the time after which a job that failed comes back."""
START_MS = 600_000
"""Default of the time that a job which was handed out may wait for its block."""
WAIT_MS = 30_000
"""How long a claim of `work` waits for a job."""
_PARTS = 3
"""A lease is extended when a third of it has passed: two more tries are in time."""
_PAUSE_S = 0.25
"""The pause before an ack or a nack without an answer is repeated."""
REASON_BYTES = 1024
"""Bytes of a reason that are kept: as many as a server takes by default (R-Q-32)."""

_log = logging.getLogger("topics.work")
T = TypeVar("T")


class WaitFor(NamedTuple):
    """Wait until a condition holds, and for so many seconds at most.

    It is looked at again after each step of any job.
    """

    until: Callable[[], bool]
    seconds: float | None = None


Step = Callable[[Any], Any] | WaitFor
"""A call that is given its log, or a wait. Answers are sent back, and TopicsErrors thrown."""
Steps = Generator[Step, Any, T]


class JobPhase(enum.Enum):
    WAITING = enum.auto()
    """Claimed; neither its block nor its end has begun."""
    WORKED_ON = enum.auto()
    ENDING = enum.auto()
    """An ack or a nack of it is in flight, or repeated."""
    ENDED = enum.auto()
    GIVEN_BACK = enum.auto()
    """Returned to the queue, because its block did not begin."""


PHASES = Transitions(
    {
        JobPhase.WAITING: (JobPhase.WORKED_ON, JobPhase.ENDING, JobPhase.GIVEN_BACK),
        JobPhase.WORKED_ON: (JobPhase.ENDING,),
        JobPhase.ENDING: (JobPhase.ENDING, JobPhase.ENDED),
        JobPhase.ENDED: (JobPhase.ENDED,),
        JobPhase.GIVEN_BACK: (),
    }
)


class WorkOptions:
    """The arguments of `work`, checked. Raises: UsageError."""

    def __init__(  # noqa: PLR0917 - the arguments of `work`, in its order
        self, queue: str, node: str, most: int, lease_ms: int | None, retry_ms: int, start_ms: int
    ) -> None:
        queue = arguments.text("queue", queue)
        node = arguments.text("node", node)
        if not node:
            raise UsageError("node is '': use a name of this worker that no other one has")
        most = arguments.count("max", most, 1000, 1)
        if lease_ms is not None:
            lease_ms = arguments.count("lease_ms", lease_ms, 86_400_000, 100)
        retry_ms = arguments.count("retry_ms", retry_ms, 86_400_000)
        start_ms = arguments.count("start_ms", start_ms, 86_400_000)
        self.queue, self.node, self.most = queue, node, most
        self.lease_ms, self.retry_ms, self.start_ms = lease_ms, retry_ms, start_ms


class JobAtWork:
    """A claimed job and the phase it is in; both kinds of work show it to their callers."""

    def __init__(self, job: Job) -> None:
        self.job = job
        """The job as it was claimed."""
        self.is_lost = False
        """Whether its lease ended, so that another worker may have the job."""
        self._is_unsure = False
        """Whether a try to end it had no answer, so that it may have ended by that one."""
        self._phase = JobPhase.WAITING
        self._lease_until = 0.0
        """When its lease ends, as far as is known, on the clock of the WorkSteps."""
        self._start_until: float | None = None
        """When it is given back unless its block has begun; None: it was not handed out yet."""
        self._why_back = ""
        """Why it was given back."""

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

    @property
    def ended(self) -> bool:
        """Whether it was completed, returned or given back, as far as this worker can do so."""
        return self._phase in {JobPhase.ENDED, JobPhase.GIVEN_BACK}

    def __repr__(self) -> str:
        return f"<topics job {self.seq}: {arguments.shown(self.data)}>"

    def _enter(self, phase: JobPhase) -> None:
        self._phase = PHASES.check(self._phase, phase)

    def begin(self) -> None:
        """Note that the block begins. Raises: UsageError, the job was given back."""
        if self._phase is JobPhase.GIVEN_BACK:
            raise UsageError(f"job {self.seq} was given back {self._why_back}")
        if self._phase is JobPhase.WAITING:
            self._enter(JobPhase.WORKED_ON)


J = TypeVar("J", bound=JobAtWork)


class WorkSteps(Generic[J]):
    """The jobs that one call of `work` holds.

    made_of(job): the object for a caller. now(): seconds of a clock that is never set back.
    is_closed(): whether the log is closed, so that its calls raise UsageError.
    """

    def __init__(
        self,
        options: WorkOptions,
        made_of: Callable[[Job], J],
        now: Callable[[], float],
        is_closed: Callable[[], bool],
    ) -> None:
        self.options = options
        self._made_of = made_of
        self._now = now
        self._is_closed = is_closed
        self._lease_ms = options.lease_ms or 0
        """The lease of all jobs; 0: the queue has not been asked for its own yet."""
        self._held: dict[int, J] = {}
        self._fresh: deque[J] = deque()
        """Held jobs that were claimed and not handed out."""
        self._left = False

    def next_job(self, *, wait_ms: int = WAIT_MS, most: int = 1000) -> Steps[J | None]:
        """Wait for room, claim up to `most` jobs, and return one; None: none came in `wait_ms`.

        None, too, if the log is closed.
        """
        queue, node = self.options.queue, self.options.node
        try:
            if not self._lease_ms:
                self._lease_ms = (yield lambda log: log.state(queue, touch=False)).config.lease_ms
            if not self._fresh:
                while len(self._held) >= self.options.most:
                    yield WaitFor(lambda: len(self._held) < self.options.most)
                limit = min(most, self.options.most - len(self._held))
                found = yield lambda log: log.claim(queue, node, limit, lease_ms=self._lease_ms, wait_ms=wait_ms)
                self._fresh.extend(self._hold(found))
        except UsageError:
            if self._is_closed():
                return None
            raise
        if not self._fresh:
            return None
        job = self._fresh.popleft()
        job._start_until = self._now() + self.options.start_ms / 1000
        return job

    def leaving(self) -> Steps[None]:
        """Hand out no more jobs, and return those whose blocks have not begun to the queue now.

        `extending` still extends the leases of the others, until their blocks end.
        """
        self._left = True
        waiting = self._waiting()
        yield from self._giving_back(waiting, "when the loop over work was left: begin its block before")

    def extending(self) -> Steps[None]:
        """Extend the leases of all held jobs before they end, again and again.

        It returns when the last of them has ended after `leaving`. A job whose block did not begin
        within `start_ms` is given back to the queue.
        """
        options = self.options
        while True:
            yield WaitFor(lambda: self._left and not self._held, self._lease_ms / 1000 / _PARTS)
            if late := self._late():
                seqs = ", ".join(str(job.seq) for job in late)
                _log.warning("no block of jobs %s of %s began within %d ms", seqs, options.queue, options.start_ms)
                yield from self._giving_back(
                    late, "because its block did not begin in time: begin it sooner, or raise start_ms"
                )
            held = list(self._held.values())
            if not held:
                if self._left:
                    return
                continue
            try:
                extended = yield self._extend(held)
            except TopicsError as error:
                if self._is_closed():
                    return
                _log.warning("the leases of %d jobs of %s were not extended: %s", len(held), options.queue, error)
                continue
            self._note_extended(held, extended)

    def _extend(self, jobs: list[J]) -> Step:
        queue, node, leased = self.options.queue, self.options.node, [job.job for job in jobs]
        return lambda log: log.extend(queue, node, leased, lease_ms=self._lease_ms)

    def acking(self, job: J) -> Steps[None]:
        """Complete a job. An ack without an answer is repeated until the lease ends."""
        queue, node = self.options.queue, self.options.node
        if not (yield from self._ending(job, lambda: _one(lambda log: log.ack(queue, node, [job.job])))):
            return
        try:  # Whether an earlier try has done it, or another worker has the job: it is there then.
            job.is_lost = (yield lambda log: log.get(queue, job.seq)) is not None
        except GapError:
            job.is_lost = False
        except TopicsError:
            job.is_lost = True

    def nacking(self, job: J, delay_ms: int | None, reason: str | None) -> Steps[None]:
        """Return a job to the queue after a delay (None: `retry_ms`), repeated as an ack is."""
        delay = self.options.retry_ms if delay_ms is None else delay_ms
        kept = None if reason is None else fitting_reason(reason)
        yield from self._ending(job, lambda: self._nack(job, delay, kept))

    def leaving_block(self, job: J, error: BaseException | None) -> Steps[bool]:
        """End the job of a block, if it has not ended. Return whether its exception ends here."""
        if job.ended:
            return isinstance(error, Exception)
        if error is None:
            yield from self.acking(job)
            return False
        reason = _reason_of(error)
        if isinstance(error, Exception):
            queue = self.options.queue
            _log.error("job %d of %s failed, and comes back: %s", job.seq, queue, reason, exc_info=error)
            yield from self.nacking(job, None, reason)
            return True
        with contextlib.suppress(TopicsError):
            yield from self.nacking(job, 0, reason)
        return False

    def _nack(self, job: J, delay_ms: int, reason: str | None) -> Steps[AckResult]:
        queue, node, jobs = self.options.queue, self.options.node, [job.job]
        try:
            result: AckResult = yield lambda log: log.nack(queue, node, jobs, delay_ms=delay_ms, reason=reason)
        except RequestError as error:
            # A server may take less of a reason than this one does by default, or none.
            if not reason or error.code != "invalid_request":
                raise
            result = yield lambda log: log.nack(queue, node, jobs, delay_ms=delay_ms)
        return result

    def _ending(self, job: J, call: Callable[[], Steps[AckResult]]) -> Steps[bool]:
        """Repeat the call that ends a job until it is answered, or the job's lease ends.

        Return whether the server had no such lease after a try without an answer: that try may have
        ended the job, or another worker may have it.
        """
        if job.ended:
            return False
        job._enter(JobPhase.ENDING)
        try:
            while True:
                try:
                    result = yield from call()
                except NoAnswerError as error:
                    job._is_unsure = True
                    if self._now() >= job._lease_until:
                        job.is_lost = True
                        queue = self.options.queue
                        _log.warning("whether job %d of %s has ended is not known: %s", job.seq, queue, error)
                        return False
                    yield WaitFor(lambda: False, _PAUSE_S)
                    continue
                if not result.skipped:
                    return False
                job._is_unsure = job._is_unsure or result.repeated
                job.is_lost = not job._is_unsure or self._now() >= job._lease_until
                return not job.is_lost
        finally:
            job._enter(JobPhase.ENDED)
            self._held.pop(job.seq, None)

    def _hold(self, jobs: Iterable[Job]) -> list[J]:
        made = [self._made_of(job) for job in jobs]
        until = self._now() + self._lease_ms / 1000
        for job in made:
            job._lease_until = until
            self._held[job.seq] = job
        return made

    def _waiting(self) -> list[J]:
        return [job for job in self._held.values() if job._phase is JobPhase.WAITING]

    def _late(self) -> list[J]:
        now = self._now()
        return [job for job in self._waiting() if job._start_until is not None and job._start_until <= now]

    def _giving_back(self, jobs: list[J], why: str) -> Steps[None]:
        for job in jobs:
            del self._held[job.seq]
            job._enter(JobPhase.GIVEN_BACK)
            job.is_lost = True
            job._why_back = why
        if jobs:
            with contextlib.suppress(TopicsError):  # their leases end by themselves
                queue, node, leased = self.options.queue, self.options.node, [job.job for job in jobs]
                yield lambda log: log.nack(queue, node, leased, reason=f"given back {why}")

    def _note_extended(self, jobs: list[J], extended: ExtendResult) -> None:
        until = self._now() + self._lease_ms / 1000
        for job in jobs:
            if job.seq in extended.deadlines:
                job._lease_until = until
            elif job._phase is not JobPhase.ENDING:  # else its ack may have ended it
                job.is_lost = True


def _one(step: Step) -> Steps[Any]:
    return (yield step)


def _reason_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "it has no text, because its __str__ fails"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def fitting_reason(reason: str) -> str:
    """Return the characters of a reason that a server takes by default."""
    return reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")
