"""The mailbox of a loop: connections that other loops have given away come in here.

One that was taken begins with the bytes that came with it, as if they had been received.
"""

from __future__ import annotations

import logging
import os

from topics.clock import Clock
from topics.loop.doors.datagrams import Datagrams
from topics.loop.doors.hand_over_message import MESSAGE_BYTES_MAX, DamagedMessageError, decoded, pair_number
from topics.loop.streams import Streams
from topics.loop.traffic import Traffic

log = logging.getLogger(__name__)

_LOG_EVERY_NS = 1_000_000_000


class Mailbox:
    """Takes connections until `stop_accepting`. Those that come after it end without an answer."""

    def __init__(self, clock: Clock, traffic: Traffic, streams: Streams, path: str, pairs: Streams | None) -> None:
        """pairs: get one end of each pair that another loop has opened.

        Raises: OSError, there can be no socket at this path.
        """
        self._clock = clock
        self._traffic = traffic
        self._streams = streams
        self._pairs = pairs
        self._logged_ns = -_LOG_EVERY_NS
        self.taken = 0
        self.lost = 0
        """Connections that came and could not be taken. Their clients see the end of the stream."""
        self._datagrams = Datagrams(traffic, path, MESSAGE_BYTES_MAX, self._take)

    def stop_accepting(self) -> None:
        """Take what has come, and no more. Idempotent."""
        self._datagrams.stop_accepting()

    def _take(self, fd: int, message: bytes) -> None:
        """Take a connection."""
        traffic, streams = self._traffic, self._streams
        if fd < 0:
            self._lose(os.strerror(-fd))
            return
        number = pair_number(message)
        if number is not None and self._pairs is not None:
            traffic.open(self._pairs, fd, ("", number))
            return
        try:
            carried = decoded(message)
        except DamagedMessageError as error:
            self._lose(str(error))
            self._traffic.close_fd(fd)
            return
        if streams.is_full:
            traffic.refuse(streams, fd, self._traffic.close_fd)
        else:
            self.taken += 1
            traffic.take_up(streams, fd, carried.peer, carried.hand_overs, carried.unread)

    def _lose(self, why: str) -> None:
        self.lost += 1
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._logged_ns >= _LOG_EVERY_NS:
            self._logged_ns = now_ns
            log.warning("a connection from another loop was not taken, %d so far: %s", self.lost, why)
