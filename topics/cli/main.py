"""`topics`: its subcommands, and errors as one sentence with a non-zero exit code."""

from __future__ import annotations

import sys

import typer

from topics.cli.serve import serve
from topics.errors import TopicsError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="An event log for one machine."
)
app.command()(serve)


@app.callback()
def _root() -> None:
    """Keeps `serve` a subcommand even while it is the only one."""


def main() -> None:
    """The console script."""
    try:
        app()
    except (TopicsError, OSError) as error:
        print(f"topics: {error}", file=sys.stderr)
        raise SystemExit(1) from None
