"""The command `topics`: its subcommands. An error is one sentence and a non-zero exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from topics import __version__
from topics.cli import bench, pipeline
from topics.cli.environment import config_of
from topics.cli.serve import as_variables, serve
from topics.config import Config
from topics.errors import TopicsError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="An event log for one machine."
)
app.command()(serve)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(bench.app, name="bench")

DataDir = Annotated[str | None, typer.Option(help="Data directory; else TOPICS_DATA_DIR, else ./topics-data.")]
Io = Annotated[str | None, typer.Option(help="auto, uring or portable.")]


def settings(**options: str | None) -> Config:
    """Return the settings of the environment, overridden by the options given.

    Raises: UsageError for a setting without a meaning.
    """
    given = as_variables({name.upper(): value for name, value in options.items()})
    return config_of({**os.environ, **given})


@app.command()
def doctor(
    data_dir: DataDir = None,
    io: Io = None,
    commit: Annotated[str | None, typer.Option(help="auto, link, direct or dsync.")] = None,
) -> None:
    """Report what this machine supports, what `serve` uses and why, and what a commit costs."""
    from topics.cli.doctor import report  # noqa: PLC0415 - `topics --help` should load neither

    for line in report(settings(data_dir=data_dir, io=io, commit=commit)):
        print(line, flush=True)


@app.command()
def fsck(
    data_dir: DataDir = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild a damaged directory from what is sound.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    io: Io = None,
) -> None:
    """Verify every checksum of a stopped data directory.

    Exit code 0: sound; 1: damage found; 2: the check could not run.
    """
    from topics.cli import fsck as command  # noqa: PLC0415 - `topics --help` should load neither

    try:
        outcome = command.check(settings(data_dir=data_dir, io=io), mend=rebuild)
    except (TopicsError, OSError) as error:
        print(f"topics: {sentence(error)}", file=sys.stderr)
        raise typer.Exit(command.CANNOT_LOOK) from None
    if json:
        print(command.as_json(outcome).decode())
    else:
        for line in command.lines(outcome):
            print(line)
    raise typer.Exit(command.exit_code(outcome))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"topics {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def sentence(error: Exception) -> str:
    """Return the sentence for an error; that of an OSError leaves out its number."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error.filename}: {error.strerror}: choose another port with --port, or 0 for a free one"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def main() -> None:
    """Run the console script."""
    try:
        app()
    except (TopicsError, OSError) as error:
        print(f"topics: {sentence(error)}", file=sys.stderr)
        raise SystemExit(1) from None
