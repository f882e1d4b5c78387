"""Whose thread runs the loop: the caller's own, while it waits.

A hop to another thread costs more than a commit, so a caller that finds nobody driving drives the loop itself until
its call is answered. Calls that arrive meanwhile go through the inbox; their threads sleep, the driver starts them at
its next pass, and so they become the next group commit. Who leaves hands the wheel to one that is still waiting.

io_uring ends what a thread submitted when that thread ends. So a driver leaves only when the kernel is done with every
file operation in flight, unless its thread outlives the log: the main thread, and the maintenance thread, which drives
while nobody calls (timers, background syncs, checkpoints, what others left in flight) and for callers that cannot wait,
such as asyncio's.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from topics.embedded.calls import PendingCall, Start
from topics.embedded.interrupts import signals
from topics.embedded.maintenance import NEVER, Maintenance
from topics.errors import LogFailedError, TopicsError, UsageError
from topics.loop import Loop

A = TypeVar("A")
R = TypeVar("R")

_log = logging.getLogger("topics.embedded")

_LOOK_NS = 1_000_000
"""How long callers leave what is in flight alone, before one of them looks for its end."""
_POLL_NS = 2_000_000
"""How often the maintenance thread looks for the end of what a caller left in flight."""


class Driver:
    """One loop shared by many threads, one at a time.

    alone: there is no maintenance thread; the one thread there is calls `drive_due` between its calls.

    state    `_refusal`   `_over`  drives                  a call, and who sleeps
    open     None         False    whoever calls           is begun
    ended    UsageError   False    who called `end`        gets it; those begun before may still be answered
    over     UsageError   True     nobody                  gets it
    failed   LogFailed..  False    nobody                  gets it: an exception nobody expected came out of a pass
    forked   UsageError   False    nobody, in the child    gets it: the parent's loop goes on
    """

    def __init__(self, loop: Loop, *, alone: bool = False) -> None:
        self._loop = loop
        self._wheel = threading.Lock()
        self._inbox: deque[PendingCall[Any]] = deque()
        """Calls to be begun by whoever drives."""
        self._asleep: deque[PendingCall[Any]] = deque()
        """Calls whose threads sleep, to be told to drive."""
        self._submitting = threading.Lock()
        self._submitted = 0
        """Calls nobody waits for so far, and how many of them were answered (by whoever drives)."""
        self._answered = 0
        self._due_ns = NEVER
        self._drove_ns = 0
        self._driving: int | None = None
        """The thread that has the wheel."""
        self._refusal: Callable[[], TopicsError] | None = None
        self._over = False
        self.maintenance = Maintenance(
            loop.clock, due_ns=lambda: self._due_ns, goes_on=lambda: self._refusal is None, drive=self._maintain
        )
        if not alone:
            self.maintenance.start()
        self._lasting = (threading.main_thread().ident, self.maintenance.ident)
        """Threads that do not end before the log does."""

    # --- calls -------------------------------------------------------------------------------------------------------
    def call(self, start: Start[R]) -> R:
        """Runs `start` on the loop and waits for its answer. Raises what it answered with, or what `_refusal` makes.

        What a signal's handler raises leaves the call to the others; it is done all the same, perhaps.
        """
        call: PendingCall[R] = PendingCall(start)
        signals.hold(self._loop.ring.wake)
        try:
            if self._take_wheel():
                try:
                    self._check()
                    self._drive(lambda: call.answered, call)
                finally:
                    self._give_wheel()
            elif self.drives_here:
                raise called_within()
            else:
                self._post(call)
        finally:
            signals.release()
        while not call.answered:
            self._wait(call)
        return call.result()

    def submit(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> None:
        """Leaves a call to whoever drives, or to the maintenance thread; `on_answer` runs on that thread."""
        signals.hold(self._loop.ring.wake)
        try:
            self._check()
            self._post_owed(self._owed(start, on_answer))
        finally:
            signals.release()

    def hand_over(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> None:
        """`submit`, but begun on this thread if nobody drives; what can be answered at once is. Waits for nothing."""
        signals.hold(self._loop.ring.wake)
        try:
            self._check()
            call = self._owed(start, on_answer)
            if not self._take_wheel():
                self._post_owed(call)
                return
            try:
                self._check()
                self._drive(_at_once, call)
            finally:
                self._give_wheel()
        finally:
            signals.release()

    def run_alone(self, do: Callable[[A], R | None], argument: A) -> R | None:
        """`do(argument)` in one go if nobody has the wheel and nothing is to be done: no calls, no timers, and no look
        for completions. None: something is, or that is what `do` returned.

        `do` waits for nothing. Raises as `call` does; what `do` raises and is no TopicsError ends the log.
        """
        loop = self._loop
        signals.hold(loop.ring.wake)
        try:
            if not self._take_wheel():
                return None
            now_ns = loop.clock.monotonic_ns()
            if not (
                self._refusal is None
                and not self._inbox
                and loop.is_quiet(now_ns)
                and (not loop.operations_in_flight or now_ns - self._drove_ns < _LOOK_NS)
            ):
                self._release_wheel()
                self._check()
                return None
            try:
                return do(argument)
            except TopicsError:
                raise
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._give_wheel()
        finally:
            signals.release()

    def drive_due(self) -> int | None:
        """Runs what is due by now; ns until there is more, None: nothing is planned. Waits for nothing.

        What is in flight counts as planned, for a timer's operation is submitted by the next pass.
        """
        with self._wheel:
            self._driving = threading.get_ident()
            try:
                self._check()
                self._drive(_at_once)
            finally:
                self._driving = None
            return None if self._due_ns == NEVER else self._due_ns - self._drove_ns

    @property
    def drives_here(self) -> bool:
        """This thread is in the midst of a pass: whoever calls was called from within, and can wait for nothing."""
        return self._driving == threading.get_ident()

    # --- ending ------------------------------------------------------------------------------------------------------
    def end(self, first: Callable[[], None]) -> None:
        """Runs `first` on the loop (it ends the waits of others), then stops the maintenance thread.

        When this returns or raises nobody drives: the loop is the caller's again. Calls made later are refused.
        """

        def start(done: Callable[[None], None]) -> None:
            first()
            done(None)

        try:
            self.call(start)
        finally:
            if self._refusal is None:
                self._refusal = _closed
            self.maintenance.join()
            self._wheel.acquire()
            self._refuse(self._inbox)  # not begun: those that are will be answered by what the caller still drives

    def tell_the_rest(self) -> None:
        """After `end`, when the loop is closed as well: whoever was not answered by then will not be."""
        self._over = True
        self._refuse(self._inbox)
        self._refuse(self._asleep)

    def disown(self) -> None:
        """In a forked child, which has none of the threads: all calls are refused from now on."""
        self._refusal = _forked
        self._wheel = threading.Lock()
        self._driving = None
        self._inbox.clear()
        self._asleep.clear()

    def _fail(self, error: BaseException) -> None:
        """An exception nobody expected left a pass half done; nobody may be left sleeping on it."""
        self._refusal = lambda: _failed(error)
        self.maintenance.stir()
        self._refuse(self._inbox)
        self._refuse(self._asleep)

    def _refuse(self, waiting: deque[PendingCall[Any]]) -> None:
        assert self._refusal is not None, "calls are begun"
        while waiting:
            with contextlib.suppress(IndexError):  # another thread refuses them, too
                call = waiting.popleft()
                if not call.answered:
                    call.answer(self._refusal())

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    # --- inside ------------------------------------------------------------------------------------------------------
    def _wait(self, call: PendingCall[Any]) -> None:
        """Drives, and sleeps while others do, until the call is answered or a signal came.

        A signal's handler may raise, and so end the wait. It is called once nothing is owed to others any more: this
        thread may have been told to drive, and others sleep until one of them is.
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
                    self._hand_over()
            finally:
                signals.release()

    def _wake(self, call: PendingCall[Any]) -> None:
        """Ends the pass that this thread waits in, or its sleep."""
        call.give_turn()
        with contextlib.suppress(OSError):  # the ring is closed
            self._loop.ring.wake()

    def _drive_for(self, call: PendingCall[Any]) -> bool:
        """False: somebody else drives, and `call` may sleep."""
        if self._take_wheel():
            try:
                self._check()
                self._drive(lambda: call.answered)
            finally:
                self._give_wheel()
            return True
        call.prepare_to_sleep()
        if call.answered:
            return True
        self._asleep.append(call)
        with contextlib.suppress(OSError):  # the ring is closed: see below
            self._loop.ring.wake()  # the driver may wait for something that is far away, such as a tail
        # Whoever drove may have left between the failed try and the entry above: then nobody would call us.
        if self._wheel.acquire(blocking=False):
            self._wheel.release()
            call.give_turn()
        elif self._over:
            self._refuse(self._asleep)
        return False

    def _post(self, call: PendingCall[Any]) -> None:
        """Into the inbox, which whoever drives looks at. Raises as `call` does."""
        self._check()
        self._inbox.append(call)
        if self._refusal is not None:  # since then
            self._refuse(self._inbox)

    def _post_owed(self, call: PendingCall[Any]) -> None:
        """The same for a call nobody waits for: the maintenance thread drives if nobody does."""
        self._post(call)
        self.maintenance.stir()
        self._loop.ring.wake()

    def _owed(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> PendingCall[R]:
        """A call nobody waits for, counted until it is answered."""

        def on_answered(call: PendingCall[R]) -> None:
            self._answered += 1
            on_answer(call.outcome)  # type: ignore[arg-type]  # answered by then

        with self._submitting:
            self._submitted += 1
        return PendingCall(start, on_answered)

    def _drive(self, done: Callable[[], bool], call: PendingCall[Any] | None = None) -> None:
        """Begins `call`; passes until `done`, then until no operation is in flight that ends with the thread.

        Holds the wheel. Ends early when a signal came to the main thread, which lets it through and calls again.
        """
        loop = self._loop
        try:
            if call is not None:
                if self._inbox:
                    self._start_inbox()
                call.begin()
            if loop.operations_in_flight:
                loop.run_pass(0)
            else:
                loop.turn()
            while not (done() or signals.came):
                if self._inbox:
                    loop.call_soon(self._start_inbox)
                loop.run_pass(None)
            if loop.operations_in_flight and threading.get_ident() not in self._lasting:
                while loop.operations_in_flight:
                    loop.run_pass(None)
            wait_ns = loop.ns_until_work()
            if loop.operations_in_flight:
                most_ns = 0 if self._submitted != self._answered else _POLL_NS
                wait_ns = most_ns if wait_ns is None else min(wait_ns, most_ns)
            self._drove_ns = now_ns = loop.clock.monotonic_ns()
            self._due_ns = NEVER if wait_ns is None else now_ns + wait_ns
        except Exception as error:
            self._fail(error)
            raise _failed(error) from error
        except BaseException as error:
            self._fail(error)
            raise

    def _start_inbox(self) -> None:
        inbox = self._inbox
        while inbox:
            inbox.popleft().begin()

    def _take_wheel(self) -> bool:
        if not self._wheel.acquire(blocking=False):
            return False
        self._driving = threading.get_ident()
        return True

    def _release_wheel(self) -> None:
        self._driving = None
        self._wheel.release()

    def _give_wheel(self) -> None:
        self._release_wheel()
        self._hand_over()

    def _hand_over(self) -> None:
        """The wheel is free: wakes one caller that still waits, or the maintenance thread for calls without one."""
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
        """The maintenance thread's turn; False when somebody else drives."""
        if not self._take_wheel():
            return False
        try:
            if self._refusal is None:
                self._drive(self._is_idle)
        except BaseException:
            _log.exception("the log failed while nobody called it")
        finally:
            self._give_wheel()
        return True

    def _is_idle(self) -> bool:
        """Nothing is ready, and nobody is owed an answer that no caller drives for."""
        return not self._inbox and self._submitted == self._answered and self._loop.ns_until_work() != 0


def _closed() -> UsageError:
    return UsageError("this log is closed: open it again")


def called_within() -> UsageError:
    """For who is called on the thread that drives, in the midst of a pass, and would have to wait."""
    return UsageError("this log was called from within a call of its own (by a finalizer, or a logging handler)")


def _forked() -> UsageError:
    return UsageError("this log was opened before the fork, and is the parent's: open it in the child")


def _failed(cause: BaseException) -> LogFailedError:
    error = LogFailedError(f"this log failed ({type(cause).__name__}: {cause}): close it and open it again")
    error.__cause__ = cause
    return error


def _at_once() -> bool:
    return True
