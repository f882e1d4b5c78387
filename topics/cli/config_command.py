"""`topics config`: the settings that a server would have here, and where each is from."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import Annotated

import typer

from topics.cli.config_file import toml_text
from topics.cli.environment import Settled, odd_variables, settled
from topics.cli.exit_codes import options_named, start_or_refusal
from topics.cli.serving.serve import ConfigFile, as_variables
from topics.config import SECRET, Config
from topics.errors import UsageError

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

    Keys are not shown. What serve would warn of is printed to stderr; if it would refuse to start,
    so is the reason, and the exit code is 1.
    """
    from topics.server.startup import check_config  # noqa: PLC0415 - `topics --help` should not load the server
    from topics.store.backup.free_places import check_places  # noqa: PLC0415 - as above

    given = as_variables({"CONFIG": config})
    found = settled(os.environ, given)
    for line in lines(found, origin=origin):
        print(line)
    for sentence in odd_variables({**os.environ, **given}):
        print(f"topics: {sentence}", file=sys.stderr)
    with start_or_refusal(), options_named(found.origins):
        check_config(found.config)
        check_places(found.config)


def lines(found: Settled, *, origin: bool) -> list[str]:
    """Return a line of TOML for each setting; a comment in the place of a secret that is set."""
    rows = []
    for setting in fields(Config):
        name, value = setting.name, getattr(found.config, setting.name)
        row = f"# {name} is set, and not shown" if name in SECRET and value else f"{name} = {_toml(found, name, value)}"
        rows.append(f"{row}  # {found.origins.get(name, 'default')}" if origin else row)
    return rows


def _toml(found: Settled, name: str, value: object) -> str:
    text = toml_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{found.origins[name]} is {value!r}, which is no UTF-8, as a file of settings is") from None
    return text
