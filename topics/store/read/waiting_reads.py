"""Reads by a thread that waits for the disk, of plain files and of compressed segments."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from typing_extensions import Buffer

from topics.errors import StorageError
from topics.loop.files import Files
from topics.store.format.file_table import StoredFile
from topics.store.read.compressed_reads import inflated
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Filling


def read_waiting(files: Files, file: StoredFile, piece: FileRange, check: Callable[[], None]) -> memoryview:
    """Return the bytes of a piece of an open file.

    check: called before every read of the disk; the error that it raises ends them.
    Raises: StorageError.
    """
    check()
    return _inflated(files, file, piece, check) if file.compressed else _filled(files, file, piece, check)


def _filled(files: Files, file: StoredFile, piece: FileRange, check: Callable[[], None]) -> memoryview:
    filling = Filling(file, piece)
    while not filling.is_full:
        check()
        error = filling.on_result(files.read_now(filling.fd, *filling.rest))
        if error is not None:
            raise error
    return filling.view


def _inflated(files: Files, file: StoredFile, piece: FileRange, check: Callable[[], None]) -> memoryview:
    steps = inflated(_WaitingFiles(files, check), _NO_RESTS, file, file.fd, piece.offset, piece.length)
    try:
        steps.send(None)
    except StopIteration as end:
        found: memoryview = end.value
        return found
    except OSError as error:
        raise StorageError(f"reading {file.path} failed: {error.strerror or error}") from error
    raise AssertionError("a read of a thread waits for no loop")


class _WaitingFiles:
    """Files whose reads wait for the disk: the coroutine that awaits one does not stop."""

    def __init__(self, files: Files, check: Callable[[], None]) -> None:
        self._files = files
        self._check = check

    async def read_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        view = memoryview(buffer).cast("B")
        count = 0
        while count < len(view):
            self._check()
            res = self._files.read_now(fd, view[count:], offset + count)
            if res < 0:
                raise OSError(-res, os.strerror(-res))
            if res == 0:
                break
            count += res
        return count


class _NoRests:
    """Work without rests."""

    async def turn(self) -> None:
        pass

    def working(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


_NO_RESTS = _NoRests()
