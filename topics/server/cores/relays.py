"""The sockets between cores: one for each core that asks another one, from its first request on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topics.http.access.routes import Route
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.relay.asked_core import AskedCore
from topics.http.relay.asking_core import AskingCore
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.relay.relayed_head import RelayedPlans, RelayedRoute, relayed_route
from topics.loop.connection import Connection, Row
from topics.loop.loop import Loop

_log = logging.getLogger(__name__)

RELAY_ORDER = 29
"""Position among the hooks at the end of a pass: after all answers, before the sends."""


class Relays:
    """The requests that this core relays, and those that it answers for others."""

    def __init__(
        self,
        loop: Loop,
        service: Service,
        core: int,
        mailboxes: Sequence[str],
        elsewhere: Callable[[str], int | None],
    ) -> None:
        self._loop = loop
        self._service = service
        self._core = core
        self._mailboxes = mailboxes
        self._elsewhere = elsewhere
        self._plans = RelayedPlans(service.routes)
        self._routes: dict[Route, RelayedRoute] = {}
        self._due: dict[Callable[[], None], None] = {}
        self.asking = _PairHandler(lambda _conn: None)
        """Handles the sockets to cores that this one asks."""
        self.answering = _PairHandler(self._answer)
        """Handles the sockets to cores that ask this one."""
        self.asked = [
            AskedCore(number, partial(self._connect, number), self._note_due, loop.call_later, service.failures)
            for number in range(len(mailboxes))
        ]
        """The cores, by number, its own among them, which is never asked."""
        loop.on_pass_end(self._flush, RELAY_ORDER)

    def relayed(self, plan: Plan) -> Plan:
        """Return the plan with which another core answers; streams stay refused."""
        route = plan.route
        if plan.core is None or route is None or route.stream:
            return plan
        relayed = self._routes.get(route)
        if relayed is None:
            relayed = self._routes[route] = relayed_route(route, self._ask)
        return plan.as_relayed(relayed)

    def _ask(self, call: Call) -> None:
        core = call.plan.core
        assert core is not None, "relayed to no core"
        self.asked[core].ask(call)

    def _connect(self, number: int) -> Connection | None:
        try:
            conn = self._loop.open_pair(self._mailboxes[number], self._core, self.asking)
        except OSError as error:
            _log.warning("core %d cannot be asked: %s", number, os.strerror(error.errno or 0))
            return None
        conn.state = self.asked[number]
        return conn

    def _answer(self, conn: Connection) -> None:
        conn.state = AskingCore(self._service, conn, self._plans, self._elsewhere, self._note_due)

    def _note_due(self, flush: Callable[[], None]) -> None:
        if not self._due:
            self._loop.call_soon(_nothing)  # so that there is another pass, if this one has ended
        self._due[flush] = None

    def _flush(self) -> None:
        """Send one message to each core that this pass has something for."""
        due, self._due = self._due, {}
        for flush in due:
            flush()


class _PairHandler:
    """Passes what the sockets of one side receive to their states. One that has ended has none."""

    def __init__(self, connected: Callable[[Connection], None]) -> None:
        self.connected = connected

    def receive(self, batch: list[Row]) -> None:
        for conn, view in batch:
            if conn.state is not None:
                self._tell(conn, conn.state.receive, view)

    def end_of_stream(self, conn: Connection) -> None:
        self._end(conn)

    def drained(self, conn: Connection) -> None:
        if conn.state is not None:
            self._tell(conn, conn.state.drained)

    def lost(self, conn: Connection, error: int) -> None:
        self._end(conn)

    def _tell(self, conn: Connection, event: Callable[..., None], *values: Any) -> None:
        try:
            event(*values)
        except DamagedRelayError as error:
            _log.error("the socket to core %d ends, because of a message: %s", conn.peer[1], error)
            self._end(conn)
        except Exception:
            _log.exception("relaying failed by a bug of ours; the socket to core %d ends", conn.peer[1])
            self._end(conn)

    @staticmethod
    def _end(conn: Connection) -> None:
        state, conn.state = conn.state, None
        conn.abort()
        if state is not None:
            state.lost(conn)


def _nothing() -> None:
    """Make the next pass start at once, by being ready."""
