"""Work as a generator that yields between two steps of bounded length, and returns a result."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

_T = TypeVar("_T")


def result_of(steps: Generator[None, None, _T]) -> _T:
    """Take all steps at once; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(_T, end.value)
