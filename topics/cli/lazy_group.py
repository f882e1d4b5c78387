"""The group of all commands, each of which is loaded when it is run or asked for help."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from topics.cli.exit_codes import USAGE, report
from topics.cli.known_commands import COMMANDS
from topics.cli.output.given_once import GivenOnce
from topics.cli.output.refused_words import RefusedWords, is_help, refusal
from topics.cli.root_help import root_help
from topics.errors import UsageError

_OF_COMMANDS = ("--url", "--context", "--data-dir", "--key-file", "--timeout", "--output", "-o", "--format", "-f")
"""Options of commands that people write before the command."""


class _LoadedCommands(MutableMapping[str, Any]):
    """Commands by name, loaded on first use."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """A group whose help is `root_help`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _LoadedCommands()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        option = args[0].partition("=")[0] if args else ""
        if option in _OF_COMMANDS:
            raise UsageError(f"{option} is before the command: write it after, as in `topics ls {option} ...`")
        with _one_sentence():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _one_sentence():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(root_help() + "\n")


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Report an error of the parser as other errors are; the parser takes three lines for it."""
    try:
        yield
    except RefusedWords as error:
        if is_help(error):
            raise
        report(UsageError(refusal(error)))
        raise typer.Exit(USAGE) from None


def load(name: str) -> Any:
    """Return the command of a name. Raises: KeyError."""
    module, attribute = COMMANDS[name].where.split(":")
    found = getattr(import_module(f"topics.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            vars(each).update(cls=GivenOnce)
        command: Any = get_group(found)
        command.name = name
        return command
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=GivenOnce)(found)
    return get_command(app)
