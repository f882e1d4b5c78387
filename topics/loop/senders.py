"""Which connections have the loop to themselves: the only one that sends data, or one of two.

Blocking the loop delays no other client then, so what they wait for may be done in place: a write
of the log (store/wal/in_place_commits.py), and the send of its answer.
"""

from __future__ import annotations

ONE_SENDER_PASSES = 8
"""Passes with data in which one connection must be the only sender, to have the loop to itself.

Two connections that send by turns have it together after as many.
"""


class Senders:
    """The connections that sent data in the last passes."""

    def __init__(self, least_passes: int = ONE_SENDER_PASSES) -> None:
        self.least_passes = least_passes
        """Passes with data that a connection must have been the only sender for."""
        self._last = 0
        """`send_data` of the only connection that sent data in the last pass with any; or 0."""
        self._before = 0
        """The value of `_last` before another connection sent data."""
        self._passes_of_one = self._passes_of_few = 0
        """Passes with data up to now, each with one receive, of the same one or two connections."""
        self.to_answer = 0
        """`send_data` of the connection, of those that have the loop to themselves (`are_few`),
        that sent data in this pass. Its next send is made in place.
        """
        self.may_answer_another = False
        """Whether one more send is made in place after that one, to a reader that waited for it."""

    @property
    def is_one(self) -> bool:
        """Whether one connection has been the only sender for a while."""
        return self._passes_of_one >= self.least_passes

    @property
    def are_few(self) -> bool:
        """Whether one or two connections have been the only senders for a while, never at once.

        One that writes and one that waits for each write are an example.
        """
        return self._passes_of_few >= self.least_passes

    def count(self, sender: int) -> bool:
        """Count the passes in which the same connection was the only sender, with one receive.

        sender: its `send_data`; 0 if several have sent, or one has several receives.
        Return `is_one`.
        """
        if sender == self._last and sender:
            self._passes_of_one += 1
        else:
            was_before = sender == self._before and sender
            self._before, self._last = self._last, sender
            self._passes_of_one = 0
            if not was_before:
                self._passes_of_few = self.to_answer = 0
                self.may_answer_another = False
                return not self.least_passes
        self._passes_of_few += 1
        if self._passes_of_few >= self.least_passes:
            self.to_answer = sender
            self.may_answer_another = True
        return self._passes_of_one >= self.least_passes

    def take_send(self, send_data: int) -> bool:
        """Return whether a connection's write is sent in place; it is counted as made then."""
        if send_data != self._last:
            may, self.may_answer_another = self.may_answer_another, False
            return may
        if not self.to_answer:
            return False
        self.to_answer = 0
        return True
