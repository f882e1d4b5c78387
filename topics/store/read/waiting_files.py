"""Reads of coroutines that do not stop, for threads that wait for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from typing_extensions import Buffer

from topics.loop.files import Files


class WaitingFiles:
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


NO_RESTS = _NoRests()
