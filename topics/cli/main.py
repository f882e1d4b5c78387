"""The command `topics`. An error is one sentence and a non-zero exit code."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from topics import __version__
from topics.cli.exit_codes import exit_code_of, report
from topics.cli.lazy_group import LazyGroup
from topics.errors import TopicsError

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="An event log for one machine.\n\n"
    "Commands on topics work on the server at --url, TOPICS_URL, a context or http://localhost:4000, or on the "
    "--data-dir of a stopped one. They print tables on a terminal and JSON lines elsewhere. Exit codes: 0 done, "
    "1 refused, 2 usage, 3 records were lost, 130 interrupted.",
)


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


def main() -> None:
    """Run the console script."""
    if "_TOPICS_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415 - a shell asks for words

        completion_init()
    try:
        app(prog_name="topics")
    except (TopicsError, OSError) as error:
        report(error)
        raise SystemExit(exit_code_of(error)) from None
