"""R-DUR-2, R-DUR-3, R-DUR-13, R-DUR-16: a part of the sweeps; `make sweeps` does all of them."""

from __future__ import annotations

import gc
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.amount import amount, stride
from tests.sim.hunt.put_back import PUT_BACK
from tests.sim.mutants import ROOT, CannotRun, unnoticed
from tests.sim.mutations import MUTANTS
from tests.sim.sweeps import Run, Sweep, part_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _bury_the_dead() -> Iterator[None]:
    """End coroutines of killed processes here, not wherever the collector happens to run next."""
    yield
    gc.collect()


@pytest.mark.parametrize("story", ["records-9", "queues-6"])
def test_a_life_may_end_after_any_operation(story: str) -> None:
    sweep = Sweep(story)
    assert list(sweep.try_all(sweep.crashes()[:: stride(134)])) == []
    assert sweep.counts["runs"] > amount(4)


def test_a_life_may_end_at_any_step_of_a_move_to_compressed_segments_and_of_deletes_in_them() -> None:
    sweep = Sweep("compressed-182")
    assert list(sweep.try_all(sweep.moves()[:: stride(37)])) == []
    assert sweep.counts["runs"] > amount(30)


@pytest.mark.parametrize("story", ["records-9", "queues-6"])
def test_any_operation_may_fail(story: str) -> None:
    sweep = Sweep(story)
    assert list(sweep.try_all(sweep.faults()[:: stride(178)])) == []
    assert sweep.counts["faults met"] >= amount(10)


def test_what_a_kill_left_in_the_page_cache_alone_may_be_gone_after_a_power_cut() -> None:
    """The time between the two counted as if a process had synced meanwhile: an alarm of `records-1`."""
    assert list(Sweep("records-1").try_all([Run(stop_at=1, variant=2), Run(stop_at=48, variant=2)])) == []


def test_the_parts_of_a_sweep_are_all_of_its_runs() -> None:
    """A sweep of one life takes half an hour of CPU; it can be run in several parts."""
    runs = range(17)
    assert sorted(run for number in range(1, 6) for run in part_of(runs, f"{number}/5")) == list(runs)
    with pytest.raises(ValueError, match="6/5 is no part"):
        part_of(runs, "6/5")


@pytest.mark.parametrize("mutant", [*MUTANTS, *PUT_BACK], ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_every_mutant_still_finds_the_text_it_breaks(mutant: object) -> None:
    for path, text, _instead in mutant.patches:  # type: ignore[attr-defined]
        assert (ROOT / "topics" / path).read_text().count(text) == mutant.places, path  # type: ignore[attr-defined]


@pytest.mark.parametrize("hunt", sorted({mutant.hunt for mutant in (*MUTANTS, *PUT_BACK) if "/" in mutant.hunt}))
def test_every_test_that_hunts_a_mutant_is_there(hunt: str) -> None:
    """Two of them moved and were named by a constant that another one replaced: the whole run ended there."""
    path, _, test = hunt.partition("::")
    assert (ROOT / path).exists()
    assert not test or f"def {test.partition('[')[0]}(" in (ROOT / path).read_text()


def test_the_table_of_mutants_names_each_of_them() -> None:
    page = (ROOT / "docs" / "internals" / "simulation.md").read_text()
    listed = re.findall(r"^\| (.+?) \| (?:\d+|test) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(mutant.name for mutant in MUTANTS)


def test_a_copy_of_the_tree_that_cannot_run_is_an_error_and_no_mutant_unnoticed() -> None:
    """It counted as a mutant that no seed noticed, or no test."""
    mutant = MUTANTS[0]
    assert unnoticed(mutant, subprocess.CompletedProcess([], 0, "400 seeds", "")) == (0, "")
    broken = subprocess.CompletedProcess([], 2, "collected 0 items / 1 error", "ImportError: no module")
    with pytest.raises(CannotRun, match="could not run:\ncollected .*ImportError"):
        unnoticed(mutant, broken)
