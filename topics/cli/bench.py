"""`topics bench`: list, run and compare workloads (docs/guides/bench.md).

Exit codes: 0 measured, and every check holds; 1 a check failed, or a round could not be run; 2 the
command could not begin; 128 and the number of a signal that ended it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.environment import config_of, odd_variables
from topics.cli.exit_codes import report
from topics.errors import TopicsError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from topics.bench.results.bench_result import BenchResult
    from topics.bench.sides import Side
    from topics.bench.workload import Workload

CHECK_FAILED, COULD_NOT_BEGIN = 1, 2
DEFAULT_OUT = "bench-results"
_OF_THE_COMMAND = ("data_dir", "host", "port", "port_file", "log_level")
"""Settings that the command gives to each server that it starts."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure latency and throughput, of this server and of others, and check what was measured.\n\n"
    "`topics bench list` shows the workloads; `topics bench run write-lone` starts a server in a temporary "
    "directory, loads it, reads back every record that it acknowledged, and writes JSON and a page of HTML. "
    "docs/guides/bench.md says how to read the figures, and how to distrust them.",
)


@app.command(name="list")
def show() -> None:
    """List the workloads, by family, and the peers."""
    from topics.bench.peers.known_peers import known_peers  # noqa: PLC0415 - `topics --help` should not load it
    from topics.bench.workload_files import built_in  # noqa: PLC0415

    family = ""
    for workload in built_in():
        if workload.family != family:
            family = workload.family
            print(f"{family}:")
        print(f"  {workload.name:<20} {workload.title}: {workload.question}")
    print("peers:")
    for name, side in known_peers().items():
        print(f"  {name:<20} {side.at_hand()}")


@app.command()
def run(  # noqa: PLR0917 - typer makes options of them
    names: Annotated[list[str], typer.Argument(help="Workloads of `topics bench list`, or files of TOML.")],
    url: Annotated[str, typer.Option(help="A running server, http://HOST:PORT, instead of one of its own.")] = "",
    key: Annotated[str, typer.Option(help="API key for --url, with the scope admin; else TOPICS_KEY.")] = "",
    peers: Annotated[str, typer.Option(help="Peers by commas; auto: those of the workload that are here.")] = "none",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each side, instead of the file's.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.05, help="Measured seconds of a round.")] = None,
    warmup: Annotated[float | None, typer.Option(min=0, help="Seconds before those.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Setting of the server, NAME=VALUE; repeatable.")
    ] = None,
    directory: Annotated[str, typer.Option("--dir", help="Where data is written meanwhile; else TMPDIR.")] = "",
    out: Annotated[str, typer.Option(help="Directory of the JSON and HTML; created if missing.")] = DEFAULT_OUT,
) -> None:
    """Run workloads, one after the other, and write a result and a report for each.

    Exit code 0: every check holds; 1: one failed; 2: the command could not begin.
    """
    from topics.bench.bench_run import with_run  # noqa: PLC0415 - `topics --help` should not load it
    from topics.bench.peers.known_peers import AUTO, NONE  # noqa: PLC0415
    from topics.bench.result_files import check_writable  # noqa: PLC0415
    from topics.bench.topics_server.topics_target import TopicsTarget  # noqa: PLC0415
    from topics.bench.workload_files import find_workload  # noqa: PLC0415

    try:
        workloads = [with_run(find_workload(name), seconds, warmup, rounds) for name in names]
        settings = _settings(setting or [])
        for workload in workloads:
            _check_settings({**workload.server, **settings})
        if url and settings:
            raise UsageError("--set changes a server of this command's own: leave it out with --url")
        if not url:
            _check_own({name for workload in workloads for name in workload.server} | settings.keys())
        if key and not url:
            raise UsageError("--key is for a server of --url: leave it out, as a server of its own has none")
        key = key or (os.environ.get("TOPICS_KEY", "") if url else "")
        chosen = [_sides(workload, url, key, peers, settings) for workload in workloads]
        for workload, (sides, _) in zip(workloads, chosen, strict=True):
            if all(reasons := [sides[0].refuses(case) for case in workload.cases()]):
                raise UsageError(f"{workload.name}: {reasons[0]}")
        if peers not in (AUTO, NONE):
            _check_named_peers(workloads, [sides[1:] for sides, _ in chosen])
        if url:
            with closing(TopicsTarget.of_url(url, key)) as target:
                target.raw("GET", "/v0/topics?page_size=1")
        if directory and not Path(directory).is_dir():
            raise UsageError(f"--dir is {directory!r}: name a directory that exists")
        check_writable("--dir", directory or tempfile.gettempdir(), create=False)
        check_writable("--out", out, create=True)
    except TopicsError as error:
        print(f"topics: {error}", file=sys.stderr)
        raise typer.Exit(COULD_NOT_BEGIN) from None
    failed = False
    for workload, (sides, left_out) in zip(workloads, chosen, strict=True):
        with _signals_clean_up():
            result = _measured(workload, sides, left_out, settings, directory, url=url)
        failed |= not _write(result, Path(out)) or bool(result.failures())
    if failed:
        raise typer.Exit(CHECK_FAILED)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="A result of `topics bench run`, the one before.")],
    second: Annotated[str, typer.Argument(help="Another one, of the same workload.")],
    fail: Annotated[bool, typer.Option("--fail", help="Exit code 1 for a worse figure or a failed check.")] = False,
) -> None:
    """Compare two results: ratios, and whether the rounds show a difference."""
    from topics.bench.results.bench_compare import RoundsVerdict, compare_results, doubts  # noqa: PLC0415 - as in `run`
    from topics.bench.results.bench_result import read_result  # noqa: PLC0415
    from topics.bench.results.bench_table import print_comparison  # noqa: PLC0415

    try:
        results = read_result(first), read_result(second)
        rows = compare_results(*results)
        if not rows:
            raise UsageError(f"{first} and {second} have no figure in common: compare results of one workload")
    except TopicsError as error:
        print(f"topics: {error}", file=sys.stderr)
        raise typer.Exit(COULD_NOT_BEGIN) from None
    print_comparison(_console(), rows, doubts(*results))
    if fail and (results[1].failures() or any(row.verdict is RoundsVerdict.WORSE for row in rows)):
        raise typer.Exit(CHECK_FAILED)


def _settings(pairs: list[str]) -> dict[str, str]:
    """Return --set as TOPICS_* variables. Raises: UsageError for an unknown or odd one."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--set is {pair!r}: use NAME=VALUE, such as spin_us=50 (docs/settings.md)")
        variable = f"TOPICS_{name.upper().removeprefix('TOPICS_')}"
        if variable in found:
            raise UsageError(f"--set has {name} twice: leave out one, since a setting has one value")
        found[variable] = value
    if odd := odd_variables(found):
        raise UsageError(f"--set: {odd[0].removesuffix(': it is ignored')}")
    return found


def _check_own(variables: set[str]) -> None:
    """Raises: UsageError for settings that the servers of this command would not get."""
    if taken := [name for name in _OF_THE_COMMAND if f"TOPICS_{name.upper()}" in variables]:
        raise UsageError(
            f"--set or [server] has {taken[0]}, which this command chooses itself: leave it out (--dir says where data "
            "is written)"
        )


def _check_settings(variables: dict[str, str]) -> None:
    """Raises: UsageError for settings that a server would not start with."""
    try:
        config_of(variables)
    except UsageError as error:
        raise UsageError(f"--set or [server]: {error}") from None


def _sides(
    workload: Workload, url: str, key: str, peers: str, settings: dict[str, str]
) -> tuple[list[Side], list[str]]:
    """Return the sides of a run, ours first, and a sentence for each peer that is left out.

    Raises: UsageError for a peer that was named and is not here.
    """
    from topics.bench.peers.known_peers import chosen_peers, own_side  # noqa: PLC0415 - as in `run`

    others, left_out = chosen_peers(workload, peers)
    return [own_side(workload, url, key, settings), *others], left_out


def _check_named_peers(workloads: list[Workload], peers: list[list[Side]]) -> None:
    """Raises: UsageError for a peer that has no equivalent of any case."""
    for named in zip(*peers, strict=True):
        each = zip(workloads, named, strict=True)
        reasons = [side.refuses(case) for workload, side in each for case in workload.cases()]
        if all(reasons):
            raise UsageError(f"--peers names {named[0].name}: {reasons[0]}: leave it out")


def _measured(
    workload: Workload, sides: list[Side], left_out: list[str], settings: dict[str, str], directory: str, *, url: str
) -> BenchResult:
    from topics.bench.bench_run import BenchRun  # noqa: PLC0415 - as in `run`
    from topics.bench.results.bench_table import LiveTable, print_result  # noqa: PLC0415
    from topics.clock import SystemClock  # noqa: PLC0415

    console = _console()
    with LiveTable(console, workload.name) as table:
        try:
            result = BenchRun(workload, sides, table, SystemClock(), directory or None, settings, left_out, url).run()
        except (KeyboardInterrupt, SystemExit):
            print(
                f"topics: {workload.name} was ended: {table.finished} finished rounds are in no file", file=sys.stderr
            )
            raise
    print_result(console, result)
    return result


@contextmanager
def _signals_clean_up() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: servers stop, and scratch directories go."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(result: BenchResult, out: Path) -> bool:
    """Write a result; return whether that was possible."""
    from topics.bench.result_files import write_result  # noqa: PLC0415 - as in `run`

    try:
        path, page = write_result(result, out)
    except OSError as error:
        report(error, "the figures are above, and not in a file")
        return False
    print(f"wrote {path} and {page}")
    return True


def _console() -> Console:
    from rich import console  # noqa: PLC0415 - as in `run`

    return console.Console()
