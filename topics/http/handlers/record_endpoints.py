"""Endpoints of records: write, read from a cursor, delete.

Source: wire contract, sections 7.5 to 7.7.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Literal

from topics.common.tuples import make_tuple
from topics.engine.bodies.long_bodies import Frames, Work
from topics.engine.bodies.write_body import WriteBody, producer_and_key
from topics.engine.state.append_request import AppendRequest, Identity
from topics.engine.state.idempotency import Key
from topics.engine.state.refusals import config_needs_admin, name_forbidden
from topics.engine.values.incarnation import check_incarnation, meant_cursor
from topics.engine.values.predicate import parse_predicate
from topics.engine.values.read_answer import beginning, ending
from topics.engine.values.read_filter import ReadFilter
from topics.engine.values.results import AppendResult, DeleteResult, DiffQuery, DiffResult
from topics.engine.values.topic_config import TopicConfig
from topics.engine.values.write_answer import (
    ONE_WRITTEN,
    STAGED,
    WRITTEN,
    listed,
    repeat_times,
    write_times,
)
from topics.errors import RequestError, TopicsError
from topics.http.access.scope import Scope
from topics.http.plan.call import Call, unpacked
from topics.http.wire.json_text import json_bool
from topics.http.wire.query import boolean

_Found = tuple[Identity | None, RequestError | None]
_VISIBLE_ASCII = re.compile(rb"[\t\x20-\x7e]*")


def write(call: Call) -> None:
    """Append records; the answer follows at the commit point of the class (7.5)."""
    service = call.service
    if call.unpacking is not None or len(call.body) > service.step_bytes:
        call.held_bytes = call.held_bytes or len(call.body)
        service.long_bodies.run(_write_long(call))
        return
    text = bytes(call.body)
    try:
        body = service.scanner.scan(text)
    except RequestError:
        if call.plan.strict:
            service.scanner.explain_missing(text)
        raise
    if call.plan.strict:
        service.scanner.check_keys(text)
    _append(call, body, _identity(call, body))


def _write_long(call: Call) -> Work:
    """Write a long body, in turns with other work; do nothing if the client has left before."""
    try:
        if not call.answered:
            long_bodies = call.service.long_bodies
            if call.unpacking is not None and not (yield from unpacked(call, call.unpacking)):
                return
            try:
                body = yield from long_bodies.scan(call.body)
            except RequestError:
                if call.plan.strict:
                    long_bodies.explain_missing(call.body)
                raise
            if call.plan.strict:
                long_bodies.check_keys(call.body)
            frames = None
            identity, violation = found = _identity(call, body)
            if violation is None:
                frames = yield from long_bodies.frames(body.rows, body.node, identity)
            _append(call, body, found, frames)
            yield
            if not call.waits_for_others:
                call.body, call.held_bytes = b"", 0  # freeing memory takes as long as using it does
                call.repeat_by(partial(write, call), never=True)
    except Exception as error:
        call.fail(error)


def _identity(call: Call, body: WriteBody) -> _Found:
    """Return the identity by which a repeat of the write is recognized, and the limit it breaks."""
    key, producer, violation = body.key, body.producer, body.violation
    if key is None:
        key = call.plan.request.headers.get(b"idempotency-key")
        if key is not None:
            key, wrong = _check_header_key(call, key)
            if producer is not None and key is not None:
                wrong = wrong or producer_and_key()
            # Check 3 of 7.5, and the size of a record is check 4.
            if wrong is not None and (violation is None or violation.code == "record_too_large"):
                violation = wrong
    return producer if key is None else Key(key), violation


def _append(call: Call, body: WriteBody, found: _Found, frames: Frames | None = None) -> None:
    """Append a scanned body. This is a hot path: the answer is one format of bytes."""
    plan = call.plan
    service = call.service
    engine = service.engine
    if engine.refuses_writes and not body.disable_backpressure:
        raise engine.refuse_write()
    identity, violation = found
    piece = body.piece
    with_seqs = body.lists_seqs(boolean(plan.query, "return_seqs", True) if plan.query else True)
    topic = plan.name_json
    started_ns = call.started_ns

    # Not by `or_fail`, which costs one more call per write.
    def done(result: AppendResult | TopicsError) -> None:
        if isinstance(result, TopicsError):
            call.fail(result)
        else:
            service.answer_turns.answer(partial(answer, result))

    def answer(result: AppendResult) -> None:
        first, last, head, count, created, deduped, append_ns, sync_ns = result
        total_ns = service.now_ns() - started_ns
        if deduped:
            times = repeat_times(total_ns)
        else:
            times = write_times(total_ns, append_ns, sync_ns, engine.throttle_window_ns)
            if count == 1 and with_seqs and not (created or result.staged):
                call.reply(_ONE_RECORD % (topic, first, last, first, head, times))
                return
        if result.staged:
            text = _STAGED % (topic, piece, count, json_bool(created), json_bool(deduped), times)
        else:
            text = write_json(topic, first, count, with_seqs, times, head=head, created=created, deduped=deduped)
        call.reply(text, 201 if created else 200)

    config = body.config
    may_create = True if config is None else _may_create_with(call, config)
    options = (body.create, config, may_create, violation, body.incarnation, frames)
    request = make_tuple(AppendRequest, (plan.name, body.rows, body.node, identity, *options))
    if service.sampling:
        service.sampling = False
        parsed_ns = service.now_ns()
        engine.append(request, done)
        service.parse.add(parsed_ns - started_ns)
        service.append.add(service.now_ns() - parsed_ns)
    else:
        engine.append(request, done)


def write_json(
    topic: bytes,
    first: int,
    count: int,
    with_seqs: bool,
    times: bytes,
    *,
    head: int = 0,
    created: bool = False,
    deduped: bool = False,
) -> bytes:
    """Return the answer to a write of `count` records from `first` on.

    topic: its name as JSON. head: the topic's head; 0: the last of the records.
    """
    last = first + count - 1
    seqs = listed(first, last) if with_seqs else b""
    return _ANSWER % (topic, first, last, seqs, head or last, count, json_bool(created), json_bool(deduped), times)


_ANSWER, _ONE_RECORD, _STAGED = (b"{" + members + b"}" for members in (WRITTEN, ONE_WRITTEN, STAGED))


def _may_create_with(call: Call, config: TopicConfig) -> RequestError | Literal[True]:
    """Return True if the key may create an absent topic with `config`, else the error (7.5, 2)."""
    principal = call.principal
    if not principal.may(Scope.ADMIN):
        return config_needs_admin(call.name)
    if config.dead_letter is not None and not principal.allows(config.dead_letter):
        return name_forbidden(config.dead_letter)
    return True


def _check_header_key(call: Call, key: bytes) -> tuple[bytes | None, RequestError | None]:
    """Check an `Idempotency-Key` field. Return the key, and the violation.

    A key that is not visible ASCII is ignored, an empty one is a key (R-IDEM-1), and one above the
    limit is a violation.
    """
    limit = call.service.config.max_idempotency_key_bytes
    if not _VISIBLE_ASCII.fullmatch(key):
        return None, None
    if len(key) > limit:
        message = f"Idempotency-Key has {len(key)} bytes: at most {limit} are allowed"
        return key, RequestError("invalid_request", message)
    return key, None


def diff(call: Call) -> None:
    """Answer records above a cursor; wait for some if there are none and `wait_ms` is set (7.6)."""
    fields = call.fields()
    nodes, only_nodes, match = ReadFilter.of(fields, call.service.config)
    engine, known, present = call.service.engine, fields.nullable_string("incarnation"), None
    if known is not None:
        present = engine.incarnation(call.name)
        if known:
            check_incarnation("incarnation", known)
    query = DiffQuery(
        from_seq=meant_cursor(fields.u64("from_seq", 0), known or "", present or ""),
        limit=fields.u32("limit", 0),
        nodes=nodes,
        include_tags=fields.boolean("include_tags", False),
        include_meta=fields.boolean("include_meta", True),
        wait_ms=fields.u32("wait_ms", 0),
        max_batch_bytes=fields.u64("max_batch_bytes", 0),
        begin=fields.begin(call.service.config, "from_seq") if "from" in fields else None,
        only_nodes=only_nodes,
        match=match,
    )

    @call.or_fail
    def done(result: DiffResult) -> None:
        call.reply_around(beginning(call.plan.name_json), result.records, ending(result, call.total_ms(), present))

    cancel = engine.diff(call.name, query, done)
    if query.wait_ms and not call.answered:
        call.on_disconnect = cancel


def delete_records(call: Call) -> None:
    """Delete records by seq, by tag, or both (7.7)."""
    fields = call.fields()
    before_seq = fields.nullable_u64("before_seq")
    span = fields.nullable_span("match")
    match = None if span is None else parse_predicate(span, call.service.config.max_tag_bytes)
    if before_seq is None and match is None:
        raise RequestError("invalid_request", "before_seq, match or both are required")

    @call.or_fail
    def done(result: DeleteResult) -> None:
        body = (
            b'{"topic":%b,"deleted":%d,"earliest_seq":%d,"head_seq":%d,"count":%d,"bytes":%d,'
            b'"performance":{"server_total_ms":%b}}'
        ) % (
            call.plan.name_json,
            result.deleted,
            result.earliest_seq,
            result.head_seq,
            result.count,
            result.bytes,
            call.total_ms(),
        )
        call.reply(body)

    call.service.engine.delete_records(call.name, before_seq, match, done)
