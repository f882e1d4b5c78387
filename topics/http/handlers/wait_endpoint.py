"""The endpoint that waits for changes of several topics at once.

Source: wire contract, section 7.8.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from topics.common.topic_names import NAME_MAX
from topics.common.values.answers import News
from topics.engine.json.strict_json import JsonKind
from topics.engine.values.incarnation import check_incarnation
from topics.engine.values.json_fields import Fields, read_object, refuse
from topics.engine.values.name_rules import Prefixes, check_prefix
from topics.engine.values.results import KnownTopic, TopicHead
from topics.errors import RequestError
from topics.http.plan.call import Call

_BODY_BYTES_A_NAME = 1024
_MUST_BE = "a seq, null, or an object with seq and incarnation"


class AskedNews(NamedTuple):
    """The topics as a client knows them, and how long it waits for more."""

    known: dict[str, KnownTopic]
    prefixes: Prefixes
    wait_ms: int


def asked_news(call: Call) -> AskedNews:
    """Return what a call waits for: checks 1 and 2 of 7.8. Raises: RequestError."""
    most = call.service.config.max_wait_topics
    # Checked first, because reading a body takes as long as it is large.
    if len(call.body) > most * _BODY_BYTES_A_NAME:
        message = f"the body is over {most * _BODY_BYTES_A_NAME} bytes, which {most} topics never need: name fewer"
        raise RequestError("payload_too_large", message)
    fields = call.fields()
    prefixes = _prefixes(fields, call.service.config.max_prefixes)
    known: dict[str, KnownTopic] = {}
    if not prefixes or "topics" in fields:
        least = 0 if prefixes else 1
        known = _known(fields.few_members("topics", "an object from names to seqs", most, least))
    wait_ms = fields.u32("wait_ms", 0)
    call.principal.check_names(*known)
    return AskedNews(known, prefixes, wait_ms)


def wait(call: Call) -> None:
    """Answer the heads of topics once one has changed, at the latest after `wait_ms` (7.8)."""
    known, prefixes, wait_ms = asked_news(call)
    call.body = b""  # the request may wait long, and does not need its body

    @call.or_fail
    def done(news: News) -> None:
        members = b",".join([_member(name, head) for name, head in news.heads.items()])
        left_out = b'"left_out":%b,' % msgspec.json.encode(news.left_out) if prefixes else b""
        shape = b'{"topics":{%b},%b"performance":{"server_total_ms":%b}}'
        call.reply(shape % (members, left_out, call.total_ms()))

    def begin() -> None:
        cancel = call.service.engine.wait(known, wait_ms, done, prefixes, call.principal.prefixes)
        if not (call.answered or call.waits_for_others):
            call.on_disconnect = cancel

    call.repeat_by(begin)
    begin()


def _prefixes(fields: Fields, most: int) -> Prefixes:
    """Return the prefixes of names whose topics are news, too."""
    prefixes, count = fields.string_array("prefixes", most)
    if count > most:
        raise RequestError("invalid_request", f"prefixes has {count} members: at most {most} are allowed")
    for prefix in prefixes:
        check_prefix("prefixes", prefix)
    return tuple(prefixes)


def _known(topics: Fields) -> dict[str, KnownTopic]:
    """Return the topics as the client knows them, in its order.

    Raises: RequestError, naming the topic.
    """
    known: dict[str, KnownTopic] = {}
    for name in topics.names():
        if len(name) > NAME_MAX:  # no topic has so long a name, which the wait would hold in memory
            message = f"topics has a name of {len(name)} characters: that of a topic has at most {NAME_MAX}"
            raise RequestError("invalid_request", message)
        span = topics.require(name)
        if span.kind == JsonKind.NUMBER:
            known[name] = KnownTopic(topics.u64(name, 0))
        elif span.kind == JsonKind.NULL:
            known[name] = KnownTopic(None)
        elif span.kind == JsonKind.OBJECT:
            known[name] = _known_with_incarnation(read_object(span.text, f"topics.{name}", f"topics.{name}."), name)
        else:
            raise refuse(f"topics.{name}", _MUST_BE, span)
    return known


def _known_with_incarnation(entry: Fields, name: str) -> KnownTopic:
    entry.require("seq")
    incarnation = entry.nullable_string("incarnation")
    if incarnation is not None:
        check_incarnation(f"topics.{name}.incarnation", incarnation)
    return KnownTopic(entry.u64("seq", 0), incarnation)


def _member(name: str, head: TopicHead | None) -> bytes:
    if head is None:
        return msgspec.json.encode(name) + b":null"
    return b'%b:{"head_seq":%d,"incarnation":"%b"}' % (
        msgspec.json.encode(name),
        head.head_seq,
        head.incarnation.encode(),
    )
