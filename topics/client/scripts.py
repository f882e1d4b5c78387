"""Calls of a client that are several requests: generators of calls and pauses, without a socket.

A script yields a call, whose answer is sent back (its error is thrown in), or seconds to pause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from topics.client import server_calls as calls
from topics.client.attempts import ServerCall
from topics.common.values import arguments
from topics.common.values.answers import ReaderState, RouterState, TopicState
from topics.common.values.backup_result import BackupProgress, BackupResult
from topics.common.values.delivered import Job
from topics.common.values.reader_config import Opening
from topics.errors import RequestError, StorageError

R = TypeVar("R")
Script = Generator["ServerCall[Any] | float", Any, R]
_POLL_S = 0.25
"""The pause before a claim is repeated, if the server does not wait for jobs itself, and before the
progress of a backup is asked for again.
"""


def topics(prefix: str) -> Script[list[TopicState]]:
    found: list[TopicState] = []
    cursor: str | None = ""
    while cursor is not None:
        names, cursor = yield calls.topic_names(prefix, cursor)
        found += yield from _each(names, lambda name: calls.state(name, touch=False), "topic_not_found")
    return found


def routers(prefix: str, source: str, dest: str) -> Script[list[RouterState]]:
    found: list[RouterState] = []
    cursor: str | None = ""
    while cursor is not None:
        names, cursor = yield calls.router_names(prefix, source, dest, cursor)
        found += yield from _each(names, calls.router, "router_not_found")
    return found


def _each(names: Iterable[str], ask: Callable[[str], ServerCall[R]], absent: str) -> Script[list[R]]:
    """Ask for each of a list; what was deleted meanwhile is left out."""
    found: list[R] = []
    for name in names:
        try:
            found.append((yield ask(name)))
        except RequestError as error:
            if error.code != absent:
                raise
    return found


def claim(
    queue: str,
    node: str,
    limit: int,
    *,
    lease_ms: int | None,
    wait_ms: int,
    include_attempts: bool,
    now: Callable[[], float],
) -> Script[list[Job]]:
    """Claim jobs, and wait for the first one.

    A server that does not know `wait_ms` answers at once, and is asked again after pauses.
    """

    def asking(wait_ms: int) -> ServerCall[list[Job]]:
        return calls.claim(queue, node, limit, lease_ms=lease_ms, wait_ms=wait_ms, include_attempts=include_attempts)

    call = asking(wait_ms)
    until = now() + call.wait_s
    while True:
        found: list[Job] = yield call
        left = until - now()
        if found or left <= 0:
            return found
        yield min(_POLL_S, left)
        call = asking(max(0, round((until - now()) * 1000)))


def checkpoint(timeout: float | None, now: Callable[[], float]) -> Script[int]:
    """Have a checkpoint made. Raises: TimeoutError."""
    wait_ms = arguments.optional_milliseconds("timeout", timeout)
    until = None if wait_ms is None else now() + wait_ms / 1000
    number = 0
    while True:
        left = calls.MAX_WAIT_MS if until is None else round((until - now()) * 1000)
        snapshot, is_done, number = yield calls.checkpoint(number, max(0, min(left, calls.MAX_WAIT_MS)))
        if is_done:
            return int(snapshot)
        if until is not None and now() >= until:
            raise arguments.timed_out("checkpoint", timeout)


def backup(to: str | None) -> Script[BackupResult]:
    """Have a backup made, and wait for its end. Raises: StorageError, it failed."""
    progress: BackupProgress = yield calls.begin_backup(to)
    number = progress.number
    while progress.state == "running" and progress.number == number:
        yield _POLL_S
        progress = yield calls.backup_progress()
    if progress.number > number:
        raise StorageError(
            "another backup was begun before the end of this one was read: `topics verify` of the directory, or of "
            "this backup in it, shows whether it is complete"
        )
    if progress.number != number or progress.result is None:
        raise StorageError(progress.error or "the server was started again before the backup was complete")
    return progress.result


def open_reader(asked: Opening) -> Script[tuple[ReaderState, str | None]]:
    """Make a named reader, or change the settings of it that are given.

    Returns: its state, and the incarnation of its topic.
    """
    known: ReaderState | None = None
    try:
        known = yield calls.reader_state(asked.topic, asked.name)
    except RequestError as error:
        if error.code != "reader_not_found":
            raise
    put: tuple[ReaderState, str | None] = yield calls.put_reader(asked, known)
    return put
