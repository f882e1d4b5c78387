"""R-CORE-1, R-CORE-2, R-CORE-4, R-CORE-5, R-CORE-7 to R-CORE-13, R-CORE-15: whole lives of servers of several cores
from one number each, with the clients and the oracle of one core.

`make sim ARGS=--cores` runs more.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.amount import amount, seeds
from tests.sim.seeds import run_chunk
from tests.sim.whole.cores.course import Bounds
from tests.sim.whole.cores.refused_moves import is_right
from tests.sim.whole.run_seed import make_workers, replay, run
from tests.sim.whole.seed_plan import SHORT
from topics.store.cores.slot_map import SlotMap

CORES = Bounds(2, 4)
ALWAYS = ("cores that came back", "moves of slots", "connections handed over", "requests relayed")
"""The counts of what these seeds have done."""
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


def test_whole_lives_of_several_cores_from_a_seed() -> None:
    chunk = run_chunk(seeds(12), partial(run, length=SHORT, cores=CORES))
    assert not chunk.failures, "\n".join(f"{replay(seed, SHORT, CORES)}: {text}" for seed, text in chunk.failures)
    assert not [name for name in ALWAYS if not chunk.counts[name]]


def test_dead_letters_come_once_to_another_core() -> None:
    """R-CORE-15: and no worker gets a job that is one."""
    chunk = run_chunk(range(6, 6 + amount(4)), partial(run, length=SHORT, cores=CORES, cast=make_workers))
    assert not chunk.failures, "\n".join(f"{seed}: {text}" for seed, text in chunk.failures)
    assert chunk.counts["dead letters of queues of another core"]


@pytest.mark.parametrize(("text", "bounds"), [("2..4", Bounds(2, 4)), ("3", Bounds(3, 3)), ("1..2", Bounds(1, 2))])
def test_the_number_of_cores_is_a_range_or_one_number(text: str, bounds: Bounds) -> None:
    assert Bounds.parse(text) == bounds


@pytest.mark.parametrize("text", ["", "0", "4..2", "two"])
def test_what_is_no_number_of_cores_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Bounds.parse(text)


def _names(slots: SlotMap, cores: int) -> tuple[str, str]:
    """Return two names that are on one core before a move to this number of cores, and on two after it."""
    after = slots.moved_to(cores)
    names = [f"t{number}" for number in range(200)]
    return next(
        (one, other)
        for one in names
        for other in names
        if slots.core_of(one) == slots.core_of(other) and after.core_of(one) != after.core_of(other)
    )


def test_a_refused_move_has_a_reason_that_holds() -> None:
    before = SlotMap.balanced(2)
    one, other = _names(before, 3)
    now = [before.moved_to(3).core_of(name) for name in (one, other)]
    sentence = (
        f"router r copies from {one} to {other}, which would be on cores {now[0]} and {now[1]}, and a move divides"
    )
    assert is_right(sentence, before, 3)
    assert not is_right(sentence, before, 2)
    assert not is_right(sentence.replace(f" cores {now[0]} and", " cores 7 and"), before, 3)
    assert not is_right("there is no space", before, 3)
