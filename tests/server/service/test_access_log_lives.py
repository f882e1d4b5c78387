"""Whole lives with the access log on: each answered request has its line, once.

More of them, on a machine that has nothing else to do: TOPICS_TEST_TIMES=100.
"""

from __future__ import annotations

import pytest

from tests.amount import seeds
from tests.sim.genome import Choices, Genome
from tests.sim.whole import machine as machines
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Machine
from tests.sim.whole.monitors.access_lines import AccessLines
from tests.sim.whole.run_seed import CASTS, run_genome
from tests.sim.whole.web_sockets import WebSocketWire
from tests.sim.world.network import SimNetwork

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


@pytest.mark.parametrize("seed", seeds(8))
def test_whole_lives_have_a_line_for_each_answered_request(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[AccessLines] = []
    begin = WebSocketWire.__init__

    def watch(machine: Machine, choices: Choices) -> None:
        lines = AccessLines(machine, choices)
        found.append(lines)
        monkeypatch.setattr(machines, "Wire", lambda *given: lines.watched(Wire(*given)))

        def connect(wire: WebSocketWire, network: SimNetwork) -> None:
            lines.upgrade()
            begin(wire, network)

        monkeypatch.setattr(WebSocketWire, "__init__", connect)

    run_genome(Genome(seed, {"cast": 1 + seed % (len(CASTS) - 1)}), watch=watch)
    (lines,) = found
    assert lines.counts["answers"] > 50
