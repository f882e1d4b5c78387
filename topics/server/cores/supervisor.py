"""The supervisor of a server of several cores: it starts their processes, and ends after the last.

It has no data and no port. To its cores it is what a service manager is to a server: they report to
it that they are ready, what they do, and that their loop makes passes.

    state of a core   its process   left by
    NEW               none          the first start
    STARTING          runs          its report READY, or its end
    READY             runs          its end
    PAUSED            none          the timer of its next start
    ENDED             none          nothing: the supervisor stops

A core that ends before it was ever ready ends all: a setting is wrong, or its directory. One that
ends later is started again after a pause, which grows while it does not stay ready.
"""

from __future__ import annotations

import enum
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from topics.common.transitions import Transitions
from topics.loop.loop import Loop
from topics.loop.timers import Timer

_log = logging.getLogger(__name__)

_SIGNALLED = 128
"""Exit code of a process that a signal has ended, less the number of that signal."""
PAUSE_NS = 100_000_000
PAUSE_MOST_NS = 10_000_000_000
STEADY_NS = 60_000_000_000
"""A core that was ready for so long is started again after the shortest pause."""


class CoreProcesses(Protocol):
    """The processes of cores, one each at most. `Supervisor.on_exit` gets the end of each."""

    def start(self, core: int) -> None:
        """Raises: OSError, there is no process."""

    def send(self, core: int, number: int) -> None:
        """Send a signal to the process of a core, if it has not ended."""


class CoreState(enum.Enum):
    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    ENDED = "ended"


CORE_STATES = Transitions(
    {
        CoreState.NEW: (CoreState.STARTING, CoreState.ENDED),
        CoreState.STARTING: (CoreState.READY, CoreState.PAUSED, CoreState.ENDED),
        CoreState.READY: (CoreState.PAUSED, CoreState.ENDED),
        CoreState.PAUSED: (CoreState.STARTING, CoreState.ENDED),
        CoreState.ENDED: (),
    }
)


class _WatchedCore:
    __slots__ = ("heard_ns", "is_late", "number", "pause_ns", "ready_ns", "state", "status", "timer", "was_ready")

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = CoreState.NEW
        self.status = ""
        self.was_ready = False
        """Whether any of its processes was ready."""
        self.ready_ns = 0
        """When this process was ready."""
        self.heard_ns = 0
        """When it was started, or has reported last."""
        self.is_late = False
        """Whether it was killed because it was silent."""
        self.pause_ns = PAUSE_NS
        """The length of the next pause."""
        self.timer: Timer | None = None

    def enter(self, state: CoreState) -> None:
        self.state = CORE_STATES.check(self.state, state)

    @property
    def runs(self) -> bool:
        return self.state is CoreState.STARTING or self.state is CoreState.READY


class Supervisor:
    """Keeps the processes of all cores running until a signal stops it."""

    def __init__(
        self, loop: Loop, processes: CoreProcesses, cores: int, *, watchdog_ns: int, on_end: Callable[[int], None]
    ) -> None:
        """watchdog_ns: a core that is silent for so long is killed; 0: none is.

        on_end(code): no process is left. Of the last processes of all cores, in their order, it is
        the first exit code that is not 0. One that was killed, and was to be started again, has 0.
        """
        assert cores > 0
        self._loop = loop
        self._processes = processes
        self._cores = [_WatchedCore(number) for number in range(cores)]
        self._watchdog_ns = watchdog_ns
        self._on_end = on_end
        self._codes = [0] * cores
        self.is_stopping = False
        self.was_ready = False
        """Whether all cores were ready at a time: from then on the server serves."""
        self._has_ended = False

    # --- what it is -------------------------------------------------------------------------------------------------
    @property
    def states(self) -> Sequence[CoreState]:
        return [core.state for core in self._cores]

    def status(self) -> str:
        """Return what each core does, in words."""
        return "; ".join(f"core {core.number} {self._status_of(core)}" for core in self._cores)

    @staticmethod
    def _status_of(core: _WatchedCore) -> str:
        return core.status if core.runs and core.status else core.state.value

    # --- what comes -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start all cores."""
        for core in self._cores:
            if not self.is_stopping:  # a core before it could not be started
                self._start(core)
        if self._watchdog_ns:
            self._watch()

    def on_signal(self, number: int) -> None:
        """Pass a signal on. SIGTERM and SIGINT stop; a second one hurries, as it does a server."""
        if number == signal.SIGHUP:
            self._send_all(number)
        else:
            self._stop()

    def on_report(self, number: int, report: str) -> None:
        """Take a report of a core's process: lines as sd_notify(3) describes them."""
        core = self._cores[number]
        if not core.runs:
            return  # its process has ended meanwhile
        core.heard_ns = self._loop.clock.monotonic_ns()
        for line in report.split("\n"):
            name, _, value = line.partition("=")
            if name == "STATUS":
                core.status = value
            elif name == "READY" and core.state is CoreState.STARTING:
                core.enter(CoreState.READY)
                core.was_ready, core.ready_ns = True, core.heard_ns
                self.was_ready = self.was_ready or all(each.state is CoreState.READY for each in self._cores)

    def on_exit(self, number: int, code: int) -> None:
        """Take the end of a core's process. code: negative for a signal, as of `Popen`."""
        core = self._cores[number]
        assert core.runs, "a core has one process"
        was_ready, core.status = core.state is CoreState.READY, ""
        self._codes[number] = code if code >= 0 else _SIGNALLED - code
        if self.is_stopping:
            core.enter(CoreState.ENDED)
            self._look_for_end()
        elif not core.was_ready:
            _log.error("core %d ended with %d before it was ready; the others are stopped", number, code)
            core.enter(CoreState.ENDED)
            self._stop()
        else:
            if was_ready and self._loop.clock.monotonic_ns() - core.ready_ns >= STEADY_NS:
                core.pause_ns = PAUSE_NS
            self._pause(core, f"ended with {code}")

    # --- processes --------------------------------------------------------------------------------------------------
    def _start(self, core: _WatchedCore) -> None:
        core.timer, core.is_late = None, False
        core.enter(CoreState.STARTING)
        core.heard_ns = self._loop.clock.monotonic_ns()
        try:
            self._processes.start(core.number)
        except OSError as error:
            if core.was_ready:
                self._pause(core, f"could not be started: {error}")
                return
            _log.error("core %d could not be started: %s", core.number, error)
            core.enter(CoreState.ENDED)
            self._codes[core.number] = 1
            self._stop()

    def _pause(self, core: _WatchedCore, why: str) -> None:
        _log.error("core %d %s; it is started again in %g s", core.number, why, core.pause_ns / 1e9)
        core.enter(CoreState.PAUSED)
        core.timer = self._loop.call_later(core.pause_ns, lambda: self._start(core))
        core.pause_ns = min(2 * core.pause_ns, PAUSE_MOST_NS)

    def _stop(self) -> None:
        self.is_stopping = True
        for core in self._cores:
            if core.timer is not None:
                core.timer.cancel()
                core.timer = None
            if core.state is CoreState.NEW or core.state is CoreState.PAUSED:
                core.enter(CoreState.ENDED)
                if self._codes[core.number] > _SIGNALLED:
                    self._codes[core.number] = 0  # it was killed before the stop
        self._send_all(signal.SIGTERM)
        self._look_for_end()

    def _send_all(self, number: int) -> None:
        for core in self._cores:
            if core.runs:
                self._processes.send(core.number, number)

    def _look_for_end(self) -> None:
        if not self._has_ended and not any(core.runs for core in self._cores):
            self._has_ended = True
            self._on_end(next((code for code in self._codes if code), 0))

    def _watch(self) -> None:
        """Kill cores that were silent for too long, and look again later."""
        if self._has_ended:
            return
        late_ns = self._loop.clock.monotonic_ns() - self._watchdog_ns
        for core in self._cores:
            if core.runs and core.heard_ns < late_ns and not core.is_late:
                _log.error("core %d has not reported for %g s, and is killed", core.number, self._watchdog_ns / 1e9)
                core.is_late = True
                self._processes.send(core.number, signal.SIGKILL)
        self._loop.call_later(self._watchdog_ns // 4, self._watch)
