"""Endpoints of topics: create, change, state, list, delete.

Source: wire contract, sections 7.1 to 7.4, 7.17.
"""

from __future__ import annotations

import msgspec

from topics.common.values.answers import FailedJob
from topics.engine.values.name_rules import check_dead_letter, check_topic_name
from topics.engine.values.results import DeleteTopicResult, PatchResult, PutResult, TopicPage, TopicState
from topics.engine.values.topic_config import ConfigPatch, check_dead_letter_of, config_of_fields
from topics.http.handlers.list_pages import asked_page, reply_page
from topics.http.plan.call import Call
from topics.http.wire.json_text import json_bool, json_nullable
from topics.http.wire.query import boolean


def put_topic(call: Call) -> None:
    """Create a topic or replace its configuration (7.1)."""
    config = config_of_fields(call.fields())
    check_topic_name(call.name)
    check_dead_letter_of(config, call.name)
    if config.dead_letter is not None:
        call.principal.check_names(config.dead_letter)

    @call.or_fail
    def done(result: PutResult) -> None:
        body = b'{"topic":%b,"created":%b,"config":%b,"performance":{"server_total_ms":%b}}' % (
            call.plan.name_json,
            json_bool(result.created),
            result.config.as_json(),
            call.total_ms(),
        )
        call.reply(body, 201 if result.created else 200)

    call.service.engine.put_topic(call.name, config, done)


def patch_topic(call: Call) -> None:
    """Change the fields of a topic's configuration that the body names (7.17)."""
    patch = ConfigPatch.from_fields(call.fields())
    if patch.dead_letter is not None:
        check_dead_letter(patch.dead_letter)
        call.principal.check_names(patch.dead_letter)

    @call.or_fail
    def done(result: PatchResult) -> None:
        call.reply(
            b'{"topic":%b,"before":%b,"after":%b,"performance":{"server_total_ms":%b}}'
            % (call.plan.name_json, result.before.as_json(), result.after.as_json(), call.total_ms())
        )

    call.service.engine.patch_topic(call.name, patch, done)


def get_topic(call: Call) -> None:
    """Answer the state of a topic; `touch` counts as consumption (7.2)."""
    query = call.plan.query
    shown = boolean(query, "incarnation", False)
    with_attempts = boolean(query, "include_attempts", False)

    @call.or_fail
    def done(state: TopicState) -> None:
        incarnation = b'"incarnation":"%b",' % state.incarnation.encode() if shown else b""
        call.reply(_state_json(call, state, incarnation, with_attempts=with_attempts))

    touch = boolean(query, "touch", True)
    call.service.engine.state(call.name, touch=touch, with_attempts=with_attempts, done=done)


def _state_json(call: Call, state: TopicState, incarnation: bytes, *, with_attempts: bool) -> bytes:
    """Return the answer of `get_topic`.

    incarnation: the member with a comma after it; b"" leaves it out. with_attempts: whether a queue
    has `failed`.
    """
    queue = b""
    if state.queue is not None:
        queue = b'"queue":{"ready":%d,"in_flight":%d,"dead_lettered":%d%b%b},' % (
            state.queue.ready,
            state.queue.in_flight,
            state.queue.dead_lettered,
            b"" if state.queue.delayed is None else b',"delayed":%d' % state.queue.delayed,
            b',"failed":[%b]' % b",".join(map(_failed_json, state.queue.failed)) if with_attempts else b"",
        )
    return (
        b'{"topic":%b,"type":"%b","head_seq":%d,"earliest_seq":%d,"next_seq":%d,"count":%d,"bytes":%d,"config":%b,'
        b'"effective_priority":%d,"last_write_ts":%b,"last_read_ts":%b,%b%b"performance":{"server_total_ms":%b}}'
    ) % (
        call.plan.name_json,
        state.config.type.encode(),
        state.head_seq,
        state.earliest_seq,
        state.head_seq + 1,
        state.count,
        state.bytes,
        state.config.as_json(),
        state.effective_priority,
        json_nullable(state.last_write_ts),
        json_nullable(state.last_read_ts),
        queue,
        incarnation,
        call.total_ms(),
    )


def _failed_json(job: FailedJob) -> bytes:
    return b'{"$seq":%d,"deliveries":%d,"attempts":%b}' % (job.seq, job.deliveries, msgspec.json.encode(job.attempts))


def list_topics(call: Call) -> None:
    """Answer one page of topics, by name (7.3, 3.4)."""
    query = call.plan.query
    after, page_size = asked_page(query)
    shown = boolean(query, "incarnation", False)

    @call.or_fail
    def done(page: TopicPage) -> None:
        reply_page(call, b"topics", [_row_json(row, shown) for row in page.rows], page.next_after)

    touch = boolean(query, "touch", False)
    call.service.engine.list_topics(query.get("prefix", ""), after, page_size, touch, call.principal.prefixes, done)


def _row_json(row: TopicState, with_incarnation: bool) -> bytes:
    return (
        b'{"topic":%b,"head_seq":%d,"earliest_seq":%d,"count":%d,"bytes":%d,"durable":%b,"effective_priority":%d%b}'
    ) % (
        msgspec.json.encode(row.name),
        row.head_seq,
        row.earliest_seq,
        row.count,
        row.bytes,
        json_bool(row.config.durable),
        row.effective_priority,
        b',"incarnation":"%b"' % row.incarnation.encode() if with_incarnation else b"",
    )


def delete_topic(call: Call) -> None:
    """Delete a topic, its records and its routers. An absent topic is not an error (7.4)."""

    @call.or_fail
    def done(result: DeleteTopicResult) -> None:
        body = b'{"topic":%b,"deleted":%b,"routers_removed":%b,"performance":{"server_total_ms":%b}}' % (
            call.plan.name_json,
            json_bool(result.deleted),
            msgspec.json.encode([name for name in result.routers_removed if call.principal.allows(name)]),
            call.total_ms(),
        )
        call.reply(body)

    if_empty = boolean(call.plan.query, "if_empty", False)
    call.service.engine.delete_topic(call.name, if_empty=if_empty, done=done)
