"""Routers of a server of several cores: each is on the core that owns both of its topics.

Source: R-CORE-4. A router is found by its name, which says nothing about its core, so all are
asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from topics.http.handlers.router_endpoints import router_config
from topics.http.plan.call import Call
from topics.http.spanning.portions import (
    UNKNOWN,
    AskedCores,
    PortionAnswer,
    ToAsk,
    ask_all,
    ask_each,
    away,
    failed,
    is_away,
    pass_on,
)


class _Deleted(msgspec.Struct):
    deleted: bool


def put_router(cores: AskedCores, call: Call) -> None:
    """Create a router or replace its settings (9.2), on the core of its source.

    The other ones are asked first, and refuse a name that a router of theirs has. They do nothing
    else, because the source is not theirs.
    """
    owner = cores.core_of(router_config(call).source)
    asked = ToAsk(call.plan, bytes(call.body))
    others = dict.fromkeys((core for core in range(cores.count) if core != owner), asked)
    put = partial(_put, cores, call, {owner: asked})
    if others:
        ask_each(call, cores, others, put)
    else:
        put([])


def _put(cores: AskedCores, call: Call, asked: dict[int, ToAsk], answers: list[PortionAnswer]) -> None:
    if not failed(call, answers):
        ask_each(call, cores, asked, partial(_reply_put, call))


def _reply_put(call: Call, answers: list[PortionAnswer]) -> None:
    if answers[0].status == UNKNOWN:
        call.drop()
    elif not failed(call, answers):
        _pass_on(call, answers[0])


def get_router(cores: AskedCores, call: Call) -> None:
    """Answer a router (9.3) as the core that has it."""
    ask_all(call, cores, partial(_reply_get, call))


def _reply_get(call: Call, answers: list[PortionAnswer]) -> None:
    _pass_on_first(call, answers, lambda each: each.status == 200, lambda each: each.status == 403, is_away)


def delete_router(cores: AskedCores, call: Call) -> None:
    """Delete a router (9.5) on the core that has it."""
    ask_all(call, cores, partial(_reply_delete, call))


def _reply_delete(call: Call, answers: list[PortionAnswer]) -> None:
    if _unknown_without_success(answers):
        call.drop()
    else:
        _pass_on_first(call, answers, _has_deleted, lambda each: each.status != 200 and not is_away(each), is_away)


def _unknown_without_success(answers: list[PortionAnswer]) -> bool:
    """Return whether a core may have deleted the router, and none is known to have."""
    return any(each.status == UNKNOWN for each in answers) and not any(map(_has_deleted, answers))


def _has_deleted(answer: PortionAnswer) -> bool:
    return answer.status == 200 and msgspec.json.decode(answer.body, type=_Deleted).deleted


def _pass_on_first(call: Call, answers: list[PortionAnswer], *matches: Callable[[PortionAnswer], bool]) -> None:
    """Answer with the first portion that matches the first of `matches` that any does.

    Without one, answer with any. A core that is away is named.
    """
    for match in matches:
        for answer in answers:
            if match(answer):
                _pass_on(call, answer)
                return
    _pass_on(call, answers[0])


def _pass_on(call: Call, answer: PortionAnswer) -> None:
    if is_away(answer):
        call.fail(away(answer.core))
    else:
        pass_on(call, answer)
