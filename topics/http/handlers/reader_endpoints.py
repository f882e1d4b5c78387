"""Endpoints of named readers. Source: wire contract, sections 7.10 to 7.16."""

from __future__ import annotations

import re
from functools import partial

import msgspec

from topics.common.values.begin import Begin
from topics.common.values.reader_config import AT_LEAST_ONCE, DELIVERIES, ReaderConfig
from topics.engine.readers.reader_results import ReaderPage, ReaderPut, ReaderQuery, ReaderState
from topics.engine.values.incarnation import check_incarnation, is_shaped
from topics.engine.values.json_fields import Fields
from topics.engine.values.read_answer import ending
from topics.engine.values.topic_config import clamped_lease_ms
from topics.errors import RequestError
from topics.http.plan.call import Call
from topics.http.wire.json_text import json_bool

_LEASE_MS = 30_000
_TOKEN = re.compile(r"page_0*([1-9A-Fa-f][0-9A-Fa-f]{0,15})", re.ASCII)


def put_reader(call: Call) -> None:
    """Create a reader, or change its settings; its position stays (7.10)."""
    fields = call.fields()
    config = ReaderConfig(
        fields.choice("delivery", DELIVERIES, AT_LEAST_ONCE),
        fields.boolean("holds", False),
        fields.boolean("trims", False),
    )
    begin = fields.begin(call.service.config, "from_seq") or Begin("seq", fields.u64("from_seq", 0))
    known = _known_incarnation(fields)

    @call.or_fail
    def done(put: ReaderPut) -> None:
        created = b',"created":' + json_bool(put.created)
        shown = b"" if known is None else b',"incarnation":"%b"' % put.incarnation.encode()
        call.reply(_answer(call, created + b"," + _members(put.state) + shown), 201 if put.created else 200)

    put = call.service.engine.readers.put
    put(call.name, call.plan.child, config, done, begin=begin, incarnation=known or None)


def get_reader(call: Call) -> None:
    """Answer the state of a reader (7.11)."""

    @call.or_fail
    def done(state: ReaderState) -> None:
        call.reply(_answer(call, b"," + _members(state)))

    named = call.plan.query.get("incarnation", "")
    incarnation = named if is_shaped(named) else None
    call.service.engine.readers.state(call.name, call.plan.child, done, incarnation=incarnation)


def list_readers(call: Call) -> None:
    """Answer the states of all readers of a topic, by name (7.12)."""

    @call.or_fail
    def done(states: list[ReaderState]) -> None:
        rows = b",".join([b'{"reader":%b,%b}' % (msgspec.json.encode(state.name), _members(state)) for state in states])
        call.reply(
            b'{"topic":%b,"readers":[%b],"performance":{"server_total_ms":%b}}'
            % (call.plan.name_json, rows, call.total_ms())
        )

    call.service.engine.readers.of_topic(call.name, done)


def delete_reader(call: Call) -> None:
    """Delete a reader. An absent one is not an error (7.13)."""

    @call.or_fail
    def done(deleted: bool) -> None:
        call.reply(_answer(call, b',"deleted":' + json_bool(deleted)))

    call.service.engine.readers.delete(call.name, call.plan.child, done)


def read(call: Call) -> None:
    """Answer the next page, or show it; wait for one if `wait_ms` is set (7.14)."""
    fields = call.fields()
    query = ReaderQuery(
        limit=fields.u32("limit", 0),
        max_bytes=fields.u64("max_batch_bytes", 0),
        wait_ms=fields.u32("wait_ms", 0),
        peek=fields.boolean("peek", False),
        done=_token(fields, "done"),
        commit_every=fields.u64("commit_every", 1),
        lease_ms=clamped_lease_ms(fields.u64("lease_ms", _LEASE_MS)),
        passes_gaps=not fields.boolean("stop_at_gap", False),
    )
    incarnation = _known_incarnation(fields) or None

    @call.or_fail
    def done(page: ReaderPage) -> None:
        lease = b'"token":"page_%x","deadline":%d,' % (page.token, page.until_ms) if page.token else b""
        before = b'{"topic":%b,"reader":%b,%b"records":[' % (call.plan.name_json, _reader(call), lease)
        call.reply_around(before, page.result.records, ending(page.result, call.total_ms()))

    cancel = call.service.engine.readers.read(call.name, call.plan.child, query, done, incarnation=incarnation)
    if not call.answered:
        call.on_disconnect = cancel


def commit(call: Call) -> None:
    """Note that a page is done, or its records up to a seq; give back the rest (7.15).

    Without a page, what reads have said is done is committed.
    """
    fields = call.fields()
    fields.require("token")
    token = _token(fields, "token")
    upto = fields.nullable_u64("seq")
    gives_back = fields.boolean("release", False)
    incarnation = _known_incarnation(fields) or None
    done = call.or_fail(partial(_committed, call))
    engine_commit = call.service.engine.readers.commit
    engine_commit(call.name, call.plan.child, token, upto, done, gives_back=gives_back, incarnation=incarnation)


def seek(call: Call) -> None:
    """Continue above a seq (7.16)."""
    fields = call.fields()
    fields.require("seq")
    seq = fields.u64("seq", 0)
    incarnation = _known_incarnation(fields) or None
    done = call.or_fail(partial(_committed, call))
    call.service.engine.readers.seek(call.name, call.plan.child, seq, done, incarnation=incarnation)


def _committed(call: Call, committed: int) -> None:
    call.reply(_answer(call, b',"committed":%d' % committed))


def _known_incarnation(fields: Fields) -> str | None:
    """Return the incarnation that a request names: "" only asks, None neither names nor asks.

    Raises: RequestError invalid_request.
    """
    known = fields.nullable_string("incarnation")
    if known:
        check_incarnation("incarnation", known)
    return known


def _token(fields: Fields, name: str) -> int:
    """Return the number of a page's token; 0 for null. Raises: RequestError invalid_request."""
    token = fields.nullable_string(name)
    if token is None:
        return 0
    found = _TOKEN.fullmatch(token)
    if found is None:
        message = f'{name} is none of a page: send it as the read gave it ("page_" and hex digits)'
        raise RequestError("invalid_request", message)
    return int(found[1], 16)


def _reader(call: Call) -> bytes:
    return msgspec.json.encode(call.plan.child)


def _answer(call: Call, members: bytes) -> bytes:
    """Return an answer about one reader. members: each after a comma."""
    return b'{"topic":%b,"reader":%b%b,"performance":{"server_total_ms":%b}}' % (
        call.plan.name_json,
        _reader(call),
        members,
        call.total_ms(),
    )


def _members(state: ReaderState) -> bytes:
    """Return settings and numbers of a reader."""
    return (
        b'"delivery":"%b","holds":%b,"trims":%b,"position":%d,"committed":%d,"lag_records":%d,"lag_ms":%d,"pages":%d'
    ) % (
        state.config.delivery.encode(),
        json_bool(state.config.holds),
        json_bool(state.config.trims),
        state.position,
        state.committed,
        state.lag_records,
        state.lag_ms,
        state.pages,
    )
