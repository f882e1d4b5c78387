"""The thread that drives the loops of all open logs while no call does.

It runs timers, syncs, checkpoints, operations that callers left in flight, and calls without a
waiting caller. There is one for all logs of a process: logs take turns of a few milliseconds, and
between turns the thread waits for all of their rings at once.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import threading
from collections import deque
from collections.abc import Callable

from topics.clock import Clock, SystemClock
from topics.errors import TopicsError

NEVER = 1 << 63
"""A time later than any reading of the clock."""
_BUSY_NS = 1_000_000


class _SharedThread:
    """The thread, from the first open log to the last one's close.

    Its two descriptors stay. Any thread may stir it, also a finalizer in the midst of a call of
    this class, so what `stir` uses has no lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Held for the members and the thread's start and end.

        No turn takes it: a finalizer that runs while it is held may close a log, which waits for
        the turn of that log.
        """
        self._members: dict[int, Maintenance] = {}
        """By descriptor of the ring."""
        self.thread: threading.Thread | None = None
        self._stirred: deque[Maintenance] = deque()
        self._wake_fd = -1
        self._epoll: select.epoll | None = None

    def add(self, member: Maintenance) -> None:
        """Give a log its turns. Raises: OSError, RuntimeError (no thread), and it is not added."""
        with self._lock:
            epoll = self._epoll or self._made_epoll()
            self._start_thread()
            # a thread that was started for a member that cannot be registered ends by itself
            epoll.register(member.ready_fd, select.EPOLLONESHOT)
            self._members[member.ready_fd] = member
            for each in list(self._members.values()):
                each.thread = self.thread

    def _made_epoll(self) -> select.epoll:
        """Return a new epoll, which wakes for `_wake`. Called with the lock, as `_start_thread` is.

        A finalizer that runs in any call may add a log itself. What that has made is taken.
        """
        wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            epoll = select.epoll()
            epoll.register(wake_fd, select.EPOLLIN)
        except BaseException:
            os.close(wake_fd)
            raise
        if self._epoll is None:
            self._wake_fd, self._epoll = wake_fd, epoll
        else:
            os.close(wake_fd)
        return self._epoll

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="topics-maintenance", daemon=True)
        if self.thread is not None:
            return
        self.thread = thread
        try:
            thread.start()
        except BaseException:
            self.thread = None
            raise

    def remove(self, member: Maintenance) -> None:
        with self._lock:
            if self._members.get(member.ready_fd) is not member:
                return
            del self._members[member.ready_fd]
            assert self._epoll is not None, "it has had a member"
            self._epoll.unregister(member.ready_fd)
            is_last = not self._members
        if is_last:
            self._wake()

    @property
    def is_shared(self) -> bool:
        """Whether it serves several logs now."""
        return len(self._members) > 1

    def stir(self, member: Maintenance) -> None:
        """Give a log a turn soon."""
        self._stirred.append(member)
        self._wake()

    def arm(self, member: Maintenance) -> None:
        """Give a log a turn once its ring has completions.

        Called in a turn of the log, so its ring is open until that turn has ended.
        """
        if self._members.get(member.ready_fd) is member and self._epoll is not None:
            with contextlib.suppress(FileNotFoundError):  # removed by another thread
                self._epoll.modify(member.ready_fd, select.EPOLLIN | select.EPOLLONESHOT)

    def close(self) -> None:
        """Release the descriptors, in a forked child."""
        if self._epoll is not None:
            self._epoll.close()
            os.close(self._wake_fd)

    def _wake(self) -> None:
        if self._wake_fd >= 0:
            os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        turns: deque[Maintenance] = deque()
        # A heap by time; an entry that its log has replaced by another is passed over
        planned: list[tuple[int, int, Maintenance]] = []
        now_ns, number = SystemClock().monotonic_ns, 0
        while True:
            while self._stirred:
                member = self._stirred.popleft()
                member.is_stirred = False
                turns.append(member)
            while planned and planned[0][0] <= now_ns():
                due_ns, _number, member = heapq.heappop(planned)
                if member.planned_ns == due_ns:
                    member.planned_ns = NEVER
                    turns.append(member)
            if not turns:
                with self._lock:
                    if not self._members:
                        self.thread = None
                        return
                self._sleep(planned[0][0] - now_ns() if planned else None, turns)
                continue
            member = turns.popleft()
            due_ns = member.take_turn()
            if due_ns != member.planned_ns:
                member.planned_ns, number = due_ns, number + 1
                if due_ns != NEVER:
                    heapq.heappush(planned, (due_ns, number, member))

    def _sleep(self, wait_ns: int | None, turns: deque[Maintenance]) -> None:
        epoll = self._epoll
        assert epoll is not None, "it runs"
        for fd, _event in epoll.poll(None if wait_ns is None else max(0, wait_ns) / 1e9):
            member = self._members.get(fd)
            if member is not None:
                turns.append(member)
            elif fd == self._wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)


_shared = _SharedThread()


def _begin_anew() -> None:
    """Have a thread of its own in a forked child, which has neither this one nor its logs."""
    global _shared  # noqa: PLW0603 - another thread may have held its lock
    _shared.close()
    _shared = _SharedThread()


os.register_at_fork(after_in_child=_begin_anew)


class Maintenance:
    """One log's part of the thread, which sleeps until work is due, or it is stirred for some.

    ready_fd: the ring's descriptor, see `Ring`. due_ns: returns when it should drive next, as far
    as known. continues: returns False once it is not to drive any more. drive: takes a turn at the
    loop; returns whether it did, and not another thread, which runs the timers too. waits: returns
    whether the ring will say that something has ended: an operation, or a call in another thread.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ready_fd: int,
        due_ns: Callable[[], int],
        continues: Callable[[], bool],
        drive: Callable[[], bool],
        waits: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self.ready_fd = ready_fd
        self._due_ns = due_ns
        self._continues = continues
        self._drive = drive
        self._waits = waits
        self._turn = threading.RLock()
        """Held in a turn."""
        self.is_stirred = False
        self.planned_ns = NEVER
        """Time of the next turn in the thread's heap."""
        self.sleeping_until_ns = NEVER
        self._gathered_ns = NEVER
        self._on_gathered: Callable[[], None] = _nothing
        self.thread: threading.Thread | None = None
        """The thread, once it serves this log."""

    def start(self) -> None:
        _shared.add(self)

    @property
    def ident(self) -> int | None:
        """Id of the thread; None before `start`."""
        return None if self.thread is None else self.thread.ident

    @property
    def serves_others(self) -> bool:
        """Whether the thread serves other logs, too."""
        return _shared.is_shared

    @property
    def turns_here(self) -> bool:
        """Whether the calling thread is in a turn of this log."""
        return self._turn._is_owned()  # type: ignore[attr-defined,no-any-return]

    @property
    def runs_here(self) -> bool:
        """Whether the calling thread is this one.

        (Once it has ended, another may have its `ident`.)
        """
        return self.thread is threading.current_thread()

    def stir(self) -> None:
        """Wake the thread because there is work."""
        if self.thread is not None and not self.is_stirred:
            self.is_stirred = True
            _shared.stir(self)

    def stir_if_due(self, due_ns: int) -> None:
        """Wake the thread if it sleeps longer than `due_ns`."""
        if due_ns < self.sleeping_until_ns:
            self.stir()

    def gather_until(self, due_ns: int, on_gathered: Callable[[], None]) -> None:
        """Have `on_gathered` called at that time or soon after, in a turn of this thread.

        If the thread sleeps longer than that, it takes a turn at once to learn the time. A turn
        drives the loop.
        """
        self._on_gathered = on_gathered
        self._gathered_ns = due_ns
        self.stir_if_due(due_ns)

    def gather_within(self, ns: int) -> None:
        """Have this thread drive after so long, unless it will before."""
        if self._gathered_ns == NEVER:
            self.gather_until(self._clock.monotonic_ns() + ns, self._on_gathered)

    def join(self) -> None:
        """Return when the thread takes no turn any more; it has no reason to."""
        with self._turn:
            self.thread = None

    def leave(self) -> None:
        """Need the thread no longer, after `join`.

        If it serves no other log it ends, and with it the operations that it has submitted.
        """
        _shared.remove(self)

    def take_turn(self) -> int:
        """Drive, if this log still has a reason to. Return the time of the next turn."""
        with self._turn:
            if self.thread is None or not self._continues():
                return NEVER
            now_ns = self._clock.monotonic_ns
            if self._gathered_ns <= now_ns():
                self._gathered_ns = NEVER
                # closed, or broken: callers that ask for a result get the error
                with contextlib.suppress(TopicsError):
                    self._on_gathered()
            least_ns = 0
            if not self._drive():
                least_ns = now_ns() + _BUSY_NS
            elif self._waits():
                _shared.arm(self)
            # before `due_ns` is read: a thread that changes it now will stir this one
            self.sleeping_until_ns = NEVER
            due_ns = min(self._due_ns(), self._gathered_ns)
            self.sleeping_until_ns = due_ns = due_ns if due_ns == NEVER else max(due_ns, least_ns)
            return due_ns


def _nothing() -> None:
    pass
