"""A generator's steps one by one, and then its result."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Walk(Generic[T]):
    """`for _ in walk:` takes the steps; then there is `walk.result`."""

    result: T

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[None]:
        self.result = yield from self._steps
