"""The end of a command: its exit code, and the sentence for an error.

0: done. 1: done, and the answer is bad, or failed for a reason outside of the call. 2: only another
call helps; of a command that looks whether something is sound (`looking`), it could not look.
`serve` has 1 for every refusal (R-LIFE-1).
"""

from __future__ import annotations

import errno
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from topics.errors import CorruptError, TopicsError, UsageError

REFUSED, USAGE, GAP, INTERRUPTED = 1, 2, 3, 130
PIPE_CLOSED = 141
"""The reader of the output has left, as of a program that SIGPIPE ends."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def exit_code_of(error: Exception) -> int:
    return USAGE if isinstance(error, UsageError) else REFUSED


@contextmanager
def looking() -> Iterator[None]:
    """End a command that looks whether something is sound with USAGE if it could not look.

    REFUSED is its answer that there is damage, as is an error that names damage.
    """
    try:
        yield
    except CorruptError:
        raise
    except (TopicsError, OSError) as error:
        if isinstance(error, OSError) and error.filename == "stdout":
            raise  # what was found could not be printed
        report(error)
        raise _end_with(USAGE) from None


@contextmanager
def options_named(names: Mapping[str, str]) -> Iterator[None]:
    """Have an error about an argument name the option that it is from.

    names: the option of each argument of the library that the block calls.
    """
    try:
        yield
    except UsageError as error:
        if error.argument not in names:
            raise
        raise UsageError(error.said, names[error.argument]) from error


@contextmanager
def undone_if_terminated() -> Iterator[None]:
    """Have SIGTERM end the block as SIGINT does: what was half made is removed."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def sentence(error: Exception) -> str:
    """Return the sentence for an error; that of an OSError leaves out its number.

    A control character in it, such as one of a file's name, is escaped: it could write anything on
    the terminal, and a line feed would make two lines of the sentence.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), _sentence(error))


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error.filename}: {error.strerror}: choose another port with --port, or 0 for a free one"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename}: {error.strerror}: name a file that is there"
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename}: {error.strerror}: name another path, or run this as a user who may use it"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def report(error: Exception, also: str = "") -> None:
    """Write the sentence for an error on stderr. also: a clause at its end."""
    with suppress(OSError):  # stderr is full, or its reader has left: the exit code says the rest
        print(f"topics: {sentence(error)}{'; ' if also else ''}{also}", file=sys.stderr, flush=True)


@contextmanager
def start_or_refusal() -> Iterator[None]:
    """Give `serve` exit code 1 whatever the reason of the refusal (R-LIFE-1)."""
    try:
        yield
    except UsageError as error:
        report(error)
        raise _end_with(REFUSED) from None


def _end_with(code: int) -> Exception:
    import typer  # noqa: PLC0415 - help needs the codes and no parser

    return typer.Exit(code)
