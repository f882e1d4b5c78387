"""Kills of single cores while the others run, one after another.

    armed -> the core is killed, and away -> it recovers -> what it was asked for has ended -> audits -> armed

Clients that know a start only by an audit are crashed with the core, if it has topics of theirs,
and audited once it is back: what is in flight for them may then be done or not. From its return to
the end of the audit nothing of it fails, as nothing does before the audits of a start: an audit is
one connection, to that core, which has to be answered. Nothing fails either of the cores of other
topics that the audit reads; all the rest may fail meanwhile. All others know of nothing: a request
is done and answered, or it was refused and is not done (503 `not_ready`), or its connection ends
and it is in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.whole.cores.course import Kill
from tests.sim.whole.machine import Actor

if TYPE_CHECKING:
    from tests.sim.whole.cores.core_machine import CoreMachine
    from tests.sim.whole.cores.sim_core import Core
    from tests.sim.whole.machine import Conversation
    from tests.sim.whole.monitors.watched_process import Served

_LINGER_NS = 60_000_000
"""The longest that a request of a lost connection can still be in flight."""
_TURNS_NS = 500_000_000
"""Longer than the largest body takes in turns of few bytes."""
_TURN_BYTES = 1000
_STARTS_MAX = 3
_QUIET_NS = 250_000_000
"""For so long after a core is back, requests may be late."""


class CoreKills:
    """The kills of one life."""

    def __init__(self, machine: CoreMachine, kills: Sequence[Kill], actors: Sequence[Actor]) -> None:
        self._machine = machine
        self._left = list(kills)
        self._actors = actors
        self._core: Core | None = None
        """The core that is to die, or is away."""
        self._kill: Kill | None = None
        self._is_over = False
        """Whether there are no more kills."""
        self._is_away = False
        self._is_back = False
        """Whether it serves again, and what was in flight is waited for."""
        self._is_due = False
        """Whether the time of the next step has come."""
        self._crashed: list[Actor] = []
        self._talk: Conversation | None = None
        self._failed = 0
        """Starts of the core that failed, one after another."""
        self._quiet_ns = 0
        self._writes_left = 0
        """The number of writes of its log with the last of which the core is to die."""
        self._arm()

    @property
    def is_idle(self) -> bool:
        """Return whether no core is to come back, and all clients know what a start has left."""
        return not (self._is_away or self._is_back) or self.has_given_up

    @property
    def has_given_up(self) -> bool:
        """Return whether the core stays away in this life, because its disk fails."""
        return self._failed >= _STARTS_MAX

    @property
    def disturbs(self) -> bool:
        """Return whether requests may be refused or late: a core is away, or has just come back."""
        return self._is_away or self._is_back or self._machine.ring.clock.monotonic_ns() < self._quiet_ns

    def _arm(self) -> None:
        if not self._left:
            return
        self._kill = self._left.pop(0)
        self._core = self._machine.cores[self._kill.core]
        ring = self._core.ring
        if self._kill.log_writes:
            self._writes_left = self._kill.log_writes
            ring.faults.on_seen = self._seen
        else:
            ring.stop_at(ring.effects + self._kill.effects)

    def _seen(self, kind: str, path: str) -> None:
        """Let the core end with a write of its log."""
        core = self._core
        assert core is not None, "a kill is planned"
        if kind == "write" and path.startswith(f"{core.config.data_dir}/wal/"):
            self._writes_left -= 1
            if not self._writes_left:
                core.ring.faults.on_seen = None
                core.ring.stop_at(core.ring.effects + 1)

    def end(self) -> None:
        """Plan no more kills."""
        self._left, self._is_over = [], True
        self._machine.ring.faults.on_seen = None
        if self._core is not None and self._kill is not None:
            self._core.ring.stop_at(0)
            self._kill = self._kill._replace(again=0)

    def forget(self) -> None:
        """Note that all cores end now."""
        self.end()
        self._machine.release_faults()
        if self._talk is not None:
            self._talk.forget()

    def strike(self) -> bool:
        """Kill the core whose ring has stopped the run; return False if all cores have to end.

        A core of which a sync has failed may have lost records (R-DUR-16). Only audits of a start of
        all cores know that.
        """
        core, kill = self._core, self._kill
        if self._is_over or core is None or kill is None or core.server is None or not core.ring.has_stopped:
            return False
        if self._machine.is_noted(core.config.data_dir):
            self._machine.counts["kills of one core that ended all, since its disk had failed"] += 1
            return False
        self._is_away, self._is_due, self._is_back = True, False, False
        self._machine.kill_core(core)
        self._after(kill.away_ns)
        for actor in self._actors:
            if not actor.knows_no_starts and actor not in self._crashed and actor.audits_at(self._is_there):
                actor.crashed()
                self._crashed.append(actor)
        return True

    def returns_later(self, core: Core) -> bool:
        """Note the end of a core, which is started again if its kill was followed by a start that failed."""
        if core is not self._core or self._kill is None or not self._is_away:
            return False
        core.kill()
        core.ended.clear()
        self._failed += 1
        if not self.has_given_up:
            self._after(self._kill.away_ns)
        return True

    def _is_there(self, path: str) -> bool:
        """Return whether a topic is on the core that was killed."""
        return self._machine.home(path.rpartition("/")[2]) is self._core

    def _asked_beside(self) -> list[Served]:
        """Return the cores of other topics that the audits read."""
        names = [name for actor in self._crashed for name in actor.asked_beside(self._is_there)]
        return [self._machine.home(name) for name in names]

    def look(self) -> None:
        """Do what is due."""
        core, kill, machine = self._core, self._kill, self._machine
        if core is None or kill is None:
            return
        if self._is_away and self._is_due:
            self._is_due = False
            machine.start_core(core)
            if core.ended:
                self.returns_later(core)
            elif kill.again:
                core.ring.stop_at(kill.again)
                self._kill = kill._replace(again=0)
        elif self._is_away and core.serves:
            core.ring.stop_at(0)
            self._is_away, self._is_back, self._failed = False, True, 0
            machine.hold_faults([core, *self._asked_beside()])
            machine.note_return(core)
            is_slow = machine.config.pass_body_bytes < _TURN_BYTES
            self._after(_LINGER_NS + _TURNS_NS * is_slow if self._crashed else 0)
        elif self._is_back and self._is_due:
            self._is_due = False
            audits = [audit for actor in self._crashed for audit in actor.audits_at(self._is_there)]
            self._talk = machine.talk_at(core, audits)
        elif self._talk is not None and self._talk.is_over:
            self._talk.end()
            machine.release_faults()
            self._talk, self._is_back, self._core = None, False, None
            self._quiet_ns = machine.ring.clock.monotonic_ns() + _QUIET_NS
            crashed, self._crashed = self._crashed, []
            for actor in crashed:
                actor.go()
            self._arm()

    def _after(self, delay_ns: int) -> None:
        def note() -> None:
            self._is_due = True

        self._machine.ring.events.after(delay_ns, note)
