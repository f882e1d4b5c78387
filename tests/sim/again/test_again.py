"""R-DUR-1, R-DUR-2, R-DUR-5, R-SEQ-1, R-TOMB-1: clients see the same before and after a kill.

See the package. `make again N=10000` runs more.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.amount import amount
from tests.sim.again.run_lives import replay, run
from tests.sim.seeds import run_chunk

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
SEEDS = range(max(8, amount(16)))
"""Fewer have not all ends in them."""
ALWAYS = ("stop", "kill", "power cut", "second kill", "writes and a third kill")


def test_what_clients_see_before_a_kill_is_what_they_see_after_it() -> None:
    chunk = run_chunk(SEEDS, partial(run, lives_max=1))
    assert not chunk.failures, "\n".join(f"{replay(seed)}: {text}" for seed, text in chunk.failures)
    assert not [end for end in ALWAYS if not chunk.counts[f"the same after: {end}"]], "a comparison was made nowhere"
    assert chunk.counts["promised records seen"] > 10 * len(SEEDS)
    assert chunk.counts["starts stopped"] > len(SEEDS) // 4


def test_a_seed_is_one_run() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run(12, trace.append, lives_max=1)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 20
