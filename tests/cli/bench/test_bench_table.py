"""The lines of a run about its rounds."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.cli.bench.results_of_rounds import outcome
from topics.bench.outcome import RoundOutcome
from topics.bench.peers.known_peers import own_side
from topics.bench.results.bench_table import LiveTable
from topics.bench.round_checks import unanswered_warnings
from topics.bench.workload import parse_workload


def unanswered(kind: str = "write", *, ok: bool = True) -> RoundOutcome:
    """A round whose measured time ended before any answer came."""
    made = outcome(0.0, ok=ok)
    made.loads = [replace(made.loads[0], kind=kind, requests=0, records=0, latencies={}, series=[])]
    return made


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (outcome(1000), "records/s 1,000 ok"),
        (unanswered(), "records/s 0.00 nothing was answered"),
        (unanswered(ok=False), "records/s 0.00 CHECK FAILED"),
        (unanswered("idle"), "records/s 0.00 ok"),
    ],
)
def test_a_round_is_ok_only_if_something_was_answered_or_nothing_was_asked(made: RoundOutcome, line: str) -> None:
    written = io.StringIO()
    table = LiveTable(Console(file=written), "write-lone")
    workload = parse_workload('[[load]]\nkind = "write"\n', "x")
    case, side = workload.cases()[0], own_side(workload, "", "", {})
    with table:
        table.starts(case, side, 0, 1)
        table.ended(case, side, made, "")
    assert written.getvalue() == f"write-lone: topics: round 1 of 1: {line}\n"


def test_a_result_warns_of_each_load_without_an_answer() -> None:
    answered = outcome(1000).loads[0]
    made = unanswered()
    made.loads.append(replace(answered, name="read"))
    sentence = "write: nothing was answered in the 1.00 s that were measured, so this rate is not the server's: measure"
    assert unanswered_warnings(made) == [f"{sentence} for longer (--seconds)"]
    assert unanswered_warnings(outcome(1000)) == []
    assert unanswered_warnings(unanswered("idle")) == []
