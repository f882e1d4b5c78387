"""Planning of a stream: its initial offset, its next one, and the partitions between two.

`partitions` depends only on its arguments and the options, because Spark calls it again after a
restart for the batch that was planned last, and expects an equal result. All other functions may
ask the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from topics.spark.client import WAIT_NAMES_MAX, Head, SparkClient
from topics.spark.errors import DataLossError, OptionError
from topics.spark.options import FAIL, LATEST, ROWS, SEQ_MAX, WAIT_MS_MAX, WAIT_SLACK_MS, SourceOptions
from topics.spark.reading.offsets import RECREATED, LostRange, Position, from_json, to_json
from topics.spark.reading.places import starts, subscribed
from topics.spark.reading.planning import Work, partitions_of, share, stream_ranges
from topics.spark.reading.view import FilesView, ServerView, View

if TYPE_CHECKING:
    from topics.files import Directory

Heads = Mapping[str, Head | None]


class NewsSource(Protocol):
    """The source of news for a stream: a server or a directory."""

    def view(self) -> View:
        """Return a view of the topics as they are now, for planning one batch."""

    def heads(self, known: Mapping[str, Position], wait_ms: int) -> Heads:
        """Return the heads of subscribed topics; None for an absent topic.

        The call returns as soon as one differs from `known`, or after wait_ms.
        """

    def readable(self, heads: Heads, known: Mapping[str, Position]) -> Heads:
        """Return the heads that are not older than a query at `known`."""


class ServerSource:
    """News from a server, by `POST /v0/wait`: a stream without news makes one request in waitMs.

    With a pattern, a list request looks for new topics, and the wait takes twice as long: that
    makes two requests in twice the time. A wait takes 256 names; the heads of further topics are
    asked for once in waitMs, by waits that return at once.
    """

    def __init__(
        self, options: SourceOptions, client: SparkClient, now: Callable[[], float], sleep: Callable[[float], None]
    ):
        self._options = options
        self._client = client
        self._view = ServerView(client)
        self._now = now
        self._sleep = sleep
        self._listed_at: float | None = None
        self._names: tuple[str, ...] = options.subscribe
        self._absent: set[str] = set()
        self._moved: dict[str, None] = {}
        """Names that had news, in the order of their last news."""

    def view(self) -> View:
        return self._view

    def heads(self, known: Mapping[str, Position], wait_ms: int) -> Heads:
        listed: dict[str, Head | None] = {}
        if self._options.pattern is not None:
            listed = self._list(known, wait_ms)
            assert self._options.connection is not None
            wait_ms = min(2 * wait_ms, WAIT_MS_MAX, self._options.connection.timeout_ms - WAIT_SLACK_MS)
        names = [name for name in self._moved if name in self._names]
        names = names[::-1] + [name for name in self._names if name not in self._moved]
        if listed and self._has_news(known, listed):
            return listed
        if not names:
            self._sleep(wait_ms / 1000)
            return listed
        first, others = names[:WAIT_NAMES_MAX], names[WAIT_NAMES_MAX:]
        found: dict[str, Head | None] = {}
        for at in range(0, len(others), WAIT_NAMES_MAX):
            found |= self._wait(known, others[at : at + WAIT_NAMES_MAX], 0)
        found |= self._wait(known, first, 0 if self._has_news(known, found) else wait_ms)
        return found

    def readable(self, heads: Heads, known: Mapping[str, Position]) -> Heads:
        return heads

    def _wait(self, known: Mapping[str, Position], names: Iterable[str], wait_ms: int) -> Heads:
        asked: dict[str, Any] = {}
        for name in names:
            position = known.get(name)
            # null waits for an absent topic. With a seq, the server would answer at once each time.
            here = position is not None and name not in self._absent
            asked[name] = {"seq": position.next - 1, "incarnation": position.of} if here and position else None
        found = self._client.wait(asked, wait_ms)
        for name, head in found.items():
            (self._absent.add if head is None else self._absent.discard)(name)
            position = known.get(name)
            if head is not None and (position is None or head.head >= position.next):
                self._moved.pop(name, None)
                self._moved[name] = None
        return found

    def _list(self, known: Mapping[str, Position], wait_ms: int) -> dict[str, Head | None]:
        """Return all topics that match the pattern, at most once in 2 * wait_ms; otherwise {}."""
        if self._listed_at is not None and self._now() - self._listed_at < 2 * wait_ms / 1000:
            return {}
        self._listed_at = self._now()
        states = self._view.states(self._options)
        self._names = tuple(sorted({*states, *known}))
        return {name: Head(states[name].head, states[name].of) if name in states else None for name in self._names}

    @staticmethod
    def _has_news(known: Mapping[str, Position], heads: Heads) -> bool:
        return any(_is_news(known.get(name), head) for name, head in heads.items())


class FilesSource:
    """News from a data directory, whose newest snapshot is looked for once in waitMs."""

    def __init__(self, options: SourceOptions, sleep: Callable[[float], None]) -> None:
        from topics.files import open_directory  # noqa: PLC0415 - streams by url need no files

        assert options.path is not None
        self._options = options
        self._sleep = sleep
        self._directory: Directory = open_directory(options.path, options.cold_path)

    def view(self) -> View:
        return FilesView(self._directory)

    def heads(self, known: Mapping[str, Position], wait_ms: int) -> Heads:
        self._directory = self._directory.refresh()
        found = self._heads(known)
        if wait_ms and not any(_is_news(known.get(name), head) for name, head in found.items()):
            self._sleep(wait_ms / 1000)
            self._directory = self._directory.refresh()
            found = self._heads(known)
        return found

    def readable(self, heads: Heads, known: Mapping[str, Position]) -> Heads:
        """Leave out topics that the query, as a stream by url, has read beyond the snapshot."""
        return {
            name: head
            for name, head in heads.items()
            if head is None or name not in known or known[name].of != head.of or known[name].next <= head.head + 1
        }

    def _heads(self, known: Mapping[str, Position]) -> Heads:
        states = self.view().states(self._options)
        return self.readable({name: Head(state.head, state.of) for name, state in states.items()}, known)


class Follower:
    """Plans a stream: the stream reader without Spark. Offsets are the JSON that Spark stores."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        client: SparkClient | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._client = client
        self._sleep = sleep
        self._now = now
        self._source_here: NewsSource | None = None
        self._initial: dict[str, Any] | None = None
        self._goal: Heads | None = None
        """The heads at which a run with the trigger AvailableNow ends; None for other triggers."""
        self._seen: Heads = {}

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset at which a new query begins.

        Raises: OptionError for an unknown topic, or a seq beyond its head.
        """
        if self._initial is None:
            view = self._source().view()
            states = subscribed(view, self._options)
            first = starts(view, self._options, states)
            self._initial = to_json({name: Position(first[name], state.of) for name, state in states.items()})
        return self._initial

    def prepare_available_now(self) -> None:
        """Note the current heads: this run ends at them. Later records are for the next run."""
        states = self._source().view().states(self._options)
        self._goal = {name: Head(state.head, state.of) for name, state in states.items()}

    def latest_offset(self, start: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """Return the end of the next batch, which has `limit` seqs at most; `start` without news.

        Raises: DataLossError with onDataLoss=fail.
        """
        before = from_json(start)
        is_first = self._initial is not None and start == self._initial
        if self._goal is not None:
            heads: Heads = self._source().readable(self._goal, before)
        else:
            heads = self._source().heads(self._subscribed(before), self._options.wait_ms)
        moved = self._moved(before, heads, limit)
        self._seen = {**self._seen, **heads}
        if not moved:
            return start
        after = dict(before)
        for name, position in moved.items():
            begin = before.get(name)
            is_chosen = is_first and begin is not None and begin.of == position.of and not self._is_fixed(name)
            after[name] = replace(position, first=begin.next) if is_chosen and begin is not None else position
        return to_json(after)

    def reported_offset(self) -> dict[str, Any] | None:
        """Return the newest offset seen, for the lag in Spark's progress; None without one.

        It makes no request.
        """
        heads = {name: head for name, head in self._seen.items() if head is not None}
        if not heads:
            return None
        return to_json({name: Position(head.head + 1, head.of) for name, head in heads.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Work]:
        """Return the partitions of a batch; equal arguments give equal partitions.

        Raises: DataLossError with onDataLoss=fail.
        """
        options = self._options
        after = from_json(end)
        ranges, losses = stream_ranges(self._begins(from_json(start), after), after)
        if losses and options.on_loss == FAIL:
            raise DataLossError(*losses[0])
        reported = losses if options.on_loss == ROWS else []
        return partitions_of(ranges, reported, min_partitions=options.min_partitions, max_records=options.max_records)

    # -- planning ----------------------------------------------------------------------------------

    def _source(self) -> NewsSource:
        if self._source_here is None:
            if self._options.connection is None:
                self._source_here = FilesSource(self._options, self._sleep)
            else:
                if self._options.path is not None:
                    # Refuse a wrong path now; otherwise only tasks of a large batch would see it.
                    FilesSource(self._options, self._sleep)
                client = self._client or SparkClient(self._options.connection, sleep=self._sleep)
                self._source_here = ServerSource(self._options, client, self._now, self._sleep)
        return self._source_here

    def _begins(self, before: Mapping[str, Position], after: Mapping[str, Position]) -> dict[str, Position]:
        """Return the positions at which a batch begins.

        After a restart Spark may ask for the initial offset again. A topic that was created again
        meanwhile has another incarnation in it. A batch that reads the new incarnation has a loss
        with the reason RECREATED. Any other batch is of the former incarnation: it begins at the
        seq of the option or, without "from", has no records of the topic.
        """
        begins = dict(before)
        for name, goal in after.items():
            begin = begins.get(name)
            if begin is None or begin.of == goal.of or goal.first is not None:
                continue
            if any(lost.reason == RECREATED for lost in goal.lost):
                continue
            begins[name] = replace(goal, next=begin.next) if self._is_fixed(name) else goal
        return begins

    def _subscribed(self, positions: Mapping[str, Position]) -> dict[str, Position]:
        """Return the positions of topics that the options still name."""
        pattern, names = self._options.pattern, self._options.subscribe
        return {
            name: position
            for name, position in positions.items()
            if (pattern.fullmatch(name) if pattern is not None else name in names)
        }

    def _is_fixed(self, name: str) -> bool:
        """Return whether the option states the topic's first seq; a restart does not change it."""
        return self._options.starting_ms is None and self._options.starting.by_topic.get(name, LATEST) > 0

    def _moved(self, before: Mapping[str, Position], heads: Heads, limit: int | None) -> dict[str, Position]:
        """Return the new positions of topics with news, `limit` seqs further at most.

        Raises: DataLossError with onDataLoss=fail; OptionError.
        """
        view = self._source().view()
        begins: dict[str, int] = {}
        ends: dict[str, int] = {}
        gone: dict[str, list[LostRange]] = {}
        lives: dict[str, str] = {}
        for name, head in sorted(heads.items()):
            position = before.get(name)
            if head is None or not _is_news(position, head):
                continue
            if head.head > SEQ_MAX:
                raise OptionError(f"topic {name!r} has seqs above {SEQ_MAX}, which no Spark column holds: leave it out")
            losses: list[LostRange] = []
            first = position.next if position is not None else 1
            if position is not None and position.of != head.of:
                losses.append(self._former_life(name, position))
                first = 1
            elif position is not None and head.head < position.next - 1:
                raise OptionError(
                    f"topic {name!r} ends at seq {head.head}, and this query has read up to {position.next - 1}: its "
                    "directory was restored to an older state; begin with another checkpointLocation"
                )
            begin, here = view.gone(name, head.of, first, head.head + 1)
            losses += here
            if losses and self._options.on_loss == FAIL:
                raise DataLossError(name, losses[0].from_seq, losses[0].to_seq, losses[0].reason)
            begins[name], ends[name] = begin, head.head + 1
            gone[name], lives[name] = losses, head.of
        shares = share(limit, {name: ends[name] - begins[name] for name in ends})
        return {
            name: Position(end := begin + shares[name], lives[name], tuple(_before(gone[name], end)))
            for name, begin in begins.items()
        }

    def _former_life(self, name: str, position: Position) -> LostRange:
        """Return the unread seqs of the former incarnation, up to the highest one seen."""
        seen = self._seen.get(name)
        known = seen.head if seen is not None and seen.of == position.of else 0
        return LostRange(position.next, max(position.next, known), RECREATED)


def _before(losses: Iterable[LostRange], end: int) -> Iterable[LostRange]:
    """Cut losses to the end of a batch.

    Losses of a former incarnation stay whole, because their seqs are not of this incarnation.
    """
    for lost in losses:
        if lost.reason == RECREATED:
            yield lost
        elif lost.from_seq < end:
            yield replace(lost, to_seq=min(lost.to_seq, end - 1))


def _is_news(position: Position | None, head: Head | None) -> bool:
    if head is None:
        return False
    return position is None or head.of != position.of or head.head + 1 != position.next
