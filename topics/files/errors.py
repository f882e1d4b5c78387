"""Errors of reading a data directory directly from its files: one sentence each, with the remedy.

    StorageError
    ├── NoDirectoryError       the path is missing, or is no data directory of this package
    ├── NotReadableError       it belongs to another user
    ├── NoColdDirectoryError   segments are in a cold directory, and none or a wrong one was named
    ├── DirectoryBusyError     the server kept changing the files before they could be read
    ├── TopicGoneError         the topic was deleted while it was read
    ├── SeqTooLargeError       seqs above 2^63 - 1, which no signed column can hold
    └── BytesRecordError       a record of bytes, and the column for those was not asked for

Readers also raise CorruptError (damaged bytes; its detail has path, offset, topic and seq),
FormatError (files of another version), StorageError (the disk failed) and UsageError (an unknown
column).
"""

from __future__ import annotations

from typing import Any

from topics.errors import StorageError


class NoDirectoryError(StorageError):
    """The path has no data directory."""


class NotReadableError(StorageError):
    """This process may not read the files; only the user that runs the server may."""


class NoColdDirectoryError(StorageError):
    """The cold directory of the data directory was not named, or another one was."""


class DirectoryBusyError(StorageError):
    """Files vanished many times in a row before they could be opened."""


class TopicGoneError(StorageError):
    """The topic was deleted while it was read."""


class SeqTooLargeError(StorageError):
    """A seq is above 2^63 - 1, which an Arrow int64 cannot hold."""


class BytesRecordError(StorageError):
    """A record is bytes, which the column `data` cannot hold, and `bytes` was not asked for.

    detail: its topic and seq.
    """

    def __init__(self, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.detail = detail
