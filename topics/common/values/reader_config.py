"""The settings of a named reader. Source: wire contract, section 7.10."""

from __future__ import annotations

from typing import NamedTuple

from topics.common.values import arguments
from topics.common.values.begin import Begin
from topics.errors import UsageError

AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"
DELIVERIES = (AT_LEAST_ONCE, AT_MOST_ONCE)


class ReaderConfig(NamedTuple):
    """The settings of a named reader."""

    delivery: str = AT_LEAST_ONCE
    holds: bool = False
    """Whether no cap and no expiry takes records above the committed position."""
    trims: bool = False
    """Whether records are deleted that all readers with this setting have committed."""


class Opening(NamedTuple):
    """The arguments of `Log.reader`, checked. None: as the reader is, or the default."""

    topic: str
    name: str
    delivery: str | None
    commit_every: int
    holds: bool | None
    trims: bool | None
    begin: Begin


def opening(  # noqa: PLR0917 - as `Log.reader`
    topic: str,
    name: str,
    delivery: str | None,
    commit_every: int,
    holds: bool | None,
    trims: bool | None,
    from_seq: int | None,
    begin: Begin | None,
) -> Opening:
    """Check the arguments of `Log.reader`. Raises: UsageError.

    begin: instead of from_seq.
    """
    topic = arguments.text("topic", topic)
    name = arguments.text("name", name)
    if delivery is not None and delivery not in DELIVERIES:
        words = " or ".join(f'"{word}"' for word in DELIVERIES)
        raise UsageError(f"delivery is {arguments.shown(delivery)}: use {words}")
    delivery = delivery and arguments.text("delivery", delivery)
    commit_every = arguments.count("commit_every", commit_every, least=1)
    arguments.optional_flag("holds", holds)
    arguments.optional_flag("trims", trims)
    first = arguments.cursor(from_seq)
    return Opening(topic, name, delivery, commit_every, holds, trims, begin or Begin("seq", first))
