"""Views of topics for planning, from a server or from files: heads, first records, losses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from topics.spark.client import PlannedTopic, SparkClient
from topics.spark.errors import ServerError
from topics.spark.options import SourceOptions
from topics.spark.reading.offsets import LostRange

if TYPE_CHECKING:
    from topics.files import Directory

_PLAIN = re.compile(r"(?:[A-Za-z0-9_:-]|\\[.:_-])*")


class View(Protocol):
    """Topics, as they are on a server now or in one snapshot."""

    def states(self, options: SourceOptions) -> Mapping[str, PlannedTopic]:
        """Return the existing topics that the options subscribe to."""

    def gone(self, topic: str, of: str, first: int, end: int) -> tuple[int, list[LostRange]]:
        """Return the first seq of [first, end) that may be live, and the known losses in the range.

        It is `end` without such a seq. Losses are ascending. Other missing seqs were deleted.
        of: the incarnation of the range; for another one, no losses are known.
        """

    def first_seq_at(self, topic: str, time_ms: int) -> int:
        """Return the first live seq whose ts is time_ms or later; head + 1 without one.

        Raises: ServerError topic_not_found.
        """


class ServerView:
    """The topics of a server. Only a loss at the first seq of a range is known."""

    def __init__(self, client: SparkClient) -> None:
        self._client = client

    def states(self, options: SourceOptions) -> Mapping[str, PlannedTopic]:
        if options.pattern is None:
            found = {name: self._client.state(name) for name in options.subscribe}
            return {name: state for name, state in found.items() if state is not None}
        everything = self._client.states(literal_prefix(options.pattern.pattern))
        return {name: state for name, state in everything.items() if options.pattern.fullmatch(name)}

    def gone(self, topic: str, of: str, first: int, end: int) -> tuple[int, list[LostRange]]:
        state = self._client.state(topic)
        if state is None or state.of != of or state.earliest <= first:
            return first, []
        begin = min(end, state.earliest)
        try:
            tombstone = self._client.first_loss(topic, first - 1)
        except ServerError as error:
            if error.code == "topic_not_found":
                return first, []
            raise
        if tombstone is None or tombstone["gap_from"] >= end:
            return begin, []
        return begin, [LostRange(first, min(tombstone["gap_to"], end - 1), tombstone["reason"])]

    def first_seq_at(self, topic: str, time_ms: int) -> int:
        return self._client.first_seq_at(topic, time_ms)


class FilesView:
    """The topics of a snapshot, without the records that are only in the log."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory

    def states(self, options: SourceOptions) -> Mapping[str, PlannedTopic]:
        topics = self.directory.topics
        if options.pattern is None:
            names = [name for name in options.subscribe if name in topics]
        else:
            names = [name for name in topics if options.pattern.fullmatch(name)]
        return {
            name: PlannedTopic(
                topics[name].head, topics[name].first_kept, topics[name].incarnation, topics[name].durability
            )
            for name in names
        }

    def gone(self, topic: str, of: str, first: int, end: int) -> tuple[int, list[LostRange]]:
        files = self.directory.topics[topic]
        losses = [LostRange(loss.from_seq, loss.to_seq, loss.reason) for loss in files.losses(first, end - 1)]
        return min(end, max(first, files.first_kept)), losses

    def first_seq_at(self, topic: str, time_ms: int) -> int:
        return self.directory.topics[topic].first_seq_at(time_ms)


def literal_prefix(pattern: str) -> str:
    """Return the prefix of all names that match a regular expression, to narrow a list."""
    if "|" in pattern:
        return ""
    found = _PLAIN.match(pattern)
    prefix = found.group() if found else ""
    if len(prefix) < len(pattern) and pattern[len(prefix)] in "*?{+":
        prefix = prefix[:-1]  # that character is optional
        prefix = prefix[:-1] if prefix.endswith("\\") else prefix
    return prefix.replace("\\", "")
