"""Which requests get in: the steps between a request's syntax and its route. Source: wire contract, 2.4 and 13.2.

Keys have been asked for by then (`topics.http.access.guard`). While the server serves there is nothing to ask, and the
service has no gate at all.
"""

from __future__ import annotations

import enum

from topics.errors import RequestError
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service


class ServerState(enum.Enum):
    RECOVERING = "recovering"
    SERVING = "serving"
    DRAINING = "draining"


class Gate:
    """The server's state as requests meet it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.state = ServerState.RECOVERING
        self.progress = 0.0
        """Share of recovery done, 0..1."""
        service.gate = self.admit

    def open(self) -> None:
        """Recovery is over: every request gets in."""
        self.state = ServerState.SERVING
        self.progress = 1.0
        self._service.gate = None

    def drain(self) -> None:
        """The server is going away: what is new is refused, and every answer is its connection's last."""
        self.state = ServerState.DRAINING
        self._service.gate = self.admit
        self._service.closing = True

    def admit(self, plan: Plan) -> RequestError | None:
        """The refusal of a request, None to let it in. Probes and metrics always get in."""
        if plan.route is not None and plan.route.always:
            return None
        return self.refusal()

    def refusal(self) -> RequestError | None:
        """Why nothing is served at the moment."""
        if self.state is ServerState.RECOVERING:
            detail = {"replay_progress": self.progress}
            return RequestError("not_ready", "the log is being recovered; try again in a second", detail)
        if self.state is ServerState.DRAINING:
            return RequestError("shutting_down", "the server is shutting down")
        return None
