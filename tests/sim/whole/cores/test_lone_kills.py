"""Kills of single cores: what is excused of the others meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from tests.sim.whole.cores.core_machine import CoreMachine
from tests.sim.whole.cores.course import Bounds, Kill
from tests.sim.whole.cores.lone_kills import CoreKills
from tests.sim.whole.machine import Actor, Audit
from tests.sim.whole.seed_plan import SHORT, Plan
from tests.sim.world.faults import FOREVER

CORES = 4
KILLED, BESIDE = 1, 3
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


def test_faults_are_held_for_the_cores_of_an_audit_alone() -> None:
    """All others accept no connection meanwhile."""
    machine = CoreMachine(Plan(1, SHORT), None, Bounds(CORES, CORES))
    assert machine.start()
    names = [f"t{number}" for number in range(100)]
    of_core = {machine.slots.core_of(name): name for name in names}
    answered: list[int] = []

    def audit(path: str) -> Audit:
        status, _answer = yield "GET", path, None
        answered.append(status)
        assert held() == {KILLED, BESIDE}

    def held() -> set[int]:
        return {core.core for core in machine.cores if core.ring.holds_faults}

    def audits_at(is_there: Callable[[str], bool]) -> list[Audit]:
        return [audit(f"/v0/topics/{name}") for name in of_core.values() if is_there(f"/v0/topics/{name}")]

    actor = Mock(spec=Actor, knows_no_starts=False, audits_at=audits_at, asked_beside=lambda _: [of_core[BESIDE]])
    machine.ring.faults.fail("accept", errno.EMFILE, times=FOREVER)
    kill = Kill(core=KILLED, effects=1, log_writes=0, away_ns=20_000_000, again=0)
    kills = machine._kills = CoreKills(machine, [kill], [actor])
    machine.run_until(lambda: kills._is_back)
    assert held() == {KILLED, BESIDE}
    machine.run_until(lambda: kills.is_idle)
    assert answered == [404]
    assert not held()
