"""A run: cases, sides by turns, errors; and whole runs against real servers."""

from __future__ import annotations

import errno
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.bench.results_of_rounds import group_figures, load_figures, outcome
from tests.cli.bench.scripted_server import http_answer, scripted_server
from tests.cli.fork_server import VERIFY
from topics import __version__
from topics.bench.bench_run import BenchRun, with_run
from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.load.load_plan import LoadGroup, LoadMessage, http_request
from topics.bench.outcome import RoundOutcome
from topics.bench.peers.known_peers import own_side
from topics.bench.processes import ProcessError, ProcessUsage, start_own_module, stolen_seconds, usage_of
from topics.bench.results.bench_result import BenchResult
from topics.bench.round_checks import client_warnings, few_warnings
from topics.bench.sides import ClientRun, Progress, Side
from topics.bench.topics_server.topics_side import TopicsSide
from topics.bench.topics_server.topics_target import ServerIo, TopicsTarget
from topics.bench.workload import Case, Workload, parse_workload
from topics.bench.workload_files import built_in
from topics.clock import ManualClock
from topics.errors import UsageError

LOAD = '[[load]]\nkind = "write"\n'


class FakeSide:
    """A side that returns the same outcome, and notes when it was asked."""

    def __init__(self, name: str, notes: list[str], refuses: str = "", error: Exception | None = None) -> None:
        self.name = name
        self.notes = notes
        self._refuses = refuses
        self._error = error

    def missing(self) -> str:
        return ""

    def refuses(self, case: Case) -> str:
        return self._refuses

    def version(self) -> str:
        return f"{self.name} 1"

    def measure(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        assert scratch.is_dir()
        self.notes.append(self.name)
        if self._error:
            raise self._error
        return outcome(1000)


class NoWatcher:
    def starts(self, case: Case, side: Side, number: int, rounds: int) -> None: ...
    def progress(self, phase: str, count: int) -> None: ...
    def ended(self, case: Case, side: Side, outcome: RoundOutcome | None, error: str) -> None: ...


def run(workload: Workload, sides: list[Side], directory: Path) -> BenchResult:
    return BenchRun(workload, sides, NoWatcher(), ManualClock(), str(directory)).run()


def test_sides_take_turns_and_the_order_changes_each_round(tmp_path: Path) -> None:
    notes: list[str] = []
    workload = with_run(parse_workload(LOAD, "x"), 1, 0, 3)
    result = run(workload, [FakeSide("a", notes), FakeSide("b", notes)], tmp_path)
    assert notes == ["a", "b", "b", "a", "a", "b"]
    assert [len(side["rounds"]) for side in result.document["cases"][0]["sides"]] == [3, 3]
    assert result.document["started"] == "2023-11-14T22:13:20+00:00"
    assert not result.failures()
    assert list(tmp_path.iterdir()) == [], "scratch directories are removed"


def test_cases_take_turns_as_sides_do(tmp_path: Path) -> None:
    """All rounds of 10 topics came before the first one of 100,000, and a ratio of them was said to be by turns."""
    notes: list[str] = []
    sweep = '[sweep]\nfield = "load.write.topics"\nvalues = [10, 1000]\n'
    workload = with_run(parse_workload(LOAD + sweep, "x"), 1, 0, 3)

    class Noting(NoWatcher):
        def starts(self, case: Case, side: Side, number: int, rounds: int) -> None:
            notes.append(f"{side.name} {case.value} {number + 1}/{rounds}")

    sides: list[Side] = [FakeSide("a", []), FakeSide("b", [], refuses="no")]
    result = BenchRun(workload, sides, Noting(), ManualClock(), str(tmp_path)).run()
    assert notes == ["a 10 1/3", "a 1000 1/3", "a 1000 2/3", "a 10 2/3", "a 10 3/3", "a 1000 3/3"]
    assert [case["value"] for case in result.document["cases"]] == [10, 1000]
    assert [len(case["sides"][0]["rounds"]) for case in result.document["cases"]] == [3, 3]
    assert result.document["left_out"] == ["b (topics 10): no", "b (topics 1000): no"]


def test_an_option_that_a_sweep_would_change_again_is_refused() -> None:
    workload = parse_workload(LOAD + '[sweep]\nfield = "run.seconds"\nvalues = [1, 3]\n', "mine.toml")
    with pytest.raises(UsageError, match=r"--seconds: mine\.toml has other values of it in sweep\.values: leave"):
        with_run(workload, 2, None, None)
    assert with_run(workload, None, None, 2).run.rounds == 2


def test_each_case_has_as_many_rounds_as_it_asks_for(tmp_path: Path) -> None:
    sweep = '[sweep]\nfield = "run.rounds"\nvalues = [1, 3]\n'
    result = run(parse_workload(LOAD + sweep, "x"), [FakeSide("a", [])], tmp_path)
    assert [len(case["sides"][0]["rounds"]) for case in result.document["cases"]] == [1, 3]


def test_the_time_for_which_a_server_had_no_core_is_measured_and_warned_of() -> None:
    """The slowest percent of the answers of a server with `chrt -r` were those of a throttled thread."""
    case = with_run(parse_workload(LOAD, "x"), 0.5, 0, 1).cases()[0]
    write = LoadMessage(http_request("POST", "/t", b"{}"))

    looked: list[int] = []

    def look() -> int:
        looked.append(time.monotonic_ns())
        return looked[-1]

    def measured(share: float) -> RoundOutcome:
        def usage() -> ProcessUsage:
            """Return one that grows by the share of the time at which the run says that it looks."""
            return ProcessUsage(1.0, 1 << 20, looked[-1] / 1e9 * share if looked else 0.0)

        for _ in range(60):
            with scripted_server(lambda data: http_answer(b"{}")) as port:
                run = ClientRun(case, [LoadGroup("write", 1, (write,))], ("127.0.0.1", port), usage, lambda *_: None)
                outcome = run.run(look)[0]
            if outcome.server_without_core_seconds is not None:
                return outcome
        raise AssertionError("it never had a core for two looks in half a second")

    waited = measured(0.2)
    assert waited.server_without_core_seconds == pytest.approx(0.2 * waited.seconds, rel=0.001)
    said = f"the server waited {waited.server_without_core_seconds:.2f} s for a core"
    assert any(warning.startswith(said) for warning in waited.warnings)
    assert not any("the server waited" in warning for warning in measured(0.001).warnings)


def test_the_time_without_a_core_is_that_of_all_threads() -> None:
    """It is that of another process: threads of this one may end in between, with what they had waited."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        before, after = usage_of(process.pid), usage_of(process.pid)
        process.stdin.close() if process.stdin else None
    assert 0 <= before.without_core_seconds <= after.without_core_seconds


def test_the_server_is_this_package_whatever_the_current_directory_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m topics` found ./topics first, and that was measured."""
    (tmp_path / "topics").mkdir()
    for name in ("__init__", "__main__"):
        (tmp_path / "topics" / f"{name}.py").write_text("print('decoy')\n")
    monkeypatch.chdir(tmp_path)
    process = start_own_module(["topics", "--version"], tmp_path / "log", "topics", VERIFY)
    assert (process.popen.wait(), (tmp_path / "log").read_text()) == (0, f"topics {__version__}\n")


def test_a_side_without_an_equivalent_is_left_out_with_its_reason(tmp_path: Path) -> None:
    notes: list[str] = []
    workload = with_run(parse_workload(LOAD, "x"), 1, 0, 1)
    result = run(workload, [FakeSide("a", notes), FakeSide("b", notes, refuses="it has no streams")], tmp_path)
    assert notes == ["a"]
    assert result.document["left_out"] == ["b: it has no streams"]


def test_a_side_that_cannot_be_measured_is_a_failure_and_the_others_are_measured(tmp_path: Path) -> None:
    notes: list[str] = []
    workload = with_run(parse_workload(LOAD, "x"), 1, 0, 1)
    result = run(workload, [FakeSide("a", notes, error=ProcessError("no port")), FakeSide("b", notes)], tmp_path)
    assert result.failures() == ["a, round 1: no port"]
    assert notes == ["a", "b"]


def test_a_result_has_no_settings_of_a_server_at_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had those of the workload's file, which the server was never given."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))  # of which a warning has the figure of its moment
    workload = with_run(parse_workload(LOAD + "[server]\nmax_watch_sessions = 0\n", "x"), 1, 0, 1)
    sides: list[Side] = [FakeSide("a", [])]
    own = run(workload, sides, tmp_path).document
    assert own["settings"] == {"TOPICS_MAX_WATCH_SESSIONS": "0"}
    other = BenchRun(workload, sides, NoWatcher(), ManualClock(), str(tmp_path), url="http://x:1").run().document
    assert other["settings"] == {}
    (said,) = set(other["warnings"]) - set(own["warnings"])
    assert said == (
        "the server at http://x:1 has settings and a machine of its own: those here are the client's; "
        "it was not given TOPICS_MAX_WATCH_SESSIONS=0, which the workload asks for"
    )


def test_a_run_says_that_quantiles_were_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = with_run(parse_workload(LOAD, "x"), 1, 0, 1)
    monkeypatch.setattr("topics.bench.independent_histograms.find_spec", lambda name: None)
    (said,) = [one for one in run(workload, [FakeSide("a", [])], tmp_path).document["warnings"] if "quantiles" in one]
    assert said.startswith("quantiles were not computed a second time: install the package hdrhistogram")


def test_a_quantile_of_few_values_is_warned_of(tmp_path: Path) -> None:
    """A p99.9 of 40 values stood in the table like any other."""
    workload = with_run(parse_workload(LOAD, "x"), 1, 0, 1)
    said = "write: a round has 100 values of answer, so p99.9 is the slowest of them"
    assert f"a: {said}" in run(workload, [FakeSide("a", [])], tmp_path).warnings()
    few = outcome(1)
    few.loads[0].latencies["answer"] = LatencyHistogram.of([5] * 40)
    assert few_warnings(few) == ["write: a round has 40 values of answer, so p99 and p99.9 are the slowest of them"]
    few.loads[0].latencies["answer"] = LatencyHistogram.of([5] * 1000)
    assert few_warnings(few) == []


def test_deliveries_of_one_record_to_many_readers_are_one_value() -> None:
    """500 deliveries of 50 records had a p99 of their own, which was the slowest record's."""
    few = outcome(1)
    watch = replace(few.loads[0], name="watch", kind="watch", connections=10)
    few.loads = [replace(watch, latencies={"delivery": LatencyHistogram.of([5] * 500)})]
    said = "watch: a round has 50 records, each for all readers, so p99 and p99.9 are the slowest of them"
    assert few_warnings(few) == [said]
    few.loads = [replace(watch, kind="work", latencies={"delivery": LatencyHistogram.of([5] * 1000)})]
    assert few_warnings(few) == []


def test_cores_that_the_host_took_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    case = with_run(parse_workload(LOAD, "x"), 0.5, 0, 1).cases()[0]
    write = LoadMessage(http_request("POST", "/t", b"{}"))
    for stolen, warns in ((0.0, False), (0.4, True)):
        times = iter((7.0, 7.0 + stolen))
        monkeypatch.setattr("topics.bench.sides.stolen_seconds", lambda times=times: next(times))
        with scripted_server(lambda data: http_answer(b"{}")) as port:
            run = ClientRun(case, [LoadGroup("write", 1, (write,))], ("127.0.0.1", port), None, lambda *_: None)
            warnings = run.run(time.monotonic_ns)[0].warnings
        assert any("took cores away for 0.40 s" in warning for warning in warnings) is warns
    monkeypatch.undo()
    before = stolen_seconds()
    assert 0 <= before <= stolen_seconds()


@pytest.mark.parametrize(
    ("cpu", "without_core", "said"),
    [
        (0.89, 0.049, []),
        (0.9, 0, ["the load client used 0.90 of a core"]),
        (0, 0.05, ["the load client waited 0.05 s for a core"]),
        (1, 0.5, ["the load client used 1.00 of a core", "the load client waited 0.50 s for a core"]),
    ],
)
def test_a_busy_client_and_one_without_a_core_are_warned_of(cpu: float, without_core: float, said: list[str]) -> None:
    warnings = client_warnings(load_figures([], cpu=cpu, without_core=without_core))
    assert [warning.partition(":")[0] for warning in warnings] == said


@pytest.mark.parametrize(("unsent", "warns"), [(10, False), (11, True)])
def test_a_rate_that_was_not_kept_is_warned_of(unsent: int, *, warns: bool) -> None:
    warnings = client_warnings(load_figures([], group_figures("write", all_requests=1000, unsent=unsent)))
    assert [warning[:28] for warning in warnings] == [f"write: {unsent} requests were due "] * warns


def test_a_full_disk_fails_a_round_and_what_was_measured_stays(tmp_path: Path) -> None:
    notes: list[str] = []
    workload = with_run(parse_workload(LOAD, "x"), 1, 0, 1)
    full = FakeSide("b", notes, error=OSError(errno.ENOSPC, "No space left on device"))
    result = run(workload, [FakeSide("a", notes), full], tmp_path)
    assert result.failures() == ["b, round 1: OSError: [Errno 28] No space left on device"]
    assert len(result.document["cases"][0]["sides"][0]["rounds"]) == 1


MIXED = """
[run]
seconds = 0.4
warmup = 0.1
rounds = 1

[[load]]
kind = "write"
connections = 2
rate = 300

[[load]]
name = "batches"
kind = "write"
batch = 20
rate = 50

[[load]]
kind = "tail"

[[load]]
kind = "poll"
rate = 100
"""


def test_a_run_of_mixed_loads_measures_each_and_reads_everything_back(tmp_path: Path) -> None:
    workload = parse_workload(MIXED.replace('[[load]]\nkind = "poll"\nrate = 100\n', ""), "mixed")
    result = run(workload, [own_side(workload, "", "", VERIFY)], tmp_path)
    assert result.failures() == []
    (side,) = result.document["sides"]
    assert re.fullmatch(r"topics [0-9.]+, io (portable|uring, spin_us auto, (never )?polled)", side["version"])
    loads = result.document["cases"][0]["sides"][0]["rounds"][0]["loads"]
    assert loads["write"]["latencies"]["answer"]["count"] == 120
    assert loads["batches"]["latencies"]["answer"]["count"] == 20
    # where the machine had no time, some of the warm-up are unsent, too
    sent = max(0, 120 - loads["write"]["unsent"]) + 20 * max(0, 20 - loads["batches"]["unsent"])
    assert loads["tail"]["latencies"]["delivery"]["count"] == sent


@pytest.mark.slow
@pytest.mark.parametrize("workload", built_in(), ids=lambda workload: workload.name)
def test_a_short_run_of_each_workload_holds_its_checks(workload: Workload, tmp_path: Path) -> None:
    stops = "work" in workload.kinds and "write" not in workload.kinds
    short = with_run(workload, 0.5, 0 if stops else 0.2, 1)  # a warm-up may empty a queue
    fill = replace(short.fill, records=min(short.fill.records, 5000))
    loads = tuple(
        replace(load, connections=min(load.connections, 64), topics=min(load.topics, 500)) for load in short.loads
    )
    if "idle" in short.kinds:
        loads = tuple(replace(load, heartbeat_ms=1000) for load in loads)
        short = with_run(short, 2.5, 0, 1)
    sweep = replace(short.sweep, values=short.sweep.values[:1])
    if "connections" in sweep.field or "topics" in sweep.field or "records" in sweep.field:
        sweep = replace(sweep, field="", values=())
    short = replace(short, fill=fill, loads=loads, sweep=sweep)
    result = run(short, [own_side(short, "", "", VERIFY)], tmp_path)
    assert result.failures() == []


def test_writes_for_minutes_are_measured_at_the_bound_of_the_log(tmp_path: Path) -> None:
    """A server refuses some of them there, which is no error of the run."""
    (workload,) = (one for one in built_in() if one.name == "write-sustained")
    assert workload.loads[0].may_be_throttled
    assert workload.run.warmup + workload.run.seconds == 120
    assert workload.run.warmup == workload.run.seconds, "the second half is measured"
    small = {"TOPICS_MAX_LOG_BYTES": str(4 << 20), "TOPICS_CHECKPOINT_WAL_BYTES": str(1 << 20)}
    for seconds in (0.3, 3, 30):  # a server that had no core in the whole time has answered nothing in it
        short = replace(with_run(workload, seconds, 0.2, 1), server=small)
        result = run(short, [own_side(short, "", "", VERIFY)], tmp_path)
        assert result.failures() == []
        (load,) = result.document["cases"][0]["sides"][0]["rounds"][0]["loads"].values()
        if load["records"]:
            return
    raise AssertionError("nothing was answered")


def test_no_connection_besides_the_load_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server ends it after 75 s, so a load of two minutes could not be checked."""
    targets: list[TopicsTarget] = []
    call, measured = TopicsTarget.call, ClientRun.run

    def called(target: TopicsTarget, *args: Any, **options: Any) -> Any:
        targets.append(target)
        return call(target, *args, **options)

    def run_by_itself(client: ClientRun, now_ns: Callable[[], int]) -> Any:
        assert targets[-1]._link.sock is None
        return measured(client, now_ns)

    monkeypatch.setattr(TopicsTarget, "call", called)
    monkeypatch.setattr(ClientRun, "run", run_by_itself)
    workload = with_run(parse_workload(LOAD, "x"), 0.1, 0, 1)
    assert run(workload, [own_side(workload, "", "", VERIFY)], tmp_path).failures() == []


def test_the_version_of_a_side_says_whether_its_server_has_polled_in_any_round() -> None:
    """The setting `auto` does not: the server polls while one client asks and a core is idle."""
    workload = parse_workload(LOAD + "[server]\nspin_us = 50\n", "x")
    side = TopicsSide()
    shown = [
        (ServerIo("uring", 7), 7, "io uring, spin_us 50, never polled"),
        (ServerIo("uring", 9), 8, "io uring, spin_us 50, polled"),
        (ServerIo("uring", 9), 9, "io uring, spin_us 50, polled"),
        (ServerIo("portable", 0), 0, "io portable"),
        (ServerIo("", 0), 0, ""),
    ]
    for io, before, said in shown:
        side._note_io(workload, io, before)
        assert side._engine == said
    other = TopicsSide("http://127.0.0.1:1")
    other._note_io(workload, ServerIo("uring", 1), 0)
    assert other.version().endswith(", io uring, polled"), "its settings are not known"


def test_the_polls_of_a_server_are_those_of_its_metrics() -> None:
    page = b'topics_build_info{io="uring"} 1\n# HELP topics_loop_polls_total polls\ntopics_loop_polls_total 12.0\n'
    with scripted_server(lambda data: http_answer(page)) as port, closing(TopicsTarget("127.0.0.1", port)) as target:
        assert target.io() == ServerIo("uring", 12)
