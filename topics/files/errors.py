"""Errors of reading a data directory from its files alone: one sentence each, with the remedy.

    StorageError
    ├── NoDirectoryError       nothing there, or no data directory of this package
    ├── NotReadableError       it belongs to another user
    ├── NoColdDirectoryError   older segments lie in a cold directory that was not named, or that is another one's
    ├── DirectoryBusyError     the server changed the files faster than they could be read, again and again
    ├── TopicGoneError         the topic was deleted while it was read
    └── SeqTooLargeError       seqs above 2^63 - 1, which no signed column can hold

Beside these: CorruptError (bytes that have rotted; its detail has path, offset, topic and seq), FormatError (of another
version), StorageError (the disk failed) and UsageError (an unknown column).
"""

from __future__ import annotations

from topics.errors import StorageError


class NoDirectoryError(StorageError):
    """There is no data directory at the path."""


class NotReadableError(StorageError):
    """The files may not be read by this process: only the user that runs the server may."""


class NoColdDirectoryError(StorageError):
    """The cold directory that goes with the data directory is missing, or another one was named."""


class DirectoryBusyError(StorageError):
    """Files vanished again and again before they could be opened."""


class TopicGoneError(StorageError):
    """The topic was deleted while it was read."""


class SeqTooLargeError(StorageError):
    """A seq above 2^63 - 1: an Arrow int64 cannot hold it."""
