"""A log that is only read (`read_only=True`).

It is recovered in memory, and its directory stays as it is to the byte. Its calls are those of any
log; the ones that would write raise UsageError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, NoReturn, TypeVar

from topics.common.values.reader_config import Opening
from topics.embedded.aio import AsyncLog
from topics.embedded.driving.calls import Start
from topics.embedded.log import Log
from topics.embedded.log_reader import AsyncLogReader, LogReader
from topics.embedded.starts import Starts
from topics.engine.readers.reader_results import ReaderPut
from topics.engine.values.results import Done
from topics.errors import LogReadOnlyError, TopicsError, UsageError

T = TypeVar("T")


def _refusal(what: str) -> UsageError:
    """what: a subject and its verb."""
    return UsageError(f"{what}, and this log was opened with read_only: open it without")


def _refusing(does: str, *calls: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: these of the methods that the class has are refused.

    does: what each of them does, in the words of the refusal.

    An awaitable is refused when it is awaited.
    """

    def refuse(kind: type[T]) -> type[T]:
        for call in calls:
            method = getattr(kind, call, None)
            if method is not None:
                setattr(kind, call, _refused(f"{call} {does}", method))
        return kind

    return refuse


def _refused(what: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that takes the place of one that writes."""

    @wraps(method)
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise _refusal(what)

    @wraps(method)
    async def refuse_awaited(*_arguments: object, **_options: object) -> NoReturn:
        raise _refusal(what)

    return refuse_awaited if iscoroutinefunction(method) else refuse


_refusing_writes = _refusing(
    "writes",
    "append",
    "append_many",
    "append_nowait",
    "append_soon",
    "delete",
    "put_topic",
    "patch_topic",
    "delete_topic",
    "claim",
    "work",
    "ack",
    "nack",
    "extend",
    "redrive",
    "put_router",
    "delete_router",
    "delete_reader",
    "checkpoint",
    "backup",
    "flush",
)
_refusing_moves = _refusing("moves the named reader", "read", "commit", "seek")


class _ReadOnlyStarts(Starts):
    """The calls of a log that is only read."""

    is_frozen = True

    def opening_reader(self, asked: Opening) -> Start[ReaderPut]:
        """Return the call that finds a reader; making and changing one is refused."""
        opening = super().opening_reader(asked)

        def start(done: Done[ReaderPut]) -> None:
            def on_put(found: ReaderPut | TopicsError) -> None:
                done(_refusal("making or changing a reader writes") if isinstance(found, LogReadOnlyError) else found)

            opening(on_put)

        return start


@_refusing_moves
class ReadOnlyReader(LogReader):
    """A named reader in a log that is only read: its position, lag, and what it would get."""

    _commits_at_end = False


@_refusing_moves
class AsyncReadOnlyReader(AsyncLogReader):
    """See `ReadOnlyReader`."""

    _commits_at_end = False


@_refusing_writes
class ReadOnlyAsyncLog(AsyncLog):
    """See `ReadOnlyLog`."""

    _reader_type = AsyncReadOnlyReader


@_refusing_writes
class ReadOnlyLog(Log):
    """A log that is only read.

    Nothing waits for records that cannot come: a tail ends at the head.
    """

    _starts_type = _ReadOnlyStarts
    _aio_type = ReadOnlyAsyncLog
    _reader_type = ReadOnlyReader
