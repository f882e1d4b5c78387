"""R-DUR-1..3, R-DUR-5..9, R-DUR-13, R-DUR-15, R-SEQ-1..5, R-FLOOR-1..6, R-TOMB-1..6, R-DEL-1..7, R-IDEM-3, R-IDEM-4,
R-IDEM-8, R-REC-1, R-CAP-1..6, R-TTL-1, R-TTL-3, R-RTR-1, R-RTR-2, R-RTR-4, R-RTR-6, R-RTR-11, R-RTR-16, R-EO-3: whole
lives of a server from one number each.

See the package. `make sim N=100000` runs more, and so does TOPICS_TEST_TIMES.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.amount import amount, seeds
from tests.sim.seeds import run_chunk
from tests.sim.whole.run_seed import replay
from tests.sim.whole.run_seed import run as run_seed
from tests.sim.whole.seed_plan import SHORT, WHOLE, Length
from topics.embedded.open_logs import open_logs

CHUNK = min(25, amount(50))
SEEDS = seeds(2 * CHUNK)
SHORT_SEEDS = seeds(2 * CHUNK)
ALWAYS = (
    "snapshots checked",
    "syncs before acks checked",
    "records read back",
    "copies read back",
    "seqs found to be reserved",
    "files given up with live records copied",
    "recoveries interrupted",
    "recovered twice",
    "recovered twice to the same bytes",
    "graceful stops",
    "lives in which all was answered",
    "runs of the library",
    "logs that were read only first",
    "faults: sync",
    "faults: write",
    "turned away by a long log",
    "writes in a streak",
    "publishes in a streak",
)
"""The counts of what each chunk has done, or with the one after it, by the name of their count."""
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_whole_lives_from_a_seed(first: int) -> None:
    counts = _check(range(first, first + CHUNK), WHOLE)
    if not all(counts[name] for name in ALWAYS):
        counts += _check(range(first + CHUNK, first + 2 * CHUNK), WHOLE)
    assert not [name for name in ALWAYS if not counts[name]], "a check was made nowhere"


@pytest.mark.parametrize("first", SHORT_SEEDS[::CHUNK])
def test_a_crash_and_what_is_left_from_a_seed(first: int) -> None:
    _check(range(100_000 + first, 100_000 + first + CHUNK), SHORT)


def _check(seeds: range, length: Length) -> Counter[str]:
    chunk = run_chunk(seeds, partial(run_seed, length=length))
    assert not chunk.failures, "\n".join(f"{replay(seed, length)}: {text}" for seed, text in chunk.failures)
    assert chunk.counts["operations"] >= length.operations * CHUNK
    assert chunk.counts["turned away though nothing was lacking"] <= chunk.counts["operations"] // 50
    assert chunk.counts["kills"] + chunk.counts["power cuts"] >= length.crashes * CHUNK
    return chunk.counts


def test_no_killed_library_is_waited_for_when_this_process_ends() -> None:
    """A close of what is open at its end would wait for the close of a process that is dead: for ever."""
    assert run_seed(2, length=SHORT)["runs of the library"]
    logs: list[Any] = [*open_logs]
    assert not [log for log in logs if log._closed]


def test_a_call_of_the_library_that_comes_in_a_pass_is_made_after_it() -> None:
    """The driver slept first, until the next timer: a read took 946 ms."""
    assert run_seed(417)["runs of the library"]


def test_a_seed_is_one_run() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run_seed(12, trace.append)
    difference = next((pair for pair in itertools.zip_longest(*traces) if pair[0] != pair[1]), None)
    assert difference is None
