"""The sockets between cores: one for each core that asks another one, from its first request on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from topics.http.access.routes import Route, RouteTable
from topics.http.lane.plain_writes import LaneTables
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.relay.asked_topic import AskedTopic, asked_topic
from topics.http.relay.relay_client import RelayClient
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.relay.relay_server import RelayServer
from topics.http.relay.relayed_head import RelayedPlans, RelayedRoute, relayed_route
from topics.loop.connection import Connection, Row
from topics.loop.loop import Loop, PassEnd

_log = logging.getLogger(__name__)


class Relays:
    """The requests that this core relays, and those that it answers for others."""

    def __init__(
        self,
        loop: Loop,
        service: Service,
        core: int,
        mailboxes: Sequence[str],
        elsewhere: Callable[[str], int | None],
        *,
        inner: RouteTable,
        tables: LaneTables | None = None,
    ) -> None:
        """inner: the routes of requests by cores themselves. tables: of the lane; None: there is
        none.
        """
        self._loop = loop
        self._service = service
        self._core = core
        self._mailboxes = mailboxes
        self._elsewhere = elsewhere
        self._tables = tables
        self._plans = RelayedPlans(service.routes, service.key_id_of, inner)
        self._routes: dict[Route, RelayedRoute] = {}
        self._due: dict[Callable[[], None], None] = {}
        self._away: set[int] = set(range(len(mailboxes)))
        """Cores that could not be asked the last time, which was logged, or that never were."""
        self._is_flushing = False
        """Whether a pass is ending. What is noted before comes with it."""
        self.asking = _PairHandler(lambda _conn: None, self._answer_single)
        """Handles the sockets to cores that this one asks."""
        self.answering = _PairHandler(self._answer, self._begin_single)
        """Handles the sockets to cores that ask this one."""
        self.asked = [
            RelayClient(number, partial(self._connect, number), self._note_due, loop.call_later, service.answer_turns)
            for number in range(len(mailboxes))
        ]
        """The cores, by number, its own among them, which is never asked."""
        loop.on_pass_end(self._flush, PassEnd.RELAYS)
        service.streams.at_drain.append(self._end_streams)

    def relayed(self, plan: Plan) -> Plan:
        """Return the plan with which another core answers."""
        route = plan.route
        if plan.core is None or route is None:
            return plan
        if plan.relayed is None:
            relayed = self._routes.get(route)
            if relayed is None:
                relayed = self._routes[route] = relayed_route(route, self._ask)
            plan.relayed = plan.as_relayed(relayed)
        return plan.relayed

    def far_topic(self, plan: Plan) -> AskedTopic | None:
        """Return the topic of a relayed write, for plain ones; None: the request is another one."""
        return asked_topic(self.asked, plan)

    def _ask(self, call: Call) -> None:
        core = call.plan.core
        assert core is not None, "relayed to no core"
        self.asked[core].ask(call)

    def _end_streams(self) -> Iterator[None]:
        for asked in self.asked:
            yield from asked.end_streams()

    def _connect(self, number: int) -> Connection | None:
        try:
            conn = self._loop.open_pair(self._mailboxes[number], self._core, self.asking)
        except OSError as error:
            if number not in self._away:
                self._away.add(number)
                _log.warning("core %d cannot be asked: %s", number, os.strerror(error.errno or 0))
            return None
        self._away.discard(number)
        conn.state = self.asked[number]
        return conn

    def _answer(self, conn: Connection) -> None:
        conn.state = RelayServer(self._service, conn, self._plans, self._elsewhere, self._note_due, tables=self._tables)

    def _answer_single(self, asked: RelayClient, data: memoryview) -> bool:
        """Take the answers that are the only receive of a pass.

        Return whether the end of the pass has nothing to do, as they have begun no other request.
        """
        in_flight = self._service.in_flight
        begun = in_flight.total
        asked.receive(data)
        return begun == in_flight.total and self._is_settled

    def _begin_single(self, asking: RelayServer, data: memoryview) -> bool:
        """Take the requests that are the only receive of a pass.

        Return as `_answer_single` does.
        """
        return asking.receive_single(data) and self._is_settled

    @property
    def _is_settled(self) -> bool:
        return not self._due and self._service.gate is None and self._service.engine.is_settled

    def _note_due(self, flush: Callable[[], None]) -> None:
        if self._is_flushing:
            self._loop.another_pass()
        self._due[flush] = None

    def _flush(self) -> None:
        """Send one message to each core that this pass has something for."""
        if not self._due:
            return
        due, self._due = self._due, {}
        self._is_flushing = True
        try:
            for flush in due:
                flush()
        finally:
            self._is_flushing = False


class _PairHandler:
    """Passes what the sockets of one side receive to their states. One that has ended has none."""

    def __init__(self, connected: Callable[[Connection], None], single: Callable[[Any, memoryview], bool]) -> None:
        """single: passes on the only receive of a pass, as `Relays` does."""
        self.connected = connected
        self._single = single

    def receive(self, batch: list[Row]) -> None:
        for conn, view in batch:
            if conn.state is not None:
                self._tell(conn, conn.state.receive, view)

    def receive_single(self, conn: Connection, view: memoryview) -> bool:
        """Take the only receive of a pass. Return whether the end of the pass has nothing to do."""
        state = conn.state
        return state is not None and self._tell(conn, self._single, state, view) is True

    def end_of_stream(self, conn: Connection) -> None:
        self._end(conn)

    def drained(self, conn: Connection) -> None:
        if conn.state is not None:
            self._tell(conn, conn.state.drained)

    def lost(self, conn: Connection, error: int) -> None:
        self._end(conn)

    def _tell(self, conn: Connection, event: Callable[..., bool | None], *values: Any) -> bool | None:
        try:
            return event(*values)
        except DamagedRelayError as error:
            _log.error("the socket to core %d ends, because of a message: %s", conn.peer[1], error)
            self._end(conn)
        except Exception:
            _log.exception("relaying failed by a bug of ours; the socket to core %d ends", conn.peer[1])
            self._end(conn)
        return None

    @staticmethod
    def _end(conn: Connection) -> None:
        state, conn.state = conn.state, None
        conn.abort()
        if state is not None:
            state.lost(conn)
