"""Reports to the service manager that started the server, as sd_notify(3) describes them.

The manager learns when recovery has ended (READY), what the server does (STATUS), that a long start
or stop needs more time (EXTEND_TIMEOUT_USEC), and that the loop makes passes (WATCHDOG).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from topics.loop.loop import Loop
from topics.server.gate import ServerState

_log = logging.getLogger(__name__)

_LOOK_EVERY_NS = 1_000_000_000
_EXTENSION_US = 30_000_000
"""Time that a start or a stop gets with each report, so that it ends only with the loop."""


class ServiceManager(NamedTuple):
    """A manager that wants reports.

    address: of its datagram socket. watchdog_ns: it ends a server that was silent for this time; 0:
    it does not.
    """

    address: str
    watchdog_ns: int


def service_manager_of(env: Mapping[str, str], pid: int) -> ServiceManager | None:
    """Return the manager that the variables of a process name; None: there is none."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    watchdog = env.get("WATCHDOG_USEC", "")
    is_watched = watchdog.isdecimal() and env.get("WATCHDOG_PID", str(pid)) == str(pid)
    return ServiceManager(address, int(watchdog) * 1000 if is_watched else 0)


class ReportedServer(Protocol):
    """The parts of a server that are reported."""

    @property
    def state(self) -> ServerState: ...

    def status(self) -> str:
        """Return what the server does, in words."""


class ServiceReports:
    """Looks at the server each second, and reports what is new."""

    def __init__(self, loop: Loop, manager: ServiceManager, server: ReportedServer) -> None:
        self._loop = loop
        self._manager = manager
        self._server = server
        self._state = ServerState.RECOVERING
        """The state that was reported last."""
        self._status = ""
        self._alive_ns = -manager.watchdog_ns
        """When the loop was reported alive last."""
        self._every_ns = min(_LOOK_EVERY_NS, manager.watchdog_ns // 4 or _LOOK_EVERY_NS)
        self._has_failed = False

    def start(self) -> None:
        self.look()
        self._loop.call_later(self._every_ns, self.start)

    def look(self) -> None:
        """Report what has changed, and what is due. The caller may call it at any change."""
        now_ns = self._loop.clock.monotonic_ns()
        state, status = self._server.state, " ".join(self._server.status().split())
        lines = []
        if state is not self._state:
            self._state = state
            lines.append("READY=1" if state is ServerState.SERVING else "STOPPING=1")
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        if state is not ServerState.SERVING:
            lines.append(f"EXTEND_TIMEOUT_USEC={_EXTENSION_US}")
        watchdog_ns = self._manager.watchdog_ns
        if watchdog_ns and now_ns - self._alive_ns >= watchdog_ns // 2:
            self._alive_ns = now_ns
            lines.append("WATCHDOG=1")
        if lines:
            self._send("\n".join(lines))

    def _send(self, text: str) -> None:
        result = self._loop.ring.send_datagram(self._manager.address, text.encode())
        if result < 0 and not self._has_failed:
            self._has_failed = True
            _log.warning("the service manager at %s gets no reports: %s", self._manager.address, os.strerror(-result))
