"""All exceptions that this package raises on purpose.

    TopicsError
    ├── UsageError            the caller broke the contract of a Python API
    ├── RequestError          a request is refused; has the wire contract's code and detail
    │   └── WouldBlockError   the log has no room for it now: nothing of it is there, try again
    ├── NoAnswerError         a server gave no answer in time; says after how long, and why
    │   └── OutcomeUnknown    ... and what was asked for may be done, or not
    └── StorageError          the disk failed, returned wrong data or is full
        ├── CorruptError      damage that no crash explains; names path and offset, or topic and seq
        ├── LogReadOnlyError  an earlier write or sync failed: no appends until it is reopened
        ├── DiskFullError     no space; ends once there is space again
        ├── NoLogFileError    no descriptor for a log file: nothing stored, the client may retry
        ├── NotCreatedError   the topic was not created: nothing stored, the client may retry
        ├── LogFailedError    a bug ended an embedded log's work: reopen its directory
        ├── FormatError       a file of another kind or of a version this build does not know
        └── LockedError       the data directory is open in another process, or in this one

Below `loop/`, an errno stays an int; file operations raise `OSError` for a negative result.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_log = logging.getLogger("topics")

FSCK_REMEDY = "`topics fsck` shows all damage, and `topics fsck --rebuild` keeps what is sound"
"""The end of the message of damage in a data directory. `CorruptError` adds it."""


VERSION_REMEDY = "use the version of topics that made it"
"""The end of the message about a file or a directory that another version has written."""


class TopicsError(Exception):
    """The base of all exceptions that this package raises on purpose."""


class UsageError(TopicsError):
    """A call that broke the contract of a Python API. Only a change of the caller helps.

    argument: the name that the message begins with, which a command gives to one of its options;
    "" if the message is about the call as a whole. said: the message after that name.
    """

    def __init__(self, said: str = "", argument: str = "") -> None:
        super().__init__(f"{argument} {said}" if argument else said)
        self.argument = argument
        self.said = said


class RequestError(TopicsError):
    """A request that cannot be done as asked. Source: wire contract, section 3.2.

    code: the contract's stable snake_case code. message: prose naming the field and the fix.
    detail: the object that the contract lists for that code, or None.
    """

    def __init__(self, code: str, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


class WouldBlockError(RequestError):
    """An append that the log has no room for now. Nothing of it is there; it may be tried again.

    reason: "admission": too much waits to be written or synced, or too many appends before it;
    "rollover": no log file is ready, or too much of the log is not in segments yet.
    """

    def __init__(self, reason: str, message: str, retry_after_ms: int) -> None:
        super().__init__("throttled", message, {"retry_after_ms": retry_after_ms})
        self.reason = reason


class NoAnswerError(TopicsError):
    """A server that a client could not reach, or that gave no answer in time. Nothing was changed.

    A call that only reads raises it whether or not its request was sent.
    """


class OutcomeUnknown(NoAnswerError):
    """A change that was sent and not answered: it may be done, or not.

    An append with a key of its caller's may be repeated by that key, within the topic's window.
    """


class StorageError(TopicsError):
    """A disk that failed, returned wrong data or is full.

    On the wire: 500 `internal` with `detail`.
    """

    detail: dict[str, Any] | None = None


class CorruptError(StorageError):
    """Damaged bytes that no crash of ours explains.

    message: the damage and its place. The remedy is added, unless the message has one.
    """

    def __init__(self, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message if "`topics " in message else f"{message}: {FSCK_REMEDY}")
        self.detail = detail


class LogReadOnlyError(StorageError):
    """A log that takes no appends, because a write or sync has failed.

    After a failed sync the content of the disk is unknown.
    """

    detail = {"reason": "read_only"}  # noqa: RUF012 - a constant of the wire contract


class DiskFullError(StorageError):
    """No space for an append. Deletes continue from the reserve, and appends resume with space."""

    detail = {"reason": "disk_full"}  # noqa: RUF012 - a constant of the wire contract


class NoLogFileError(StorageError):
    """A batch without a log file, for want of descriptors.

    Nothing was stored; the client may retry.
    """

    detail = {"reason": "no_log_file"}  # noqa: RUF012 - a constant of the wire contract


class NotCreatedError(StorageError):
    """The topic this write was waiting for could not be created.

    Nothing was stored; the client may retry.
    """

    detail = {"reason": "not_created"}  # noqa: RUF012 - a constant of the wire contract


class FormatError(StorageError):
    """A file of another kind, or of a format version that this build does not know."""


class LockedError(StorageError):
    """A data directory that is open already, in another live process or in this one."""


class LogFailedError(StorageError):
    """An unexpected exception, `__cause__`, that ended the work of an embedded log.

    Acknowledged records are on the disk as their class promises. Close the log, and open it again.
    """


_SHOWN = ("reason", "topic", "seq")
"""Members of a `StorageError.detail` that clients get."""
_logged = ""


def _log_once(message: str) -> None:
    """Log an error, except while it repeats the last one."""
    global _logged  # noqa: PLW0603 - the last message logged
    if message != _logged:
        _logged = message
        _log.error(message)


def without_remedy(error: Exception) -> str:
    """Return an error's message for a report that states the remedy once, or is the remedy."""
    return str(error).removesuffix(f": {FSCK_REMEDY}")


def without_paths(text: str) -> str:
    """Return a message for clients, without paths of the server's files."""
    return re.sub(r"[^\s'\"]*/[^\s'\",;:]*", "(a file)", text)


def as_request_error(error: BaseException) -> RequestError:
    """Return the error that a client gets for an exception. Details of bugs are only logged."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, StorageError):
        _log_once(f"a request failed: {error}")
        detail = {key: value for key, value in (error.detail or {}).items() if key in _SHOWN}
        return RequestError("internal", f"storage failed: {without_paths(str(error))}", detail or None)
    _log.error("a request failed by a bug of ours", exc_info=error)
    return RequestError("internal", "the server failed to handle this request; its log says why")
