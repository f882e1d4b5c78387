"""Steps of `read` and `tail`, of a log and of a client, for callers that wait and that await.

A step is a call to be made, whose answer is sent back (its exception is thrown in), or a list of
records to be handed out.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from topics.common.topic_names import longest_prefix
from topics.common.values import arguments
from topics.common.values.answers import News, TopicHead
from topics.common.values.begin import NOW, Begin, From
from topics.common.values.delivered import GapError, Page
from topics.common.values.seen_topics import Seen, TailPlaces
from topics.common.values.which_records import WhichRecords
from topics.errors import RequestError, TopicsError, UsageError

_log = logging.getLogger(__name__)
OnGap = Literal["raise", "skip"] | Callable[[GapError], object]
"""The choice at lost records: raise GapError, read on, or call a function and read on."""
OnLeftOut = Callable[[str], object] | None
"""The choice at a topic for which there is no place: call a function with its name, or log it."""
RecordSteps = Generator[Any, Any, None]


class RecordCalls(Protocol):
    """The calls of which reads are made. A call is whatever its caller knows how to make."""

    is_frozen: bool
    """Whether nothing is ever written."""
    max_limit: int
    """Records of a page at most."""
    max_wait_ms: int
    """Longest wait of one call."""

    def beginning(self, from_seq: int | None, from_: From | Begin | None, from_time: int | None) -> Begin | None: ...

    def places(
        self, topics: Mapping[str, int | From | None], prefixes: Mapping[str, int | From | None]
    ) -> tuple[TailPlaces, TailPlaces]:
        """Return where topics begin, by name and by prefix."""

    def paging(
        self,
        topic: str,
        from_seq: int | None,
        *,
        limit: int,
        max_bytes: int,
        which: WhichRecords,
        wait_ms: int,
        from_: Begin | None,
        incarnation: str | None,
    ) -> Any: ...

    def placing(self, topic: str, begin: Begin) -> Any: ...

    def waiting(self, topics: Mapping[str, Seen], *, wait_ms: int, prefixes: Iterable[str]) -> Any:
        """Return a call whose answer is `News`."""


def check_on_gap(on_gap: object) -> None:
    if on_gap not in ("raise", "skip") and not callable(on_gap):
        raise UsageError(f'on_gap is {arguments.shown(on_gap)}: use "raise", "skip" or a function of a GapError')


def pass_gap(gap: GapError, on_gap: OnGap) -> None:
    """Do what a reader does at a gap. Raises: the gap, unless it is passed."""
    if on_gap == "raise":
        raise gap
    if on_gap != "skip":
        on_gap(gap)


def _pass_gap_of(page: Page, on_gap: OnGap) -> None:
    if page.tombstone is not None:
        pass_gap(GapError(page.topic, page.tombstone), on_gap)


def read_steps(
    calls: RecordCalls,
    topic: str,
    from_seq: int | None,
    *,
    limit: int | None,
    max_bytes: int | None,
    which: WhichRecords,
    from_: From | None,
    from_time: int | None,
    on_gap: OnGap,
) -> RecordSteps:
    """Yield the steps of `Log.read`.

    A topic that is created again meanwhile is a gap, as in a tail.
    """
    check_on_gap(on_gap)
    begin = calls.beginning(from_seq, from_, from_time)
    limit = arguments.optional_count("limit", limit)
    max_bytes = arguments.optional_count("max_bytes", max_bytes, least=1)
    at, left, largest, room, has_records, incarnation = from_seq, limit, calls.max_limit, max_bytes, False, ""
    while (left is None or left > 0) and (room is None or room > 0):
        page = yield calls.paging(
            topic,
            at,
            limit=min(left or largest, largest),
            max_bytes=room or 0,
            which=which,
            wait_ms=0,
            from_=begin,
            incarnation=incarnation,
        )
        incarnation = page.incarnation
        _pass_gap_of(page, on_gap)
        if room is not None:
            if page.size > room and has_records:
                return  # a page has one record at least, which does not fit after others
            room -= page.size
        yield page.records
        has_records = has_records or bool(page.records)
        at, begin = page.next_from_seq, None
        if left is not None:
            left -= len(page.records)
        if page.caught_up:
            return


def tail_steps(
    calls: RecordCalls,
    is_closed: Callable[[], bool],
    topic: str,
    from_seq: int | None,
    *,
    max_bytes: int | None,
    which: WhichRecords,
    from_: From | None,
    from_time: int | None,
    on_gap: OnGap,
) -> RecordSteps:
    """Yield the steps of `Log.tail`. is_closed: returns whether `close` was called.

    They end at the head of a log that is only read, because no record comes there. A topic that was
    deleted and created again is a gap, though its head may have passed the cursor.
    """
    max_bytes = arguments.optional_count("max_bytes", max_bytes, least=1)
    check_on_gap(on_gap)
    begin = calls.beginning(from_seq, from_, from_time)
    if from_seq is None and begin is None:
        begin = NOW
    at, has_begun, incarnation = from_seq, False, ""
    while True:
        try:
            page = yield calls.paging(
                topic,
                at,
                limit=calls.max_limit,
                max_bytes=max_bytes or 0,
                which=which,
                wait_ms=calls.max_wait_ms,
                from_=begin,
                incarnation=incarnation,
            )
        except UsageError:
            if is_closed() and has_begun:
                return  # the log was closed while the call was made
            raise
        has_begun, incarnation = True, page.incarnation
        _pass_gap_of(page, on_gap)
        yield page.records
        if is_closed() or (calls.is_frozen and page.caught_up):
            return
        if begin is None or begin.kind != "time" or page.has_begun:
            at, begin = page.next_from_seq, None


def tail_many_steps(
    calls: RecordCalls,
    is_closed: Callable[[], bool],
    topics: Mapping[str, int | From | None],
    prefixes: Mapping[str, int | From | None],
    *,
    max_bytes: int | None,
    which: WhichRecords,
    on_gap: OnGap,
    on_left_out: OnLeftOut,
) -> RecordSteps:
    """Yield the steps of `Log.tail_many`: lists of pairs of a topic's name and a record."""
    check_on_gap(on_gap)
    if on_left_out is not None and not callable(on_left_out):
        raise UsageError(f"on_left_out is {arguments.shown(on_left_out)}: use a function of a name, or None")
    max_bytes = arguments.optional_count("max_bytes", max_bytes, least=1)
    followed = _Followed(*calls.places(topics, prefixes))
    cursors, begins, seen = followed.cursors, followed.begins, followed.seen
    has_begun = False
    yield from _begin_all(calls, followed, prefixes, on_left_out)
    while True:
        try:
            for name in list(followed.behind):
                try:
                    page = yield calls.paging(
                        name,
                        cursors[name] if begins[name] is None else None,
                        limit=calls.max_limit,
                        max_bytes=max_bytes or 0,
                        which=which,
                        wait_ms=0,
                        from_=begins[name],
                        incarnation=followed.incarnations[name] or "",
                    )
                except RequestError as error:
                    followed.forget(name, error)
                    continue
                has_begun = True
                followed.incarnations[name] = page.incarnation or None
                if not followed.is_made_again(name, page):
                    _pass_gap_of(page, on_gap)
                yield [(name, record) for record in page.records]
                seen[name] = page.next_from_seq
                if begins[name] is None or page.has_begun:  # else no record has that time yet
                    cursors[name], begins[name] = page.next_from_seq, None
                if page.caught_up:
                    followed.behind.remove(name)
            if is_closed() or (calls.is_frozen and not followed.behind):
                return
            if not followed.behind:
                news = yield calls.waiting(followed.known(), wait_ms=calls.max_wait_ms, prefixes=prefixes)
                followed.take(news, on_left_out)
        except UsageError:
            if is_closed() and has_begun:
                return  # the log was closed while the call was made
            raise


def _begin_all(
    calls: RecordCalls, followed: _Followed, prefixes: Mapping[str, int | From | None], on_left_out: OnLeftOut
) -> RecordSteps:
    """Find the places of all topics, before the caller gets a record of any."""
    cursors, begins = followed.cursors, followed.begins
    if prefixes:
        followed.take_in((yield calls.waiting(dict(cursors), wait_ms=0, prefixes=prefixes)), on_left_out)
    for name, begin in list(begins.items()):
        if begin is not None and begin.kind != "time":
            try:
                cursors[name], begins[name] = (yield calls.placing(name, begin)), None
            except RequestError as error:
                followed.forget(name, error)
    followed.seen |= cursors


class _Followed:
    """The topics of a tail: those that were named, and those that a prefix covers."""

    def __init__(self, named: TailPlaces, prefixes: TailPlaces) -> None:
        self.cursors, self.begins = named
        self.seen: dict[str, int] = {}
        """Cursors of the newest pages, also of topics whose beginning has not come."""
        self.incarnations: dict[str, str | None] = dict.fromkeys(self.cursors)
        """The incarnation that each cursor is of; None: not known."""
        self.behind = list(self.cursors)
        """The topics that have records to be read."""
        self._prefixes = prefixes
        self._taken: set[str] = set()
        """The topics that are followed because of a prefix."""
        self._left_out: str | None = None
        """The topic that was reported last."""

    def take_in(self, news: News, on_left_out: OnLeftOut) -> None:
        """Follow the topics that are there at the first step; each begins as its prefix says."""
        cursors, begins = self._prefixes
        for name, head in news.heads.items():
            if name not in self.cursors and head is not None:
                prefix = longest_prefix(cursors, name)
                begin = begins[prefix]
                is_now = begin is not None and begin.kind == "now"
                self._follow(name, head, head.head_seq if is_now else cursors[prefix], None if is_now else begin)
        self._tell(news.left_out, on_left_out)

    def take(self, news: News, on_left_out: OnLeftOut) -> None:
        """Follow what is new: topics that a prefix covers begin with their first record."""
        for name, head in news.heads.items():
            if head is None and name in self._taken:
                self._drop(name)
            elif head is not None and name not in self.cursors:
                self._follow(name, head, 0, None)
            elif head is not None and self.incarnations[name] not in (None, head.incarnation):
                if name in self._taken:
                    self._drop(name)
                    self._follow(name, head, 0, None)
                else:
                    self.behind.append(name)
            elif head is None or head.head_seq != self.seen[name]:
                self.behind.append(name)
        self._tell(news.left_out, on_left_out)

    def known(self) -> dict[str, Seen]:
        """Return what a wait for news knows."""
        return {name: (seq, self.incarnations[name]) for name, seq in self.seen.items()}

    def is_made_again(self, name: str, page: Page) -> bool:
        """Return whether a page begins a topic of a prefix that was created again."""
        return name in self._taken and page.tombstone is not None and page.tombstone.is_recreated

    def forget(self, name: str, error: RequestError) -> None:
        """Forget a topic that is gone. Raises: the error, unless a prefix covers the topic."""
        if name not in self._taken or error.code != "topic_not_found":
            raise error
        self._drop(name)

    def _follow(self, name: str, head: TopicHead, cursor: int, begin: Begin | None) -> None:
        self.cursors[name] = self.seen[name] = cursor
        self.begins[name] = begin
        self.incarnations[name] = head.incarnation
        self._taken.add(name)
        self.behind.append(name)

    def _drop(self, name: str) -> None:
        for each in (self.cursors, self.begins, self.seen, self.incarnations):
            each.pop(name, None)
        self._taken.discard(name)
        if name in self.behind:
            self.behind.remove(name)

    def _tell(self, left_out: str | None, on_left_out: OnLeftOut) -> None:
        if left_out is not None and left_out != self._left_out:
            if on_left_out is None:
                _log.warning("%r is not followed, and perhaps others: %d topics are", left_out, len(self.cursors))
            else:
                on_left_out(left_out)
        self._left_out = left_out


def next_step(steps: RecordSteps, answer: Any) -> Any:
    """Return the step after the one with this answer; None: it was the last."""
    try:
        return steps.throw(answer) if isinstance(answer, TopicsError) else steps.send(answer)
    except StopIteration:
        return None


def made(steps: RecordSteps, make: Callable[[Any], Any]) -> Iterator[Any]:
    """Make the calls of some steps; yield their records."""
    step = next_step(steps, None)
    while step is not None:
        answer: Any = None
        if isinstance(step, list):
            yield from step
        else:
            try:
                answer = make(step)
            except TopicsError as error:
                answer = error
        step = next_step(steps, answer)


async def made_awaited(steps: RecordSteps, make: Callable[[Any], Awaitable[Any]]) -> AsyncGenerator[Any]:
    """Make the calls of some steps, and await each; yield their records."""
    step = next_step(steps, None)
    while step is not None:
        answer: Any = None
        if isinstance(step, list):
            for record in step:
                yield record
        else:
            try:
                answer = await make(step)
            except TopicsError as error:
                answer = error
        step = next_step(steps, answer)
