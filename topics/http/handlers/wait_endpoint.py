"""The endpoint that waits for changes of several topics at once.

Source: wire contract, section 7.8.
"""

from __future__ import annotations

import msgspec

from topics.common.topic_names import NAME_MAX
from topics.engine.json.strict_json import JsonKind
from topics.engine.read.wait import Heads
from topics.engine.values.incarnation import check_incarnation
from topics.engine.values.json_fields import Fields, read_object, refuse
from topics.engine.values.results import KnownTopic, TopicHead
from topics.errors import RequestError
from topics.http.plan.call import Call

_BODY_BYTES_A_NAME = 1024
_MUST_BE = "a seq, null, or an object with seq and incarnation"


def wait(call: Call) -> None:
    """Answer the heads of topics once one has changed, at the latest after `wait_ms` (7.8)."""
    most = call.service.config.max_wait_topics
    # Checked first, because reading a body takes as long as it is large.
    if len(call.body) > most * _BODY_BYTES_A_NAME:
        message = f"the body is over {most * _BODY_BYTES_A_NAME} bytes, which {most} topics never need: name fewer"
        raise RequestError("payload_too_large", message)
    fields = call.fields()
    known = _known(fields.few_members("topics", "an object from names to seqs", most))
    wait_ms = fields.u32("wait_ms", 0)
    call.principal.check_names(*known)
    call.body = b""  # the request may wait long, and does not need its body

    @call.or_fail
    def done(heads: Heads) -> None:
        members = b",".join([_member(name, head) for name, head in heads.items()])
        call.reply(b'{"topics":{%b},"performance":{"server_total_ms":%b}}' % (members, call.total_ms()))

    cancel = call.service.engine.wait(known, wait_ms, done)
    if not call.answered:
        call.on_disconnect = cancel


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
