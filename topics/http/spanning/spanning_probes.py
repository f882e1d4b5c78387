"""Readiness of a server of several cores. Source: R-CORE-2."""

from __future__ import annotations

from functools import partial

import msgspec

from topics.http.plan.call import Call
from topics.http.spanning.portion_answers import PortionAnswer, refusal_in
from topics.http.spanning.portions import AskedCores, ask_all


class _Ready(msgspec.Struct):
    topics: int


def ready(cores: AskedCores, call: Call) -> None:
    """Answer whether all cores should get traffic; if not, with the first that should not."""
    ask_all(call, cores, partial(_reply, call))


def _reply(call: Call, answers: list[PortionAnswer]) -> None:
    refused = next((answer for answer in answers if answer.status != 200), None)
    if refused is not None:
        call.fail(refusal_in(refused))
        return
    topics = sum(msgspec.json.decode(answer.body, type=_Ready).topics for answer in answers)
    call.reply(b'{"status":"ready","wal_replay_complete":true,"topics":%d}' % topics)
