"""The three standard streams of a command: they may be closed, full, or without a reader."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Stdout(io.FileIO):
    """Descriptor 1; errors name it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdout") from None


def prepare_streams() -> None:
    """Open each stream that the caller of the command has closed; let errors name stdout.

    The numbers of closed streams would go to the files that the command opens, and what it prints
    into these. Reads of stdin find its end, writes to stdout fail, and what is written to stderr is
    lost.
    """
    if sys.stdin is None:
        _open(0, os.O_RDONLY)
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        _open(1, os.O_RDONLY)
    if sys.stderr is None:
        _open(2, os.O_WRONLY)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    before = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(1, "w", closefd=False)),
        encoding=None if before is None else before.encoding,
        errors=None if before is None else before.errors,
        line_buffering=before is not None and bool(before.line_buffering),
    )


def _open(number: int, flags: int) -> None:
    found = os.open(os.devnull, flags)
    if found != number:
        os.dup2(found, number)
        os.close(found)
    os.set_inheritable(number, True)


def flush_output() -> OSError | None:
    """Write what is left of stdout and stderr. Return the error of stdout, whose rest is dropped.

    Nothing is left for the end of the process, which could only complain.
    """
    try:
        sys.stderr.flush()
    except OSError:
        _drop(2)
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_output()
        return error
    return None


def drop_output() -> None:
    """Let what is left of stdout go nowhere."""
    _drop(1)


def _drop(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
