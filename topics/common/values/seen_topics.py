"""The states of topics that a waiting caller has seen, as the library takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from topics.common.topic_names import prefix_fault
from topics.common.values import arguments
from topics.common.values.answers import TopicHead
from topics.common.values.begin import NOW, Begin, From
from topics.errors import UsageError


class KnownTopic(NamedTuple):
    """The state of a topic that a waiting client has seen."""

    seq: int | None
    """The head; None: the client knows of no such topic."""
    incarnation: str | None = None
    """The incarnation; None if the client does not know it."""


Seen = int | TopicHead | tuple[int, str | None] | None
"""A topic's head, its head and incarnation (as `wait` returned them), or None: it was absent."""


def known_topics(topics: Mapping[str, Seen], most: int) -> dict[str, KnownTopic]:
    """Return the known state of each topic. Raises UsageError, naming the topic."""
    if not isinstance(topics, Mapping):
        raise UsageError(f"topics is {arguments.shown(topics)}: use a dict from names to heads")
    if not 1 <= len(topics) <= most:
        raise UsageError(f"topics has {len(topics)} names: use 1 to {most} (max_wait_topics)")
    return {_name(name): _known(name, seen) for name, seen in topics.items()}


class TailPlaces(NamedTuple):
    """Where a tail begins, by topic or by prefix: at the cursor, unless there is a beginning."""

    cursors: dict[str, int]
    begins: dict[str, Begin | None]


def places(
    topics: Mapping[str, int | From | None], last_max: int, topics_max: int, *, has_prefixes: bool
) -> TailPlaces:
    """Return where each topic of a tail begins. Raises: UsageError, naming the topic."""
    found = _places("topics", topics, last_max)
    for name in found.cursors:
        if isinstance(name, str) and "*" in name:
            prefix = name[: name.index("*")]
            raise UsageError(f"topics has {name!r}, and no name has a *: use prefixes={{{prefix!r}: ...}}")
    if topics or not has_prefixes:
        known_topics(found.cursors, topics_max)
    return found


def prefix_places(prefixes: Mapping[str, int | From | None], last_max: int, prefixes_max: int) -> TailPlaces:
    """Return where the topics with each prefix begin. Raises: UsageError, naming the prefix."""
    found = _places("prefixes", prefixes, last_max)
    if len(found.cursors) > prefixes_max:
        raise UsageError(f"prefixes has {len(found.cursors)} members: use at most {prefixes_max} (max_prefixes)")
    for prefix in found.cursors:
        arguments.text("prefixes", prefix)
        fault = prefix_fault(prefix)
        if fault:
            raise UsageError(f"prefixes has {prefix!r}, which {fault}")
    return found


def _places(what: str, topics: Mapping[str, int | From | None], last_max: int) -> TailPlaces:
    if not isinstance(topics, Mapping):
        raise UsageError(f"{what} is {arguments.shown(topics)}: use a dict from names to cursors")
    cursors: dict[str, int] = {}
    begins: dict[str, Begin | None] = {}
    for name, place in topics.items():
        argument = f"{what}[{name!r}]"
        is_cursor = isinstance(place, int) and not isinstance(place, bool)
        cursors[name] = arguments.count(argument, place) if is_cursor else 0
        if is_cursor:
            begins[name] = None
        elif place is None:
            begins[name] = NOW
        else:
            begins[name] = arguments.beginning(None, place, None, last_max, argument)
    return TailPlaces(cursors, begins)


def _name(name: Any) -> str:
    return arguments.utf8_text("topics", name)


def _known(name: str, seen: Any) -> KnownTopic:
    what = f"topics[{name!r}]"
    if seen is None:
        return KnownTopic(None)
    if isinstance(seen, tuple) and len(seen) == 2:
        head_seq, incarnation = seen
        arguments.optional_incarnation(incarnation)
        return KnownTopic(arguments.count(what, head_seq), incarnation)
    return KnownTopic(arguments.count(what, seen))
