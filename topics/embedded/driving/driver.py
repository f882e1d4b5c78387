"""The driver of a log's loop: the thread of a caller, while it waits.

A switch to another thread costs more than a commit, so a caller drives the loop itself until its
call is answered, if no other thread is driving. Calls that arrive meanwhile are put into the inbox;
their threads sleep, the driver starts the calls at its next pass, and so they become the next group
commit. A driver that leaves wakes one waiting caller to drive.

io_uring ends the operations that a thread submitted when that thread ends. So a driver leaves only
when the kernel has completed every file operation in flight, unless its thread outlives the log.
This holds for the main thread, and for the maintenance thread, which drives while there are no
calls (timers, background syncs, checkpoints, operations that others left in flight) and for callers
that cannot wait, such as asyncio's.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Protocol, TypeVar

from topics.embedded.driving.calls import PendingCall, Start
from topics.embedded.driving.interrupts import signals
from topics.embedded.driving.maintenance import NEVER, Maintenance
from topics.embedded.driving.reader_rests import ReaderRests
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.errors import LogFailedError, TopicsError, UsageError
from topics.loop import Loop
from topics.store.commits.quick_writes import QuickCaller

A = TypeVar("A")
R = TypeVar("R")
HasNoWaiters = Callable[[], bool]
"""Returns whether no other call waits for the thread."""

_log = logging.getLogger("topics.embedded")
_get_ident = threading.get_ident

_LOOK_NS = 1_000_000
"""Time for which callers ignore operations in flight, before one of them checks for completions."""
_SOON_NS = 1_000_000
_POLL_NS = 2_000_000
"""Time after which the maintenance thread takes over operations that a caller left in flight."""
_OPTIONAL_NS = 100_000_000
"""Longest wait of a call for optional operations, whose disk may not answer."""
_TURN_NS = 5_000_000
"""Time after which another log has its turn at the maintenance thread, apart from the last pass."""
_QUIET_PASSES = 2


class QuickAppends(Protocol):
    """Appends that are written without a drive, and are published before the next one."""

    is_open: bool

    @property
    def bytes(self) -> int: ...
    @property
    def append(self) -> Callable[[AppendRequest, int], AppendResult | None]: ...
    def note(self, request: AppendRequest) -> None: ...
    def end(self) -> None: ...
    def stop(self) -> None: ...
    def forbid(self) -> None: ...
    def close(self) -> None: ...


class NothingQuick:
    """No such appends."""

    is_open = False
    bytes = 0

    def append(self, _request: AppendRequest, _thread: int) -> AppendResult | None: ...
    def note(self, request: AppendRequest) -> None: ...
    def end(self) -> None: ...
    def stop(self) -> None: ...
    def forbid(self) -> None: ...
    def close(self) -> None: ...


MakeQuick = Callable[[QuickCaller, Callable[[], int]], QuickAppends]


def _nothing_quick(_caller: QuickCaller, _quiet_until_ns: Callable[[], int]) -> QuickAppends:
    return NothingQuick()


class Driver:
    """One loop shared by many threads, one at a time.

    Without `start` there is no maintenance thread, and the only thread calls `drive_due` between
    its calls.

    line: the appends that wait for room, which no later one may overtake.
    begin_us: time within which calls of the inbox are begun in a pass; 0: no limit.
    allow_in_place: see `ShardedLog`.
    make_quick(caller, quiet_until_ns): makes the appends that need no drive.

        state    `_refusal`   `_over`  driver              a new call, and a sleeping caller
        open     None         False    any caller          is begun
        ended    UsageError   False    caller of `end`     gets it; earlier calls may be answered
        over     UsageError   True     none                gets it
        failed   LogFailed..  False    none                gets it: an exception ended a pass
        forked   UsageError   False    none, in the child  gets it: the parent's loop continues
    """

    def __init__(
        self,
        loop: Loop,
        *,
        line: Sized = (),
        begin_us: int = 0,
        allow_in_place: Callable[[HasNoWaiters | None], None] | None = None,
        make_quick: MakeQuick = _nothing_quick,
    ) -> None:
        self._loop = loop
        self._line = line
        self._begin_ns = begin_us * 1000
        self._driving_lock = threading.Lock()
        self._inbox: deque[PendingCall[Any]] = deque()
        """Calls to be begun by the driving thread."""
        self.posted = 0
        """Changes with each call that is put into the inbox; those of `submit_soon` count if their
        caller counts them.
        """
        self.inside: set[int] = set()
        """Ids of threads within a step that the driving one may wait for: no call waits there."""
        self._waits = False
        """Whether the driving thread waits for the ring, or will if it finds the inbox empty."""
        self._asleep: deque[PendingCall[Any]] = deque()
        """Calls whose threads sleep, to be woken to drive."""
        self._owed_calls: set[PendingCall[Any]] = set()
        """Calls without a waiting caller that have no answer yet."""
        self._due_ns = NEVER
        self._drove_ns = 0
        self._driving: int | None = None
        """Id of the thread that drives."""
        self._refusal: Callable[[], TopicsError] | None = None
        self._over = False
        self.maintenance = Maintenance(
            loop.clock,
            ready_fd=loop.ring.ready_fd,
            due_ns=lambda: self._due_ns,
            continues=lambda: self._refusal is None,
            drive=self._maintain,
            waits=lambda: loop.operations_in_flight > 0 or loop.files.in_threads > 0,
        )
        self._allow_in_place = allow_in_place or _ignore
        self._allow_in_place(self.has_no_waiters)
        self.rests = ReaderRests(lambda: self._driving is not None and not self.drives_here)
        self.quick = make_quick(self._caller(), self._quiet_until_ns)
        self._lasting = {threading.main_thread().ident}
        """Ids of threads that do not end before the log does."""

    def start(self) -> None:
        """Have the maintenance thread drive while no call does.

        Raises: OSError, or RuntimeError if there is no thread; then it does not drive.
        """
        self.maintenance.start()
        self._lasting.add(self.maintenance.ident)

    # --- calls -------------------------------------------------------------------------------------------------------
    def call(self, start: Start[R]) -> R:
        """Run `start` on the loop and return its answer.

        Raises the error it answered, or that of `_refusal`.

        If a signal's handler raises, the call is left to the other threads, and may still be done.
        """
        if self.inside and threading.get_ident() in self.inside:
            raise called_within()
        call: PendingCall[R] = PendingCall(start)
        signals.hold(self._loop.ring.wake)
        try:
            if self._begin_driving():
                try:
                    self.check()
                    self._drive(lambda: call.answered, call)
                finally:
                    self._end_driving()
            elif self.drives_here:
                raise called_within()
            else:
                self._post(call)
        finally:
            signals.release()
        while not call.answered:
            self._wait(call)
        return call.result()

    def check_outside(self) -> None:
        """Check that this thread may make a call. Raises: UsageError, it is within one."""
        if self.drives_here or threading.get_ident() in self.inside:
            raise called_within()

    def wait_for(self, when: Callable[[Callable[[], None]], object], wait_ms: int | None) -> None:
        """Return once `when` makes the call that it gets, or after `wait_ms`.

        None: no limit. Raises as `call`.
        """

        def start(done: Callable[[None], object]) -> None:
            ended = False

            def end() -> None:
                nonlocal ended
                if not ended:
                    ended = True
                    if timer is not None:
                        timer.cancel()
                    done(None)

            timer = None if wait_ms is None else self._loop.call_later(wait_ms * 1_000_000, end)
            when(end)

        self.call(start)

    def submit(self, start: Start[R], on_answer: Callable[[R | BaseException], None] | None = None) -> None:
        """Leave a call to the driving thread, or the maintenance thread; `on_answer` runs there."""
        signals.hold(self._loop.ring.wake)
        try:
            self.check()
            self._post_owed(self._owed(start, on_answer or _ignore))
        finally:
            signals.release()

    def call_soon(self, do: Callable[[], None]) -> None:
        """Submit `do`, which is run on the loop, after the calls that were made before."""
        self.submit(_doing(do))

    def submit_soon(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> None:
        """Submit a call for the next pass, or for one within a millisecond; several share it.

        This thread waits for none, and wakes another one rarely.
        """
        signals.hold(self._loop.ring.wake)
        try:
            self.check()
            self._post_beside(self._owed(start, on_answer))
            if self._waits:
                self._loop.ring.wake()
            elif not self._driving_lock.locked():
                self.maintenance.gather_within(_SOON_NS)
        finally:
            signals.release()

    def hand_over(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> None:
        """Submit a call, and begin it on this thread if none drives. Waits for no operation.

        A call that can be answered at once is answered when this returns.
        """
        signals.hold(self._loop.ring.wake)
        try:
            self.check()
            call = self._owed(start, on_answer)
            if not self._begin_driving():
                self._post_owed(call)
                return
            try:
                self.check()
                self._drive(_at_once, call)
            finally:
                self._end_driving()
        finally:
            signals.release()

    def run_exclusively(self, do: Callable[[A], R | None], argument: A) -> R | None:
        """Call `do(argument)` in one step if no thread drives and no call waits; else return None.

        Skips the pass, unless work is due or operations may have ended. None may also be the result
        of `do`, which waits for no operation.
        Raises: as `call`; an exception of `do` that is no TopicsError ends the log.
        """
        loop = self._loop
        signals.hold(loop.ring.wake)
        try:
            if not self._driving_lock.acquire(False):
                return None
            self._driving = _get_ident()
            if self.quick.is_open:
                self._end_quick()
            now_ns = loop.clock.monotonic_ns()
            is_due = not loop.is_quiet(now_ns) or (now_ns - self._drove_ns >= _LOOK_NS and loop.operations_in_flight)
            if is_due and not self._inbox and self._look():
                is_due = len(self._line) > 0 or not loop.is_quiet(loop.clock.monotonic_ns())
            if self._refusal is not None or self._inbox or is_due:
                self._release_driving()
                self.check()
                return None
            try:
                return do(argument)
            except TopicsError:
                raise
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._driving = None
                self._driving_lock.release()
                if self._asleep or self._inbox or self._due_ns < self.maintenance.sleeping_until_ns:
                    self._wake_next_driver()
        finally:
            signals.release()

    def _look(self) -> bool:
        """Make a pass that waits for nothing, for work that is due and operations that have ended.

        Return False, with nothing done, if this thread may end before operations that the pass
        would submit: only a call waits for those. The caller holds `_driving_lock`, which an
        exception releases.
        """
        if self._refusal is not None or self._driving not in self._lasting:
            return False
        try:
            self._drive(_at_once)
        except BaseException:
            self._end_driving()
            raise
        return True

    def drive_due(self) -> int | None:
        """Run the work that is due by now, without waiting.

        Returns: ns until the next work; None if nothing is planned.

        Operations in flight count as planned, because a timer's operation is submitted by the next
        pass.
        """
        with self._driving_lock:
            self._driving = threading.get_ident()
            try:
                self._end_quick()
                self.check()
                self._drive(_at_once)
            finally:
                self._driving = None
            return None if self._due_ns == NEVER else self._due_ns - self._drove_ns

    @property
    def pendings(self) -> int:
        """Calls without a waiting caller that have no answer yet."""
        return len(self._owed_calls)

    @property
    def drives_here(self) -> bool:
        """Whether this thread is in the midst of a pass; code called from there cannot wait."""
        return self._driving == threading.get_ident()

    def has_no_waiters(self) -> bool:
        """Return whether no thread waits for the one that drives."""
        return not (self._inbox or self._asleep)

    # --- ending ------------------------------------------------------------------------------------------------------
    def end(self, first: Callable[[], None]) -> None:
        """Run `first` on the loop (it ends waits of other calls), then stop the maintenance thread.

        When this returns or raises, no thread drives: the loop is the caller's again. Later calls
        are refused.
        """
        try:
            self.call(_doing(first))
        finally:
            if self._refusal is None:
                self._refusal = closed_log
            self.maintenance.join()
            self._driving_lock.acquire()
            self._end_quick()
            try:
                if self._refusal is closed_log:  # else a pass has failed, and no other is made
                    self._wait_until(self._loop.operations_end())
            finally:
                self.maintenance.leave()
            # not begun; calls that are begun get their answers while the caller still drives
            self._refuse(self._inbox)

    def refuse_the_rest(self) -> None:
        """Refuse all calls without an answer, after `end` and once the loop is closed."""
        self._over = True
        self.quick.close()
        self._refuse_all()

    def disown(self) -> None:
        """Refuse all calls from now on, in a forked child, which has none of the threads."""
        self._refusal = _forked
        self.quick.forbid()
        self._driving_lock = threading.Lock()
        self._driving = None
        self.rests.disown()
        self._inbox.clear()
        self._asleep.clear()
        self._owed_calls.clear()

    def _fail(self, error: BaseException) -> None:
        """Refuse all calls after an unexpected exception, which left a pass half done.

        No thread may stay asleep waiting for it, and no awaitable either.
        """
        self._refusal = lambda: _failed(error)
        self.quick.stop()
        self.maintenance.stir()
        self._refuse_all()

    def _refuse_all(self) -> None:
        """Refuse all calls without an answer, also those that were begun."""
        self._refuse(self._inbox)
        self._refuse(self._asleep)
        self._refuse(deque(list(self._owed_calls)))

    def _refuse(self, waiting: deque[PendingCall[Any]]) -> None:
        assert self._refusal is not None, "calls are begun"
        while waiting:
            with contextlib.suppress(IndexError):  # another thread refuses them, too
                call = waiting.popleft()
                if not call.answered:
                    call.answer(self._refusal())

    def check(self) -> None:
        """Raise the error of `_refusal`, if there is one."""
        if self._refusal is not None:
            raise self._refusal()

    def check_process(self) -> None:
        """Raise UsageError in a forked child, where calls that are not answered never will be."""
        if self._refusal is _forked:
            raise _forked()

    # --- inside ------------------------------------------------------------------------------------------------------
    def _wait(self, call: PendingCall[Any]) -> None:
        """Drive, and sleep while another thread does, until the call is answered or a signal came.

        A signal's handler may raise, and so end the wait. It is called once this thread has passed
        on its turn: it may have been woken to drive, and others sleep until one thread is.
        """
        signals.hold(lambda: self._wake(call))
        try:
            call.left = False
            while not (call.answered or signals.came):
                if not self._drive_for(call) and not signals.came:
                    call.sleep()
        finally:
            try:
                if not call.answered:
                    call.left = True
                    self._wake_next_driver()
            finally:
                signals.release()

    def _wake(self, call: PendingCall[Any]) -> None:
        """End the pass that this thread waits in, or its sleep."""
        call.give_turn()
        with contextlib.suppress(OSError):  # the ring is closed
            self._loop.ring.wake()

    def _drive_for(self, call: PendingCall[Any]) -> bool:
        """Drive for a call. Return False if another thread drives, and `call` may sleep."""
        if self._begin_driving():
            try:
                self.check()
                self._drive(lambda: call.answered)
            finally:
                self._end_driving()
            return True
        call.prepare_to_sleep()
        if call.answered:
            return True
        self._asleep.append(call)
        if self._waits:  # for a remote event, such as a tail; else it looks into the inbox
            with contextlib.suppress(OSError):  # the ring is closed: see below
                self._loop.ring.wake()
        # The driver may have left between the failed attempt and the entry above; then no thread
        # would wake this one.
        if self._driving_lock.acquire(blocking=False):
            self._driving_lock.release()
            call.give_turn()
        elif self._over:
            self._refuse(self._asleep)
        return False

    def _post(self, call: PendingCall[Any]) -> None:
        """Put a call into the inbox, which the driver reads. Raises as `call` does."""
        self.posted += 1
        self._post_beside(call)

    def _post_beside(self, call: PendingCall[Any]) -> None:
        self.check()
        self._inbox.append(call)
        if self._refusal is not None:  # refused since the check
            self._refuse(self._inbox)

    def _post_owed(self, call: PendingCall[Any]) -> None:
        """Post a call without a waiting caller.

        The maintenance thread drives it if no thread does.
        """
        self._post(call)
        self.maintenance.stir()
        self._loop.ring.wake()

    def _owed(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> PendingCall[R]:
        """Return a call without a waiting caller, known until it is answered."""
        owed = self._owed_calls

        def on_answered(call: PendingCall[R]) -> None:
            if call in owed:  # else it was refused, because the log failed
                owed.discard(call)
                on_answer(call.outcome)  # type: ignore[arg-type]  # answered by then

        call = PendingCall(start, on_answered)
        owed.add(call)
        return call

    def _wait_until(self, ended: Callable[[], bool], *, has_optional: bool = True) -> None:
        """Make passes until operations have ended, for a bounded time if all left are optional.

        has_optional: whether this thread may have submitted some of those.
        """
        loop = self._loop
        by_ns = loop.clock.monotonic_ns() + (_OPTIONAL_NS if has_optional else 0)
        while not ended():
            if loop.operations_in_flight > loop.files.optional:
                loop.run_pass(None)
            elif (left_ns := by_ns - loop.clock.monotonic_ns()) > 0:
                loop.run_pass(left_ns)
            else:
                return

    def _drive(self, done: Callable[[], bool], call: PendingCall[Any] | None = None) -> None:
        """Begin `call`, and make passes until `done`.

        Then make passes until no operation is left that would end with this thread, except optional
        ones.

        The caller holds `_driving_lock`. Ends early if a signal came to the main thread, which
        handles it and calls again.
        """
        loop = self._loop
        optional_begun = loop.files.optional_begun
        try:
            if self._inbox:
                self._start_inbox()
            if call is not None and self._inbox:
                self.posted += 1
                self._inbox.append(call)  # it keeps its place
            elif call is not None:
                call.begin()
            if loop.operations_in_flight:
                loop.run_pass(0)
            else:
                loop.turn()
            while not (done() or signals.came):
                self._waits = True
                if self._inbox:
                    loop.call_soon(self._start_inbox)
                loop.run_pass(None)
                self._waits = False
            if loop.operations_in_flight and threading.get_ident() not in self._lasting:
                has_optional = loop.files.optional_begun != optional_begun
                self._wait_until(lambda: not loop.operations_in_flight, has_optional=has_optional)
            wait_ns = loop.ns_until_work()
            if loop.operations_in_flight or loop.files.in_threads:
                most_ns = 0 if self._owed_calls else _POLL_NS
                wait_ns = most_ns if wait_ns is None else min(wait_ns, most_ns)
            if self._inbox:
                wait_ns = 0
            self._drove_ns = now_ns = loop.clock.monotonic_ns()
            self._due_ns = NEVER if wait_ns is None else now_ns + wait_ns
        except Exception as error:
            self._fail(error)
            raise _failed(error) from error
        except BaseException as error:
            self._fail(error)
            raise

    def _start_inbox(self) -> None:
        """Begin calls of the inbox, for as long as a pass may take; the next pass begins others."""
        inbox, now_ns = self._inbox, self._loop.clock.monotonic_ns
        until_ns = now_ns() + self._begin_ns if self._begin_ns else NEVER
        while inbox:
            inbox.popleft().begin()
            if now_ns() >= until_ns:
                break

    def _begin_driving(self) -> bool:
        if not self._driving_lock.acquire(blocking=False):
            return False
        self._driving = threading.get_ident()
        if self.quick.is_open:
            self._end_quick()
        return True

    def _end_quick(self) -> None:
        """Publish what was appended without a drive. The log fails if that fails."""
        try:
            self.quick.end()
        except BaseException as error:
            self._fail(error)

    def _quiet_until_ns(self) -> int:
        """Return the time until which appends need no pass; 0: something is due.

        Only the driving thread asks, between two passes.
        """
        loop, now_ns = self._loop, self._loop.clock.monotonic_ns()
        wait_ns = loop.ns_until_work()
        until_ns = NEVER if wait_ns is None else now_ns + wait_ns if wait_ns else 0
        return min(until_ns, self._drove_ns + _LOOK_NS) if loop.operations_in_flight else until_ns

    def _caller(self) -> QuickCaller:
        """Return what appends without a drive need of this driver."""
        loop, clock = self._loop, self._loop.clock
        queues = (self._inbox, self._asleep, self._line, loop.from_threads)
        return QuickCaller(self._driving_lock, self, clock.monotonic_ns, clock.now_ms, queues, self._wake_next_driver)

    def append_held(self, append: Callable[[A, int], R | None], argument: A, thread: int) -> R | None:
        """Make an append of `quick` whose write runs code of Python, with signals held."""
        if not self.quick.is_open:
            return None
        signals.hold(self._loop.ring.wake)
        try:
            return append(argument, thread)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            signals.release()

    def _release_driving(self) -> None:
        self._driving = None
        self._driving_lock.release()

    def _end_driving(self) -> None:
        self._release_driving()
        self._wake_next_driver()

    def _wake_next_driver(self) -> None:
        """Wake one waiting caller to drive, or the maintenance thread for other calls."""
        with contextlib.suppress(IndexError):  # other threads wake some, too
            while self._asleep:
                call = self._asleep.popleft()
                if not (call.answered or call.left):
                    call.give_turn()
                    return
        if self._inbox:
            self.maintenance.stir()
        else:
            self.maintenance.stir_if_due(self._due_ns)

    # --- maintenance -------------------------------------------------------------------------------------------------
    def _maintain(self) -> bool:
        """Drive for a turn as the maintenance thread. Return False if another thread drives.

        If it serves other logs, too, it waits for no disk, because they would wait as long.
        """
        if not self._begin_driving():
            return False
        beside_others = self.maintenance.serves_others
        try:
            if self._refusal is None:
                if beside_others:
                    self._allow_in_place(None)
                self._drive_turn()
        except BaseException as error:
            self._fail(error)
            _log.exception("the log failed while no call was made")
        finally:
            if beside_others:
                self._allow_in_place(self.has_no_waiters)
            self._end_driving()
        return True

    def _drive_turn(self) -> None:
        """Make passes that wait for nothing, until two in a row had no work, or the turn ends.

        The second of these submits what the work before has queued. A pass that was woken has no
        work, either, but the thread would sleep through the next `wake`.
        """
        loop, stats = self._loop, self._loop.stats()
        until_ns = loop.clock.monotonic_ns() + _TURN_NS
        quiet_passes = 0
        while True:
            if self._inbox:
                loop.call_soon(self._start_inbox)
            reaped = stats.completions
            loop.run_pass(0)
            has_work = bool(self._inbox) or loop.ns_until_work() == 0 or not loop.ring.shows_wakes
            quiet_passes = 0 if has_work or stats.completions != reaped else quiet_passes + 1
            self._drove_ns = now_ns = loop.clock.monotonic_ns()
            if quiet_passes == _QUIET_PASSES or now_ns >= until_ns:
                break
        wait_ns = loop.ns_until_work() if quiet_passes == _QUIET_PASSES else 0
        self._due_ns = NEVER if wait_ns is None else now_ns + wait_ns


def closed_log() -> UsageError:
    """Return the error of a call of a log that was closed."""
    return UsageError("this log is closed: open it again")


def called_within() -> UsageError:
    """Return the error for a call made within a pass, where it would have to wait."""
    return UsageError(
        "this log was called from within a call of its own (by a finalizer, a logging handler or a callback): "
        "call it once that has returned, or use append_soon, which does not wait"
    )


def _forked() -> UsageError:
    return UsageError("this log was opened before the fork, and is the parent's: open it in the child")


def _failed(cause: BaseException) -> LogFailedError:
    error = LogFailedError(f"this log failed ({type(cause).__name__}: {cause}): close it and open it again")
    error.__cause__ = cause
    return error


def _doing(do: Callable[[], None]) -> Start[None]:
    """Return the call that only runs `do`."""

    def start(done: Callable[[None], None]) -> None:
        do()
        done(None)

    return start


def _ignore(_outcome: object) -> None:
    pass


def _at_once() -> bool:
    return True
