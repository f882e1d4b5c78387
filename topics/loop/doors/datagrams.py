"""A datagram socket of a loop, at a path: each message that comes is given to a callback."""

from __future__ import annotations

import errno
from collections.abc import Callable

from topics.loop.doors.socket_polls import SocketPolls
from topics.loop.traffic import Traffic

TAKEN_MAX = 16
"""Messages that a pass takes."""


class Datagrams:
    """Takes messages until `stop_accepting`. Those that come after it are lost."""

    def __init__(self, traffic: Traffic, path: str, size: int, take: Callable[[int, bytes], None]) -> None:
        """size: of the longest message. take: gets the two results of `Ring.take_descriptor`.

        Raises: OSError, there can be no socket at this path.
        """
        self._ring = traffic.ring
        self._size = size
        self._take = take
        self._fd = traffic.ring.open_mailbox(path)
        self._closing = False
        self._polls = SocketPolls(traffic, self._fd, f"what comes to {path}", self._take_some)

    def stop_accepting(self) -> None:
        """Take what has come, and no more. Idempotent."""
        if not self._closing:
            self._closing = True
            self._take_some()
            self._polls.stop_accepting()

    def _take_some(self) -> bool:
        for _ in range(TAKEN_MAX):
            fd, message = self._ring.take_descriptor(self._fd, self._size)
            if fd == -errno.EAGAIN:
                break
            self._take(fd, message)
        return True
