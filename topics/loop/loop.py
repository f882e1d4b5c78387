"""The loop: one thread, one ring, one pass after another.

A pass: submit and wait -> reap -> completions dispatched -> each handler's receives as one batch ->
timers -> ready tasks -> hooks in their order (with the one call that queues all sends). Operations
staged in a pass are submitted with the next one, so a hundred connections cost a few system calls.
A pass whose only completion is a receive offers it to its handler by itself (`receive_single`): it
has nothing to dispatch, and if the handler has done all work in the call, no need of the hooks.
"""

from __future__ import annotations

import bisect
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sized
from enum import IntEnum, auto
from functools import partial
from typing import Any, TypeVar

from topics.clock import Clock
from topics.loop.connection import Connection
from topics.loop.connection_table import ConnectionTable
from topics.loop.doors.datagrams import Datagrams
from topics.loop.doors.departures import Departures
from topics.loop.doors.hand_over_message import pair_message
from topics.loop.doors.listener import Listener
from topics.loop.doors.mailbox import Mailbox
from topics.loop.doors.socket_polls import SocketPolls
from topics.loop.files import Files
from topics.loop.operations import CONTROL, Operations
from topics.loop.ring import F_DATA_AND_MORE, Ring
from topics.loop.senders import ONE_SENDER_PASSES, Senders
from topics.loop.stats import LoopStats
from topics.loop.streams import StreamHandler, StreamLimits
from topics.loop.tasks import Cancelled, Future, MarkedSteps, Task
from topics.loop.timers import Timer, Timers
from topics.loop.traffic import Traffic

log = logging.getLogger(__name__)

T = TypeVar("T")

_SAMPLED = 16
_ROUNDS_MAX = 8
"""Rounds of the hooks in one pass."""
_CLOSE_PASSES_MAX = 1000
_CLOSE_WAIT_NS = 1_000_000
_DEFAULT_LIMITS = StreamLimits()


class PassEnd(IntEnum):
    """The stages of the end of a pass, in their order.

    This is the one place of that order: each hook names its stage, so there are stages here that
    only rooms above the loop have. Within a stage hooks run in the order in which they were added.
    """

    TURNS = auto()
    """Requests, answers and appends that have waited for their turn: they stage work."""
    WAITERS = auto()
    """Waiters of changed topics look again, and the batches of appends take no more rows."""
    COMMITS = auto()
    """The log commits what is staged. Commits in place have ended after this."""
    LOOK = auto()
    """The hooks run once more if the commits have woken readers or routers."""
    ANSWERS = auto()
    """The answers to the writes of the pass are rendered together."""
    RELAYS = auto()
    """Answers for other cores are relayed, once all are there."""
    SENDS = auto()
    """The connections send: one gathered send each."""
    LAST = auto()
    """A look at the heap, for which no answer waits."""


class Loop:
    """Driver of a ring. One thread at a time; other threads may only call `call_soon_threadsafe`.

    on_error(error, where): called with an exception that no code awaits. By default it is logged;
    unless a task raised it, it is raised again at the end of the pass, because the loop's own state
    may be broken (a completion, a handler, a hook).

    one_sender_passes: passes in which a connection must have been the only one to send data, to
    have the loop to itself; or two, by turns, the only ones.
    """

    def __init__(self, ring: Ring, clock: Clock, *, one_sender_passes: int = ONE_SENDER_PASSES) -> None:
        self.ring = ring
        self.clock = clock
        self.on_error: Callable[[BaseException, str], None] = self._log_and_remember
        self._operations = Operations[Connection]()
        self._stats = LoopStats()
        self._senders = Senders(one_sender_passes)
        self._traffic = Traffic(
            ring, self._operations, self._stats, self._report, self.call_later, senders=self._senders
        )
        self.files = Files(ring, self._operations, self.call_soon_threadsafe)
        self._timers = Timers()
        self._ready: deque[Callable[[], None]] = deque()
        self._from_threads: deque[Callable[[], None]] = deque()
        self._tasks: set[Task[Any]] = set()
        self._doors: list[Mailbox | Datagrams | SocketPolls] = []
        """They are closed with the loop."""
        self._hooks: list[Callable[[], None]] = [self._traffic.flush_sends]
        self._stages = [PassEnd.SENDS]
        """The stage of each hook."""
        self._untimed = _SAMPLED - 1
        """Passes that leave nothing to the hooks until the next of them that is timed."""
        self.interruptions = 0
        """A counter that grows whenever anything was handled but receives, one a pass, and sends,
        which all left nothing to do.
        """
        self._turns = 0
        """Number of calls of `turn`."""
        self._again = False
        self._has_completed = False
        """Whether this pass has completions beside receives and sends, or was woken."""
        self._failure: BaseException | None = None
        self._stopped = False
        self._closed = False

    # --- running -----------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Make passes until `stop`."""
        self._stopped = False
        while not self._stopped:
            self.run_pass(None)

    def run_until(self, done: Callable[[], bool]) -> None:
        """Make passes until `done()`, which is called before each of them."""
        while not done():
            self.run_pass(None)

    def run_task(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and its closes to the end; return its result (start-up, tests)."""
        task = self.spawn(coro)
        task.observe()
        self.run_until(lambda: task.done and not self.files.closing)
        return task.result()

    def turn(self) -> None:
        """Run the pass-end hooks now, for a caller that has staged work.

        If other work is ready, it runs a whole pass.

        Work that the end of the pass completes by itself (a commit in place) is done when this
        returns.
        """
        self._turns += 1
        if self._ready or self._from_threads or self._traffic.busy or self._timers.due_by(self.clock.monotonic_ns()):
            self.run_pass(0)
            return
        self.interruptions += 1
        self._run_hooks()
        if self._failure is not None:
            self._raise_failure()

    def random_bytes(self, count: int) -> bytes:
        """Return unpredictable bytes; a simulated ring makes them from its seed."""
        return self.ring.random_bytes(count)

    def is_quiet(self, now_ns: int) -> bool:
        """Return whether nothing is ready, due or queued: a pass could only handle completions."""
        return not (self._ready or self._from_threads or self._traffic.busy or self._timers.due_by(now_ns))

    def stop(self) -> None:
        """End `run` after the pass."""
        self._stopped = True

    def run_pass(self, timeout_ns: int | None) -> None:
        """Make one pass.

        Wait at most `timeout_ns` (None: any time), less if a timer is due or work is ready.
        """
        now = self.clock.monotonic_ns
        started_ns = now()
        wait_ns = self._wait_ns(timeout_ns, started_ns)
        if wait_ns == 0:  # something is due or ready
            self.ring.submit_and_wait(0)
            waited_ns = now()
        else:
            single = self.ring.wait_single(wait_ns)
            waited_ns = now()
            if single is not None:
                is_settled = self._traffic.take_single(single)
                if is_settled is not None:
                    self._end_single(is_settled, started_ns, waited_ns)
                    return
        if self._dispatch():  # else only sends completed, and the loop just waits again
            self._finish_pass(started_ns, waited_ns)

    def _end_single(self, is_settled: bool, started_ns: int, waited_ns: int) -> None:
        """End the pass of one receive, which its handler has taken by itself.

        Such a pass had nothing ready or due when it began. What comes meanwhile is for the next.
        Of those that leave nothing to the hooks, one of `_SAMPLED` is timed, and counts for all.
        """
        stats = self._stats
        stats.completions += 1
        if not is_settled:
            self.interruptions += 1
            now = self.clock.monotonic_ns
            received_ns = now()
            self._run_hooks()
            stats.pass_end.add(now() - received_ns)
            stats.wait.add(waited_ns - started_ns)
            stats.receive.add(received_ns - waited_ns)
        elif self._untimed:
            self._untimed -= 1
        else:
            self._untimed = _SAMPLED - 1
            stats.wait.add_sample(waited_ns - started_ns, _SAMPLED)
            stats.receive.add_sample(self.clock.monotonic_ns() - waited_ns, _SAMPLED)
        stats.passes += 1
        if self._failure is not None:
            self._raise_failure()

    def _finish_pass(self, started_ns: int, waited_ns: int) -> None:
        """Run the stages after the dispatch. A stage without work costs a comparison."""
        now = self.clock.monotonic_ns
        stats = self._stats
        is_settled = self._traffic.deliver() and not self._has_completed
        received_ns = ran_ns = now()
        timers = self._timers
        ready = self._ready
        if self._from_threads:
            ready.extend(self._take_from_threads())
        if ready or timers.due_by(received_ns):
            for fn in timers.due(received_ns):
                self._call(fn, "timer")
            # calls added meanwhile wait for the next pass, so that I/O never starves
            for _ in range(len(ready)):
                self._call(ready.popleft(), "callback")
            ran_ns = now()
            stats.tasks.add(ran_ns - received_ns)
            is_settled = False
        stats.wait.add(waited_ns - started_ns)
        stats.receive.add(received_ns - waited_ns)
        if not is_settled:
            self.interruptions += 1
            self._run_hooks()
            stats.pass_end.add(now() - ran_ns)
        stats.passes += 1
        if self._failure is not None:
            self._raise_failure()

    def _run_hooks(self) -> None:
        """Run all hooks in their order, and again while one of them asks for it (`again`)."""
        for _ in range(_ROUNDS_MAX):
            self._again = False
            hooks = iter(self._hooks)
            while True:
                try:
                    for hook in hooks:
                        hook()
                    break
                except Exception as error:
                    self._report(error, "pass end")
            if not self._again:
                return
        self.another_pass()  # the rest is done there

    def stats(self) -> LoopStats:
        return self._stats

    @property
    def arrivals(self) -> int:
        """Number of receives, and of calls of `turn`, so far: what asked for work from outside."""
        return self._stats.messages_received + self._turns

    @property
    def passes(self) -> int:
        """Number of passes that have ended: the same in all of a pass, its end included."""
        return self._stats.passes

    # --- scheduling --------------------------------------------------------------------------------------------------
    def call_soon(self, fn: Callable[[], None]) -> None:
        """Call `fn` with the ready tasks of this pass, or of the next if those have begun."""
        self._ready.append(fn)

    def call_soon_threadsafe(self, fn: Callable[[], None]) -> None:
        """`call_soon` for other threads and for signal handlers; it ends the wait in progress."""
        self._from_threads.append(fn)
        self.ring.wake()

    def call_later(self, delay_ns: int, fn: Callable[[], None]) -> Timer:
        return self._timers.add(self.clock.monotonic_ns() + max(0, delay_ns), fn)

    def spawn(self, coro: Coroutine[Any, Any, T], name: str = "", *, is_optional: bool = False) -> Task[T]:
        """Start a coroutine with the ready tasks of the next step.

        The task may be awaited or cancelled.
        is_optional: the file operations that it awaits may also end with the thread that submitted
            them, because it tries again after an error. No call of a library waits long for them.
        """
        task = Task(self, MarkedSteps(coro, self.files.mark_optional) if is_optional else coro, name)
        self._tasks.add(task)
        return task

    async def sleep(self, ns: int) -> None:
        future: Future[None] = Future()
        timer = self.call_later(ns, lambda: future.set_result(None))
        try:
            await future
        finally:
            timer.cancel()

    async def done_within(self, future: Future[Any], ns: int) -> bool:
        """Wait for a future, for a time at most; return whether it is done."""
        ended: Future[None] = Future()
        end = partial(ended.set_result, None)
        timer = self.call_later(ns, end)
        future.when_done(end)
        try:
            await ended
        finally:
            timer.cancel()
            future.forget(end)
        return future.done

    def again(self) -> None:
        """Run all hooks again before the pass ends.

        For a hook that called code which may have staged work for hooks before it: otherwise that
        work would wait for a pass that no event might start.
        """
        self._again = True

    def another_pass(self, after_ns: int = 0) -> None:
        """Make another pass, at once or after this time, although nothing may happen.

        For a hook that has left work for the end of that pass: no event announces it.
        """
        if after_ns:
            self.call_later(after_ns, _nothing)
        else:
            self._ready.append(_nothing)

    def next_pass(self) -> Future[None]:
        """Return a future resolved in the next step of tasks, with all operations submitted."""
        future: Future[None] = Future()
        self.call_soon(lambda: future.set_result(None))
        return future

    def on_pass_end(self, fn: Callable[[], None], stage: PassEnd) -> None:
        """Call `fn` at this stage of the end of every pass."""
        at = bisect.bisect_right(self._stages, stage)
        self._stages.insert(at, stage)
        self._hooks.insert(at, fn)

    # --- for threads that drive the loop by turns (embedded logs) ---
    @property
    def operations_in_flight(self) -> int:
        """Operations that the ring has not completed yet. Timers and ready work are not counted."""
        return self._operations.in_flight

    @property
    def from_threads(self) -> Sized:
        """Calls of other threads that the next pass takes."""
        return self._from_threads

    def operations_end(self) -> Callable[[], bool]:
        """Return a call that says whether the file operations in flight now have ended."""
        operations, newest = self._operations, self._operations.newest
        return lambda: not 0 < operations.oldest <= newest

    def ns_until_work(self) -> int | None:
        """Return 0 if work is ready, else the ns until the next timer; None: nothing planned."""
        return self._wait_ns(None, self.clock.monotonic_ns())

    # --- sockets -----------------------------------------------------------------------------------------------------
    def has_one_sender(self) -> bool:
        """Return whether one connection had the loop to itself for some passes.

        No file operation is in flight then.

        The code that answers it may then block for a moment: no other client is known to wait.
        """
        return self._senders.is_one and not self._operations.callbacks

    def has_few_senders(self) -> bool:
        """Return whether one or two connections, never at once, had the loop to themselves.

        Work that takes no longer than a pass may be done in place then: the other connection would
        wait as long for the pass.
        """
        return self._senders.are_few and not self._operations.callbacks

    @property
    def requests_besides_writes(self) -> int:
        """Number of requests so far that waited for no commit: answered as they came, or by a read.

        Those of a connection that has the loop to itself are not counted. (Connections of a pass
        count once, and reads of files once each.)
        """
        return self._traffic.answered_at_once + self.files.reads

    def listen(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        backlog: int = 1024,
        limits: StreamLimits = _DEFAULT_LIMITS,
        *,
        shared: bool = False,
    ) -> Listener:
        """Bind, listen and accept; `shared` as `Ring.listen` has it.

        Raises OSError if the address is not available.
        """
        fd, address = self.ring.listen(host, port, backlog, limits.keepalive_ms, shared=shared)
        return Listener(self.clock, self._traffic, self._traffic.group(handler, limits), fd, address)

    def connect(
        self, host: str, port: int, handler: StreamHandler, limits: StreamLimits = _DEFAULT_LIMITS
    ) -> Future[Connection]:
        """Open a connection.

        `handler.connected` is called, then the future resolves, to OSError on failure.
        """
        future: Future[Connection] = Future()
        streams = self._traffic.group_of(handler, limits)

        def on_connected(res: int) -> None:
            if res < 0:
                future.set_error(OSError(-res, os.strerror(-res), f"{host}:{port}"))
            else:
                future.set_result(self._traffic.open(streams, res, (host, port)))

        self.ring.queue_connect(self._operations.expect(CONTROL, on_connected), host, port)
        return future

    def open_mailbox(self, path: str, listener: Listener, pairs: StreamHandler | None = None) -> Mailbox:
        """Take connections that other loops give away (blocking; start-up only).

        They join those that the listener accepts. pairs: gets the connections of `open_pair` of
        other loops, with the number of each loop as the port of `peer`; None: there are none.
        Raises: OSError, there can be no socket at this path.
        """
        streams = None if pairs is None else self._traffic.group_of(pairs, _DEFAULT_LIMITS)
        mailbox = Mailbox(self.clock, self._traffic, listener.streams, path, streams)
        self._doors.append(mailbox)
        return mailbox

    def open_datagrams(self, path: str, size: int, take: Callable[[int, bytes], None]) -> Datagrams:
        """Take the messages that come to a Unix socket (blocking; start-up only); see `Datagrams`.

        Raises: OSError, there can be no socket at this path.
        """
        datagrams = Datagrams(self._traffic, path, size, take)
        self._doors.append(datagrams)
        return datagrams

    def poll_socket(self, fd: int, name: str, on_ready: Callable[[], bool]) -> SocketPolls:
        """Call back when a socket has something to take, or has ended; it is the loop's from now.

        name: what is waited for, in the log. on_ready: returns whether to wait again.
        """
        polls = SocketPolls(self._traffic, fd, name, on_ready)
        self._doors.append(polls)
        return polls

    def open_pair(self, mailbox: str, number: int, handler: StreamHandler) -> Connection:
        """Return a connection to the loop that has a mailbox, which it takes from there.

        mailbox: the path. number: of this loop, for the other one.
        Raises: OSError, it has no room, no loop has it open, or descriptors have run out.
        """
        traffic = self._traffic
        here, there = self.ring.stream_pair()
        error = -self.ring.send_descriptor(mailbox, there, pair_message(number))
        traffic.close_fd(there)
        if error:
            traffic.close_fd(here)
            raise OSError(error, os.strerror(error), mailbox)
        return traffic.open(traffic.group_of(handler, _DEFAULT_LIMITS), here, ("", number))

    def give_away(
        self, conn: Connection, mailbox: str, unread: Callable[[], bytes], stayed: Callable[[int], None]
    ) -> bool:
        """Begin to give a connection to the loop that has a mailbox, at the start of a request.

        False: it cannot be, because it has something to send, or another loop gave it here before.
        What is received meanwhile may come in the same batch, and is kept for `unread`. It ends
        here with `lost(conn, 0)`, or has to continue here with `stayed`.

        mailbox: the path. unread(): called once; the bytes that were received and are not handled.
        stayed(errno): nothing was sent. Reading resumes after it, unless it was paused before.
        """
        return self._traffic.departures.begin(conn, mailbox, unread, stayed)

    @property
    def departures(self) -> Departures:
        """The connections that were given away, or that could not be, as counts."""
        return self._traffic.departures

    def use_connection_table(self) -> ConnectionTable:
        """Return the connection table. Call this before the first connection."""
        table = self._traffic.table
        if table is None:
            assert not self._traffic.connections(), "connections without a row"
            table = self._traffic.table = ConnectionTable(self.ring, self._stats)
        return table

    def pinned(self) -> dict[int, int]:
        """Return the memory that sends in flight hold beyond their own bytes, by `send_data`.

        Answers of a pass share one buffer, and small sends of a pass are copied together: one
        client that reads nothing holds all of it.
        """
        table = self._traffic.table
        return self.ring.pinned() if table is None else self.ring.pinned() | table.pinned()

    def trim(self) -> None:
        """Free memory that many sends in flight have needed and that is idle now."""
        if self._traffic.table is not None:
            self._traffic.table.trim()

    # --- ending ------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Cancel tasks, abort connections, wait a bounded time; close files and the ring."""
        if self._closed:
            return
        self._closed = True
        self._timers.clear()  # no new work begins: it would use what is closed now
        for task in list(self._tasks):
            task.cancel()
        for door in self._doors:
            door.stop_accepting()
        for listener in set(self._operations.accepting.values()):
            listener.stop_accepting()
        for conn in self._traffic.connections():
            conn.abort()
        try:
            self._run_out()
            self.files.close_leftovers()
            self._run_out()
        finally:
            self.ring.close()

    def _run_out(self) -> None:
        for _ in range(_CLOSE_PASSES_MAX):
            if not (self._operations.in_flight or self._tasks or self._ready):
                break
            self.run_pass(_CLOSE_WAIT_NS)

    # --- inside ------------------------------------------------------------------------------------------------------
    def _wait_ns(self, timeout_ns: int | None, now_ns: int) -> int | None:
        """Return the longest time of the next wait, in ns; None: no limit."""
        traffic = self._traffic
        if self._ready or self._from_threads or traffic.busy or self._stopped:
            return 0
        due_ns = self._timers.next_due_ns()
        if due_ns is None:
            return timeout_ns
        until_due_ns = max(0, due_ns - now_ns)
        return until_due_ns if timeout_ns is None else min(timeout_ns, until_due_ns)

    def _dispatch(self) -> bool:
        """Pass every completion to its owner. Receives are collected for `deliver`.

        Returns: False if all were sends that left no work, and the ring was not woken.
        """
        table = self._traffic.table
        columns = self.ring.reap() if table is None else table.reap()
        count = len(columns[0]) if table is None else table.reaped
        self._stats.completions += count
        more_to_do = count == 0
        rows = zip(*columns, strict=True)
        operations = self._operations
        receiving = operations.receiving
        sending_get = operations.sending.get
        callbacks = operations.callbacks
        received = self.ring.received
        used = self._traffic.used
        while True:
            try:
                for user_data, res, flags in rows:
                    if flags & F_DATA_AND_MORE == F_DATA_AND_MORE:
                        conn = receiving[user_data]
                        conn.inbox.append((conn, received(flags, res)))
                        used.append(flags)
                    elif (sender := sending_get(user_data)) is not None:
                        if res == sender.expected:
                            sender.expected = 0
                            sender.flying = None
                        else:
                            more_to_do = True
                            sender.on_sent(res)
                    else:
                        more_to_do = True
                        if user_data in callbacks:
                            callbacks.pop(user_data)(res)
                        elif user_data in receiving:
                            self._traffic.on_receive_without_more(user_data, res, flags)
                        else:
                            operations.accepting[user_data].on_completion(res, flags)
                self._has_completed = more_to_do
                has_rows = table is not None and table.count != 0
                has_work = bool(more_to_do or has_rows or self._ready or self._from_threads) or self._traffic.busy
                if has_work or len(used) > 1:
                    self.interruptions += 1
                return has_work or bool(used)
            except Exception as error:
                self._report(error, "completion")

    def _call(self, fn: Callable[[], None], where: str) -> None:
        try:
            fn()
        except Exception as error:
            self._report(error, where)

    def _take_from_threads(self) -> list[Callable[[], None]]:
        """Return the calls that other threads added; they may append meanwhile."""
        taken = []
        while self._from_threads:
            taken.append(self._from_threads.popleft())
        return taken

    def on_task_end(self, task: Task[Any], *, observed: bool) -> None:
        """Report a task's exception that no code awaits; a cancel is no error."""
        self._tasks.discard(task)
        error = task.error
        if error is not None and not observed and not isinstance(error, Cancelled):
            self._report(error, f"task {task.name}")

    def _report(self, error: BaseException, where: str) -> None:
        self._stats.callback_errors += 1
        self.on_error(error, where)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        assert failure is not None, "nothing has failed"
        raise failure

    def _log_and_remember(self, error: BaseException, where: str) -> None:
        log.error("unhandled exception in %s", where, exc_info=error)
        if not where.startswith("task ") and self._failure is None:
            self._failure = error


def _nothing() -> None:
    """Do nothing: that it is ready, or due, has begun a pass."""
