"""The place in a topic where a read or a subscription begins. Source: wire contract, R-FROM."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict


class FromLast(TypedDict):
    """With the last live records, so many."""

    last: int


class FromTime(TypedDict):
    """With the first live record of this time (ms) or later."""

    time: int


From = Literal["first", "now"] | FromLast | FromTime
"""Where a read begins: "first", "now", {"last": n} or {"time": ms}."""


class Begin(NamedTuple):
    """A beginning, as its client names it."""

    kind: Literal["seq", "first", "now", "last", "time"] = "seq"
    """"seq": above a cursor; "first": with the first live record; "now": at the head; "last": with
    the last live records; "time": with the first live record of a time or later.
    """
    number: int = 0
    """The cursor, the count of records, or the time in ms; 0 for the others."""


FIRST, NOW = Begin("first"), Begin("now")


class Beginning(NamedTuple):
    """The cursor that a beginning is, and the topic at that instant."""

    from_seq: int
    head_seq: int
    earliest_seq: int
