"""A wait for topics of several cores (7.8). Source: R-CORE-5.

Each core waits for its own topics. The first that answers ends the waits of the others, and then
all are asked once more, without a wait, for what the answer shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice

import msgspec

from topics.engine.values.results import KnownTopic
from topics.http.handlers.wait_endpoint import AskedNews, asked_news
from topics.http.plan.call import Call
from topics.http.spanning.portion_answers import PortionAnswer, failed
from topics.http.spanning.portions import AskedCores, ToAsk, ask_each, ask_until_first


class _News(msgspec.Struct):
    topics: dict[str, msgspec.Raw]
    left_out: str | None = None


def wait(cores: AskedCores, call: Call) -> None:
    """Answer the heads of topics of all cores once one has changed, or after `wait_ms`."""
    news = asked_news(call)
    call.body = b""
    most = call.service.config.max_wait_topics
    # Where the names have all places, what begins with a prefix is no news.
    waiting = news if len(news.known) < most else news._replace(prefixes=())
    last = {core: _asked(call, part) for core, part in _by_core(cores, news._replace(wait_ms=0)).items()}
    look = partial(ask_each, call, cores, last, partial(_reply, call, news))
    if not news.wait_ms:
        look()
        return
    first = {core: _asked(call, part) for core, part in _by_core(cores, waiting).items()}

    def woken(answer: PortionAnswer) -> None:
        if not failed(call, [answer]):
            look()

    ask_until_first(call, cores, first, woken)


def _by_core(cores: AskedCores, news: AskedNews) -> dict[int, AskedNews]:
    """Return what each core is asked for: its topics, and all prefixes."""
    known: dict[int, dict[str, KnownTopic]] = {core: {} for core in range(cores.count) if news.prefixes}
    for name, topic in news.known.items():
        known.setdefault(cores.core_of(name), {})[name] = topic
    return {core: news._replace(known=known[core]) for core in sorted(known)}


def _asked(call: Call, news: AskedNews) -> ToAsk:
    topics = {name: _member(topic) for name, topic in news.known.items()}
    body: dict[str, object] = {"topics": topics, "wait_ms": news.wait_ms}
    if news.prefixes:
        body["prefixes"] = news.prefixes
    return ToAsk(call.plan, msgspec.json.encode(body))


def _member(topic: KnownTopic) -> object:
    if topic.incarnation is None:
        return topic.seq
    return {"seq": topic.seq, "incarnation": topic.incarnation}


def _reply(call: Call, news: AskedNews, answers: list[PortionAnswer]) -> None:
    """Answer with the heads of all cores: names as they were asked for, then the others."""
    if failed(call, answers):
        return
    found = [msgspec.json.decode(answer.body, type=_News) for answer in answers]
    heads = {name: head for each in found for name, head in each.topics.items()}
    left_out = [each.left_out for each in found if each.left_out is not None]
    others = sorted(heads.keys() - news.known.keys())
    places = call.service.config.max_wait_topics - len(news.known)
    members = b",".join(_members(heads, [*news.known, *islice(others, places)]))
    rest = b""
    if news.prefixes:
        rest = b'"left_out":%b,' % msgspec.json.encode(min([*others[places:], *left_out], default=None))
    call.reply(b'{"topics":{%b},%b"performance":{"server_total_ms":%b}}' % (members, rest, call.total_ms()))


def _members(heads: dict[str, msgspec.Raw], names: Iterable[str]) -> Iterable[bytes]:
    return (b"%b:%b" % (msgspec.json.encode(name), bytes(heads[name])) for name in names)
