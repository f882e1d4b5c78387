"""Steps of `read` and `tail`, for callers that wait for a call and for those that await it.

A step is a call to be made, whose answer is sent back (its exception is thrown in), or a list of
records to be handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

from topics.common.values import arguments
from topics.common.values.begin import NOW, From
from topics.config import Config
from topics.embedded.calls import Start
from topics.embedded.starts import Starts
from topics.errors import UsageError

Step: TypeAlias = "Start[Any] | list[Any]"
RecordSteps = Generator[Step, Any, None]


def read_steps(
    starts: Starts,
    config: Config,
    topic: str,
    from_seq: int,
    *,
    limit: int | None,
    max_bytes: int | None,
    node: str,
    from_: From | None,
    from_time: int | None,
) -> RecordSteps:
    """Yield the steps of `Log.read`."""
    begin = starts.beginning(from_seq, from_, from_time)
    arguments.optional_count("limit", limit)
    arguments.optional_count("max_bytes", max_bytes, least=1)
    left, largest, room, has_records = limit, config.max_limit, max_bytes, False
    while (left is None or left > 0) and (room is None or room > 0):
        page = yield starts.paging(
            topic,
            from_seq,
            limit=min(left or largest, largest),
            max_bytes=room or 0,
            node=node,
            wait_ms=0,
            from_=begin,
        )
        page.raise_gap()
        if room is not None:
            if page.size > room and has_records:
                return  # a page has one record at least, which does not fit after others
            room -= page.size
        yield page.records
        has_records = has_records or bool(page.records)
        from_seq, begin = page.next_from_seq, None
        if left is not None:
            left -= len(page.records)
        if page.caught_up:
            return


def tail_steps(
    starts: Starts,
    config: Config,
    is_closed: Callable[[], bool],
    topic: str,
    from_seq: int | None,
    *,
    max_bytes: int | None,
    node: str,
    from_: From | None,
    from_time: int | None,
) -> RecordSteps:
    """Yield the steps of `Log.tail`. is_closed: returns whether `close` was called.

    They end at the head of a log that is only read, because no record comes there.
    """
    arguments.optional_count("max_bytes", max_bytes, least=1)
    begin = starts.beginning(from_seq, from_, from_time)
    if from_seq is None and begin is None:
        begin = NOW
    at, has_begun = from_seq or 0, False
    while True:
        try:
            page = yield starts.paging(
                topic,
                at,
                limit=config.max_limit,
                max_bytes=max_bytes or 0,
                node=node,
                wait_ms=config.max_wait_ms,
                from_=begin,
            )
        except UsageError:
            if is_closed() and has_begun:
                return  # the log was closed while the call was made
            raise
        has_begun = True
        page.raise_gap()
        yield page.records
        if is_closed() or (starts.is_frozen and page.caught_up):
            return
        if begin is None or begin.kind != "time" or page.has_begun:
            at, begin = page.next_from_seq, None


def tail_many_steps(
    starts: Starts,
    config: Config,
    is_closed: Callable[[], bool],
    topics: Mapping[str, int | From | None],
    *,
    max_bytes: int | None,
    node: str,
) -> RecordSteps:
    """Yield the steps of `Log.tail_many`: lists of pairs of a topic's name and a record."""
    arguments.optional_count("max_bytes", max_bytes, least=1)
    cursors, begins = starts.places(topics)
    behind, has_begun = list(cursors), False
    # All begin at the first step, before the caller gets a record of any topic.
    for name, begin in begins.items():
        if begin is not None and begin.kind != "time":
            cursors[name], begins[name] = (yield starts.placing(name, begin)), None
    seen = dict(cursors)
    while True:
        try:
            for name in list(behind):
                page = yield starts.paging(
                    name,
                    cursors[name],
                    limit=config.max_limit,
                    max_bytes=max_bytes or 0,
                    node=node,
                    wait_ms=0,
                    from_=begins[name],
                )
                has_begun = True
                page.raise_gap()
                yield [(name, record) for record in page.records]
                seen[name] = page.next_from_seq
                if begins[name] is None or page.has_begun:  # else no record has that time yet
                    cursors[name], begins[name] = page.next_from_seq, None
                if page.caught_up:
                    behind.remove(name)
            if is_closed() or (starts.is_frozen and not behind):
                return
            if not behind:
                heads = yield starts.waiting(seen, wait_ms=config.max_wait_ms)
                behind = [name for name, head in heads.items() if head is None or head.head_seq != seen[name]]
        except UsageError:
            if is_closed() and has_begun:
                return  # the log was closed while the call was made
            raise


def next_step(steps: RecordSteps, answer: Any) -> Step | None:
    """Return the step after the one with this answer; None: it was the last."""
    try:
        return steps.throw(answer) if isinstance(answer, UsageError) else steps.send(answer)
    except StopIteration:
        return None
