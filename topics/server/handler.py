"""The handler of the loop's connections, which gives the input of a pass to their states."""

from __future__ import annotations

import logging

from topics.common.histograms import Histogram
from topics.http.lane.lane import Lane
from topics.http.lane.single import LEFT, SETTLED, UNSETTLED, SingleOutcome
from topics.http.plan.service import Service
from topics.http.protocol_choice import FirstBytes
from topics.loop.connection import Connection
from topics.server.websocket import ServedSession

_log = logging.getLogger(__name__)

_SAMPLED = 16


class HttpHandler:
    """Serves all connections of a listener; a bug in handling one closes only that connection."""

    def __init__(self, service: Service, lane: Lane | None = None) -> None:
        self._service = service
        self._lane = lane
        self.takes_rows = lane is not None
        self.receive_single = None if lane is None else self._receive_single
        self.requests = Histogram()
        """Durations of a pass's receives: parsing, handling and staging all requests in them.

        Of requests that are taken by themselves, one of `_SAMPLED` is timed, and counts for all.
        """
        self._singles = 0

    def connected(self, conn: Connection) -> None:
        conn.state = FirstBytes(self._service, conn)

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> bool:
        service = self._service
        now_ns, turns = service.now_ns, service.turns
        turns.seen_ns = started_ns = now_ns()
        service.sampling = True
        lane = self._lane
        if lane is not None and service.served:
            lane.learn()
        rest = batch if lane is None else self._through(lane, batch)
        several = len(rest) > 1
        for conn, view in rest:
            try:
                conn.state.receive(view)
            except Exception:
                self._give_up(conn)
            if several:
                turns.charge()
        self.requests.add(now_ns() - started_ns)
        is_settled = not rest and lane is not None and lane.is_settled and service.engine.is_settled
        if is_settled:
            turns.seen_ns = 0  # as the end of the pass does, which is left out
        return is_settled

    def _receive_single(self, conn: Connection, view: memoryview) -> bool | None:
        """Take the only receive of the pass if it is one plain request, or of a WebSocket."""
        service, lane = self._service, self._lane
        assert lane is not None, "offered without a lane"
        if lane.least == 1:
            return None
        started_ns = service.now_ns()
        if service.served:
            lane.learn()
        try:
            outcome = lane.single.take(conn, view, started_ns)
        except Exception:
            self._give_up(conn)
            return False
        if outcome is LEFT:
            outcome = self._receive_frames(conn, view)
            if outcome is LEFT:
                return None
        self._singles += 1
        if not self._singles % _SAMPLED:
            self.requests.add_sample(service.now_ns() - started_ns, _SAMPLED)
        if outcome is SETTLED:
            return True
        service.turns.seen_ns = started_ns
        return False

    def _receive_frames(self, conn: Connection, view: memoryview) -> SingleOutcome:
        """Let a WebSocket take the only receive of the pass. LEFT: it is for the general path."""
        session = conn.state
        if type(session) is not ServedSession:
            return LEFT
        try:
            is_settled = session.receive_single(view)
        except Exception:
            self._give_up(conn)
            return UNSETTLED
        return LEFT if is_settled is None else SETTLED if is_settled else UNSETTLED

    def _through(self, lane: Lane, batch: list[tuple[Connection, memoryview]]) -> list[tuple[Connection, memoryview]]:
        """Return the receives that the lane leaves to the general path.

        After a bug in the lane it is unknown which receives it took, so all its connections are
        closed.
        """
        try:
            return lane.take(batch)
        except Exception:
            lane.is_settled = False
            for conn in (*lane.connections(), *(conn for conn, _view in batch)):
                self._give_up(conn)
            return []

    def end_of_stream(self, conn: Connection) -> None:
        try:
            if conn.owned and self._lane is not None:
                self._lane.leave(conn)
            conn.state.end_of_stream()
        except Exception:
            self._give_up(conn)

    def drained(self, conn: Connection) -> None:
        try:
            conn.state.drained()
        except Exception:
            self._give_up(conn)

    def lost(self, conn: Connection, error: int) -> None:
        try:
            conn.state.lost()
            conn.state = None
        except Exception:
            _log.exception("ending connection %d failed by a bug of ours", conn.id)

    @staticmethod
    def _give_up(conn: Connection) -> None:
        _log.exception("handling connection %d failed by a bug of ours; it is closed", conn.id)
        conn.abort()
