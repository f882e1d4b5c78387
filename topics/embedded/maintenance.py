"""The thread that drives a log's loop while there are no calls.

It runs timers, syncs, checkpoints, and operations that callers left in flight.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from topics.clock import Clock
from topics.errors import TopicsError

NEVER = 1 << 63
"""A time later than any reading of the clock."""
_BUSY_S = 0.001


class Stirred:
    """A flag that any thread sets and one takes.

    `threading.Event` does not serve: it holds a lock while it makes objects, and the collector may
    run a finalizer there that sets the flag, too, by an append.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Lock that is free while the flag is set."""
        self._lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is set
            self._lock.release()

    def take(self, timeout_s: float) -> bool:
        """Wait until the flag is set, and take it. Return False after the time. -1: forever."""
        return self._lock.acquire(timeout=timeout_s)


class Maintenance:
    """A thread that sleeps until work is due, or it is stirred for earlier work.

    due_ns: returns when it should drive next, as far as known. continues: returns False to end the
    thread. drive: takes its turn at the loop; returns False if another thread drives, which runs
    the timers too.
    """

    def __init__(
        self, clock: Clock, *, due_ns: Callable[[], int], continues: Callable[[], bool], drive: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._due_ns = due_ns
        self._continues = continues
        self._drive = drive
        self._stirred = Stirred()
        self._sleeping_until_ns = 0
        self._gathered_ns = NEVER
        self.on_gathered: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._run, name="topics-maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """Id of the thread; None before `start`."""
        return self._thread.ident

    @property
    def runs_here(self) -> bool:
        """Whether the calling thread is this one.

        (Once it has ended, another may have its `ident`.)
        """
        return threading.get_ident() == self._thread.ident and self._thread.is_alive()

    def stir(self) -> None:
        """Wake the thread because there is work, or because it is to end."""
        self._stirred.set()

    def stir_if_due(self, due_ns: int) -> None:
        """Wake the thread if it sleeps longer than `due_ns`."""
        if due_ns < self._sleeping_until_ns:
            self._stirred.set()

    def gather_until(self, due_ns: int) -> None:
        """Have `on_gathered` called at that time or soon after, without driving the loop."""
        self._gathered_ns = due_ns
        self.stir_if_due(due_ns)

    def gather_within(self, ns: int) -> None:
        """Have this thread drive after so long, unless it will before."""
        if self._gathered_ns == NEVER:
            self.gather_until(self._clock.monotonic_ns() + ns)

    def join(self) -> None:
        """Wait for the thread, which has no reason to continue."""
        self._stirred.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        now_ns = self._clock.monotonic_ns
        while self._continues():
            # before `due_ns` is read: a thread that changes it now will stir this one
            self._sleeping_until_ns = NEVER
            self._sleeping_until_ns = due_ns = min(self._due_ns(), self._gathered_ns)
            self._stirred.take(-1.0 if due_ns == NEVER else max(0.0, (due_ns - now_ns()) / 1e9))
            if self._gathered_ns <= now_ns():
                self._gathered_ns = NEVER
                # closed, or broken: callers that ask for a result get the error
                with contextlib.suppress(TopicsError):
                    self.on_gathered()
            if not self._drive() and self._stirred.take(_BUSY_S):
                self._stirred.set()  # it was set for later


def _nothing() -> None:
    pass
