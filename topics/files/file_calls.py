"""The blocking file calls of this room, as a Protocol that the simulator implements, too.

Files are read, not mapped into memory: a mapped page that the disk cannot read would kill the
process with SIGBUS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FileReads(Protocol):
    """The file calls that a reader makes. Each raises OSError with its errno."""

    def open(self, path: str) -> int:
        """Return a descriptor for reading."""

    def close(self, fd: int) -> None: ...

    def size(self, fd: int) -> int:
        """Return the size of the open file in bytes."""

    def read_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Fill `buffer` from file byte `offset` on, and return the number of bytes read.

        It is smaller than the buffer only at the end of the file.
        """

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, in any order."""

    def owner(self, path: str) -> int:
        """Return the user id of a directory's owner. The directory need not be readable."""

    def user(self) -> int:
        """Return the user id that this process runs as."""


class SystemCalls:
    """The file calls of the kernel."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):  # one call reads 2 GiB at most
            count = os.preadv(fd, [view[done:]], offset + done)
            if not count:
                break
            done += count
        return done

    def list_directory(self, path: str) -> list[str]:
        return os.listdir(path)

    def owner(self, path: str) -> int:
        return os.stat(path).st_uid

    def user(self) -> int:
        return os.geteuid()


SYSTEM = SystemCalls()


@contextmanager
def opened(calls: FileReads, path: str) -> Iterator[int]:
    """Yield a descriptor for reading; it is closed at the end of the block."""
    fd = calls.open(path)
    try:
        yield fd
    finally:
        calls.close(fd)


def read_range(calls: FileReads, fd: int, start: int, size: int) -> bytearray:
    """Return bytes [start, start + size) of a file, or fewer if it ends before."""
    buffer = bytearray(size)
    count = calls.read_into(fd, buffer, start)
    return buffer if count == size else buffer[:count]


def read_file(calls: FileReads, path: str) -> bytearray:
    """Return the whole file."""
    with opened(calls, path) as fd:
        return read_range(calls, fd, 0, calls.size(fd))
