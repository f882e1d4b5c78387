"""Connections that leave for another loop as soon as nothing of them is in flight.

    begin   reading pauses and the receive is cancelled; rows that still come are held
    settle  the last completion of the receive has come: descriptor and unread bytes are sent
            0: the connection ends here, without a shutdown
            an error: nothing was sent, reading resumes, and the caller continues

Nothing else is in flight, because a connection with anything to send does not begin. What the
client sends after the receive has ended stays in the socket, which the other loop reads next.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from topics.loop.connection import Connection
from topics.loop.doors.hand_over_message import UNREAD_BYTES_MAX, Carried, encoded
from topics.loop.ring import Ring

HAND_OVERS_MAX = 1
"""How often a connection is handed over. One that changes between cores would travel for ever."""


@dataclass(slots=True)
class _Departure:
    address: str
    unread: Callable[[], bytes]
    stayed: Callable[[int], None]
    was_paused: bool
    has_ended: bool = False
    """Whether the end of the client's data came meanwhile."""


class Departures:
    """The connections of a loop that are leaving."""

    def __init__(self, ring: Ring, on_error: Callable[[BaseException, str], None]) -> None:
        self._ring = ring
        self._on_error = on_error
        self._leaving: dict[int, _Departure] = {}
        self.given = 0
        """Connections that were sent."""
        self.kept = 0
        """Connections that could not be sent."""

    def begin(self, conn: Connection, address: str, unread: Callable[[], bytes], stayed: Callable[[int], None]) -> bool:
        """Begin to give a connection away; see `Loop.give_away`."""
        if conn.expected != 0 or conn.hand_overs >= HAND_OVERS_MAX:
            return False
        assert conn.id not in self._leaving, "given away twice"
        self._leaving[conn.id] = _Departure(address, unread, stayed, conn.paused)
        conn.begin_leaving()
        return True

    def note_end(self, conn: Connection) -> bool:
        """Note the end of the client's data, which the other loop finds in the socket again.

        Return whether the connection is leaving.
        """
        departure = self._leaving.get(conn.id)
        if departure is None:
            return False
        departure.has_ended = True
        return True

    def forget(self, conn: Connection) -> None:
        """Note that the connection ends here."""
        self._leaving.pop(conn.id, None)

    def settle(self, conn: Connection) -> None:
        """Send a connection whose receive has ended, if it is leaving."""
        departure = self._leaving.pop(conn.id, None)
        if departure is None:
            return
        try:
            error = self._send(conn, departure)
            if error == 0:
                self.given += 1
                conn.leave()
            else:
                self.kept += 1
                departure.stayed(error)
                conn.stay(was_paused=departure.was_paused, has_ended=departure.has_ended)
        except Exception as failure:
            self._on_error(failure, "hand-over")
            conn.abort()

    def _send(self, conn: Connection, departure: _Departure) -> int:
        """Return 0 if it was sent, or else an errno."""
        unread = departure.unread() + conn.held
        assert unread, "given away without a request"
        if len(unread) > UNREAD_BYTES_MAX:
            return errno.EMSGSIZE
        message = encoded(Carried(conn.peer, conn.hand_overs + 1, unread))
        return -self._ring.send_descriptor(departure.address, conn.fd, message)
