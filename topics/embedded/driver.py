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
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from topics.errors import TopicsError, UsageError
from topics.loop import Loop

R = TypeVar("R")
Start = Callable[[Callable[["R | TopicsError"], None]], object]
"""Begins a call on the engine; its argument takes the result or the error, once."""


NEVER = 1 << 63
"""Later than any reading of the clock."""
_BUSY_S = 0.001
_LOOK_NS = 1_000_000
"""How long callers leave what is in flight alone, before one of them looks for its end."""
_POLL_NS = 2_000_000
"""How often the maintenance thread looks for the end of what a caller left in flight."""


class Call(Generic[R]):
    """One call on its way: made by any thread, started and answered by whichever drives."""

    __slots__ = ("_turn", "answered", "on_answer", "outcome", "start")

    def __init__(self, start: Start[R], on_answer: Callable[[Call[R]], None] | None = None) -> None:
        self.start = start
        self.on_answer = on_answer
        self.outcome: R | BaseException | None = None
        self.answered = False
        self._turn: threading.Lock | None = None

    def answer(self, outcome: R | BaseException) -> None:
        self.outcome = outcome
        self.answered = True
        if self.on_answer is not None:
            self.on_answer(self)
        self.give_turn()

    def prepare_to_sleep(self) -> None:
        self._turn = threading.Lock()
        self._turn.acquire()

    def sleep(self) -> None:
        """Until answered or told to drive."""
        assert self._turn is not None
        self._turn.acquire()

    def give_turn(self) -> None:
        if self._turn is not None:
            with contextlib.suppress(RuntimeError):  # had its turn already
                self._turn.release()

    def result(self) -> R:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # None only until it is answered


class Driver:
    """One loop shared by many threads, one at a time.

    alone: there is no maintenance thread; the one thread there is calls `drive_due` between its calls.
    """

    def __init__(self, loop: Loop, *, alone: bool = False) -> None:
        self._loop = loop
        self._wheel = threading.Lock()
        self._inbox: deque[Call[Any]] = deque()
        self._asleep: deque[Call[Any]] = deque()
        self._stirred = threading.Event()
        self._submitting = threading.Lock()
        self._submitted = 0
        """Calls nobody waits for so far, and how many of them were answered (by whoever drives)."""
        self._answered = 0
        self.on_gathered: Callable[[], None] = _nothing
        self._gathered_ns = NEVER
        self._due_ns = NEVER
        self._sleeping_until_ns = 0
        self._drove_ns = 0
        self._ended = False
        self._over = False
        """Nobody will drive any more."""
        self._failure: BaseException | None = None
        self._maintenance = threading.Thread(target=self._maintain, name="topics-maintenance", daemon=True)
        if not alone:
            self._maintenance.start()
        self._lasting = (threading.main_thread().ident, self._maintenance.ident)
        """Threads that do not end before the log does."""

    def call(self, start: Start[R]) -> R:
        """Runs `start` on the loop and waits for its answer. Raises what it answered with, or UsageError."""
        call: Call[R] = Call(start)
        if self._wheel.acquire(blocking=False):
            try:
                self._check()
                if self._inbox:
                    self._start_inbox()
                self._begin(call)
                self._drive(lambda: call.answered)
            finally:
                self._wheel.release()
                self._hand_over()
            return call.result()
        self._check()
        call.prepare_to_sleep()
        self._inbox.append(call)
        if self._ended:
            self._refuse(self._inbox)
        while not call.answered:
            if self._wheel.acquire(blocking=False):
                try:
                    self._check()
                    self._drive(lambda: call.answered)
                finally:
                    self._wheel.release()
                    self._hand_over()
            else:
                self._asleep.append(call)
                with contextlib.suppress(OSError):  # the ring is closed: see below
                    self._loop.ring.wake()  # the driver may wait for something that is far away, such as a tail
                # Whoever drove may have left between the failed try and the entry above: then nobody would call us.
                if self._wheel.acquire(blocking=False):
                    self._wheel.release()
                    call.give_turn()
                elif self._over:
                    self._refuse(self._asleep)
                call.sleep()
        return call.result()

    def take_alone(self) -> bool:
        """Takes the wheel if nobody has it and nothing is to be done: no calls, no timers, and no look for completions.

        Whoever gets True calls nothing that waits, and gives the wheel back by `leave`. Raises as `call` does.
        """
        if not self._wheel.acquire(blocking=False):
            return False
        loop = self._loop
        now_ns = loop.clock.monotonic_ns()
        if (
            self._failure is None
            and not self._ended
            and not self._inbox
            and loop.is_quiet(now_ns)
            and (not loop.operations_in_flight or now_ns - self._drove_ns < _LOOK_NS)
        ):
            return True
        self._wheel.release()
        self._check()
        return False

    def leave(self, error: BaseException | None = None) -> None:
        """error: what the engine raised, and should not have."""
        if error is not None:
            self._failure = error
            self._fail_everybody(error)
        self._wheel.release()
        self._hand_over()

    def submit(self, start: Start[R], on_answer: Callable[[Call[R]], None]) -> None:
        """Hands a call to the maintenance thread; `on_answer` runs on whichever thread answers it."""
        self._check()
        self._inbox.append(self._owed(start, on_answer))
        if self._ended:
            self._refuse(self._inbox)
            return
        self._stirred.set()
        self._loop.ring.wake()

    def hand_over(self, start: Start[R], on_answer: Callable[[R | BaseException], None]) -> None:
        """Begins a call, on this thread if nobody drives; what can be answered at once is. Waits for nothing more."""
        call = self._owed(start, lambda call: on_answer(call.outcome))  # type: ignore[arg-type]  # answered by then
        if not self._wheel.acquire(blocking=False):
            self._check()
            self._inbox.append(call)
            self._stirred.set()
            self._loop.ring.wake()
            return
        try:
            self._check()
            if self._inbox:
                self._start_inbox()
            self._begin(call)
            self._drive(_at_once)
        finally:
            self._wheel.release()
            self._hand_over()

    def drive_due(self) -> int | None:
        """Runs what is due by now; ns until there is more, None: nothing is planned. Waits for nothing."""
        with self._wheel:
            self._check()
            self._drive(_at_once)
            return self._loop.ns_until_work()

    def gather_until(self, due_ns: int) -> None:
        """Has `on_gathered` called at that time or soon after, by the maintenance thread, which does not drive then."""
        self._gathered_ns = due_ns
        if due_ns < self._sleeping_until_ns:
            self._stirred.set()

    def _owed(self, start: Start[R], on_answer: Callable[[Call[R]], None]) -> Call[R]:
        """A call nobody waits for, counted until it is answered."""

        def on_answered(call: Call[R]) -> None:
            self._answered += 1
            on_answer(call)

        with self._submitting:
            self._submitted += 1
        return Call(start, on_answered)

    def end(self, first: Callable[[], None]) -> None:
        """Runs `first` on the loop (it ends the waits of others), then stops the maintenance thread.

        When this returns nobody drives: the loop is the caller's again. Calls made later are UsageErrors.
        """

        def start(done: Callable[[None], None]) -> None:
            first()
            done(None)

        self.call(start)
        self._ended = True
        self._stirred.set()
        if self._maintenance.ident is not None:
            self._maintenance.join()
        self._wheel.acquire()
        self._refuse(self._inbox)  # not begun: those that are will be answered by what the caller still drives

    def tell_the_rest(self) -> None:
        """After `end`, when the loop is closed as well: whoever was not answered by then will not be."""
        self._over = True
        self._refuse(self._inbox)
        self._refuse(self._asleep)

    @staticmethod
    def _refuse(waiting: deque[Call[Any]]) -> None:
        while waiting:
            call = waiting.popleft()
            if not call.answered:
                call.answer(_closed())

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise _closed()

    def _drive(self, done: Callable[[], bool]) -> None:
        """Passes until `done`, then until no file operation is in flight that ends with the thread. Holds the wheel."""
        loop = self._loop
        try:
            if loop.operations_in_flight:
                loop.run_pass(0)
            else:
                loop.turn()
            while not done():
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
        except BaseException as error:
            if not (isinstance(error, KeyboardInterrupt) and loop.waiting):
                self._failure = error
                self._fail_everybody(error)
            raise

    def _start_inbox(self) -> None:
        inbox = self._inbox
        while inbox:
            self._begin(inbox.popleft())

    @staticmethod
    def _begin(call: Call[Any]) -> None:
        try:
            call.start(call.answer)
        except TopicsError as error:
            call.answer(error)
        except Exception as error:
            if call.answered:
                raise
            call.answer(error)  # what it was asked with: that caller's, and nobody else's

    def _fail_everybody(self, error: BaseException) -> None:
        """An exception out of the loop is a bug of ours; nobody may be left sleeping on it."""
        for waiting in (self._inbox, self._asleep):
            while waiting:
                call = waiting.popleft()
                if not call.answered:
                    call.answer(error)

    def _hand_over(self) -> None:
        """The wheel is free: wakes one caller that still waits, or the maintenance thread for calls without one."""
        while self._asleep:
            call = self._asleep.popleft()
            if not call.answered:
                call.give_turn()
                return
        if self._inbox or self._due_ns < self._sleeping_until_ns:
            self._stirred.set()

    def _is_idle(self) -> bool:
        """Nothing is ready, and nobody is owed an answer that no caller drives for."""
        return not self._inbox and self._submitted == self._answered and self._loop.ns_until_work() != 0

    def _maintain(self) -> None:
        """Sleeps until the next timer, or until stirred because something is due earlier than it knows."""
        while not self._ended:
            self._sleeping_until_ns = NEVER  # before the look at _due_ns: whoever sets that now will stir us
            self._sleeping_until_ns = due_ns = min(self._due_ns, self._gathered_ns)
            timeout_s = None if due_ns == NEVER else max(0.0, (due_ns - self._loop.clock.monotonic_ns()) / 1e9)
            self._stirred.wait(timeout_s)
            self._stirred.clear()
            if self._gathered_ns <= self._loop.clock.monotonic_ns():
                self._gathered_ns = NEVER
                with contextlib.suppress(TopicsError):  # closed, or broken: whoever asks for a result hears of it
                    self.on_gathered()
            if not self._wheel.acquire(blocking=False):
                self._stirred.wait(_BUSY_S)  # whoever drives runs the timers too
                continue
            try:
                if not self._ended:
                    self._drive(self._is_idle)
            except BaseException:
                return
            finally:
                self._wheel.release()
            self._hand_over()


def _closed() -> UsageError:
    return UsageError("this log is closed: open it again")


def _at_once() -> bool:
    return True


def _nothing() -> None:
    pass
