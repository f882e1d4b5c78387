"""The parser of `topics`: its own options, and the group of all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from topics import __version__
from topics.cli.lazy_group import LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"topics {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    pass
