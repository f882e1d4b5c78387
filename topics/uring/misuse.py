"""What a negative result of ring.c means: a misuse refused, or completions lost."""

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
    """The ring was used in a way it refuses, or the kernel refuses the ring; `errno` says which."""

    def __init__(self, error: int) -> None:
        self.errno = error
        super().__init__(TEXTS.get(error, f"io_uring: {os.strerror(error)}"))


def fail(result: int) -> NoReturn:
    """Raises RingError for a negative result; ends the process when the kernel has lost completions (EBADR).

    Nobody knows whose was lost: a write would count as pending for ever, a buffer be freed under the kernel.
    """
    if result == -errno.EBADR:
        sys.stderr.write("topics: the kernel lost io_uring completions for lack of memory; this process cannot go on\n")
        sys.stderr.flush()
        os.abort()
    raise RingError(-result)
