"""Requests in flight: how many there are, of the server and of each key, on every protocol and on the lane."""

from __future__ import annotations

from topics.http.access.principal import Principal


class InFlight:
    """One server's. A request enters when a handler gets it, and leaves when its answer begins, or never will.

    principal: whose requests are counted, because the key has a cap; None for all others.
    """

    __slots__ = ("requests", "total")

    def __init__(self) -> None:
        self.requests = 0
        """Given to a handler or taken by the lane, and not answered: a stop waits for them."""
        self.total = 0
        """That ever entered."""

    def enter(self, principal: Principal | None, count: int = 1) -> None:
        self.requests += count
        self.total += count
        if principal is not None:
            principal.in_flight += count

    def leave(self, principal: Principal | None, count: int = 1) -> None:
        self.requests -= count
        if principal is not None:
            principal.in_flight -= count

    def answered_at_once(self, count: int) -> None:
        """Count requests that were answered in the call that took them."""
        self.total += count

    @staticmethod
    def occupy(principal: Principal | None) -> None:
        """Count a request against its key before it enters: its body arrives, or it waits for its turn."""
        if principal is not None:
            principal.in_flight += 1

    @staticmethod
    def vacate(principal: Principal | None) -> None:
        """Undo `occupy`: the request enters now, or never will."""
        if principal is not None:
            principal.in_flight -= 1


class Coming:
    """Requests of a pass that are about to enter: whether their keys may have so many is asked before any does."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Principal, int] = {}

    def admits(self, principal: Principal, count: int) -> bool:
        """Add these requests; return whether the key may have them and those added before."""
        coming = self._counts[principal] = self._counts.get(principal, principal.in_flight) + count
        return coming <= principal.in_flight_max

    def is_full(self, principal: Principal) -> bool:
        """Return whether the key may have no request more."""
        return self._counts.get(principal, principal.in_flight) >= principal.in_flight_max


NOTHING_COMES = Coming()
"""For a single request, which is refused or enters at once. Nothing is added to it."""
