"""Endpoints of watch: create a session, open its stream.

Source: wire contract, sections 10.2 and 10.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol

import msgspec

from topics.common.values.begin import Begin, Beginning
from topics.config import Config
from topics.engine.json.strict_json import JsonKind
from topics.engine.state.refusals import is_absent
from topics.engine.values.json_fields import Fields, read_object, refuse
from topics.engine.values.name_rules import check_prefix, of_longest_prefix
from topics.engine.values.read_filter import ReadFilter
from topics.engine.values.results import DiffQuery, Done
from topics.errors import RequestError, TopicsError
from topics.http.handlers import event_streams
from topics.http.plan.call import Call
from topics.http.streams import sse
from topics.http.streams.watch_cursors import Cursors, read_cursor_id
from topics.http.streams.watch_sessions import SESSION_TTL_MS, SessionPrefixes, WatchSession
from topics.http.streams.watch_stream import WatchFeed, WatchStream
from topics.http.wire.query import boolean

DEFAULT_BATCH_BYTES = 262_144
_HEARTBEAT_MS = 15_000
_HEARTBEAT_MS_MIN, _HEARTBEAT_MS_MAX = 1000, 60_000


def watched(fields: Fields, config: Config) -> tuple[dict[str, Begin], dict[str, Begin]]:
    """Return the topics that a session is to have, and the prefixes. Raises: RequestError."""
    prefixes = _beginnings(fields, "prefixes", config.max_prefixes, config)
    for prefix in prefixes:
        check_prefix("prefixes", prefix)
    if not prefixes:
        fields.require("topics")
    return _beginnings(fields, "topics", config.max_watch_topics, config), prefixes


class Feeds(Protocol):
    """The topics that sessions follow: those of an engine, or of all cores."""

    def begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None: ...

    def open_feed(self, sink: WatchStream) -> WatchFeed: ...


def create_session(call: Call) -> None:
    """Create a watch session. Answer its start cursor of every topic, and its wid (10.2)."""
    create_session_of(call, call.service.engine)


def create_session_of(call: Call, feeds: Feeds, names: list[str] | None = None) -> None:
    """Create a session of topics of `feeds`. names: those that prefixes take in; None: this
    engine's.
    """
    fields, config = call.fields(), call.service.config
    starts, prefixes = watched(fields, config)
    nodes, only_nodes, match = ReadFilter.of(fields, call.service.config)
    query = DiffQuery(
        limit=fields.u32("limit", 0),
        nodes=nodes,
        include_tags=fields.boolean("include_tags", False),
        include_meta=fields.boolean("include_meta", True),
        include_data=fields.boolean("include_data", True),
        max_batch_bytes=fields.u64("max_batch_bytes", DEFAULT_BATCH_BYTES),
        only_nodes=only_nodes,
        match=match,
    )
    heartbeat_ms = _heartbeat_ms(fields, call.service.config.test_min_heartbeat_ms)
    fields.choice("consistency", ("eventual", "strong"), "eventual")
    if not (starts or prefixes):
        raise RequestError("invalid_request", "topics is empty: name at least one")
    call.principal.check_names(*starts)
    lenient = boolean(call.plan.query, "lenient", False)
    taken_in: Mapping[str, Begin] = {}
    of_prefixes = None
    if prefixes:
        of_prefixes = SessionPrefixes(tuple(prefixes), call.principal.prefixes, config.max_watch_topics)
        if names is None:
            names = _taken_in(call, prefixes, starts)
        taken_in = {name: of_longest_prefix(prefixes, name) for name in names}

    def found(beginnings: dict[str, Beginning]) -> None:
        named = {name for name in beginnings if name in starts}
        others = [name for name in beginnings if name not in named]
        for name in others[max(config.max_watch_topics - len(named), 0) :]:
            del beginnings[name]  # an absent topic that was named takes no place
        cursors: Cursors = {name: beginning.from_seq for name, beginning in beginnings.items()}
        sessions, interval_ns = call.service.streams.sessions, heartbeat_ms * 1_000_000
        wid, key = sessions.new_wid(), call.principal if call.principal.mark else None
        session = WatchSession(wid, key, query, interval_ns, cursors, prefixes=of_prefixes)
        sessions.add(session)
        topics = {name: beginning._asdict() for name, beginning in beginnings.items()}
        shape = b'{"wid":"%b","stream_url":"/v0/watch/%b","session_ttl_ms":%d,"topics":%b,"performance":{%b}}'
        path, performance = wid.encode(), b'"server_total_ms":' + call.total_ms()
        call.reply(shape % (path, path, SESSION_TTL_MS, msgspec.json.encode(topics), performance))

    _look_up(call, feeds, starts, taken_in, found, lenient=lenient)


def _beginnings(fields: Fields, field: str, most: int, limits: Config) -> dict[str, Begin]:
    """Return the beginning by topic or by prefix; {} if the field is absent.

    Raises: RequestError, also for more than `most`.
    """
    span = fields.span(field)
    if span is None:
        return {}
    if span.kind != JsonKind.OBJECT:
        raise refuse(field, "an object from names to cursors", span)
    names = read_object(span.text, field, f"{field}.", most)
    starts: dict[str, Begin] = {}
    for name in names.names():
        entry = names.require(name)
        if entry.kind != JsonKind.OBJECT:
            raise refuse(f"{field}.{name}", "an object with from_seq, tail or from, or {}", entry)
        starts[name] = read_object(entry.text, f"{field}.{name}", f"{field}.{name}.").subscription_begin(limits)
    return starts


def _taken_in(call: Call, prefixes: dict[str, Begin], starts: dict[str, Begin]) -> list[str]:
    """Return the topics that prefixes take in now, beside the named ones.

    An absent topic that was named takes no place.
    """
    most, engine = call.service.config.max_watch_topics, call.service.engine
    names = engine.topics_with(tuple(prefixes), call.principal.prefixes, most)
    others = (name for name in names if name not in starts)
    left = most - sum(bool(engine.incarnation(name)) for name in starts)
    return list(islice(others, left))


def _heartbeat_ms(fields: Fields, test_floor_ms: int) -> int:
    floor_ms = min(max(test_floor_ms, 1), _HEARTBEAT_MS_MIN)
    return min(max(fields.u64("heartbeat_ms", _HEARTBEAT_MS), floor_ms), _HEARTBEAT_MS_MAX)


def _look_up(
    call: Call,
    feeds: Feeds,
    named: dict[str, Begin],
    taken_in: Mapping[str, Begin],
    found: Callable[[dict[str, Beginning]], None],
    *,
    lenient: bool,
) -> None:
    """Pass the beginnings of all topics to `found` by name, once each is known.

    An absent topic is left out if `lenient`, or if it was not named; else it fails the call.
    """
    starts = dict(sorted({**named, **taken_in}.items()))
    results: dict[str, Beginning | TopicsError] = {}

    def take(name: str, result: Beginning | TopicsError) -> None:
        results[name] = result
        if len(results) < len(starts) or call.answered:
            return
        present: dict[str, Beginning] = {}
        try:
            for each in starts:
                result = results[each]
                if not isinstance(result, TopicsError):
                    present[each] = result
                elif not (lenient or each in taken_in) or not is_absent(result):
                    raise result
            found(present)
        except TopicsError as error:
            call.fail(error)

    if not starts:
        found({})
    for name, begin in starts.items():
        feeds.begin(name, begin, lambda result, name=name: take(name, result))  # type: ignore[misc]


def open_stream(call: Call) -> None:
    """Stream the session's topics from its cursors on, until client or server ends it (10.3)."""
    open_stream_of(call, lambda _session: call.service.engine)


def open_stream_of(call: Call, feeds_of: Callable[[WatchSession], Feeds]) -> None:
    """Stream a session's topics. feeds_of(session): returns what has them."""
    event_streams.check_accept(call.plan)
    service, streams = call.service, call.service.streams
    session = streams.sessions.find(call.name)
    if session is None:
        raise RequestError("not_found", "there is no such watch session, or it was idle for too long: create a new one")
    if session.key is not None and session.key.key_id != call.principal.key_id:
        raise RequestError("unauthorized", "this watch session belongs to the key that created it: send that key")
    slot = call.take_slot(session.key)
    last_event_id = call.plan.request.headers.get(b"last-event-id", b"")
    if last_event_id:
        session.rewind(read_cursor_id(last_event_id))

    def on_end() -> None:
        slot.release()
        del streams.watches[watch]

    watch = WatchStream(session, streams.sessions, streams.heartbeats, service.now_ns(), on_end, streams.audience)
    slot.on_key_gone, slot.on_shutdown = watch.on_key_gone, watch.shut_down
    streams.watches[watch] = None
    stream = call.open_stream(sse.CONTENT_TYPE, sse.HEADERS, watch.on_drained, watch.on_disconnect)
    watch.open(feeds_of(session).open_feed(watch), stream)
