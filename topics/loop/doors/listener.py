"""Listening sockets, which also answer clients when descriptors run out.

At EMFILE the kernel ends the multishot accept, and a new one fails at once even if no client is
waiting, because the descriptor is reserved first. Therefore the listener holds a spare descriptor
(of "/", which always exists): it waits 10 to 100 ms, closes the spare and accepts. If the spare can
then be opened again, the shortage has ended and the connection is served; otherwise the connection
is refused, and its descriptor becomes the spare. Peers get an answer instead of silence, and the
loop neither spins nor stops. The listener's own cap, well below the limit, makes all this an
exception.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable

from topics.clock import Clock
from topics.loop.connection import Connection
from topics.loop.operations import ACCEPT, CONTROL, FILE, ignore
from topics.loop.ring import F_MORE
from topics.loop.streams import Streams
from topics.loop.timers import Timer
from topics.loop.traffic import Traffic

log = logging.getLogger(__name__)

_BACK_OFF_NS_MIN = 10_000_000
_BACK_OFF_NS_MAX = 100_000_000
_LOG_EVERY_NS = 1_000_000_000
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class Listener:
    """A listening socket, made by `Loop.listen`."""

    __slots__ = (
        "_accept_data",
        "_back_off_ns",
        "_clock",
        "_fd",
        "_logged_ns",
        "_shedding",
        "_spare_fd",
        "_stopping",
        "_timer",
        "_traffic",
        "address",
        "streams",
    )

    def __init__(self, clock: Clock, traffic: Traffic, streams: Streams, fd: int, address: tuple[str, int]) -> None:
        self.address = address
        """Host and port bound. If port 0 was asked for, it is the one that the kernel chose."""
        self._clock = clock
        self._traffic = traffic
        self.streams = streams
        self._fd = fd
        self._accept_data = 0
        self._spare_fd = -1
        self._shedding = False
        self._stopping = False
        self._back_off_ns = _BACK_OFF_NS_MIN
        self._logged_ns = -_LOG_EVERY_NS
        self._timer: Timer | None = None
        self._open_spare(lambda _found: None)
        self._arm()

    def __repr__(self) -> str:
        return f"<Listener {self.address[0]}:{self.address[1]} {len(self.streams.connections)} connections>"

    @property
    def connections(self) -> list[Connection]:
        return list(self.streams.connections.values())

    @property
    def accepting(self) -> bool:
        return self._accept_data != 0

    def stop_accepting(self) -> None:
        """Accept no new connections. The port is free once the last completion came. Idempotent.

        Open connections stay open.
        """
        if self._stopping:
            return
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        traffic = self._traffic
        if self._accept_data:
            traffic.ring.queue_cancel(traffic.operations.expect(CONTROL, ignore), self._accept_data)
        else:
            self._close_descriptors()

    def close(self) -> None:
        """Stop accepting and abort every connection."""
        self.stop_accepting()
        for conn in self.connections:
            conn.abort()

    # --- completions -------------------------------------------------------------------------------------------------
    def on_completion(self, res: int, flags: int) -> None:
        """Handle a new descriptor or -errno.

        Without F_MORE the accept has ended, whatever the result.
        """
        if not flags & F_MORE:
            del self._traffic.operations.accepting[self._accept_data]
            self._accept_data = 0
        if res >= 0:
            self._on_descriptor(res)
        if self._stopping:
            if not self._accept_data:
                self._close_descriptors()
        elif self._accept_data:
            return
        elif res >= 0 or -res in (errno.ECANCELED, errno.ECONNABORTED, errno.EINTR, errno.EAGAIN):
            self._arm()
        else:
            self._on_accept_error(-res)

    def _on_descriptor(self, fd: int) -> None:
        traffic = self._traffic
        try:
            peer = traffic.ring.peer_of(fd)
        except OSError:
            traffic.stats.bogus_accepts += 1
            self._traffic.close_fd(fd)
            return
        if self._stopping or self.streams.is_full:
            self._refuse(fd)
        elif self._shedding:
            self._open_spare(lambda found: self._serve(fd, peer) if found and not self._stopping else self._refuse(fd))
        else:
            self._serve(fd, peer)

    def _serve(self, fd: int, peer: tuple[str, int]) -> None:
        self._traffic.stats.accepts += 1
        self._back_off_ns = _BACK_OFF_NS_MIN
        self._traffic.open(self.streams, fd, peer)

    def _refuse(self, fd: int) -> None:
        self._traffic.refuse(self.streams, fd, self._on_refused)

    def _on_refused(self, fd: int) -> None:
        self._traffic.close_fd(fd)
        if self._shedding:
            self._open_spare(lambda _found: None)

    # --- out of descriptors ------------------------------------------------------------------------------------------
    def _on_accept_error(self, error: int) -> None:
        """Wait, then accept again; if descriptors ran out, close the spare one first."""
        traffic = self._traffic
        if error in _OUT_OF_DESCRIPTORS:
            traffic.stats.emfile += 1
        else:
            traffic.stats.accept_errors += 1
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._logged_ns >= _LOG_EVERY_NS:
            self._logged_ns = now_ns
            log.warning(
                "accept on %s:%d failed: %s; %d connections open, trying again in %d ms",
                *self.address,
                os.strerror(error),
                len(self.streams.connections),
                self._back_off_ns // 1_000_000,
            )
        shed = error in _OUT_OF_DESCRIPTORS
        self._timer = traffic.call_later(self._back_off_ns, self._shed if shed else self._arm)
        self._back_off_ns = min(self._back_off_ns * 2, _BACK_OFF_NS_MAX)

    def _shed(self) -> None:
        """Close the spare, so that one connection can be accepted and refused with an answer."""
        spare, self._spare_fd = self._spare_fd, -1
        if spare < 0:
            self._arm()
            return
        self._shedding = True
        traffic = self._traffic
        traffic.ring.queue_close(traffic.operations.expect(CONTROL, lambda _res: self._arm()), spare)

    def _open_spare(self, then: Callable[[bool], None]) -> None:
        """Open the spare. `then` gets whether there was a descriptor for it."""

        def on_open(res: int) -> None:
            if res >= 0:
                self._shedding = False
                if self._stopping or self._spare_fd >= 0:
                    self._traffic.close_fd(res)
                else:
                    self._spare_fd = res
            then(res >= 0)

        traffic = self._traffic
        traffic.ring.queue_open(traffic.operations.expect(FILE, on_open), "/", os.O_RDONLY | os.O_DIRECTORY, 0)

    # --- inside ------------------------------------------------------------------------------------------------------
    def _arm(self) -> None:
        if self._stopping:
            self._close_descriptors()
            return
        operations = self._traffic.operations
        self._accept_data = operations.number(ACCEPT)
        operations.accepting[self._accept_data] = self
        self._traffic.ring.queue_accept(self._accept_data, self._fd)

    def _close_descriptors(self) -> None:
        for fd in (self._fd, self._spare_fd):
            if fd >= 0:
                self._traffic.close_fd(fd)
        self._fd = self._spare_fd = -1
