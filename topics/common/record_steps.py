"""Steps of `read` and `tail`, of a log and of a client, for callers that wait and that await.

A step is a call to be made, whose answer is sent back (its exception is thrown in), or a list of
records to be handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, Protocol

from topics.common.values import arguments
from topics.common.values.begin import NOW, Begin, From
from topics.common.values.delivered import GapError, Page
from topics.common.values.seen import Seen
from topics.common.values.which import WhichRecords
from topics.errors import UsageError

OnGap = Literal["raise", "skip"] | Callable[[GapError], object]
"""The choice at lost records: raise GapError, read on, or call a function and read on."""
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

    def places(self, topics: Mapping[str, int | From | None]) -> tuple[dict[str, int], dict[str, Begin | None]]: ...

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
    ) -> Any: ...

    def placing(self, topic: str, begin: Begin) -> Any: ...

    def waiting(self, topics: Mapping[str, Seen], *, wait_ms: int) -> Any: ...


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
    """Yield the steps of `Log.read`."""
    check_on_gap(on_gap)
    begin = calls.beginning(from_seq, from_, from_time)
    arguments.optional_count("limit", limit)
    arguments.optional_count("max_bytes", max_bytes, least=1)
    at, left, largest, room, has_records = from_seq, limit, calls.max_limit, max_bytes, False
    while (left is None or left > 0) and (room is None or room > 0):
        page = yield calls.paging(
            topic,
            at,
            limit=min(left or largest, largest),
            max_bytes=room or 0,
            which=which,
            wait_ms=0,
            from_=begin,
        )
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

    They end at the head of a log that is only read, because no record comes there.
    """
    arguments.optional_count("max_bytes", max_bytes, least=1)
    check_on_gap(on_gap)
    begin = calls.beginning(from_seq, from_, from_time)
    if from_seq is None and begin is None:
        begin = NOW
    at, has_begun = from_seq, False
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
            )
        except UsageError:
            if is_closed() and has_begun:
                return  # the log was closed while the call was made
            raise
        has_begun = True
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
    *,
    max_bytes: int | None,
    which: WhichRecords,
    on_gap: OnGap,
) -> RecordSteps:
    """Yield the steps of `Log.tail_many`: lists of pairs of a topic's name and a record."""
    check_on_gap(on_gap)
    arguments.optional_count("max_bytes", max_bytes, least=1)
    cursors, begins = calls.places(topics)
    behind, has_begun = list(cursors), False
    # All begin at the first step, before the caller gets a record of any topic.
    for name, begin in begins.items():
        if begin is not None and begin.kind != "time":
            cursors[name], begins[name] = (yield calls.placing(name, begin)), None
    seen = dict(cursors)
    while True:
        try:
            for name in list(behind):
                page = yield calls.paging(
                    name,
                    cursors[name] if begins[name] is None else None,
                    limit=calls.max_limit,
                    max_bytes=max_bytes or 0,
                    which=which,
                    wait_ms=0,
                    from_=begins[name],
                )
                has_begun = True
                _pass_gap_of(page, on_gap)
                yield [(name, record) for record in page.records]
                seen[name] = page.next_from_seq
                if begins[name] is None or page.has_begun:  # else no record has that time yet
                    cursors[name], begins[name] = page.next_from_seq, None
                if page.caught_up:
                    behind.remove(name)
            if is_closed() or (calls.is_frozen and not behind):
                return
            if not behind:
                heads = yield calls.waiting(seen, wait_ms=calls.max_wait_ms)
                behind = [name for name, head in heads.items() if head is None or head.head_seq != seen[name]]
        except UsageError:
            if is_closed() and has_begun:
                return  # the log was closed while the call was made
            raise


def next_step(steps: RecordSteps, answer: Any) -> Any:
    """Return the step after the one with this answer; None: it was the last."""
    try:
        return steps.throw(answer) if isinstance(answer, UsageError) else steps.send(answer)
    except StopIteration:
        return None
