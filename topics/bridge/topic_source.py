"""Which topic is read next, from where: the side of a bridge that reads a server."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from topics.bridge.bridge_messages import BridgePosition, TopicBatch
from topics.common.topic_names import NAME_MAX, is_topic_name, prefix_fault
from topics.common.values.answers import TopicHead
from topics.errors import RequestError, UsageError

TOPICS_MAX = 256
"""Topics that one wait of a server names (5.2)."""
_log = logging.getLogger("topics.bridge")


class TopicPatterns(NamedTuple):
    """The value of `--topics`: names, and beginnings of names."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TopicPatterns:
        """Raises: UsageError."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise UsageError("--topics names none: use names by commas, such as 'orders*,jobs'")
        names, prefixes = set(), []
        for part in parts:
            beginning, star, rest = part.partition("*")
            if rest:
                raise UsageError(f"--topics has {part!r}: a * is at the end of a name, as in 'orders*'")
            if fault := prefix_fault(beginning):
                raise UsageError(f"--topics has {part!r}, which {fault}")
            if star:
                prefixes.append(beginning)
            else:
                names.add(beginning)
        return cls(frozenset(names), tuple(prefixes))

    def match(self, topic: str) -> bool:
        return topic in self.names or topic.startswith(self.prefixes)


class TopicMatch(Protocol):
    """Which names are carried."""

    @property
    def names(self) -> frozenset[str]:
        """The names that are given whole."""
        ...

    def match(self, topic: str) -> bool: ...


class NamedTopics:
    """The names of `--topics` of another side, which may have some that no topic here can have.

    place: the other side, for sentences. skips: called with each such name, once; None: raise.
    """

    def __init__(self, patterns: TopicPatterns, place: str, skips: Callable[[str], None] | None) -> None:
        self._patterns = patterns
        self._place = place
        self._skips = skips
        self._skipped: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        return self._patterns.names

    def match(self, topic: str) -> bool:
        """Raises: UsageError."""
        if not self._patterns.match(topic):
            return False
        if is_topic_name(topic):
            return True
        if self._skips is None:
            raise UsageError(
                f"{topic!r} of {self._place} is no name of a topic here: those have 1 to {NAME_MAX} letters, digits "
                "and . _ : -, a letter or digit first. Narrow --topics, or leave it out with --oversize skip"
            )
        if topic not in self._skipped:
            self._skipped.add(topic)
            self._skips(topic)
        return False


class ServerReads(Protocol):
    """The requests of a source to a server."""

    def heads(
        self, known: Mapping[str, BridgePosition | None], prefixes: Sequence[str], wait_ms: int
    ) -> tuple[Mapping[str, TopicHead | None], str | None]:
        """Return the heads of known topics and of others with a prefix, and one that is left out.

        It waits until one differs from what is known. Raises: SourceDownError, RequestError.
        """
        ...

    def read(self, topic: str, position: BridgePosition | None) -> TopicBatch:
        """Raises: SourceDownError, RequestError."""
        ...


class _ReadPlace:
    """The place of one topic in its source.

    goal: for a bridge that ends, the head when it began.
    """

    __slots__ = ("goal", "position")

    def __init__(self, position: BridgePosition | None, goal: TopicHead) -> None:
        self.position = position
        self.goal = goal


class TopicSource:
    """Batches of all topics, by turns, in the order of each topic's seqs.

    locate(topic): where it continues, of the other side. is_once: end at the heads of now.
    """

    def __init__(
        self,
        server: ServerReads,
        patterns: TopicPatterns,
        locate: Callable[[str], BridgePosition | None],
        *,
        is_once: bool = False,
    ) -> None:
        self._server = server
        self._patterns = patterns
        self._locate = locate
        self._is_once = is_once
        self._places: dict[str, _ReadPlace] = {}
        self._due: deque[str] = deque()
        self._has_looked = False
        self.ended = False
        """Whether a source that is to end has read up to the heads."""

    def next(self, wait_ms: int) -> TopicBatch | None:
        """Return the next batch; None: there was none in time, or it has ended.

        Raises: SourceDownError, RequestError; what `locate` raises.
        """
        if not self._due and not self.ended:
            self._look(wait_ms)
        while self._due:
            topic = self._due.popleft()
            batch = self._read(topic)
            if batch is not None and batch.messages:
                return batch
        self.ended = self._is_once and self._has_looked
        return None

    def _read(self, topic: str) -> TopicBatch | None:
        place = self._places[topic]
        try:
            batch = self._server.read(topic, place.position)
        except RequestError as error:
            if error.code != "topic_not_found":
                raise
            return None
        place.position = batch.position
        if batch.position.seq < batch.head_seq and not self._is_at_goal(place):
            self._due.append(topic)
        return batch

    def _look(self, wait_ms: int) -> None:
        """Find the topics with news."""
        if self._is_once and self._has_looked:
            return
        known: dict[str, BridgePosition | None] = dict.fromkeys(self._patterns.names)
        known.update({topic: place.position for topic, place in self._places.items()})
        heads, left_out = self._server.heads(known, self._patterns.prefixes, 0 if self._is_once else wait_ms)
        if left_out is not None or len(heads) > TOPICS_MAX:
            raise UsageError(
                f"--topics takes in more than {TOPICS_MAX} topics, such as {left_out}: narrow it, and use several "
                "bridges, each with an --id of its own"
            )
        if not self._has_looked:
            self._say_missing(heads)
        self._has_looked = True
        for topic, head in heads.items():
            if head is None:
                continue
            place = self._places.get(topic)
            if place is None:
                place = self._places[topic] = _ReadPlace(self._locate(topic), head)
            if place.position is None or tuple(place.position) != (head.incarnation, head.head_seq):
                self._due.append(topic)

    def _say_missing(self, heads: Mapping[str, TopicHead | None]) -> None:
        """Log names that are there not yet. Raises: UsageError, there is nothing to carry, ever."""
        is_empty = all(head is None for head in heads.values())
        if is_empty and self._is_once:
            raise UsageError("--topics matches no topic of the server: mend it, or leave out --once to wait for one")
        missing = [name for name in sorted(self._patterns.names) if heads.get(name) is None]
        if missing:
            _log.warning("no topic %s is there yet", ", ".join(missing))
        elif is_empty:
            _log.warning("no topic that --topics matches is there yet")

    def _is_at_goal(self, place: _ReadPlace) -> bool:
        if not self._is_once or place.position is None:
            return False
        goal, position = place.goal, place.position
        return position.incarnation != goal.incarnation or position.seq >= goal.head_seq
