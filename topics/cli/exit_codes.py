"""How a command ends: its exit code, and the sentence for an error."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from topics.errors import UsageError

REFUSED, USAGE, GAP, INTERRUPTED = 1, 2, 3, 130
PIPE_CLOSED = 141
"""The reader of the output has left, as of a program that SIGPIPE ends."""
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def exit_code_of(error: Exception) -> int:
    return USAGE if isinstance(error, UsageError) else REFUSED


def sentence(error: Exception) -> str:
    """Return the sentence for an error; that of an OSError leaves out its number.

    A control character in it, such as one of a file's name, is escaped: it could write anything on
    the terminal.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), _sentence(error))


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error.filename}: {error.strerror}: choose another port with --port, or 0 for a free one"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename}: {error.strerror}: name a file that is there"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def report(error: Exception, also: str = "") -> None:
    """Write the sentence for an error on stderr. also: a clause at its end."""
    with suppress(OSError):  # stderr is full, or its reader has left: the exit code says the rest
        print(f"topics: {sentence(error)}{'; ' if also else ''}{also}", file=sys.stderr, flush=True)


@contextmanager
def start_or_refusal() -> Iterator[None]:
    """Give a command that starts something exit code 1 whatever the refusal's reason (R-LIFE-1)."""
    try:
        yield
    except UsageError as error:
        report(error)
        raise typer.Exit(REFUSED) from None
