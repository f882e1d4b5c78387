"""`topics config`: the settings that a server would have here, and where each is from."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from typing import Annotated

import typer

from topics.cli.config_file import NEVER
from topics.cli.environment import Settled, odd_variables, settled
from topics.cli.serve import ConfigFile, as_variables
from topics.config import SECRET, Config

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Settings of a server, and where each is from.")


@app.callback()
def _config() -> None:
    pass


@app.command()
def show(
    config: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Name the file or variable of each, as a comment.")] = False,
) -> None:
    """Print all settings that `topics serve` would have here, as a file for --config.

    Keys are not shown. What serve would warn of is printed to stderr.
    """
    given = as_variables({"CONFIG": config})
    for line in lines(settled(os.environ, given), origin=origin):
        print(line)
    for sentence in odd_variables({**os.environ, **given}):
        print(f"topics: {sentence}", file=sys.stderr)


def lines(found: Settled, *, origin: bool) -> list[str]:
    """Return a line of TOML for each setting; a comment in the place of a secret that is set."""
    rows = []
    for setting in fields(Config):
        name, value = setting.name, getattr(found.config, setting.name)
        row = f"# {name} is set, and not shown" if name in SECRET and value else f"{name} = {_toml(value)}"
        rows.append(f"{row}  # {found.origins.get(name, 'default')}" if origin else row)
    return rows


def _toml(value: object) -> str:
    if value is None:
        value = NEVER
    if isinstance(value, tuple):
        value = list(value)
    # JSON of these types is TOML, except for the character DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
