"""What a client may say: one JSON object a text message, by its `op`. Source: wire contract 11.2 to 11.4, R-JSON.

A message of another shape is `Invalid`; the connection answers it `invalid_json`. Limits and rights are checked later,
by who executes the command.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from topics.common.tuples import make_tuple
from topics.config import Config
from topics.engine.json.strict_json import JsonKind, TooManyError, compacted, string_value
from topics.engine.state.idempotency import Key
from topics.engine.state.identity import Identity
from topics.engine.values.json_fields import Fields, read_object, refuse
from topics.engine.values.node_set import NO_NODES, NodeSet
from topics.engine.write.long_bodies import Frames, LongBodies
from topics.engine.write.write_body import CUT_BYTES, WriteBody, WriteScanner
from topics.errors import RequestError

SUBSCRIBE_LIMIT = 1000
"""Records a frame when a subscription does not say; 5.2."""


class Start(NamedTuple):
    """Where a subscription begins: behind `from_seq`, or at the head."""

    from_seq: int = 0
    tail: bool = False


class Subscribe(NamedTuple):
    request_id: bytes
    starts: dict[str, Start]
    nodes: NodeSet
    limit: int
    max_batch_bytes: int
    include_data: bool
    include_tags: bool
    include_meta: bool
    lenient: bool
    violation: RequestError | None
    """The limit that the command breaks; it is to be refused with this once the scope is there."""


class Unsubscribe(NamedTuple):
    request_id: bytes
    topics: list[str]
    violation: RequestError | None
    """The limit that the command breaks; it is to be refused with this."""


class Publish(NamedTuple):
    request_id: bytes
    topic: str
    body: WriteBody
    return_seqs: bool
    frames: Frames | None = None
    """Of a long one."""

    @property
    def identity(self) -> Identity | None:
        return self.body.producer if self.body.key is None else Key(self.body.key)


class Long(NamedTuple):
    """A message that is parsed in turns with everybody else, and is a command then."""

    data: bytes | bytearray | memoryview


class Ping(NamedTuple):
    request_id: bytes


class Invalid(NamedTuple):
    """No command at all: what was wrong with the message."""

    message: str


Command = Subscribe | Unsubscribe | Publish | Ping | Long | Invalid


def parse_command(message: bytes, scanner: WriteScanner, limits: Config) -> Command:
    """message: UTF-8. limits: of lists, which are counted before they are decoded."""
    try:
        return _parse(message, scanner, limits)
    except RequestError as error:
        return Invalid(error.message)


def _parse(message: bytes, scanner: WriteScanner, limits: Config) -> Command:
    """Raises: RequestError, it is no command."""
    fields = read_object(message, "the message")
    op = fields.string("op")
    span = fields.span("request_id")
    request_id = b"null" if span is None else _short(span.text, limits.ws_max_request_id_bytes)
    if op == "publish":
        topic = fields.string("topic")
        return_seqs = fields.boolean("return_seqs", True)
        return make_tuple(Publish, (request_id, topic, scanner.scan(message), return_seqs, None))
    if op in ("subscribe", "unsubscribe", "ping") and not _fits(message, limits):
        raise _too_long(limits)
    if op == "subscribe":
        return _subscribe(fields, request_id, limits)
    if op == "unsubscribe":
        return _unsubscribe(fields, request_id, limits.max_watch_topics)
    if op == "ping":
        return Ping(request_id)
    raise RequestError("invalid_request", 'op must be "subscribe", "unsubscribe", "publish" or "ping"')


def parse_long(
    message: bytes | bytearray | memoryview, bodies: LongBodies, scanner: WriteScanner, limits: Config
) -> Generator[None, None, Command]:
    """`parse_command` of a long message: a publish in turns, any other command at one go, if it may be so long."""
    try:
        try:
            body = yield from bodies.scan(message, command=True)
            fields = bodies.command_fields(message)
            is_publish = bool(fields.op) and _text(fields.op, "op") == "publish"
        except RequestError:
            if not _fits(message, limits):
                raise
            is_publish = False  # or a broken one; fields of other commands have other types
        if not is_publish:
            if not _fits(message, limits):
                raise _too_long(limits)
            return parse_command(bytes(message), scanner, limits)
        request_id = _short(fields.request_id or b"null", limits.ws_max_request_id_bytes)
        if not fields.topic:
            raise RequestError("invalid_request", "topic is missing: it is required")
        if not fields.has_records:
            raise RequestError("invalid_request", 'records is missing: it is required, send "records": [...]')
        publish = Publish(request_id, _text(fields.topic, "topic"), body, fields.return_seqs != b"false")
        if body.violation is not None:
            return publish
        frames = yield from bodies.frames(body.rows, body.node, publish.identity)
        return publish._replace(frames=frames)
    except RequestError as error:
        return Invalid(error.message)


def _fits(message: bytes | bytearray | memoryview, limits: Config) -> bool:
    """Return whether a command that is no publish may be so long: all of it is looked at in one pass."""
    return limits.max_command_bytes == 0 or len(message) <= limits.max_command_bytes


def _too_long(limits: Config) -> RequestError:
    message = f"only a publish may have over {limits.max_command_bytes} bytes (TOPICS_MAX_COMMAND_BYTES)"
    return RequestError("invalid_request", message)


def _text(text: bytes, name: str) -> str:
    """Raises: RequestError, so long a text was cut."""
    if len(text) < 2 or text[-1:] != b'"' or len(text) >= CUT_BYTES:
        raise RequestError("invalid_request", f"{name} is too long")
    return string_value(text)


def _short(request_id: bytes, most: int) -> bytes:
    """Return a `request_id` as replies have it. most: of its bytes, 0 for any. Raises: RequestError, it has more."""
    if 0 < most < len(request_id):
        raise RequestError("invalid_request", f"request_id has {len(request_id)} bytes: use at most {most}")
    return compacted(request_id)


def _subscribe(fields: Fields, request_id: bytes, limits: Config) -> Subscribe:
    starts: dict[str, Start] = {}
    nodes = NO_NODES
    violation: RequestError | None = None
    names_max = limits.max_watch_topics
    topic = fields.nullable_string("topic")
    start = Start(fields.u64("from_seq", 0), fields.boolean("tail", False))
    if topic is not None:
        starts[topic] = start
    span = fields.span("topics")
    if span is not None:
        if span.kind != JsonKind.OBJECT:
            raise refuse("topics", "an object of topic names", span)
        try:
            starts.update(_starts(span.text, names_max))
        except TooManyError:
            violation = too_many_names(names_max)
    if len(starts) > names_max:
        violation = too_many_names(names_max)
    try:
        nodes = fields.nodes(limits)
    except TooManyError as error:
        violation = violation or RequestError(error.code, error.message)
    return Subscribe(
        request_id,
        starts,
        nodes=nodes,
        limit=fields.u32("limit", SUBSCRIBE_LIMIT),
        max_batch_bytes=fields.u64("max_batch_bytes", 0),
        include_data=fields.boolean("include_data", True),
        include_tags=fields.boolean("include_tags", False),
        include_meta=fields.boolean("include_meta", True),
        lenient=fields.boolean("lenient", False),
        violation=violation,
    )


def _starts(text: bytes, names_max: int) -> dict[str, Start]:
    """Of the object `topics`. Raises: RequestError; TooManyError, before any name is decoded."""
    starts: dict[str, Start] = {}
    topics = read_object(text, "topics", "topics.", names_max)
    for name in topics.names():
        entry = topics.span(name)
        assert entry is not None, "a name of the object without a value"
        if entry.kind != JsonKind.OBJECT:
            raise refuse(f"topics.{name}", "an object", entry)
        try:
            inner = read_object(entry.text, f"topics.{name}", f"topics.{name}.")
        except TooManyError as error:
            raise RequestError(error.code, error.message) from None
        starts[name] = Start(inner.u64("from_seq", 0), inner.boolean("tail", False))
    return starts


def _unsubscribe(fields: Fields, request_id: bytes, names_max: int) -> Unsubscribe:
    """Of the names of `topics`, then that of `topic`."""
    names, count = fields.string_array("topics", names_max)
    if "topic" in fields:
        names.append(fields.string("topic"))
        count += 1
    return Unsubscribe(request_id, names, too_many_names(names_max) if count > names_max else None)


def too_many_names(most: int) -> RequestError:
    """The refusal of a command that names more topics than it may."""
    message = f"topic and topics have too many names: at most {most} are allowed in one command"
    return RequestError("invalid_request", message)
