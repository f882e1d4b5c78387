"""`topics pipeline NAME`: a command for each pipeline: options in, a JSON report out.

Progress is written to stderr, the report to stdout or a file. Exit codes, as of `topics fsck`:
0 all is well; 1 the run found something wrong (damage, differences, broken rules, losses that were
not allowed); 2 the run could not complete.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.exit_codes import sentence
from topics.common.extras import install_command
from topics.errors import TopicsError, UsageError

if TYPE_CHECKING:
    from topics.pipelines.engines import PipelineEngine, Progress
    from topics.pipelines.report import Report
    from topics.pipelines.source import Origin

WRONG, COULD_NOT_RUN = 1, 2

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Jobs over whole topics, read from a data directory beside its server (docs/guides/pipelines.md).",
)

Path = Annotated[str, typer.Option("--path", help="The data directory.")]
ColdPath = Annotated[str, typer.Option("--cold-path", help="Its cold directory, if it has one.")]
Subscribe = Annotated[str, typer.Option("--subscribe", help="Topics, separated by commas; all if left out.")]
Pattern = Annotated[str, typer.Option("--subscribe-pattern", help="Regular expression of whole names instead.")]
Compression = Annotated[str, typer.Option(help="zstd, snappy, gzip, lz4 or none.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not compare the checksums of records.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="local (this process) or spark; spark if --master or --conf is given.")
]
Master = Annotated[str, typer.Option("--master", help="Master of Spark, as spark://host:7077; local[*] if left out.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="Setting of Spark, key=value; repeatable.")]
ReportFile = Annotated[str, typer.Option("--report", help="File that gets the JSON report, instead of stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Write only errors to stderr.")]


@app.command()
def export(  # noqa: PLR0917 - typer makes options of them
    to: Annotated[str, typer.Option(help="The directory to export to; created if missing.")],
    path: Path = "",
    cold_path: ColdPath = "",
    subscribe: Subscribe = "",
    subscribe_pattern: Pattern = "",
    layout: Annotated[str, typer.Option(help="manifest or delta.")] = "manifest",
    schema: Annotated[
        str, typer.Option(help="Columns to read out of `data`, as 'id bigint, name string', or infer.")
    ] = "",
    drop_data: Annotated[bool, typer.Option("--drop-data", help="Keep `data` only where the schema fails.")] = False,
    with_bytes: Annotated[bool, typer.Option("--bytes", help="Add a column for records of bytes.")] = False,
    on_data_loss: Annotated[str, typer.Option(help="fail, skip or record.")] = "fail",
    compression: Compression = "zstd",
    no_verify: NoVerify = False,
    engine: EngineName = "",
    master: Master = "",
    conf: Conf = None,
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Write the records since the last run as Parquet, by topic and day."""

    def work(progress: Progress) -> Report:
        from topics.pipelines import export as pipeline  # noqa: PLC0415 - needs pyarrow

        origin = origin_of(path, cold_path, subscribe, subscribe_pattern, verify=not no_verify)
        options = pipeline.Options(origin, to, layout, schema, drop_data, on_data_loss, compression, with_bytes)
        return pipeline.run(options, engine=open_engine(engine, master, conf or ()), progress=progress)

    _finish(work, report, quiet)


@app.command()
def scrub(  # noqa: PLR0917 - typer makes options of them
    path: Path,
    cold_path: ColdPath = "",
    backup: Annotated[str, typer.Option(help="Another data directory, to compare record by record.")] = "",
    backup_cold: Annotated[str, typer.Option(help="Its cold directory, if it has one.")] = "",
    engine: EngineName = "",
    master: Master = "",
    conf: Conf = None,
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Compare every checksum of a data directory, or all its records with those of a backup.

    A server may be using the directory.
    """

    def work(progress: Progress) -> Report:
        from topics.pipelines import scrub as pipeline  # noqa: PLC0415 - needs pyarrow

        return pipeline.run(
            pipeline.Options(path, cold_path, backup, backup_cold),
            engine=open_engine(engine, master, conf or ()),
            progress=progress,
        )

    _finish(work, report, quiet)


@app.command()
def check(  # noqa: PLR0917 - typer makes options of them
    path: Path = "",
    cold_path: ColdPath = "",
    subscribe: Subscribe = "",
    subscribe_pattern: Pattern = "",
    rules: Annotated[str, typer.Option(help="TOML or JSON file of rules on `data`.")] = "",
    against: Annotated[str, typer.Option("--export", help="Target of an export, to compare with the log.")] = "",
    fail_on: Annotated[str, typer.Option(help="Findings that count as wrong: loss, unexplained, or both.")] = "",
    no_verify: NoVerify = False,
    engine: EngineName = "",
    master: Master = "",
    conf: Conf = None,
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Check rules on `data`, account for each seq, and compare an export with the log."""

    def work(progress: Progress) -> Report:
        from topics.pipelines import check as pipeline  # noqa: PLC0415 - needs pyarrow

        origin = origin_of(path, cold_path, subscribe, subscribe_pattern, verify=not no_verify)
        return pipeline.run(
            pipeline.Options(origin, rules, against, _words(fail_on)),
            engine=open_engine(engine, master, conf or ()),
            progress=progress,
        )

    _finish(work, report, quiet)


@app.command()
def rollup(  # noqa: PLR0917 - typer makes options of them
    path: Path = "",
    cold_path: ColdPath = "",
    subscribe: Subscribe = "",
    subscribe_pattern: Pattern = "",
    window: Annotated[str, typer.Option(help="Length of a window, as '15 minutes'.")] = "1 hour",
    to: Annotated[str, typer.Option(help="Parquet file that gets the table; replaced if it exists.")] = "",
    tags: Annotated[str, typer.Option(help="How distinct tags are counted: exact, approx or none.")] = "exact",
    event_time: Annotated[str, typer.Option(help="JSON pointer to the event time in `data`, for lateness.")] = "",
    table: Annotated[bool, typer.Option("--table", help="Print the windows as a table instead of the report.")] = False,
    no_verify: NoVerify = False,
    engine: EngineName = "",
    master: Master = "",
    conf: Conf = None,
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Count records, bytes, tags and losses, by topic and window of time."""

    def work(progress: Progress) -> Report:
        from topics.pipelines import rollup as pipeline  # noqa: PLC0415 - needs pyarrow

        origin = origin_of(path, cold_path, subscribe, subscribe_pattern, verify=not no_verify)
        return pipeline.run(
            pipeline.Options(origin, window, to, tags, event_time),
            engine=open_engine(engine, master, conf or ()),
            progress=progress,
        )

    _finish(work, report, quiet, as_text=_windows if table else None)


@app.command()
def replay(  # noqa: PLR0917 - typer makes options of them
    inputs: Annotated[list[str], typer.Argument(help="Parquet and JSON Lines files, or directories of them.")],
    url: Annotated[str, typer.Option(help="The server, as http://localhost:4000.")],
    token_file: Annotated[str, typer.Option(help="File with the key of the server.")] = "",
    topic: Annotated[str, typer.Option(help="Topic for all rows, whatever rows and directories name.")] = "",
    form: Annotated[str, typer.Option("--as", help="records (columns data, tag, ..) or data (the whole row).")] = (
        "records"
    ),
    tag: Annotated[str, typer.Option(help="With --as data: JSON pointer to the tag.")] = "",
    rate: Annotated[float, typer.Option(help="At most this many rows a second; 0: unlimited.")] = 0.0,
    engine: EngineName = "",
    master: Master = "",
    conf: Conf = None,
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Append the rows of Parquet and JSON Lines files to topics.

    Each row is appended once, even if the command is run again.
    """

    def work(progress: Progress) -> Report:
        from topics.pipelines import replay as pipeline  # noqa: PLC0415 - needs pyarrow

        options = pipeline.Options(tuple(inputs), url, "", token_file, topic, form, tag, rate)
        return pipeline.run(options, engine=open_engine(engine, master, conf or ()), progress=progress)

    _finish(work, report, quiet)


@app.command()
def bundle(
    to: Annotated[str, typer.Argument(help="The zip to write; replaced if it exists.")],
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Write a zip of the modules that executors need, for --conf spark.submit.pyFiles."""

    def work(_progress: Progress) -> Report:
        from topics.pipelines import bundle as pipeline  # noqa: PLC0415 - `topics --help` should not load numpy

        return pipeline.run(to)

    _finish(work, report, quiet)


@app.command()
def compact(  # noqa: PLR0917 - typer makes options of them
    to: Annotated[str, typer.Option(help="The directory to write; it must not exist yet.")] = "",
    to_topic: Annotated[str, typer.Option(help="Topic of the server at --url to append to instead.")] = "",
    url: Annotated[str, typer.Option(help="The server of --to-topic.")] = "",
    token_file: Annotated[str, typer.Option(help="File with a key of that server.")] = "",
    path: Path = "",
    cold_path: ColdPath = "",
    subscribe: Subscribe = "",
    subscribe_pattern: Pattern = "",
    untagged: Annotated[str, typer.Option(help="Records without a tag: keep or drop.")] = "keep",
    nulls: Annotated[str, typer.Option(help="Tags whose newest record is null: keep or drop.")] = "keep",
    with_bytes: Annotated[bool, typer.Option("--bytes", help="Add a column for records of bytes.")] = False,
    compression: Compression = "zstd",
    no_verify: NoVerify = False,
    engine: EngineName = "",
    master: Master = "",
    conf: Conf = None,
    report: ReportFile = "",
    quiet: Quiet = False,
) -> None:
    """Write the newest record of each tag, as Parquet or into a topic."""

    def work(progress: Progress) -> Report:
        from topics.pipelines import compact as pipeline  # noqa: PLC0415 - needs pyarrow

        origin = origin_of(path, cold_path, subscribe, subscribe_pattern, verify=not no_verify)
        return pipeline.run(
            pipeline.Options(origin, to, untagged, nulls, compression, to_topic, url, token_file, with_bytes),
            engine=open_engine(engine, master, conf or ()),
            progress=progress,
        )

    _finish(work, report, quiet)


# --- helpers of all commands


def open_engine(name: str, master: str, conf: Sequence[str]) -> PipelineEngine:
    """Return the engine that the options name.

    Raises: UsageError for an unknown name, or options of another engine.
    """
    from topics.pipelines import engines  # noqa: PLC0415 - `topics --help` should not load numpy

    return engines.open_engine(name, master, conf)


def origin_of(path: str, cold_path: str, subscribe: str, pattern: str, *, verify: bool = True) -> Origin:
    """Return the origin that the options name.

    Raises: UsageError for a --subscribe without any name.
    """
    from topics.pipelines.source import Origin  # noqa: PLC0415 - `topics --help` should not load numpy

    names = _words(subscribe)
    if subscribe and not names:
        raise UsageError(f"--subscribe is {subscribe!r}: write names of topics, with commas between them")
    return Origin(path, cold_path, names, pattern, verify)


def _words(text: str) -> tuple[str, ...]:
    """Return the parts of a list that commas separate, without blanks."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _windows(report: Report) -> str:
    """Return the windows of a roll-up in aligned columns."""
    rows: list[dict[str, object]] = report.as_json()["windows"]
    if not rows:
        return "no windows"
    cells = [list(rows[0]), *(["" if value is None else str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def _finish(
    work: Callable[[Progress], Report], report_path: str, quiet: bool, as_text: Callable[[Report], str] | None = None
) -> None:
    """Run a pipeline, show its report, and exit with its code.

    as_text: makes the text for stdout instead of the JSON.
    """
    progress = _Progress(quiet)
    try:
        with _report_file(report_path) as write:
            report = work(progress.show)
            progress.clear()
            if as_text is None or report_path:
                write(_encoded(report))
            if as_text is not None:
                print(as_text(report))
    except KeyboardInterrupt:  # before the run handles signals, or the second signal
        progress.clear()
        print("topics: stopped by a signal: run it again", file=sys.stderr)
        raise typer.Exit(COULD_NOT_RUN) from None
    except (TopicsError, OSError, ModuleNotFoundError) as error:
        progress.clear()
        print(f"topics: {_sentence(error)}", file=sys.stderr)
        raise typer.Exit(_exit_code_of(error)) from None
    if not quiet:
        print(report.summary(), file=sys.stderr)
    raise typer.Exit(report.exit_code)


def _encoded(report: Report) -> str:
    from topics.pipelines.report import encoded  # noqa: PLC0415 - `topics --help` should not load numpy

    return encoded(report)


def _exit_code_of(error: Exception) -> int:
    """Return WRONG for losses that the options do not allow, COULD_NOT_RUN for other errors."""
    from topics.pipelines.errors import DataLossError  # noqa: PLC0415 - `topics --help` should not load numpy

    return WRONG if isinstance(error, DataLossError) else COULD_NOT_RUN


def _sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        if error.name != "pyarrow":
            raise error
        return f"this pipeline needs pyarrow: install it by {install_command('arrow')}"
    return sentence(error)


@contextlib.contextmanager
def _report_file(path: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes the report to stdout, or to the file at `path`.

    A file is replaced as a whole or not at all. A device or a pipe, as /dev/stdout may be, is
    written to directly.
    Raises: OSError, before any work is done, if the file cannot be created.
    """
    if not path:
        yield print
        return
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb", buffering=0) as device:
            yield lambda text: write_report(device, text, path)
        return
    path = os.path.realpath(path)  # a link to a file stays a link
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    with open(temporary, "xb", buffering=0) as file:
        try:
            yield lambda text: write_report(file, text, path)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def write_report(file: FileIO, text: str, path: str) -> None:
    """Write a report.

    Raises: OSError that names the path.
    """
    view = memoryview(f"{text}\n".encode())
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


class _Progress:
    """Progress of a run on stderr: one line that changes on a terminal, else a line each time."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def show(self, sentence: str) -> None:
        if self._quiet:
            return
        self._shown = True
        print(f"\r\x1b[K{sentence}" if self._terminal else sentence, end="" if self._terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def clear(self) -> None:
        """Erase the line of progress from the terminal."""
        if self._shown and self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
