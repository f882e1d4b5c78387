"""Counts of the requests in flight, by server and by key, over all protocols and the lane."""

from __future__ import annotations

from topics.http.access.principal import Principal


class InFlight:
    """The requests in flight of one server.

    A request enters when a handler gets it, and leaves when its answer begins, or when there will
    be none. principal: the key that counts the request, because it has a cap; None for other
    requests.
    """

    __slots__ = ("of_others", "requests", "total")

    def __init__(self) -> None:
        self.requests = 0
        """Requests that a handler or the lane has taken, and not answered.

        A stop waits for them.
        """
        self.total = 0
        """Requests that ever entered."""
        self.of_others = 0
        """Requests among them that other cores have asked for, whose clients are there."""

    def enter(self, principal: Principal | None, count: int = 1) -> None:
        self.requests += count
        self.total += count
        if principal is not None:
            principal.in_flight += count

    def leave(self, principal: Principal | None, count: int = 1) -> None:
        self.requests -= count
        if principal is not None:
            principal.in_flight -= count

    @property
    def of_clients(self) -> int:
        """Requests that ever entered, of clients of this core."""
        return self.total - self.of_others

    def answered_at_once(self, count: int) -> None:
        """Count requests that were answered in the call that took them."""
        self.total += count

    def await_end(self) -> None:
        """Have a stop wait for what ends soon, and leaves then as a request does."""
        self.requests += 1

    @staticmethod
    def occupy(principal: Principal | None) -> None:
        """Count a request against its key before it enters.

        Until then its body arrives, or it waits for its turn.
        """
        if principal is not None:
            principal.in_flight += 1

    @staticmethod
    def vacate(principal: Principal | None) -> None:
        """Undo `occupy`: the request enters now, or never will."""
        if principal is not None:
            principal.in_flight -= 1


class Coming:
    """Requests of a pass that are about to enter.

    The caps of their keys are checked before any of them enters.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Principal, int] = {}

    def admits(self, principal: Principal, count: int) -> bool:
        """Add requests; return whether the cap of the key allows them beside those added before."""
        coming = self._counts[principal] = self._counts.get(principal, principal.in_flight) + count
        return coming <= principal.in_flight_max

    def is_full(self, principal: Principal) -> bool:
        """Return whether the cap of the key allows no further request."""
        return self._counts.get(principal, principal.in_flight) >= principal.in_flight_max


NOTHING_COMES = Coming()
"""The counts for a single request, which is refused or enters at once. It stays empty."""
