"""Everything this package raises on purpose.

    TopicsError
    ├── UsageError            the caller broke the contract of a Python API; only changing the caller helps
    ├── RequestError          a request cannot be done as asked; carries the wire contract's code and detail
    └── StorageError          the disk failed, lied or is full
        ├── CorruptError      bytes no crash of ours explains; names path and offset, or topic and seq
        ├── LogReadOnlyError  an earlier write or sync failed: nothing is appended until the directory is reopened
        ├── DiskFullError     no space; heals by itself
        ├── LogFailedError    an embedded log was left in the midst of its work: its directory has to be reopened
        ├── FormatError       a file of another kind or of a version this build does not know
        └── LockedError       somebody has the data directory open: another process, or this one already

Below `loop/`, an errno stays an int; `OSError` is what file operations raise when a result is negative.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_log = logging.getLogger("topics")


class TopicsError(Exception):
    """Base of everything this package raises on purpose."""


class UsageError(TopicsError):
    """The caller of a Python API broke its contract."""


class RequestError(TopicsError):
    """A request that cannot be done as asked. Source: wire contract, section 3.2.

    code: the contract's stable snake_case code; message: prose naming the field and the fix;
    detail: the object the contract lists for that code, or None.
    """

    def __init__(self, code: str, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


class StorageError(TopicsError):
    """The disk failed, lied or is full. On the wire: 500 `internal` with `detail`."""

    detail: dict[str, Any] | None = None


class CorruptError(StorageError):
    """Bytes no crash of ours explains."""

    def __init__(self, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.detail = detail


class LogReadOnlyError(StorageError):
    """A write or sync failed earlier: after a failed sync nobody knows what the disk holds."""

    detail = {"reason": "read_only"}  # noqa: RUF012 - a constant of the wire contract


class DiskFullError(StorageError):
    """No space left for an append; deletes go on from the reserve and appends resume by themselves."""

    detail = {"reason": "disk_full"}  # noqa: RUF012 - a constant of the wire contract


class NoLogFileError(StorageError):
    """For want of descriptors the batch has no file to go to: nothing of it is there, and it may be sent again."""

    detail = {"reason": "no_log_file"}  # noqa: RUF012 - a constant of the wire contract


class NotCreatedError(StorageError):
    """The request that was to create the topic failed; of this one nothing is there either: it may be sent again."""

    detail = {"reason": "not_created"}  # noqa: RUF012 - a constant of the wire contract


class FormatError(StorageError):
    """A file of another kind, or of a format version this build does not know."""


class LockedError(StorageError):
    """Somebody has the data directory open: another live process, or this one already."""


class LogFailedError(StorageError):
    """An exception that nobody expected ended an embedded log in the midst of its work; `__cause__` is that one.

    What was acknowledged is on the disk as its class says. Close the log, and open it again.
    """


_TOLD = ("reason", "topic", "seq")
"""What of a `StorageError.detail` clients are told."""
_logged = ""


def _log_once(message: str) -> None:
    """Not again and again while the same happens to every request."""
    global _logged  # noqa: PLW0603 - what the log said last
    if message != _logged:
        _logged = message
        _log.error(message)


def without_paths(text: str) -> str:
    """A message for clients, whom it does not concern where the server keeps its files."""
    return re.sub(r"[^\s'\"]*/[^\s'\",;:]*", "(a file)", text)


def as_request_error(error: BaseException) -> RequestError:
    """What the client is told about any exception; the story behind an unexpected one goes to the log only."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, StorageError):
        _log_once(f"a request failed: {error}")
        detail = {key: value for key, value in (error.detail or {}).items() if key in _TOLD}
        return RequestError("internal", f"storage failed: {without_paths(str(error))}", detail or None)
    _log.error("a request failed by a bug of ours", exc_info=error)
    return RequestError("internal", "the server failed to handle this request; its log says why")
