"""Endpoints of watch: create a session, open its stream.

Source: wire contract, sections 10.2 and 10.3.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from topics.engine.json.strict_json import JsonKind
from topics.engine.values.json_fields import Fields, read_object, refuse
from topics.engine.values.results import DiffQuery, TopicState
from topics.errors import RequestError, TopicsError
from topics.http.handlers import event_streams
from topics.http.plan.call import Call
from topics.http.streams import sse
from topics.http.streams.watch_cursors import Cursors, read_cursor_id
from topics.http.streams.watch_sessions import SESSION_TTL_MS, WatchSession
from topics.http.streams.watch_stream import WatchStream
from topics.http.wire.query import boolean

DEFAULT_BATCH_BYTES = 262_144
_HEARTBEAT_MS = 15_000
_HEARTBEAT_MS_MIN, _HEARTBEAT_MS_MAX = 1000, 60_000


def create_session(call: Call) -> None:
    """Create a watch session. Answer its start cursor of every topic, and its wid (10.2)."""
    fields = call.fields()
    starts = _starts(fields, call.service.config.max_watch_topics)
    query = DiffQuery(
        limit=fields.u32("limit", 0),
        nodes=fields.nodes(call.service.config),
        include_tags=fields.boolean("include_tags", False),
        include_meta=fields.boolean("include_meta", True),
        include_data=fields.boolean("include_data", True),
        max_batch_bytes=fields.u64("max_batch_bytes", DEFAULT_BATCH_BYTES),
    )
    heartbeat_ms = _heartbeat_ms(fields, call.service.config.test_min_heartbeat_ms)
    fields.choice("consistency", ("eventual", "strong"), "eventual")
    if not starts:
        raise RequestError("invalid_request", "topics is empty: name at least one")
    call.principal.check_names(*starts)
    lenient = boolean(call.plan.query, "lenient", False)

    def found(states: dict[str, TopicState]) -> None:
        cursors: Cursors = {}
        for name, state in states.items():
            start = starts[name]
            cursors[name] = state.head_seq if start is None else start
        session = WatchSession(call.principal.key_id, query, heartbeat_ms * 1_000_000, cursors)
        call.service.sessions.add(session)
        topics = {
            name: {"from_seq": cursors[name], "head_seq": state.head_seq, "earliest_seq": state.earliest_seq}
            for name, state in states.items()
        }
        shape = b'{"wid":"%b","stream_url":"/v0/watch/%b","session_ttl_ms":%d,"topics":%b,"performance":{%b}}'
        wid, performance = session.wid.encode(), b'"server_total_ms":' + call.total_ms()
        call.reply(shape % (wid, wid, SESSION_TTL_MS, msgspec.json.encode(topics), performance))

    _look_up(call, sorted(starts), lenient, found)


def _starts(fields: Fields, most: int) -> dict[str, int | None]:
    """Return the start cursor by topic; None for the topic's tail.

    Raises: RequestError, also for more than `most` topics.
    """
    span = fields.require("topics")
    if span.kind != JsonKind.OBJECT:
        raise refuse("topics", "an object from names to cursors", span)
    topics = read_object(span.text, "topics", "topics.", most)
    starts: dict[str, int | None] = {}
    for name in topics.names():
        entry = topics.require(name)
        if entry.kind != JsonKind.OBJECT:
            raise refuse(f"topics.{name}", "an object with from_seq or tail, or {}", entry)
        start = read_object(entry.text, f"topics.{name}", f"topics.{name}.")
        from_seq = start.u64("from_seq", 0)
        starts[name] = None if start.boolean("tail", False) else from_seq
    return starts


def _heartbeat_ms(fields: Fields, test_floor_ms: int) -> int:
    floor_ms = min(max(test_floor_ms, 1), _HEARTBEAT_MS_MIN)
    return min(max(fields.u64("heartbeat_ms", _HEARTBEAT_MS), floor_ms), _HEARTBEAT_MS_MAX)


def _look_up(call: Call, names: list[str], lenient: bool, found: Callable[[dict[str, TopicState]], None]) -> None:
    """Pass the states of all topics to `found`, once each is known.

    An absent topic fails the call, or is left out if `lenient`.
    """
    states: dict[str, TopicState | TopicsError] = {}

    def take(name: str, state: TopicState | TopicsError) -> None:
        states[name] = state
        if len(states) < len(names) or call.answered:
            return
        present: dict[str, TopicState] = {}
        try:
            for each in names:
                state = states[each]
                if not isinstance(state, TopicsError):
                    present[each] = state
                elif not (lenient and isinstance(state, RequestError) and state.code == "topic_not_found"):
                    raise state
            found(present)
        except TopicsError as error:
            call.fail(error)

    for name in names:
        call.service.engine.state(name, touch=False, done=lambda state, name=name: take(name, state))  # type: ignore[misc]


def open_stream(call: Call) -> None:
    """Stream the session's topics from its cursors on, until client or server ends it (10.3)."""
    event_streams.check_accept(call.plan)
    service = call.service
    session = service.sessions.find(call.name)
    if session is None:
        raise RequestError("not_found", "there is no such watch session, or it was idle for too long: create a new one")
    if session.key_id is not None and session.key_id != call.principal.key_id:
        raise RequestError("unauthorized", "this watch session belongs to the key that created it: send that key")
    slot = service.stream_slots.take(session.key_id)
    last_event_id = call.plan.request.headers.get(b"last-event-id", b"")
    if last_event_id:
        seen = read_cursor_id(last_event_id)
        cursors = session.cursors
        session.cursors = {name: min(cursor, seen.get(name, cursor)) for name, cursor in cursors.items()}

    def on_end() -> None:
        slot.release()
        del service.watch_streams[watch]

    watch = WatchStream(session, service.sessions, service.heartbeats, service.now_ns(), on_end)
    slot.on_key_gone = watch.on_key_gone
    service.watch_streams[watch] = None
    stream = call.open_stream(sse.CONTENT_TYPE, sse.HEADERS, watch.on_drained, watch.on_disconnect)
    watch.open(service.engine.open_feed(watch), stream)
