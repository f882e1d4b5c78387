"""The operations in flight: whose a completion is.

A `user_data` is a number used once (`serial << 4 | kind`), so a late completion can never be taken for that of a newer
operation, and no table slot needs a generation beside it. Those of connections and listeners carry a slot, too
(`(serial << 24 | slot) << 4 | kind`): their serial has 36 bits and begins again at its end, at 10,000 connections a
second after a month, and passes over what is still in use. The hot kinds have dictionaries of their own, so that their
completions find a connection without a closure; everything else is a callback that takes the raw result.

The buffers of an operation belong to the ring until its final completion (see `ring.py`); nobody here frees them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.loop._links import lib

if TYPE_CHECKING:
    from topics.loop.connection import Connection
    from topics.loop.listener import Listener

KIND_BITS = lib.TP_KIND_BITS
SLOT_BITS = lib.TP_SLOT_BITS
SERIAL_MAX = (1 << 64 - KIND_BITS - SLOT_BITS) - 1
FILE, RECV, SEND, ACCEPT, CONTROL = lib.TP_FILE, lib.TP_RECV, lib.TP_SEND, lib.TP_ACCEPT, lib.TP_CONTROL

Done = Callable[[int], None]
"""Takes the raw result of an operation: a count, a descriptor or -errno."""


class Operations:
    """Maps of user_data to the owner of the completion; an entry leaves with the operation's final completion."""

    __slots__ = ("_callback_serial", "_serial", "accepting", "callbacks", "receiving", "sending")

    def __init__(self) -> None:
        self._serial = 0
        self._callback_serial = 0
        self.callbacks: dict[int, Done] = {}
        self.receiving: dict[int, Connection] = {}
        self.sending: dict[int, Connection] = {}
        """Registered for a connection's whole life: it has one send in flight at most."""
        self.accepting: dict[int, Listener] = {}

    def number(self, kind: int, slot: int = 0) -> int:
        """A user_data nobody has, or had for a long time, never 0. slot: a connection's row, see `links.py`."""
        while True:
            self._serial = self._serial % SERIAL_MAX + 1
            user_data = (self._serial << SLOT_BITS | slot) << KIND_BITS | kind
            if not (user_data in self.receiving or user_data in self.sending or user_data in self.accepting):
                return user_data

    def expect(self, kind: int, done: Done) -> int:
        """A user_data whose one completion goes to `done`."""
        self._callback_serial += 1  # of 60 bits: at a million a second it lasts for 36,000 years
        user_data = self._callback_serial << KIND_BITS | kind
        self.callbacks[user_data] = done
        return user_data

    @property
    def in_flight(self) -> int:
        """Operations whose final completion is still to come; sends are counted by their connections."""
        return len(self.callbacks) + len(self.receiving) + len(self.accepting)


def ignore(_res: int) -> None:
    """The `done` of an operation whose result changes nothing (a cancel, a close)."""
