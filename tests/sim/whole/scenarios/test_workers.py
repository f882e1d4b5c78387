"""R-Q-4..7, R-Q-10, R-Q-11, R-Q-16, R-CFG-3, R-DUR-10, R-DUR-11, R-DUR-14: whole lives of queues from one number each.

More of them, on a machine that has nothing else to do: TOPICS_TEST_TIMES=500.
"""

from __future__ import annotations

import pytest

from tests.amount import seeds
from tests.sim.whole.run_seed import make_workers, run

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


@pytest.mark.parametrize("seed", seeds(4))
def test_whole_lives_of_queues_from_a_seed(seed: int) -> None:
    counts = run(seed, cast=make_workers)
    if counts["answered 500"] > 50:  # the log failed at once, and all jobs are lost or refused
        return
    assert counts["jobs leased"] > 10
    assert counts["jobs: ack"] + counts["jobs: nack"] > 5
