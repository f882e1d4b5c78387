"""The first seqs and the ends of a read, from the words, seqs and times of its options."""

from __future__ import annotations

from collections.abc import Mapping

from topics.spark.client import PlannedTopic
from topics.spark.errors import OptionError
from topics.spark.options import EARLIEST, LATEST, SEQ_MAX, Places, SourceOptions
from topics.spark.reading.view import View


def subscribed(view: View, options: SourceOptions) -> dict[str, PlannedTopic]:
    """Return the topics to read, by name.

    Raises: OptionError if a topic is absent, or has seqs beyond int64.
    """
    states = dict(sorted(view.states(options).items()))
    where = options.connection.url if options.connection else options.path
    for name in options.subscribe:
        if name not in states:
            raise OptionError(f"topic {name!r} does not exist at {where}: create it first, or correct subscribe")
    for name, state in states.items():
        if state.head > SEQ_MAX:
            raise OptionError(f"topic {name!r} has seqs above {SEQ_MAX}, which no Spark column holds: leave it out")
    return states


def starts(view: View, options: SourceOptions, states: Mapping[str, PlannedTopic]) -> dict[str, int]:
    """Return the first seq to read of each topic.

    Raises: OptionError for a seq beyond the head, or an absent topic.
    """
    _refuse_absent("startingOffsets", options.starting, states)
    return {name: _start(view, options, name, state) for name, state in states.items()}


def ends(view: View, options: SourceOptions, states: Mapping[str, PlannedTopic]) -> dict[str, int]:
    """Return the exclusive end of the read of each topic.

    Raises: OptionError for a seq beyond the head, or an absent topic.
    """
    _refuse_absent("endingOffsets", options.ending, states)
    found = {}
    for name, state in states.items():
        if options.ending_ms is not None:
            found[name] = min(view.first_seq_at(name, options.ending_ms), state.head + 1)
        else:
            end = _chosen(options.ending, name, LATEST)
            found[name] = state.head + 1 if end == LATEST else _within("endingOffsets", name, end, state)
    return found


def _start(view: View, options: SourceOptions, name: str, state: PlannedTopic) -> int:
    if options.starting_ms is not None:
        return min(view.first_seq_at(name, options.starting_ms), state.head + 1)
    start = _chosen(options.starting, name, EARLIEST)
    if start == LATEST:
        return state.head + 1
    return state.earliest if start == EARLIEST else _within("startingOffsets", name, start, state)


def _refuse_absent(option: str, places: Places, states: Mapping[str, PlannedTopic]) -> None:
    """Refuse seqs of absent topics, which a pattern would accept without this check."""
    for name in places.by_topic:
        if name not in states:
            raise OptionError(
                f"option {option} names topic {name!r}, which does not exist: create it, or correct the name"
            )


def _chosen(places: Places, name: str, otherwise: int) -> int:
    return places.word if places.word is not None else places.by_topic.get(name, otherwise)


def _within(option: str, name: str, seq: int, state: PlannedTopic) -> int:
    if seq > state.head + 1:
        raise OptionError(
            f"option {option} gives {seq} for topic {name!r}, whose head is {state.head}: "
            f"give at most {state.head + 1}, or -1 for latest"
        )
    return seq
