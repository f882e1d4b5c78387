"""The machine, on simulated machines and on a real server; `make model` runs it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amount import amount
from tests.long.model.compare_views import compare
from tests.long.model.rule_machine import HOLDS
from tests.long.model.run_examples import Simulated, run_live, run_simulated

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_server_does_what_the_oracle_says() -> None:
    """R-SEQ-2, R-SEQ-4, R-FLOOR-5, R-CAP-1, R-CAP-3, R-CAP-5, R-TTL-2, R-DEL-1, R-DEL-2, R-REC-1, R-IDEM-3, R-RTR-2,
    R-RTR-6, R-RTR-12, R-RTR-13, R-RTR-15, R-RTR-16, R-RTR-18, R-TRIM-1, R-TRIM-2, R-EO-1, R-Q-3, R-Q-5, R-Q-7, R-Q-22,
    R-DUR-2, R-DUR-11, R-DUR-12, R-DUR-15: in any order, with kills and power cuts."""
    run_simulated(examples=amount(8), steps=20)


@pytest.mark.parametrize("way", HOLDS)
def test_what_a_cap_has_taken_stays_lost_when_a_reader_holds_it_and_the_server_is_killed(way: str) -> None:
    """R-READER-8, R-DUR-8: few examples have such a reader and no checkpoint before the kill."""
    machine = Simulated()
    life = {"http2": False, "wal_shards": 1}
    machine.begin(seed=1, life=life, synced=False, scene="nothing", works=[])
    machine.hold_what_a_cap_has_taken(name="b", reader="e", way=way, life=life)
    machine.follow(lambda: compare(machine))
    assert machine.oracle.places["b"].topic.cap > 0
    machine.teardown()


def test_a_real_server_does_what_the_oracle_says(tmp_path: Path) -> None:
    """The machine over loopback, with SIGTERM and SIGKILL."""
    run_live(tmp_path, examples=amount(2), steps=10, restarts_max=1)
