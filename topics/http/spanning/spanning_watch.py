"""Watch sessions of a server of several cores. Source: R-CORE-6.

A session of topics of one core is there. One of several is where it was made, and its streams
follow the topics of other cores by far feeds. The wid leads to its core, so requests for its stream
go there as those for a topic do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from topics.common.values.begin import Begin
from topics.http.handlers import watch_endpoints
from topics.http.handlers.watch_endpoints import Feeds
from topics.http.plan.call import Call
from topics.http.spanning.portion_answers import PortionAnswer, failed, pass_on
from topics.http.spanning.portions import AskedCores, ToAsk, ask_each, far_core_of
from topics.http.spanning.spanning_feed import SpanningFeeds
from topics.http.streams.watch_sessions import WatchSession


def create_session(cores: AskedCores, call: Call) -> None:
    """Create a session (10.2) on the one core that has all its topics, or here."""
    topics, prefixes = watch_endpoints.watched(call.fields(), call.service.config)
    owners = {cores.own if (core := far_core_of(cores, topic)) is None else core for topic in topics}
    if prefixes and cores.count > 1:
        _create_with_prefixes(SpanningFeeds(call.service, cores), call, tuple(prefixes), topics)
        return
    if len(owners) > 1:
        watch_endpoints.create_session_of(call, SpanningFeeds(call.service, cores))
        return
    asked = ToAsk(call.plan, bytes(call.body))
    ask_each(call, cores, dict.fromkeys(owners or {cores.own}, asked), partial(_reply, call))


def _create_with_prefixes(
    feeds: SpanningFeeds, call: Call, prefixes: tuple[str, ...], topics: Mapping[str, Begin]
) -> None:
    """Create a session here, once it is known what the prefixes take in."""
    most, within = call.service.config.max_watch_topics, call.principal.prefixes

    def then(names: list[str] | Exception) -> None:
        if isinstance(names, Exception):
            call.fail(names)
        elif not call.answered:
            others = [name for name in names if name not in topics]
            try:
                watch_endpoints.create_session_of(call, feeds, others[:most])
            except Exception as error:
                call.fail(error)

    feeds.find_topics(prefixes, within, most, then)


def open_stream(cores: AskedCores, call: Call) -> None:
    """Stream a session (10.3) of this core."""

    def feeds_of(session: WatchSession) -> Feeds:
        is_own = session.prefixes is None and all(far_core_of(cores, name) is None for name in session.cursors)
        return call.service.engine if is_own else SpanningFeeds(call.service, cores)

    watch_endpoints.open_stream_of(call, feeds_of)


def _reply(call: Call, answers: list[PortionAnswer]) -> None:
    if not failed(call, answers):
        pass_on(call, answers[0])
