"""The file of the access log: lines are written in batches, and dropped where it is too slow.

All lines of an interval are one write, and the next one waits for its end. No request waits for
any of them.
"""

from __future__ import annotations

import errno
import logging
import os

from topics.config import Config
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.loop.timers import Timer

_log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
_STDOUT_FD = 1
_OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_MODE = 0o640
_OWN_POSITION = -1
_TELL_EVERY_NS = 10_000_000_000
_END_NS = 1_000_000_000
"""Time that the last lines get at a stop."""
_LOOK_EVERY_NS = 5_000_000


def check_access_log(config: Config) -> None:
    """Create the file, or see that it takes lines, before the port is bound. Raises: OSError."""
    if config.access_log and config.access_log != STANDARD_OUTPUT:
        os.close(os.open(config.access_log, _OPEN_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE))


class AccessLogFile:
    """Writes the lines that `add` takes. `written` and `dropped` count lines."""

    def __init__(self, loop: Loop, config: Config) -> None:
        self._loop = loop
        self._path = config.access_log
        self._every_ns = config.access_log_every_ms * 1_000_000
        self._bytes_max = config.access_log_bytes
        self._lines: list[bytes] = []
        self._held = 0
        """Bytes of the lines that were not written yet."""
        self._fd = _STDOUT_FD if self._path == STANDARD_OUTPUT else -1
        self._timer: Timer | None = None
        """The timer of the next batch."""
        self._is_busy = False
        """Whether a batch is due, or being written."""
        self._opens_again = False
        self.written = 0
        self.dropped = 0
        self._told = 0
        """Dropped lines that the log knows of."""
        self._told_ns = -_TELL_EVERY_NS
        self._fails = False

    def add(self, line: bytes) -> None:
        """Take a line, unless too many bytes wait already."""
        held = self._held + len(line)
        if held > self._bytes_max:
            self.dropped += 1
            self._tell()
            return
        self._held = held
        self._lines.append(line)
        if not self._is_busy:
            self._is_busy = True
            self._timer = self._loop.call_later(self._every_ns, self._begin)

    def open_again(self) -> None:
        """Write what follows to a new file of the name, if the old one was moved away."""
        if self._path != STANDARD_OUTPUT:
            self._opens_again = True
            if not self._is_busy:
                self._is_busy = True
                self._begin()

    async def close(self) -> None:
        """Write the lines that wait, for a second at most, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin()
        until_ns = self._loop.clock.monotonic_ns() + _END_NS
        while self._is_busy and self._loop.clock.monotonic_ns() < until_ns:
            await self._loop.sleep(_LOOK_EVERY_NS)
        self.dropped += len(self._lines)
        self._lines.clear()
        if self._path != STANDARD_OUTPUT and self._fd >= 0 and not self._is_busy:
            await self._loop.files.close(self._fd)
            self._fd = -1

    def _begin(self) -> None:
        self._timer = None
        self._loop.spawn(self._write_all(), "access log")

    async def _write_all(self) -> None:
        lines, self._lines = self._lines, []
        try:
            if self._opens_again or self._fd < 0:
                await self._open()
            await self._write(b"".join(lines))
            self.written += len(lines)
            self._fails = False
        except OSError as error:
            self.dropped += len(lines)
            self._told += len(lines)
            if not self._fails:
                self._fails = True
                _log.error("the access log %s takes no lines: %s", self._path, error.strerror)
        self._held -= sum(map(len, lines))
        self._tell()
        if self._lines or self._opens_again:
            self._timer = self._loop.call_later(self._every_ns, self._begin)
        else:
            self._is_busy = False

    async def _open(self) -> None:
        """Open the file. The old one stays where this fails."""
        self._opens_again = False
        try:
            fd = await self._loop.files.open(self._path, _OPEN_FLAGS, _MODE)
        except OSError as error:
            if self._fd < 0:
                raise
            _log.error(
                "the access log %s cannot be opened again, and lines continue in the old file: %s", self._path, error
            )
            return
        old, self._fd = self._fd, fd
        if old >= 0:
            self._loop.files.close_nowait(old)

    async def _write(self, data: bytes) -> None:
        """Write all. A pipe that takes nothing is asked again after the interval.

        Raises: OSError.
        """
        view = memoryview(data)
        while view:
            future: Future[int] = Future(interruptible=False)
            self._loop.files.write_nowait(self._fd, view, _OWN_POSITION, future.set_result)
            count = await future
            if count == -errno.EAGAIN:
                await self._loop.sleep(self._every_ns)
            elif count <= 0:
                raise OSError(-count or errno.EIO, os.strerror(-count or errno.EIO))
            else:
                view = view[count:]

    def _tell(self) -> None:
        """Log how many lines were dropped, now and then."""
        now_ns = self._loop.clock.monotonic_ns()
        if self.dropped > self._told and now_ns - self._told_ns >= _TELL_EVERY_NS:
            self._told_ns = now_ns
            _log.warning("the access log %s is too slow: %d lines were dropped", self._path, self.dropped - self._told)
            self._told = self.dropped
