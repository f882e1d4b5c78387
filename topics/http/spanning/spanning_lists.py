"""One page of a list of all cores: the cores' pages, merged by name. Source: R-CORE-1.

A core whose page has a cursor has shown all of its names up to that of the cursor, so the merged
page ends there at the latest. A cursor is a name, and every core understands it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import msgspec

from topics.http.handlers.list_pages import asked_page, reply_page
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.relay.relayed_head import portion_plan
from topics.http.spanning.portion_answers import PortionAnswer, failed
from topics.http.spanning.portions import AskedCores, Steps, ToAsk, ask_all, ask_each, run_steps
from topics.http.wire.cursor import decode_cursor
from topics.http.wire.query import boolean


class PortionRow(NamedTuple):
    """An item of a core's page. Items are in the order of their names."""

    name: str
    core: int
    text: msgspec.Raw


class Merged(NamedTuple):
    """A merged page. next_after: the last name that it covers, if another page follows."""

    rows: list[PortionRow]
    next_after: str | None


class _TopicPage(msgspec.Struct):
    topics: list[msgspec.Raw]
    next_cursor: str = ""


class _RouterPage(msgspec.Struct):
    routers: list[msgspec.Raw]
    next_cursor: str = ""


class _NamedTopic(msgspec.Struct):
    topic: str


class _NamedRouter(msgspec.Struct):
    router: str


def _topics_of(answer: PortionAnswer) -> tuple[list[PortionRow], str]:
    page = msgspec.json.decode(answer.body, type=_TopicPage)
    names = [msgspec.json.decode(text, type=_NamedTopic).topic for text in page.topics]
    return _portion_rows(answer, names, page.topics), page.next_cursor


def _routers_of(answer: PortionAnswer) -> tuple[list[PortionRow], str]:
    page = msgspec.json.decode(answer.body, type=_RouterPage)
    names = [msgspec.json.decode(text, type=_NamedRouter).router for text in page.routers]
    return _portion_rows(answer, names, page.routers), page.next_cursor


def _portion_rows(answer: PortionAnswer, names: list[str], texts: list[msgspec.Raw]) -> list[PortionRow]:
    return [PortionRow(name, answer.core, text) for name, text in zip(names, texts, strict=True)]


_NAME = itemgetter(0)
RowsOf = Callable[[PortionAnswer], tuple[list[PortionRow], str]]


def merged_page(answers: list[PortionAnswer], rows_of: RowsOf, page_size: int) -> Generator[None, None, Merged]:
    """Merge the pages of all cores, one in each step. A step takes a millisecond or two."""
    rows: list[PortionRow] = []
    upto: str | None = None
    for answer in answers:
        more, cursor = rows_of(answer)
        if cursor:
            after = decode_cursor(cursor)
            upto = after if upto is None else min(upto, after)
        rows = sorted(rows + more, key=_NAME)[: page_size + 1]
        yield
    if upto is not None:
        rows = [row for row in rows if row.name <= upto]
    if len(rows) > page_size:
        upto = rows[page_size - 1].name
    return Merged(rows[:page_size], upto)


def list_routers(cores: AskedCores, call: Call) -> None:
    """Answer one page of the routers of all cores (9.4)."""
    _after, page_size = asked_page(call.plan.query)
    ask_all(call, cores, partial(_join, call, partial(_reply_routers, call, page_size)))


def _join(call: Call, reply: Callable[[list[PortionAnswer]], Steps], answers: list[PortionAnswer]) -> None:
    """Answer a call in steps, with the pages of all cores."""
    if not failed(call, answers):
        run_steps(call, reply(answers))


def _reply_routers(call: Call, page_size: int, answers: list[PortionAnswer]) -> Steps:
    page = yield from merged_page(answers, _routers_of, page_size)
    reply_page(call, b"routers", [bytes(row.text) for row in page.rows], page.next_after)


def list_topics(cores: AskedCores, call: Call) -> None:
    """Answer one page of the topics of all cores (7.3).

    To be consumed (`touch`) a topic has to be shown, so those of the page are asked for again then.
    """
    query = call.plan.query
    _after, page_size = asked_page(query)
    boolean(query, "incarnation", False)
    is_touched = boolean(query, "touch", False)
    plan = _portion_of_list(call, touch="false") if is_touched else None
    ask_all(call, cores, partial(_join, call, partial(_reply_topics, cores, call, page_size, is_touched)), plan)


def _portion_of_list(call: Call, **parameters: str) -> Plan:
    return portion_plan(call.plan, {**call.plan.query, **parameters}, {})


def _reply_topics(
    cores: AskedCores, call: Call, page_size: int, is_touched: bool, answers: list[PortionAnswer]
) -> Steps:
    page = yield from merged_page(answers, _topics_of, page_size)
    if is_touched and page.rows and not call.answered:
        _touch(cores, call, page)
    else:
        reply_page(call, b"topics", [bytes(row.text) for row in page.rows], page.next_after)


def _touch(cores: AskedCores, call: Call, page: Merged) -> None:
    """Have the topics of a page consumed, which are the first ones of each core's page."""
    counts = Counter(row.core for row in page.rows)
    asked = {core: ToAsk(_portion_of_list(call, touch="true", page_size=str(counts[core]))) for core in sorted(counts)}
    ask_each(call, cores, asked, partial(_join, call, partial(_reply_touched, call, page)))


def _reply_touched(call: Call, page: Merged, answers: list[PortionAnswer]) -> Steps:
    """Answer the page as it is after its topics were consumed."""
    now: dict[str, msgspec.Raw] = {}
    for answer in answers:
        now |= {row.name: row.text for row in _topics_of(answer)[0]}
        yield
    items = [bytes(now.get(row.name, row.text)) for row in page.rows]
    reply_page(call, b"topics", items, page.next_after)
