"""The file half of the portable ring: a thread that runs blocking calls in queued order."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from typing_extensions import Buffer

Job = tuple[Callable[..., None], tuple[Any, ...]]


class FileThread:
    """Runner of batches of jobs. Results (user_data, res) are put into `results`.

    An edge on `event_fd` announces them.

    One thread and one queue: operations on one file run in the order of queueing, which is stronger
    than the Protocol promises. The thread starts with the first job, so a ring that opens no file
    has none.
    """

    def __init__(self) -> None:
        self.results: deque[tuple[int, int]] = deque()
        self.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._batches: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._announced = False
        self._closing = False

    def submit(self, jobs: list[Job]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="topics-files", daemon=True)
            self._thread.start()
        self._batches.put(jobs)

    def collect(self) -> list[tuple[int, int]]:
        """Return the results present, and remove them."""
        # The flag is cleared before the results are taken: a result added in between is announced
        # again.
        self._announced = False
        results = self.results
        return [results.popleft() for _ in range(len(results))]

    def close(self) -> None:
        """Wait for the job in progress; later jobs are not run."""
        self._closing = True
        if self._thread is not None and self._thread.is_alive():
            self._batches.put(None)
            # A ring that was not closed may be collected in its own thread.
            if self._thread is not threading.current_thread():
                self._thread.join()
        os.close(self.event_fd)

    def _run(self) -> None:
        while (jobs := self._batches.get()) is not None:
            for function, arguments in jobs:
                if self._closing:
                    return
                function(*arguments)
                if not self._announced:
                    self._announced = True
                    os.eventfd_write(self.event_fd, 1)

    # --- jobs --------------------------------------------------------------------------------------------------------
    def call(self, user_data: int, function: Callable[..., int | None], *arguments: object) -> None:
        """Make one system call and add its result."""
        self.results.append((user_data, result_of(function, *arguments)))

    def write(self, user_data: int, fd: int, buffer: Buffer, offset: int, flags: int) -> None:
        self.call(user_data, os.pwritev, fd, [buffer], offset, flags)

    def commit(self, write_data: int, sync_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        """Write, then sync.

        The write's result is available before the sync ends; only the sync wakes the loop.
        """
        written = result_of(os.pwritev, fd, [buffer], offset)
        self.results.append((write_data, written))
        if written == memoryview(buffer).nbytes:
            self.call(sync_data, os.fdatasync, fd)
        else:
            self.results.append((sync_data, -errno.ECANCELED))


def write_ready(fd: int, buffer: Buffer) -> int:
    """Write at the file's position what no pipe or terminal makes the thread wait for.

    Raises: BlockingIOError, it takes nothing at the moment.
    """
    watched = select.poll()
    watched.register(fd, select.POLLOUT)
    if not watched.poll(0):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return os.write(fd, memoryview(buffer)[: select.PIPE_BUF])


def result_of(function: Callable[..., int | None], *arguments: object) -> int:
    """Return a call's result as a completion has it: -errno for an error."""
    try:
        return function(*arguments) or 0
    except OSError as error:
        return -(error.errno or errno.EIO)
    except (ValueError, OverflowError):  # a NUL in a path, an offset beyond 63 bits
        return -errno.EINVAL
