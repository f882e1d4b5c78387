"""The WebSockets of a server: checks of the upgrade after its route, and the open sessions.

Source: wire contract 11.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from topics.config import Config
from topics.engine.delivery.audience import Audience
from topics.engine.values.ports import TimersPort
from topics.http.access.scope import Scope
from topics.http.plan.call import Call
from topics.http.plan.service import Service
from topics.http.spanning.portions import AskedCores
from topics.http.spanning.spanning_socket import SpanningSocket
from topics.http.wire.transport import Transport, Waits
from topics.ws.frame_turns import FrameTurns
from topics.ws.handshake import accept_key, switching_protocols
from topics.ws.host import Host
from topics.ws.session import Rights, WebSocketSession


class WebSockets:
    """Accepts upgrades of one service, and ends the sessions when the server drains."""

    def __init__(
        self, config: Config, timers: TimersPort, audience: Audience | None, cores: AskedCores | None = None
    ) -> None:
        """audience: that of all sessions, if their connections share sends. cores: of a server of
        several.
        """
        self._cores = cores
        self.turns = FrameTurns(timers, config.ws_pass_frames)
        """The budget of frames; call its `next_pass` at the end of each pass, before the flush."""
        self._host: Host | None = None
        self._audience = audience
        self._open: set[ServedSession] = set()

    def open(self, call: Call) -> None:
        """Upgrade a request. Raises: RequestError, a wrong handshake or too many connections."""
        service, request, principal, cores = call.service, call.plan.request, call.principal, self._cores
        accept = accept_key(request.headers, request.framing.version_minor)
        slot = service.streams.slots.take(principal)
        scopes = (principal.may(Scope.READ), principal.may(Scope.WRITE), principal.may(Scope.ADMIN))
        rights = Rights(*scopes, principal.allows, principal.prefixes)

        def open_session(transport: Transport) -> ServedSession:
            def on_end() -> None:
                slot.release()
                self._open.discard(session)

            host, far = self._host_of(service), None if cores is None else SpanningSocket(service, cores, principal)
            session = ServedSession(host, transport, rights, on_end, strict=call.plan.strict, far=far)
            slot.on_key_gone = session.on_key_gone
            self._open.add(session)
            return session

        call.upgrade(switching_protocols(accept, call.plan.all_headers), open_session)

    def _host_of(self, service: Service) -> Host:
        """Return the objects that sessions share, created for the first session."""
        if self._host is None:
            self._host = Host(
                service.config,
                service.now_ns,
                service.scanner,
                service.engine,
                self.turns,
                service.long_bodies,
                service.answer_turns,
                self._audience,
                service.has_one_sender,
            )
        return self._host

    def end_all(self) -> Iterator[None]:
        """End all sessions, one a step: see `OpenStreams.at_drain`."""
        for session in list(self._open):
            session.going_away()
            yield


class ServedSession(WebSocketSession):
    """A session, as the sweep and the shutdown expect a connection's state."""

    __slots__ = ()

    arriving = ()
    look_cost = 1

    @property
    def patient(self) -> bool:
        """Whether output may wait without a time limit: not after the end of the session."""
        return not self._ended

    def cut_off(self, body: int) -> None:
        pass

    def overdue(self, waits: Waits) -> bool:
        """Return False: a WebSocket may be silent for any time (11.6)."""
        return False
