"""Watch sessions of a server of several cores: each is on the core of its topics (R-CORE-6).

Its wid leads to that core, so requests for its stream go there as those for a topic do.
"""

from __future__ import annotations

from functools import partial

from topics.errors import RequestError
from topics.http.handlers.watch_endpoints import watched
from topics.http.plan.call import Call
from topics.http.spanning.portions import AskedCores, PortionAnswer, ToAsk, ask_each, failed


def create_session(cores: AskedCores, call: Call) -> None:
    """Create a session (10.2) on the one core that has all its topics."""
    topics, prefixes = watched(call.fields(), call.service.config)
    owners = {cores.core_of(topic) for topic in topics}
    if not owners or cores.count == 1:
        owners = {cores.own}  # which refuses a session of nothing
    if len(owners) > 1 or (prefixes and cores.count > 1):
        which = "of prefixes" if prefixes else "of topics of several cores"
        message = f"a watch session {which} is not built for several cores yet: serve with one core"
        raise RequestError("invalid_request", message)
    asked = ToAsk(call.plan, bytes(call.body))
    ask_each(call, cores, dict.fromkeys(owners, asked), partial(_reply, call))


def _reply(call: Call, answers: list[PortionAnswer]) -> None:
    if not failed(call, answers):
        answer = answers[0]
        call.pass_on(answer.status, answer.body, answer.content_type, answer.headers)
