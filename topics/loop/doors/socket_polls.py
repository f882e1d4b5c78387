"""Waits for a socket, each ended by a poll, after which a callback takes what has come."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable

from topics.loop.operations import ACCEPT, CONTROL, ignore
from topics.loop.traffic import Traffic

log = logging.getLogger(__name__)

_POLL_AGAIN_NS = 100_000_000


class SocketPolls:
    """Calls back whenever a socket has something to take, or has ended. Closes it in the end."""

    def __init__(self, traffic: Traffic, fd: int, name: str, on_ready: Callable[[], bool]) -> None:
        """name: what is waited for, in the log. on_ready: returns whether to wait again."""
        self._traffic = traffic
        self._fd = fd
        self._name = name
        self._on_ready = on_ready
        self._poll = 0
        """user_data of the poll; 0: none is in flight."""
        self._closing = False
        self._has_failed = False
        """Whether the last poll has failed, which the log knows."""
        self._wait()

    def stop_accepting(self) -> None:
        """Call back no more, and close the socket. Idempotent."""
        if self._closing:
            return
        self._closing = True
        traffic = self._traffic
        if self._poll:
            traffic.ring.queue_cancel(traffic.operations.expect(CONTROL, ignore), self._poll)
        else:
            traffic.close_fd(self._fd)

    def _wait(self) -> None:
        if not self._closing:
            # Not a callback: it is no work in flight, for which a lone client would have to wait.
            operations = self._traffic.operations
            self._poll = operations.number(ACCEPT)
            operations.accepting[self._poll] = self
            self._traffic.ring.queue_poll(self._poll, self._fd)

    def on_completion(self, res: int, _flags: int) -> None:
        """Call back: the poll has ended."""
        del self._traffic.operations.accepting[self._poll]
        self._poll = 0
        if self._closing:
            self._traffic.close_fd(self._fd)
        elif res < 0 and res != -errno.ECANCELED:
            if not self._has_failed:
                self._has_failed = True
                log.warning("%s cannot be waited for, tried again: %s", self._name, os.strerror(-res))
            self._traffic.call_later(_POLL_AGAIN_NS, self._wait)
        else:
            self._has_failed = False
            if self._on_ready():
                self._wait()
