"""Counts of answers by route and status, and their times, over all protocols and the lane."""

from __future__ import annotations

from topics.common.histograms import Histogram
from topics.http.access.routes import Route


class RouteAnswers:
    """The answers of one route.

    times: from the request to the beginning of its answer, waits that the client asked for
    included; of those refused before their handler none is timed.
    """

    __slots__ = ("statuses", "times")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        """Number of answers by status."""
        self.times = Histogram()

    def count(self, status: int, answers: int = 1) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + answers

    def add(self, status: int, ns: int) -> None:
        """Count and time one answer."""
        statuses = self.statuses
        statuses[status] = statuses.get(status, 0) + 1
        self.times.add(ns)

    def add_many(self, status: int, ns: int, answers: int) -> None:
        """Count answers that began together, and took as long."""
        self.count(status, answers)
        self.times.add_sample(ns, answers)


class Answered:
    """The answers of one server. There are as many entries as routes that were asked for."""

    __slots__ = ("by_route",)

    def __init__(self) -> None:
        self.by_route: dict[Route | None, RouteAnswers] = {}
        """The answers by route; None: of requests that no route takes."""

    def of(self, route: Route | None) -> RouteAnswers:
        found = self.by_route.get(route)
        if found is None:
            found = self.by_route[route] = RouteAnswers()
        return found
