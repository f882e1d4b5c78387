"""`topics doctor` and `topics fsck`: a machine and a data directory, looked at."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from topics.cli.environment import config_of
from topics.cli.exit_codes import looking
from topics.cli.serving.serve import as_variables
from topics.config import Config

DataDir = Annotated[str | None, typer.Option(help="Data directory; else TOPICS_DATA_DIR, else ./topics-data.")]
Io = Annotated[str | None, typer.Option(help="auto, uring or portable.")]


def settings(**options: str | None) -> Config:
    """Return the settings of file and environment, overridden by the options given.

    Raises: UsageError for a setting without a meaning.
    """
    given = as_variables({name.upper(): value for name, value in options.items()})
    return config_of(os.environ, given)


@looking()
def doctor(
    data_dir: DataDir = None,
    io: Io = None,
    commit: Annotated[str | None, typer.Option(help="auto, link, direct or dsync.")] = None,
) -> None:
    """Report what this machine supports, what `serve` uses and why, and what a commit costs."""
    from topics.cli.doctor import report  # noqa: PLC0415 - `topics --help` should load neither

    for line in report(settings(data_dir=data_dir, io=io, commit=commit)):
        print(line, flush=True)


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

    with looking():
        outcome = command.check(settings(data_dir=data_dir, io=io), mend=rebuild)
    if json:
        print(command.as_json(outcome).decode())
    else:
        for line in command.lines(outcome):
            print(line)
    raise typer.Exit(command.exit_code(outcome))
