"""The operations in flight, by the `user_data` of their completions.

A `user_data` is a number used once (`serial << 4 | kind`), so a late completion can never be
mistaken for one of a newer operation, and no table slot needs a generation beside it. The user_data
of connections and listeners also has a slot (`(serial << 24 | slot) << 4 | kind`): their serial has
36 bits and starts again at its end, after a month of 10,000 connections a second, and skips numbers
still in use. The hot kinds have dictionaries of their own, so that their completions find a
connection without a closure; every other kind is a callback that takes the raw result.

The buffers of an operation belong to the ring until its final completion (see `ring.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from topics.loop._connection_table import lib

KIND_BITS = lib.TP_KIND_BITS
SLOT_BITS = lib.TP_SLOT_BITS
SERIAL_MAX = (1 << 64 - KIND_BITS - SLOT_BITS) - 1
FILE, RECV, SEND, ACCEPT, CONTROL = lib.TP_FILE, lib.TP_RECV, lib.TP_SEND, lib.TP_ACCEPT, lib.TP_CONTROL

Done = Callable[[int], None]
"""Function that takes the raw result of an operation: a count, a descriptor or -errno."""


C = TypeVar("C")
"""Type of connections: this module only finds them."""


class Acceptor(Protocol):
    """The owner of an accept, or of the poll of a socket."""

    def on_completion(self, res: int, flags: int) -> None: ...

    def stop_accepting(self) -> None: ...


class Operations(Generic[C]):
    """Maps of user_data to the owner of the completion. The final completion removes an entry."""

    __slots__ = ("_callback_serial", "_serial", "accepting", "callbacks", "receiving", "sending")

    def __init__(self) -> None:
        self._serial = 0
        self._callback_serial = 0
        self.callbacks: dict[int, Done] = {}
        self.receiving: dict[int, C] = {}
        self.sending: dict[int, C] = {}
        """Entries for a connection's whole life: it has one send in flight at most."""
        self.accepting: dict[int, Acceptor] = {}

    def number(self, kind: int, slot: int = 0) -> int:
        """Return a user_data that is not in use and was not for a long time; never 0.

        slot: a connection's row, see `connection_table.py`.
        """
        while True:
            self._serial = self._serial % SERIAL_MAX + 1
            user_data = (self._serial << SLOT_BITS | slot) << KIND_BITS | kind
            if not (user_data in self.receiving or user_data in self.sending or user_data in self.accepting):
                return user_data

    def expect(self, kind: int, done: Done) -> int:
        """Return a user_data whose one completion is passed to `done`."""
        self._callback_serial += 1  # 60 bits: at a million a second they last for 36,000 years
        user_data = self._callback_serial << KIND_BITS | kind
        self.callbacks[user_data] = done
        return user_data

    @property
    def newest(self) -> int:
        """The number of the latest operation with a callback."""
        return self._callback_serial

    @property
    def oldest(self) -> int:
        """The number of the oldest one in flight; 0 if there is none."""
        return next(iter(self.callbacks), 0) >> KIND_BITS

    @property
    def in_flight(self) -> int:
        """Number of operations without final completion, except sends: connections count them."""
        return len(self.callbacks) + len(self.receiving) + len(self.accepting)


def ignore(_res: int) -> None:
    """Ignore the result of an operation, as `done` of a cancel or a close."""
