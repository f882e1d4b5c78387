"""Where a read begins: one of five options, as the arguments of the library's calls."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer

from topics.clock import Clock
from topics.common.values.arguments import is_decimal
from topics.errors import UsageError

After = Annotated[int | None, typer.Option("--after", min=0, help="Begin with the record after this seq.")]
Last = Annotated[int | None, typer.Option("--last", min=1, help="Begin with the last so many records.")]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Begin with the first record since then: 10m, 2h, 3d, or 2026-01-31T12:00."),
]
First = Annotated[
    bool, typer.Option("--first", help="Begin with the first record there is; earlier losses are no gap.")
]
SkipGaps = Annotated[bool, typer.Option("--skip-gaps", help="Report lost records on stderr, and read on after them.")]

_AGO = re.compile(r"(\d{1,15})([smhd])", re.ASCII)
_DIGITS = 19
"""Digits of a time in ms at most."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class ReadBeginning(NamedTuple):
    """A beginning, as arguments of `Log.read`.

    from_seq: a cursor; None: the command's own default. from_: instead of it.
    """

    from_seq: int | None = None
    from_: Any = None


def beginning_of(after: int | None, last: int | None, since: str | None, first: bool, clock: Clock) -> ReadBeginning:
    """Return the beginning that the options name. Raises: UsageError for two of them."""
    given = [
        option
        for option, is_given in (
            ("--after", after is not None),
            ("--last", last is not None),
            ("--since", since is not None),
            ("--first", first),
        )
        if is_given
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} name two beginnings: leave out one of them")
    if last is not None:
        return ReadBeginning(from_={"last": last})
    if since is not None:
        return ReadBeginning(from_={"time": time_of(since, clock)})
    if first:
        return ReadBeginning(from_="first")
    return ReadBeginning(after)


def time_of(text: str, clock: Clock, option: str = "--since") -> int:
    """Return the time that a text names, in ms since the epoch; without a zone it is UTC.

    One before the epoch is the epoch: no record is older.

    Raises: UsageError, which names the option.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, clock.now_ms() - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    if is_decimal(text, _DIGITS):
        return int(text)
    try:
        when = datetime.fromisoformat(text)
        return max(0, round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        forms = "use 30s, 10m, 2h or 3d, 2026-01-31T12:00, or ms since 1970"
        raise UsageError(f"{option} is {text[:200]!r}: {forms}") from None
