"""The gate: refusals by the server's state, between a request's syntax and its route.

Keys are checked before (`topics.http.access.guard`). While the server serves, the service asks no
gate at all (`Service.serve`). Source: wire contract, 2.4 and 13.2.
"""

from __future__ import annotations

import enum

from topics.common.transitions import Transitions
from topics.errors import RequestError
from topics.http.plan.plan import Plan


class ServerState(enum.Enum):
    RECOVERING = "recovering"
    SERVING = "serving"
    DRAINING = "draining"


SERVER_STATES = Transitions(
    {
        ServerState.RECOVERING: (ServerState.SERVING, ServerState.DRAINING),
        ServerState.SERVING: (ServerState.DRAINING,),
        ServerState.DRAINING: (),
    }
)


class Gate:
    """The server's state, as requests meet it."""

    def __init__(self) -> None:
        self.state = ServerState.RECOVERING
        self.progress = 0.0
        """Share of recovery done, 0..1."""

    def open(self) -> None:
        """Admit every request, because recovery has ended."""
        self.state = SERVER_STATES.check(self.state, ServerState.SERVING)
        self.progress = 1.0

    def drain(self) -> None:
        """Refuse new requests, because the server stops."""
        self.state = SERVER_STATES.check(self.state, ServerState.DRAINING)

    def admit(self, plan: Plan) -> RequestError | None:
        """Return the refusal of a request, or None to admit it.

        Probes and metrics are always admitted.
        """
        if plan.route is not None and plan.route.always:
            return None
        return self.refusal()

    def refusal(self) -> RequestError | None:
        """Return why the server serves no requests at the moment; None if it serves."""
        if self.state is ServerState.RECOVERING:
            detail = {"replay_progress": self.progress}
            return RequestError("not_ready", "the log is being recovered; try again in a second", detail)
        if self.state is ServerState.DRAINING:
            return RequestError("shutting_down", "the server is shutting down")
        return None
