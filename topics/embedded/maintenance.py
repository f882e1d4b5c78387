"""The thread that drives a log's loop while nobody calls: timers, syncs, checkpoints, and what others left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from topics.clock import Clock
from topics.errors import TopicsError

NEVER = 1 << 63
"""Later than any reading of the clock."""
_BUSY_S = 0.001


class Stirred:
    """A flag that any thread sets and one takes.

    No `threading.Event`: that holds a lock while it makes objects, and the collector may run a finalizer there that
    sets it, too, by an append.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Free while the flag is set."""
        self._lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is
            self._lock.release()

    def take(self, timeout_s: float) -> bool:
        """Waits until it is set, and takes it; False after the time. -1: for ever."""
        return self._lock.acquire(timeout=timeout_s)


class Maintenance:
    """Sleeps until something is due, or until stirred because something is due earlier than it knows.

    due_ns: when it should drive next, as far as known. goes_on: False ends the thread. drive: takes its turn at the
    loop; False when somebody else is at it, who runs the timers too.
    """

    def __init__(
        self, clock: Clock, *, due_ns: Callable[[], int], goes_on: Callable[[], bool], drive: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._due_ns = due_ns
        self._goes_on = goes_on
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
        """Of the thread; None before `start`."""
        return self._thread.ident

    @property
    def runs_here(self) -> bool:
        """Whoever asks is the thread. (Once it has ended, another thread may have its `ident`.)"""
        return threading.get_ident() == self._thread.ident and self._thread.is_alive()

    def stir(self) -> None:
        """There is something to do, or the thread is to end."""
        self._stirred.set()

    def stir_if_due(self, due_ns: int) -> None:
        """The same if it sleeps longer than that."""
        if due_ns < self._sleeping_until_ns:
            self._stirred.set()

    def gather_until(self, due_ns: int) -> None:
        """Has `on_gathered` called at that time or soon after; nobody drives for that."""
        self._gathered_ns = due_ns
        self.stir_if_due(due_ns)

    def join(self) -> None:
        """Waits for the thread, which has nothing more to go on for."""
        self._stirred.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        now_ns = self._clock.monotonic_ns
        while self._goes_on():
            self._sleeping_until_ns = NEVER  # before the look at what is due: whoever sets that now will stir us
            self._sleeping_until_ns = due_ns = min(self._due_ns(), self._gathered_ns)
            self._stirred.take(-1.0 if due_ns == NEVER else max(0.0, (due_ns - now_ns()) / 1e9))
            if self._gathered_ns <= now_ns():
                self._gathered_ns = NEVER
                with contextlib.suppress(TopicsError):  # closed, or broken: whoever asks for a result hears of it
                    self.on_gathered()
            if not self._drive() and self._stirred.take(_BUSY_S):
                self._stirred.set()  # that was for later


def _nothing() -> None:
    pass
