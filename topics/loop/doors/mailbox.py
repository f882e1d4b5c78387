"""The mailbox of a loop: connections that other loops have given away come in here.

A poll waits for it. When it ends, connections are taken, a few in each pass, and it is queued
again. One that was taken begins with the bytes that came with it, as if they had been received.
"""

from __future__ import annotations

import errno
import logging
import os

from topics.clock import Clock
from topics.loop.doors.hand_over_message import MESSAGE_BYTES_MAX, DamagedMessageError, decoded, pair_number
from topics.loop.operations import ACCEPT, CONTROL, ignore
from topics.loop.streams import Streams
from topics.loop.traffic import Traffic

log = logging.getLogger(__name__)

TAKEN_MAX = 16
"""Connections that a pass takes."""
_POLL_AGAIN_NS = 100_000_000
_LOG_EVERY_NS = 1_000_000_000


class Mailbox:
    """Takes connections until `stop_accepting`. Those that come after it end without an answer."""

    def __init__(self, clock: Clock, traffic: Traffic, streams: Streams, path: str, pairs: Streams | None) -> None:
        """pairs: get one end of each pair that another loop has opened.

        Raises: OSError, there can be no socket at this path.
        """
        self.path = path
        self._clock = clock
        self._traffic = traffic
        self._streams = streams
        self._pairs = pairs
        self._fd = traffic.ring.open_mailbox(path)
        self._poll = 0
        """user_data of the poll; 0: none is in flight."""
        self._closing = False
        self._logged_ns = -_LOG_EVERY_NS
        self.taken = 0
        self.lost = 0
        """Connections that came and could not be taken. Their clients see the end of the stream."""
        self._wait()

    def stop_accepting(self) -> None:
        """Take what has come, and no more. Idempotent."""
        if self._closing:
            return
        self._closing = True
        self._take_some()
        traffic = self._traffic
        if self._poll:
            traffic.ring.queue_cancel(traffic.operations.expect(CONTROL, ignore), self._poll)
        else:
            self._traffic.close_fd(self._fd)

    def _wait(self) -> None:
        if not self._closing:
            # Not a callback: it is no work in flight, for which a lone client would have to wait.
            operations = self._traffic.operations
            self._poll = operations.number(ACCEPT)
            operations.accepting[self._poll] = self
            self._traffic.ring.queue_poll(self._poll, self._fd)

    def on_accept(self, res: int, _flags: int) -> None:
        """Take connections: the poll has ended."""
        del self._traffic.operations.accepting[self._poll]
        self._poll = 0
        if self._closing:
            self._traffic.close_fd(self._fd)
        elif res < 0 and res != -errno.ECANCELED:
            self._lose(os.strerror(-res), 0)
            self._traffic.call_later(_POLL_AGAIN_NS, self._wait)
        else:
            self._take_some()
            self._wait()

    def _take_some(self) -> None:
        for _ in range(TAKEN_MAX):
            if not self._take():
                break

    def _take(self) -> bool:
        """Take the next connection. Return False if there is none."""
        traffic, streams = self._traffic, self._streams
        fd, message = traffic.ring.take_descriptor(self._fd, MESSAGE_BYTES_MAX)
        if fd == -errno.EAGAIN:
            return False
        if fd < 0:
            self._lose(os.strerror(-fd), 1)
            return True
        number = pair_number(message)
        if number is not None and self._pairs is not None:
            traffic.open(self._pairs, fd, ("", number))
            return True
        try:
            carried = decoded(message)
        except DamagedMessageError as error:
            self._lose(str(error), 1)
            self._traffic.close_fd(fd)
            return True
        if streams.is_full:
            traffic.refuse(streams, fd, self._traffic.close_fd)
        else:
            self.taken += 1
            traffic.take_up(streams, fd, carried.peer, carried.hand_overs, carried.unread)
        return True

    def _lose(self, why: str, count: int) -> None:
        self.lost += count
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._logged_ns >= _LOG_EVERY_NS:
            self._logged_ns = now_ns
            log.warning("a connection from another loop was not taken, %d so far: %s", self.lost, why)
