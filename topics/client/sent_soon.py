"""`append_soon` of a client: records of all threads, gathered and sent over one connection.

A thread of the client sends one batch after the other, so the records of a topic keep their order.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from topics.client import server_calls as calls
from topics.client.attempts import ServerCall, closed
from topics.client.client_options import ClientOptions, new_key
from topics.common.values import arguments
from topics.common.values.answers import AppendResult
from topics.common.values.record_json import bytes_of, encoded
from topics.common.values.written import BYTES_TYPES
from topics.errors import NoAnswerError, RequestError, UsageError

_REFUSES_ALL = {"record_too_large", "batch_too_large", "topic_full", "payload_too_large", "invalid_request"}
"""Codes of a refusal that may concern only some records of a batch."""


class ClientPending:
    """A record that is on its way (`Client.append_soon`). Any thread may ask it. See `Pending`."""

    __slots__ = ("_future", "_hurry")

    def __init__(self, future: Future[int], hurry: Callable[[], None]) -> None:
        """hurry: makes the sending thread send what it has gathered, without waiting for more."""
        self._future = future
        self._hurry = hurry

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> int:
        arguments.optional_milliseconds("timeout", timeout)
        self._hurry()
        try:
            return self._future.result(timeout)
        except TimeoutError:
            if self._future.done():
                raise
            raise arguments.timed_out("append", timeout) from None

    def add_done_callback(self, fn: Callable[[ClientPending], object]) -> None:
        """Call `fn` with this object once there is a result, or now; it must not wait."""
        if not callable(fn):
            raise UsageError(f"fn is {arguments.shown(fn)}: use a function that takes the pending record")
        self._future.add_done_callback(lambda _future: fn(self))

    def __await__(self) -> Generator[Any, None, int]:
        self._hurry()
        return asyncio.wrap_future(self._future).__await__()


class _Waiting(NamedTuple):
    """A record that was given to `append_soon` and waits, with the future of its seq."""

    data: bytes
    is_json: bool
    future: Future[int]


class RecordGatherer:
    """The records of one client that wait to be sent."""

    def __init__(self, options: ClientOptions, run: Callable[[ServerCall[AppendResult]], AppendResult]) -> None:
        """run: makes a call to the server and returns its answer; it blocks until then."""
        self._options = options
        self._run = run
        self._changed = threading.Condition()
        self._topics: dict[str, deque[_Waiting]] = {}
        self._count = 0
        self._in_hurry = False
        self._ends = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def _renew_after_fork(self) -> None:
        """Begin anew in a forked child: it has no thread, and what was gathered is its parent's."""
        if self._pid != os.getpid():
            self._changed, self._topics, self._count, self._in_hurry = threading.Condition(), {}, 0, False
            self._thread, self._pid = None, os.getpid()

    def add(self, topic: str, value: object) -> ClientPending:
        arguments.encoded("topic", topic)
        arguments.plain_value(value)
        is_json = not isinstance(value, BYTES_TYPES)
        data = encoded(value) if is_json else bytes_of(value)  # type: ignore[arg-type]  # bytes
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # a cancelled await does not take the record back
        self._renew_after_fork()
        may_wait = self._thread is not threading.current_thread()  # else it waits for itself
        with self._changed:
            while may_wait and self._count >= self._options.gather_waiting and not self._ends:
                self._in_hurry = True
                self._changed.notify_all()
                self._changed.wait()
            if self._ends:
                raise closed()
            self._topics.setdefault(topic, deque()).append(_Waiting(data, is_json, future))
            self._count += 1
            if self._thread is None:
                thread = threading.Thread(target=self._send_all, name="topics-append-soon", daemon=True)
                thread.start()
                self._thread = thread
            if self._count in {1, self._options.gather_records}:
                self._changed.notify_all()
        return ClientPending(future, self._hurry)

    def _hurry(self) -> None:
        self._renew_after_fork()
        with self._changed:
            if self._count:
                self._in_hurry = True
                self._changed.notify_all()

    def drain(self) -> None:
        """Send all that waits, and end the sending thread. Records added later are refused."""
        self._renew_after_fork()
        with self._changed:
            self._ends = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _send_all(self) -> None:
        while (batch := self._next()) is not None:
            self._send(*batch)

    def _next(self) -> tuple[str, list[_Waiting]] | None:
        """Wait for the next batch of a topic. Return None after `drain` when none is left."""
        options = self._options
        with self._changed:
            self._changed.wait_for(lambda: self._count or self._ends)
            if not self._count:
                return None
            self._changed.wait_for(
                lambda: self._in_hurry or self._ends or self._count >= options.gather_records,
                options.gather_ms / 1000,
            )
            topic = next(iter(self._topics))
            waiting = self._topics.pop(topic)
            batch: list[_Waiting] = []
            size = 0
            while waiting and len(batch) < options.gather_records and size < options.gather_bytes:
                batch.append(waiting.popleft())
                size += len(batch[-1].data)
            if waiting:
                self._topics[topic] = waiting  # after the other topics
            self._count -= len(batch)
            self._in_hurry = self._in_hurry and self._count > 0
            self._changed.notify_all()
        return topic, batch

    def _send(self, topic: str, batch: list[_Waiting]) -> None:
        try:
            result = self._run(calls.append_encoded(topic, [each[:2] for each in batch], new_key))
        except RequestError as error:
            if len(batch) == 1 or error.code not in _REFUSES_ALL:
                self._fail(batch, error)
                return
            for each in batch:  # what is fine is written
                self._send(topic, [each])
        except BaseException as error:
            self._fail(batch, error)
            if self._ends and isinstance(error, NoAnswerError):  # `close` waits once
                with self._changed:
                    left, self._topics, self._count = self._topics, {}, 0
                for waiting in left.values():
                    self._fail(waiting, error)
        else:
            for seq, each in enumerate(batch, result.first_seq):
                each.future.set_result(seq)

    @staticmethod
    def _fail(batch: Iterable[_Waiting], error: BaseException) -> None:
        for each in batch:
            each.future.set_exception(error)
