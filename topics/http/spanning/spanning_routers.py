"""Routers of a server of several cores: each is on the core that owns its source.

Source: R-CORE-4, R-CORE-11. A router is found by its name, which says nothing about its core, so
all are asked. Requests to make routers of one name take turns, on the core that a topic of this
name would be on, so that no two are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

import msgspec

from topics.engine.values.name_rules import check_router_name
from topics.http.handlers.router_endpoints import router_config
from topics.http.plan.call import Call
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.portion_answers import (
    UNKNOWN,
    PortionAnswer,
    failed,
    is_away,
    pass_on,
    pass_on_or_name,
)
from topics.http.spanning.portions import AskedCores, Destination, Portion, ToAsk, ask_all, ask_each


class _Deleted(msgspec.Struct):
    deleted: bool


def put_router(cores: AskedCores, call: Call) -> None:
    """Create a router or replace its settings (9.2), in the turn of its name."""
    router_config(call)
    check_router_name(call.name)
    path = "routers/" + quote(call.name, safe="")
    asked = ToAsk(inner_plan(cores.inner, "PUT", path, call.principal, {}), bytes(call.body))
    ask_each(call, cores, {cores.core_of(call.name): asked}, partial(_reply_put, call))


def _reply_put(call: Call, answers: list[PortionAnswer]) -> None:
    (answer,) = answers
    if answer.status == UNKNOWN:
        call.drop()
    else:
        pass_on_or_name(call, answer)


class RouterPuts:
    """The requests to make routers whose names have their turns on this core."""

    def __init__(self, cores: AskedCores) -> None:
        self._cores = cores
        self._waiting: dict[str, deque[Call]] = {}
        """Requests by name; the first one is executed, also if its client has left."""

    def put(self, call: Call) -> None:
        """Have a request take its turn."""
        waiting = self._waiting.setdefault(call.name, deque())
        waiting.append(call)
        if len(waiting) == 1:
            self._execute(call)

    def _execute(self, call: Call) -> None:
        """Create a router or replace its settings, on the core of its source.

        The other ones are asked first, and refuse a name that a router of theirs has. They do
        nothing else, because the source is not theirs.
        """
        cores, body = self._cores, bytes(call.body)
        plan = inner_plan(cores.inner, "PUT", "router/" + quote(call.name, safe=""), call.principal, {})
        asked, ended = ToAsk(plan, body), Destination(cores.own, partial(self._took, call))
        turn = Portion(call.service, ended, plan, body, call.started_ns)
        try:
            owner = cores.core_of(router_config(turn).source)
            others = dict.fromkeys((core for core in range(cores.count) if core != owner), asked)
            put = partial(_put, cores, turn, {owner: asked})
            if others:
                ask_each(turn, cores, others, put)
            else:
                put([])
        except Exception as error:
            turn.fail(error)

    def _took(self, call: Call, answer: PortionAnswer) -> None:
        """Answer a request, and begin the next one of its name, whose client is there."""
        waiting = self._waiting[call.name]
        waiting.popleft()
        while waiting and waiting[0].answered:
            waiting.popleft()
        if not waiting:
            del self._waiting[call.name]
        if answer.status == UNKNOWN:
            call.drop()
        else:
            pass_on(call, answer)
        if waiting:
            self._execute(waiting[0])


def _put(cores: AskedCores, turn: Call, asked: dict[int, ToAsk], answers: list[PortionAnswer]) -> None:
    if not failed(turn, answers):
        ask_each(turn, cores, asked, partial(_end_put, turn))


def _end_put(turn: Call, answers: list[PortionAnswer]) -> None:
    if answers[0].status == UNKNOWN:
        turn.drop()
    else:
        pass_on_or_name(turn, answers[0])


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
                pass_on_or_name(call, answer)
                return
    pass_on_or_name(call, answers[0])
