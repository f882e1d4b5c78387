"""The commands of a client: one JSON object in a text message, distinguished by its `op`.

A message of another shape becomes `Invalid`, which the session answers with `invalid_json`. The
session checks limits and rights later, when it executes the command. Source: wire contract 11.2 to
11.4, R-JSON.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from topics.common.tuples import make_tuple
from topics.common.values.begin import Begin
from topics.config import Config
from topics.engine.bodies.long_bodies import Frames, LongBodies
from topics.engine.bodies.write_body import CUT_BYTES, WriteBody, WriteScanner
from topics.engine.json.known_keys import KnownKeys
from topics.engine.json.strict_json import FIELDS_MAX, JsonKind, TooManyError, compacted, string_value
from topics.engine.state.append_request import Identity
from topics.engine.state.idempotency import Key
from topics.engine.values.json_fields import Fields, read_object, refuse
from topics.engine.values.name_rules import check_prefix, shown
from topics.engine.values.read_filter import ReadFilter
from topics.errors import RequestError

SUBSCRIBE_LIMIT = 1000
"""Records in a frame if a subscription names no limit; contract 5.2."""


class Subscribe(NamedTuple):
    request_id: bytes
    starts: dict[str, Begin]
    prefixes: dict[str, Begin]
    filter: ReadFilter
    limit: int
    max_batch_bytes: int
    include_data: bool
    include_tags: bool
    include_meta: bool
    lenient: bool
    violation: RequestError | None
    """The limit that the command breaks, which refuses it after the scope check."""


class Unsubscribe(NamedTuple):
    request_id: bytes
    topics: list[str]
    prefixes: list[str]
    violation: RequestError | None
    """The limit that the command breaks, which refuses it."""


class Publish(NamedTuple):
    request_id: bytes
    topic: str
    body: WriteBody
    return_seqs: bool
    frames: Frames | None = None
    """The encoded frames of a long publish; None for a publish that was parsed in one step."""
    message: bytes | bytearray | memoryview = b""
    """The whole message, as another core gets it."""

    @property
    def identity(self) -> Identity | None:
        return self.body.producer if self.body.key is None else Key(self.body.key)


class Long(NamedTuple):
    """A long message that is not parsed yet: parsing takes turns with the other connections."""

    data: bytes | bytearray | memoryview


class Ping(NamedTuple):
    request_id: bytes


class Invalid(NamedTuple):
    """A message that is no command. `message` says what is wrong with it."""

    message: str


Command = Subscribe | Unsubscribe | Publish | Ping | Long | Invalid


_PUBLISH = b'"publish"'
_READ_FROM = KnownKeys.of("from_seq", "tail", **{"from": KnownKeys.of("last", "time")})
_COMMAND = KnownKeys.of("op", "request_id")
_KEYS = {
    "subscribe": _COMMAND.merged(_READ_FROM).merged(
        KnownKeys.of(
            "topic",
            "node",
            "only_node",
            "match",
            "limit",
            "max_batch_bytes",
            "include_data",
            "include_tags",
            "include_meta",
            "lenient",
            topics=KnownKeys(each=_READ_FROM),
            prefixes=KnownKeys(each=_READ_FROM),
        )
    ),
    "unsubscribe": _COMMAND.merged(KnownKeys.of("topic", "topics", "prefixes")),
    "ping": _COMMAND,
}
"""The keys of commands other than publish, whose keys the scanner of writes knows."""


def parse_command(message: bytes, scanner: WriteScanner, limits: Config, *, strict: bool = False) -> Command:
    """Parse a text message (UTF-8) into a command.

    limits: the caps on lists, which are counted before they are decoded. strict: an unknown key
    makes the message `Invalid` (R-STRICT-5).
    """
    try:
        return _parse(message, scanner, limits, strict)
    except RequestError as error:
        return Invalid(error.message)


def _parse(message: bytes, scanner: WriteScanner, limits: Config, strict: bool) -> Command:
    """Parse a text message into a command. Raises: RequestError, the message is no command."""
    publish = _usual_publish(message, scanner, limits, strict)
    if publish is not None:
        return publish
    fields = read_object(message, "the message")
    op = fields.string("op")
    span = fields.span("request_id")
    request_id = b"null" if span is None else _short(span.text, limits.ws_max_request_id_bytes)
    if op == "publish":
        topic = fields.string("topic")
        return_seqs = fields.boolean("return_seqs", True)
        try:
            body = scanner.scan(message, command=True)
        except RequestError:
            if strict:
                scanner.explain_missing(message)
            raise
        if strict:
            scanner.check_keys(message)
        if "records" not in fields:
            raise _no_records()
        return make_tuple(Publish, (request_id, topic, body, return_seqs, None, message))
    if op in ("subscribe", "unsubscribe", "ping") and not _fits(message, limits):
        raise _too_long(limits)
    if strict and op in _KEYS:
        fields.check_keys(_KEYS[op], max(FIELDS_MAX, limits.max_watch_topics))
    if op == "subscribe":
        return _subscribe(fields, request_id, limits)
    if op == "unsubscribe":
        return _unsubscribe(fields, request_id, limits)
    if op == "ping":
        return Ping(request_id)
    choices = '"subscribe", "unsubscribe", "publish" or "ping"'
    raise RequestError("invalid_request", f"op must be {choices}, not {shown(op)}")


def _usual_publish(message: bytes, scanner: WriteScanner, limits: Config, strict: bool) -> Publish | None:
    """Parse a publish by one scan.

    Return None for what `_parse` reads field by field: another command, an invalid message, and
    spellings that no client uses. Raises: RequestError, it is a publish that breaks a rule.
    """
    if _PUBLISH not in message:
        return None
    try:
        body = scanner.scan(message, command=True)
    except RequestError:
        return None  # there may be an error that comes before this one
    has_records, op, topic, request_id, return_seqs = scanner.command_fields(message)
    if op != _PUBLISH or not has_records or not topic or max(len(topic), len(request_id)) >= CUT_BYTES:
        return None
    request_id = _short(request_id, limits.ws_max_request_id_bytes) if request_id else b"null"
    if strict:
        scanner.check_keys(message)
    return make_tuple(Publish, (request_id, string_value(topic), body, return_seqs != b"false", None, message))


def parse_long(
    message: bytes | bytearray | memoryview,
    bodies: LongBodies,
    scanner: WriteScanner,
    limits: Config,
    *,
    strict: bool = False,
) -> Generator[None, None, Command]:
    """Parse a long message: a publish in turns, any other command in one step.

    A command other than a publish becomes `Invalid` if it is longer than `max_command_bytes`.
    """
    try:
        try:
            body = yield from bodies.scan(message, command=True)
            fields = bodies.command_fields(message)
            is_publish = bool(fields.op) and _text(fields.op, "op") == "publish"
        except RequestError:
            if not _fits(message, limits):
                if strict:
                    bodies.explain_missing(message)
                raise
            # An invalid publish, or another command, whose fields have other types.
            is_publish = False
        if not is_publish:
            if not _fits(message, limits):
                raise _too_long(limits)
            return parse_command(bytes(message), scanner, limits, strict=strict)
        if strict:
            bodies.check_keys(message)
        request_id = _short(fields.request_id or b"null", limits.ws_max_request_id_bytes)
        if not fields.topic:
            raise RequestError("invalid_request", "topic is missing: it is required")
        if not fields.has_records:
            raise _no_records()
        with_seqs = fields.return_seqs != b"false"
        publish = Publish(request_id, _text(fields.topic, "topic"), body, with_seqs, message=message)
        if body.violation is not None:
            return publish
        frames = yield from bodies.frames(body.rows, body.node, publish.identity)
        return publish._replace(frames=frames)
    except RequestError as error:
        return Invalid(error.message)


def _no_records() -> RequestError:
    return RequestError("invalid_request", 'records is missing: it is required, send "records": [...]')


def _fits(message: bytes | bytearray | memoryview, limits: Config) -> bool:
    """Return whether one pass may parse a command of this length that is no publish."""
    return limits.max_command_bytes == 0 or len(message) <= limits.max_command_bytes


def _too_long(limits: Config) -> RequestError:
    message = f"only a publish may have over {limits.max_command_bytes} bytes (TOPICS_MAX_COMMAND_BYTES)"
    return RequestError("invalid_request", message)


def _text(text: bytes, name: str) -> str:
    """Decode a JSON string. Raises: RequestError, the string is so long that the scanner cut it."""
    if len(text) < 2 or text[-1:] != b'"' or len(text) >= CUT_BYTES:
        raise RequestError("invalid_request", f"{name} is too long")
    return string_value(text)


def _short(request_id: bytes, most: int) -> bytes:
    """Return a `request_id` as replies echo it.

    most: its size in bytes at most, 0 = unlimited. Raises: RequestError, it is longer.
    """
    if 0 < most < len(request_id):
        raise RequestError("invalid_request", f"request_id has {len(request_id)} bytes: use at most {most}")
    return compacted(request_id)


def _subscribe(fields: Fields, request_id: bytes, limits: Config) -> Subscribe:
    starts: dict[str, Begin] = {}
    prefixes: dict[str, Begin] = {}
    read_filter = ReadFilter()
    violation: RequestError | None = None
    names_max = limits.max_watch_topics
    topic = fields.nullable_string("topic")
    start = fields.subscription_begin(limits)
    if topic is not None:
        starts[topic] = start
    span = fields.span("topics")
    if span is not None:
        if span.kind != JsonKind.OBJECT:
            raise refuse("topics", "an object of topic names", span)
        try:
            starts.update(_starts(span.text, "topics", names_max, limits))
        except TooManyError:
            violation = too_many_names(names_max)
    span = fields.span("prefixes")
    if span is not None:
        if span.kind != JsonKind.OBJECT:
            raise refuse("prefixes", "an object of prefixes of names", span)
        try:
            prefixes = _starts(span.text, "prefixes", limits.max_prefixes, limits)
            for prefix in prefixes:
                check_prefix("prefixes", prefix)
        except TooManyError:
            violation = violation or too_many_prefixes(limits.max_prefixes)
    if len(starts) > names_max:
        violation = too_many_names(names_max)
    try:
        read_filter = ReadFilter.of(fields, limits)
    except TooManyError as error:
        violation = violation or RequestError(error.code, error.message)
    return Subscribe(
        request_id,
        starts,
        prefixes,
        filter=read_filter,
        limit=fields.u32("limit", SUBSCRIBE_LIMIT),
        max_batch_bytes=fields.u64("max_batch_bytes", 0),
        include_data=fields.boolean("include_data", True),
        include_tags=fields.boolean("include_tags", False),
        include_meta=fields.boolean("include_meta", True),
        lenient=fields.boolean("lenient", False),
        violation=violation,
    )


def _starts(text: bytes, field: str, most: int, limits: Config) -> dict[str, Begin]:
    """Parse the object `topics` or `prefixes` into the beginning of each topic or prefix.

    Raises: RequestError, an entry is invalid. TooManyError, raised before any name is decoded.
    """
    starts: dict[str, Begin] = {}
    topics = read_object(text, field, f"{field}.", most)
    for name in topics.names():
        entry = topics.span(name)
        assert entry is not None, "a name of the object without a value"
        if entry.kind != JsonKind.OBJECT:
            raise refuse(f"{field}.{name}", "an object", entry)
        try:
            starts[name] = read_object(entry.text, f"{field}.{name}", f"{field}.{name}.").subscription_begin(limits)
        except TooManyError as error:
            raise RequestError(error.code, error.message) from None
    return starts


def _unsubscribe(fields: Fields, request_id: bytes, limits: Config) -> Unsubscribe:
    """Parse an unsubscribe: the names in `topics`, then the name in `topic`; and `prefixes`."""
    names_max, violation = limits.max_watch_topics, None
    names, count = fields.string_array("topics", names_max)
    if "topic" in fields:
        names.append(fields.string("topic"))
        count += 1
    if count > names_max:
        violation = too_many_names(names_max)
    prefixes, count = fields.string_array("prefixes", limits.max_prefixes)
    if count > limits.max_prefixes:
        violation = violation or too_many_prefixes(limits.max_prefixes)
    return Unsubscribe(request_id, names, prefixes, violation)


def too_many_names(most: int) -> RequestError:
    """Build the refusal of a command that names more than `most` topics."""
    message = f"topic and topics have too many names: at most {most} are allowed in one command"
    return RequestError("invalid_request", message)


def too_many_prefixes(most: int) -> RequestError:
    """Build the refusal of a command with more than `most` prefixes."""
    message = f"prefixes has too many members: at most {most} are allowed in one command"
    return RequestError("invalid_request", message)
