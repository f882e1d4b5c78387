"""One sentence for words that the parser of the command line refuses."""

from __future__ import annotations

from typing import Any

import typer

RefusedWords: Any = typer.BadParameter.__base__
"""The parser's error for whatever it cannot take. Typer names only this subclass of it."""


def is_help(error: Any) -> bool:
    """Return whether an error is how a group shows its help, since no command was given."""
    return type(error).show is not RefusedWords.show


def refusal(error: Any) -> str:
    """Return the sentence for an error of the parser: argument, value and remedy."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    param = getattr(error, "param", None)
    if found and param is not None:
        option = param.opts[-1] if param.opts[-1].startswith("--") else param.opts[0]
        name = option if option.startswith("-") else (param.metavar or param.name).strip("[].")
        return f"{name} is {str(found[0]['input'])[:200]!r}: {_remedy(param, error.message)}"
    message = _uncapitalized(error.format_message().rstrip(".").replace(". Did you mean", ": did you mean"))
    if message.endswith("?"):
        return message
    shown = "`--help` after the command" if error.ctx is None else f"`{error.ctx.command_path} --help`"
    return f"{message}: {shown} lists what there is"


def _remedy(param: Any, message: str) -> str:
    least, most = param.min, param.max
    number = "a whole number" if "integer" in message else "a number"
    if least is not None and most is not None:
        return f"use {number} from {least} to {most}"
    if least is not None:
        return f"use {number}, {least} at least"
    if most is not None:
        return f"use {number}, {most} at most"
    return f"use {number}" if "number" in message or "integer" in message else _uncapitalized(message)


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]
