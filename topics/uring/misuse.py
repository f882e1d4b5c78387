"""The meaning of negative results of ring.c: a refused misuse, or lost completions."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

TEXTS = {
    errno.ECHILD: "this ring belongs to the parent process: open another one after a fork",
    errno.EBADF: "this ring is closed",
    errno.EEXIST: "this ring belongs to the thread that opened it: open it shared, or drive it from there",
    errno.EINVAL: "a user_data of 0, or a receive buffer recycled that is not lent",
    errno.EBUSY: "the kernel takes no submissions although everything was reaped",
}


class RingError(RuntimeError):
    """A use that the ring refuses, or a ring that the kernel refuses; `errno` says which."""

    def __init__(self, error: int) -> None:
        self.errno = error
        super().__init__(TEXTS.get(error, f"io_uring: {os.strerror(error)}"))


def fail(result: int) -> NoReturn:
    """Raise RingError for a negative result; end the process if completions were lost (EBADR).

    Which completion was lost cannot be known: a write would stay pending for ever, or a buffer
    would be freed while the kernel still uses it.
    """
    if result == -errno.EBADR:
        sys.stderr.write(
            "topics: the kernel lost io_uring completions for lack of memory; this process cannot continue\n"
        )
        sys.stderr.flush()
        os.abort()
    raise RingError(-result)
