"""Which state of an object may follow which: one table for each kind of object."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

S = TypeVar("S", bound=enum.Enum)


class Transitions(Generic[S]):
    """A table of states, each with the states that may follow it.

    Owners check every change, with `check` or, where a function call would cost too much, by a look
    into the tuple `before`:

        if self.phase not in _BEFORE_HEAD:
            raise PHASES.error(self.phase, Phase.HEAD)
        self.phase = Phase.HEAD
    """

    __slots__ = ("after",)

    def __init__(self, after: Mapping[S, tuple[S, ...]]) -> None:
        self.after = after

    def before(self, new: S) -> tuple[S, ...]:
        """Return the states that `new` may follow."""
        return tuple(state for state, following in self.after.items() if new in following)

    def check(self, old: S, new: S) -> S:
        """Return the new state. Raises: AssertionError, it may not follow the old one."""
        if new not in self.after[old]:
            raise self.error(old, new)
        return new

    def error(self, old: S, new: S) -> AssertionError:
        return AssertionError(f"{type(new).__name__}: {new.name} does not follow {old.name}")
