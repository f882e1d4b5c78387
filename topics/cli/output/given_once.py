"""Options are given once: of two values the parser would take the last one, and say nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from topics.errors import UsageError


class GivenOnce(TyperCommand):
    """A command that refuses an option with a second value, if it takes one."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            words = list(args)  # the parser takes them out
            found = parse(args)
            _check(found[2], words)
            return found

        vars(parser).update(parse_args=parse_once)
        return parser


def _check(given: Sequence[Any], words: list[str]) -> None:
    """Raises: UsageError, with the option and the values that it was given."""
    for param, count in Counter(given).items():
        if count > 1 and param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count):
            values = [_value(words, at, param.opts) for at in range(len(words))]
            shown = " and ".join(repr(value[:200]) for value in values if value is not None)
            raise UsageError(f"{param.opts[0]} is given {count} times, as {shown}: leave out all but one")


def _value(words: list[str], at: int, names: Sequence[str]) -> str | None:
    """Return the value of an option if it is given there."""
    name, separator, value = words[at].partition("=")
    if name not in names:
        return None
    return value if separator else next(iter(words[at + 1 :]), "")
